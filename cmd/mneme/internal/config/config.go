// Package config reads mneme's configuration: built-in defaults, under one YAML
// file, under MNEME_… environment variables. It is strict: what it does not
// understand it refuses, with a sentence that names the place and the fix.
// docs/configuration.md lists every key; a test keeps that list true.
package config

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"mneme/memory"
	"mneme/proxy/sanitize"
	"mneme/subagent/panel"
	"mneme/webmemory/openaiapi"
)

// Config is the whole configuration, complete and checked as Load returns it.
type Config struct {
	DataDir string `yaml:"data_dir" default:"./data" check:"required"`
	// a run that takes longer fails
	RunTimeout time.Duration `yaml:"run_timeout" default:"10m" check:"positive"`
	// a stop waits so long for running answers
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"10s" check:"positive"`
	SessionLogs  bool          `yaml:"session_logs" default:"true"`
	Log          Log           `yaml:"log"`
	Otel         Otel          `yaml:"otel"`
	HTTP         HTTP          `yaml:"http"`
	TLS          TLS           `yaml:"tls"`
	Auth         Auth          `yaml:"auth"`
	Redis        Redis         `yaml:"redis"`
	Cold         Cold          `yaml:"cold"`
	Webmemory    Webmemory     `yaml:"webmemory"`
	Apiserver    Apiserver     `yaml:"apiserver"`
	Proxy        Proxy         `yaml:"proxy"`
	Retrieval    Retrieval     `yaml:"retrieval"`
	Recall       Recall        `yaml:"recall"`
	Notes        Notes         `yaml:"notes"`
	Agents       Agents        `yaml:"agents"`
	Panel        Panel         `yaml:"panel"`
	// servers of the Model Context Protocol, by name
	MCP map[string]MCPServer `yaml:"mcp" check:"keys=server"`
	// REST calls and tools of servers that one agent is shown
	MaxTools  int                `yaml:"max_tools" default:"40" check:"positive"`
	Approvals Approvals          `yaml:"approvals"`
	OpenAI    openaiapi.Settings `yaml:"openai"`
	Limits    Limits             `yaml:"limits"`
	Budgets   Budgets            `yaml:"budgets"`
	Usage     Usage              `yaml:"usage"`
	// of models by their vendors' names, over the built-in ones
	Prices map[string]Price `yaml:"prices"`

	origin origin // where the values came from, for error messages
}

// Log says what the services log to standard error.
type Log struct {
	Level  string `yaml:"level" default:"info" check:"oneof=debug info warn error"`
	Format string `yaml:"format" default:"auto" check:"oneof=auto console json"`
	// which requests have a line: none, those that fail, each one
	Requests string `yaml:"requests" default:"errors" check:"oneof=off errors all"`
	// the services' lines go there as well, as JSON; empty for nowhere else
	File string `yaml:"file"`
}

// Otel is about traces. Where they are sent the standard variables say, see package tracing.
type Otel struct {
	// they have messages, answers, and arguments and results of tools, too
	Content bool `yaml:"content"`
}

// HTTP is what all three services take: which names and web pages beside the safe
// ones, see package crossorigin, and how slow a body.
type HTTP struct {
	AllowedHosts   []string `yaml:"allowed_hosts" check:"dive,host"`     // names in the Host header, without port
	AllowedOrigins []string `yaml:"allowed_origins" check:"dive,origin"` // pages that may call, scheme://host[:port]
	// BodyTimeout is how long a request's body is waited for, beside the time that
	// its bytes take.
	BodyTimeout time.Duration `yaml:"body_timeout" default:"30s" check:"positive"`
}

// Values of Auth.Mode.
const (
	AuthKeys = "keys" // each request needs a key
	AuthNone = "none" // no key is asked for, wherever the services listen
)

// Auth is how callers are authenticated. Without a mode no key is asked for, and the services listen on loopback
// only.
type Auth struct {
	Mode     string `yaml:"mode" check:"omitempty,oneof=keys none"` // AuthKeys or AuthNone
	KeysFile string `yaml:"keys_file"`                              // keys beside those of the store, see access.File
	// by which the services know each other; made where it is missing; empty: internal_secret in Config.DataDir
	InternalSecretFile string `yaml:"internal_secret_file"`
	InternalSecret     Secret `yaml:"-"` // takes the file's place; see SecretVar
}

// SecretVar is the variable that may hold the internal secret.
const SecretVar = "MNEME_INTERNAL_SECRET"

// SecretFile is where the internal secret is, if no variable holds it.
func (c Config) SecretFile() string {
	return cmp.Or(c.Auth.InternalSecretFile, filepath.Join(c.DataDir, "internal_secret"))
}

// Redis says where histories are stored. With neither URL nor Addrs it is the
// embedded store in Config.DataDir.
type Redis struct {
	URL string `yaml:"url"` // redis://, rediss:// or unix://
	// read-only listener of the embedded store, empty for none
	EmbeddedListen string   `yaml:"embedded_listen" default:"127.0.0.1:6380" check:"omitempty,address"`
	Addrs          []string `yaml:"addrs" check:"dive,address"` // Cluster's or Sentinel's nodes, host:port
	MasterName     string   `yaml:"master_name"`                // set for Sentinel
	Username       string   `yaml:"username"`
	PasswordEnv    Variable `yaml:"password_env"` // names the variable that holds the password
	TLS            RedisTLS `yaml:"tls"`
	// replicas that must have an append before it counts
	WaitReplicas int `yaml:"wait_replicas" check:"min=0"`
	// keys over which a tenant's list of chats is spread, the same in all processes
	ListShards int `yaml:"list_shards" default:"1" check:"range=1..16384"`
}

// RedisTLS names files in PEM for connections to Redis. With any of them, redis.addrs are reached by TLS.
type RedisTLS struct {
	CA   string `yaml:"ca"`   // certificates that sign Redis's, instead of the system's
	Cert string `yaml:"cert"` // mneme's client certificate
	Key  string `yaml:"key"`
}

// Embedded says whether the store inside the process is used.
func (r Redis) Embedded() bool { return r.URL == "" && len(r.Addrs) == 0 }

// Webmemory is the public service.
type Webmemory struct {
	Listen    string `yaml:"listen" default:"127.0.0.1:8080" check:"address"`
	Apiserver string `yaml:"apiserver" default:"http://127.0.0.1:8081" check:"url"` // base URL
	// base URL of this very process for other webmemories; empty: its own address
	Advertise string `yaml:"advertise" check:"omitempty,url"`
	// messages kept per history, 0 for all
	MaxHistory int     `yaml:"max_history" default:"100" check:"min=0"`
	Archive    Archive `yaml:"archive"`
	// messages of the chat that the master sees
	ContextWindow int `yaml:"context_window" default:"10" check:"positive"`
	// messages of its own that a subagent sees
	SubagentContextWindow int `yaml:"subagent_context_window" default:"50" check:"positive"`
	// chats with work in hand at one time
	MaxChats      int   `yaml:"max_chats" default:"10000" check:"positive"`
	CacheBytes    int64 `yaml:"cache_bytes" default:"268435456" check:"positive"`
	FinishedBytes int64 `yaml:"finished_bytes" default:"67108864" check:"positive"` // of memory for finished runs
	Queue         Queue `yaml:"queue"`
}

// Archive is where messages go that max_history cuts off.
type Archive struct {
	Enabled     bool          `yaml:"enabled" default:"true"`
	MaxMessages int           `yaml:"max_messages" check:"min=0"` // of a history; 0 for no end
	MaxAge      time.Duration `yaml:"max_age" check:"min=0"`      // 0 for no end
}

// Queue bounds what waits for a chat's turn.
type Queue struct {
	Limit int           `yaml:"limit" default:"16" check:"positive"` // messages per chat
	Wait  time.Duration `yaml:"wait" default:"30s" check:"positive"` // of each
}

// Apiserver is the service that runs the agents.
type Apiserver struct {
	Listen string `yaml:"listen" default:"127.0.0.1:8081" check:"address"`
	Proxy  string `yaml:"proxy" default:"http://127.0.0.1:8082" check:"url"` // base URL
	// base URL of this very process for webmemory; empty: where a request arrived
	Advertise string `yaml:"advertise" check:"omitempty,url"`
	MaxRuns   int    `yaml:"max_runs" default:"256" check:"positive"` // runs at one time
}

// Proxy is the gateway to the models.
type Proxy struct {
	Listen string `yaml:"listen" default:"127.0.0.1:8082" check:"address"`
	// backend or route of the main pipeline
	Active string `yaml:"active"`
	// backend or route of /teammate
	TeammateBackend string `yaml:"teammate_backend"`
	// subagent → backend or route
	Teammates         map[string]string  `yaml:"teammates" check:"keys=subagent"`
	Backends          map[string]Backend `yaml:"backends"`                                  // by name
	Routes            map[string]Route   `yaml:"routes"`                                    // by name
	EmbeddingsBackend string             `yaml:"embeddings_backend"`                        // empty for none
	MaxCalls          int                `yaml:"max_calls" default:"4096" check:"positive"` // of models, at one time
	// limit of a stream of a vendor that delivers events
	StreamTimeout time.Duration `yaml:"stream_timeout" default:"6h" check:"positive"`
	// base URL of this very process for a Copilot CLI; empty: from the listener
	Advertise string `yaml:"advertise" check:"omitempty,url"`
	// server-side conversations
	StateMachine StateMachine `yaml:"state_machine"`
	// of agents that are not mneme's
	Memory AgentMemory `yaml:"memory"`
}

// AgentMemory is what the gateway has webmemory remember of agents that are not mneme's.
type AgentMemory struct {
	// base URL of webmemory; empty: no memory, in mneme up its own
	URL string `yaml:"url" check:"omitempty,url"`
	// also of keys whose requests have no X-AG-Memory
	Keys bool `yaml:"keys"`
	// of a call for what is recalled
	Wait time.Duration `yaml:"wait" default:"150ms" check:"positive"`
}

// Route is backends of which one answers: the first, or when that fails the next one.
type Route struct {
	Use []string `yaml:"use"` // backends, the first choice first
	// of a backend of Use: the variables of the keys among which its calls are spread
	Keys map[string][]Variable `yaml:"keys"`
}

// Kinds of a backend.
const (
	KindAnthropic = "anthropic"
	KindOpenAI    = "openai"
	KindResponses = "responses"
	KindOffline   = "offline"
	KindCopilot   = "copilot"

	KindInteractions = "interactions"
)

// Backend is one vendor or model server behind the proxy.
type Backend struct {
	Kind string `yaml:"kind" check:"oneof=anthropic openai responses interactions copilot offline"`
	// picks the profile of rules; empty: it is found out
	Vendor string `yaml:"vendor"`
	// anthropic: without /v1, openai: with it
	BaseURL string `yaml:"base_url"`
	// key, passthrough or none; empty: key if there is one
	Auth string `yaml:"auth" check:"omitempty,oneof=key passthrough none"`
	// names the variable that holds the key
	APIKeyEnv Variable          `yaml:"api_key_env"`
	ModelMap  map[string]string `yaml:"model_map"`                 // our model name → the vendor's
	Models    []string          `yaml:"models" check:"dive,model"` // that clients are shown
	Thinking  Thinking          `yaml:"thinking"`
	Profile   *Profile          `yaml:"profile"` // what the vendor's rules say otherwise
	// of a server of one's own: it is told the ids of run and delegation
	PassRun bool `yaml:"pass_run"`
	// Of kind copilot: Addr or Command.
	Addr            string   `yaml:"addr" check:"omitempty,address"` // host:port of a Copilot CLI that runs
	Command         []string `yaml:"command" check:"dive,word"`      // runs one: the program, then its arguments
	ProviderBackend string   `yaml:"provider_backend"`               // answers the CLI's own model calls
	// NAME=value, what Command gets of this process's environment
	CommandEnv []string `yaml:"-"`
}

// Profile are rules of a vendor in place of the built-in ones.
type Profile struct {
	sanitize.Overrides
}

// UnmarshalYAML reads the rules.
func (p *Profile) UnmarshalYAML(decode func(any) error) error {
	p.Overrides = sanitize.Overrides{}
	return decode(&p.Overrides)
}

// MarshalYAML writes the rules that are there.
func (p Profile) MarshalYAML() ([]byte, error) {
	return yaml.MarshalWithOptions(p.Overrides, yaml.OmitZero())
}

// Thinking bounds a backend's thinking.
type Thinking struct {
	// upper bound; 0: the request decides
	BudgetTokens int    `yaml:"budget_tokens" check:"min=0"`
	Unproven     string `yaml:"unproven" check:"omitempty,oneof=lazy text drop"` // empty: lazy
}

// StateMachine bounds the gateway's server-side conversations.
type StateMachine struct {
	Enabled  bool          `yaml:"enabled" default:"true"`
	TTL      time.Duration `yaml:"ttl" default:"24h" check:"positive"` // since the last request
	MaxTurns int           `yaml:"max_turns" default:"200" check:"positive"`
	Wait     time.Duration `yaml:"wait" default:"50ms" check:"positive"` // of a call for Redis, before and after
}

// Retrieval is how documents are searched.
type Retrieval struct {
	Embeddings Embeddings `yaml:"embeddings"`
	Fusion     string     `yaml:"fusion" default:"wsum" check:"oneof=wsum rrf"` // see rag.Fusion
	// what vectors weigh in a fusion, of 1
	VectorWeight float64 `yaml:"vector_weight" default:"0.5"`
	Rerank       Rerank  `yaml:"rerank"`
	Engine       Engine  `yaml:"engine"`
	// Extractors read the files of an extension, such as .pdf, in place of what is built in.
	Extractors map[string]Extractor `yaml:"extractors" check:"keys=extension"`
}

// Embeddings are the vectors that make a search hybrid; Proxy.EmbeddingsBackend
// gives them.
type Embeddings struct {
	// as the backend names it; empty: search by words alone
	Model      string `yaml:"model"`
	Dimensions int    `yaml:"dimensions" check:"min=0"`                 // 0: the model's own
	BatchSize  int    `yaml:"batch_size" default:"32" check:"positive"` // texts in one request
}

// Agents are the master and its subagents.
type Agents struct {
	// bytes of an answer's JSON; a longer answer is cut
	MaxAnswer int        `yaml:"max_answer" default:"4194304" check:"range=1024..8388608"`
	Master    Master     `yaml:"master"`
	Subagents []Subagent `yaml:"subagents" check:"unique"`
}

// Master answers the user.
type Master struct {
	Model string `yaml:"model" default:"master" check:"required"`
	// auto, a level, or none; empty is none
	ReasoningEffort string `yaml:"reasoning_effort" default:"auto" check:"omitempty,effort"`
	// added to the built-in prompt
	System string `yaml:"system"`
	// takes the built-in prompt's place
	SystemReplace string `yaml:"system_replace"`
	// model calls in one run
	MaxSteps int `yaml:"max_steps" default:"12" check:"positive"`
	// beside its subagents
	Tools []*ToolEntry `yaml:"tools,omitempty"`
	// of the model's context window; 0: as the gateway tells it
	ContextTokens int            `yaml:"context_tokens" check:"omitempty,min=1024"`
	Recall        RecallOverride `yaml:"recall,omitempty"`
	Notes         NotesOverride  `yaml:"notes,omitempty"`
}

// Prompt is the whole system prompt.
func (m Master) Prompt() string {
	switch {
	case m.SystemReplace != "":
		return m.SystemReplace
	case m.System != "":
		return masterSystem + "\n\n" + m.System
	}
	return masterSystem
}

// Subagent is one subagent of the master.
type Subagent struct {
	Name        string       `yaml:"name" check:"subagent"`
	Description string       `yaml:"description"` // tells the master what to delegate here
	System      string       `yaml:"system"`
	Model       string       `yaml:"model"`
	Tools       []*ToolEntry `yaml:"tools"`
	// what ToolDocuments searches, beside the chat's own documents
	Collections []*Collection `yaml:"collections"`
	Calls       string        `yaml:"calls" check:"oneof=serial isolated"`  // see event.Delegation
	MaxSteps    int           `yaml:"max_steps" check:"omitempty,positive"` // model calls for one task

	// as of the master; empty: not sent
	ReasoningEffort string   `yaml:"reasoning_effort,omitempty" check:"omitempty,effort"`
	Temperature     *float64 `yaml:"temperature,omitempty" check:"range=0..2"` // nil: not sent
	MaxTokens       int      `yaml:"max_tokens,omitempty" check:"min=0"`       // of one answer; 0: not sent

	// of the model's context window; 0: as the gateway tells it
	ContextTokens int            `yaml:"context_tokens" check:"omitempty,min=1024"`
	Recall        RecallOverride `yaml:"recall,omitempty"`
	Notes         NotesOverride  `yaml:"notes,omitempty"`
}

// Panel are the models of discussions and ensembles. Without members there is none.
type Panel struct {
	Members   []Member `yaml:"members" check:"unique"`
	Moderator Member   `yaml:"moderator"`                          // of discussions; empty: the first member
	Limit     int      `yaml:"limit" default:"8" check:"positive"` // calls at once in one apiserver
	// of one model's answer, review, plan or vote
	Timeout time.Duration `yaml:"timeout" default:"2m" check:"positive"`
	// a user's "/discuss …" and "/ensemble …" call it
	Commands bool `yaml:"commands"`
}

// On says whether there is a panel.
func (p Panel) On() bool { return len(p.Members) > 0 }

// Member is one model of the panel.
type Member struct {
	Name  string `yaml:"name" check:"omitempty,member"` // it is reached at /teammate/<name>
	Model string `yaml:"model"`
}

// AgentNames are the names of all subagents, the panel's two last.
func (c Config) AgentNames() []memory.Agent {
	var names []memory.Agent
	for _, s := range c.Agents.Subagents {
		names = append(names, memory.Agent(s.Name))
	}
	if c.Panel.On() {
		names = append(names, panel.DiscussName, panel.EnsembleName)
	}
	return names
}
