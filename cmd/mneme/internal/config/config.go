// Package config reads mneme's configuration: built-in defaults, under one YAML
// file, under MNEME_… environment variables. It is strict: what it does not
// understand it refuses, with a sentence that names the place and the fix.
// docs/configuration.md lists every key; a test keeps that list true.
package config

import (
	"cmp"
	"net/url"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"mneme/memory"
	"mneme/proxy/sanitize"
	"mneme/subagent/panel"
)

// Config is the whole configuration, complete and checked as Load returns it.
type Config struct {
	DataDir     string               `yaml:"data_dir" env:"DATA_DIR"`
	RunTimeout  time.Duration        `yaml:"run_timeout" env:"RUN_TIMEOUT"` // a run that takes longer fails
	SessionLogs bool                 `yaml:"session_logs" env:"SESSION_LOGS"`
	Log         Log                  `yaml:"log" envPrefix:"LOG_"`
	HTTP        HTTP                 `yaml:"http" envPrefix:"HTTP_"`
	TLS         TLS                  `yaml:"tls" envPrefix:"TLS_"`
	Auth        Auth                 `yaml:"auth" envPrefix:"AUTH_"`
	Redis       Redis                `yaml:"redis" envPrefix:"REDIS_"`
	Webmemory   Webmemory            `yaml:"webmemory" envPrefix:"WEBMEMORY_"`
	Apiserver   Apiserver            `yaml:"apiserver" envPrefix:"APISERVER_"`
	Proxy       Proxy                `yaml:"proxy" envPrefix:"PROXY_"`
	Retrieval   Retrieval            `yaml:"retrieval" envPrefix:"RETRIEVAL_"`
	Recall      Recall               `yaml:"recall" envPrefix:"RECALL_"`
	Notes       Notes                `yaml:"notes" envPrefix:"NOTES_"`
	Agents      Agents               `yaml:"agents" envPrefix:"AGENTS_"`
	Panel       Panel                `yaml:"panel" envPrefix:"PANEL_"`
	MCP         map[string]MCPServer `yaml:"mcp" env:"-"`               // servers of the Model Context Protocol, by name
	MaxTools    int                  `yaml:"max_tools" env:"MAX_TOOLS"` // REST calls and tools of servers that one agent is shown
	Approvals   Approvals            `yaml:"approvals" envPrefix:"APPROVALS_"`
	OpenAI      OpenAI               `yaml:"openai" envPrefix:"OPENAI_"`
	Limits      Limits               `yaml:"limits" envPrefix:"LIMITS_"`
	Budgets     Budgets              `yaml:"budgets" envPrefix:"BUDGETS_"`
	Usage       Usage                `yaml:"usage" envPrefix:"USAGE_"`
	Prices      map[string]Price     `yaml:"prices" env:"-"` // of models by their vendors' names, over the built-in ones

	origin origin // where the values came from, for error messages
}

// Log says what the services log to standard error.
type Log struct {
	Level  string `yaml:"level" env:"LEVEL"`   // debug, info, warn or error
	Format string `yaml:"format" env:"FORMAT"` // auto, console or json
	File   string `yaml:"file" env:"FILE"`     // the services' lines go there as well, as JSON; empty for nowhere else
}

// HTTP is what all three services take: which names and web pages beside the safe
// ones, see package crossorigin, and how slow a body.
type HTTP struct {
	AllowedHosts   []string `yaml:"allowed_hosts" env:"ALLOWED_HOSTS"`     // names in the Host header, without port
	AllowedOrigins []string `yaml:"allowed_origins" env:"ALLOWED_ORIGINS"` // pages that may call, scheme://host[:port]
	// BodyTimeout is how long a request's body is waited for, beside the time that
	// its bytes take.
	BodyTimeout time.Duration `yaml:"body_timeout" env:"BODY_TIMEOUT"`
}

// Values of Auth.Mode.
const (
	AuthKeys = "keys" // each request needs a key
	AuthNone = "none" // no key is asked for, wherever the services listen
)

// Auth is how callers are authenticated. Without a mode no key is asked for, and the services listen on loopback
// only.
type Auth struct {
	Mode     string `yaml:"mode" env:"MODE"`           // AuthKeys or AuthNone
	KeysFile string `yaml:"keys_file" env:"KEYS_FILE"` // keys beside those of the store, see access.File
	// by which the services know each other; made where it is missing; empty: internal_secret in Config.DataDir
	InternalSecretFile string `yaml:"internal_secret_file" env:"INTERNAL_SECRET_FILE"`
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
	URL string `yaml:"url" env:"URL"` // redis://, rediss:// or unix://
	// read-only listener of the embedded store, empty for none
	EmbeddedListen string   `yaml:"embedded_listen" env:"EMBEDDED_LISTEN"`
	Addrs          []string `yaml:"addrs" env:"ADDRS"`             // Cluster's or Sentinel's nodes, host:port
	MasterName     string   `yaml:"master_name" env:"MASTER_NAME"` // set for Sentinel
	Username       string   `yaml:"username" env:"USERNAME"`
	PasswordEnv    string   `yaml:"password_env" env:"PASSWORD_ENV"` // names the variable that holds the password
	// replicas that must have an append before it counts
	WaitReplicas int    `yaml:"wait_replicas" env:"WAIT_REPLICAS"`
	Password     Secret `yaml:"-"` // what that variable holds
}

// Embedded says whether the store inside the process is used.
func (r Redis) Embedded() bool { return r.URL == "" && len(r.Addrs) == 0 }

// Webmemory is the public service.
type Webmemory struct {
	Listen    string `yaml:"listen" env:"LISTEN"`
	Apiserver string `yaml:"apiserver" env:"APISERVER"` // base URL
	// base URL of this very process for other webmemories; empty: its own address
	Advertise string `yaml:"advertise" env:"ADVERTISE"`
	// messages kept per history, 0 for all
	MaxHistory int     `yaml:"max_history" env:"MAX_HISTORY"`
	Archive    Archive `yaml:"archive" envPrefix:"ARCHIVE_"`
	// messages of the chat that the master sees
	ContextWindow int `yaml:"context_window" env:"CONTEXT_WINDOW"`
	// messages of its own that a subagent sees
	SubagentContextWindow int `yaml:"subagent_context_window" env:"SUBAGENT_CONTEXT_WINDOW"`
	// chats with work in hand at one time
	MaxChats      int   `yaml:"max_chats" env:"MAX_CHATS"`
	CacheBytes    int64 `yaml:"cache_bytes" env:"CACHE_BYTES"`
	FinishedBytes int64 `yaml:"finished_bytes" env:"FINISHED_BYTES"` // of memory for finished runs
	Queue         Queue `yaml:"queue" envPrefix:"QUEUE_"`
}

// Archive is where messages go that max_history cuts off.
type Archive struct {
	Enabled     bool          `yaml:"enabled" env:"ENABLED"`
	MaxMessages int           `yaml:"max_messages" env:"MAX_MESSAGES"` // of a history; 0 for no end
	MaxAge      time.Duration `yaml:"max_age" env:"MAX_AGE"`           // 0 for no end
}

// Queue bounds what waits for a chat's turn.
type Queue struct {
	Limit int           `yaml:"limit" env:"LIMIT"` // messages per chat
	Wait  time.Duration `yaml:"wait" env:"WAIT"`   // of each
}

// Apiserver is the service that runs the agents.
type Apiserver struct {
	Listen string `yaml:"listen" env:"LISTEN"`
	Proxy  string `yaml:"proxy" env:"PROXY"` // base URL
	// base URL of this very process for webmemory; empty: where a request arrived
	Advertise string `yaml:"advertise" env:"ADVERTISE"`
	MaxRuns   int    `yaml:"max_runs" env:"MAX_RUNS"` // runs at one time
}

// Proxy is the gateway to the models.
type Proxy struct {
	Listen string `yaml:"listen" env:"LISTEN"`
	// backend or route of the main pipeline
	Active            string             `yaml:"active" env:"ACTIVE"`
	TeammateBackend   string             `yaml:"teammate_backend" env:"TEAMMATE_BACKEND"`          // backend or route of /teammate
	Teammates         map[string]string  `yaml:"teammates" env:"TEAMMATES" envKeyValSeparator:"="` // subagent → backend or route
	Backends          map[string]Backend `yaml:"backends" env:"-"`                                 // by name
	Routes            map[string]Route   `yaml:"routes" env:"-"`                                   // by name
	EmbeddingsBackend string             `yaml:"embeddings_backend" env:"EMBEDDINGS_BACKEND"`      // empty for none
	MaxCalls          int                `yaml:"max_calls" env:"MAX_CALLS"`                        // of models, at one time
	// base URL of this very process for a Copilot CLI; empty: from the listener
	Advertise string `yaml:"advertise" env:"ADVERTISE"`
	// server-side conversations
	StateMachine StateMachine `yaml:"state_machine" envPrefix:"STATE_MACHINE_"`
}

// Route is backends of which one answers: the first, or when that fails the next one.
type Route struct {
	Use []string `yaml:"use" env:"USE"` // backends, the first choice first
	// of a backend of Use: the variables that hold the keys among which its calls are spread
	Keys RouteKeys `yaml:"keys" env:"KEYS"`
	// what the variables of Keys hold, by their names
	Values map[string]Secret `yaml:"-" env:"-"`
}

// RouteKeys are names of variables, by backend. In the environment it is one YAML value.
type RouteKeys map[string][]string

// UnmarshalYAML reads the value in a file.
func (k *RouteKeys) UnmarshalYAML(decode func(any) error) error {
	return decode((*map[string][]string)(k))
}

// UnmarshalText reads the value of a variable.
func (k *RouteKeys) UnmarshalText(text []byte) error {
	return yaml.UnmarshalWithOptions(text, (*map[string][]string)(k), yaml.Strict())
}

// Kinds of a backend.
const (
	KindAnthropic = "anthropic"
	KindOpenAI    = "openai"
	KindResponses = "responses"
	KindOffline   = "offline"
	KindCopilot   = "copilot"
)

// Backend is one vendor or model server behind the proxy.
type Backend struct {
	Kind string `yaml:"kind" env:"KIND"`
	// picks the profile of rules; empty: it is found out
	Vendor string `yaml:"vendor" env:"VENDOR"`
	// anthropic: without /v1, openai: with it
	BaseURL string `yaml:"base_url" env:"BASE_URL"`
	// key, passthrough or none; empty: key if there is one
	Auth string `yaml:"auth" env:"AUTH"`
	// names the variable that holds the key
	APIKeyEnv string            `yaml:"api_key_env" env:"API_KEY_ENV"`
	ModelMap  map[string]string `yaml:"model_map" env:"MODEL_MAP" envKeyValSeparator:"="` // our model name → the vendor's
	Models    []string          `yaml:"models" env:"MODELS"`                              // that clients are shown
	Thinking  Thinking          `yaml:"thinking" envPrefix:"THINKING_"`
	Profile   *Profile          `yaml:"profile" env:"PROFILE"` // what the vendor's rules say otherwise
	// of a server of one's own: it is told the ids of run and delegation
	PassRun bool `yaml:"pass_run" env:"PASS_RUN"`
	// Of kind copilot: Addr or Command.
	Addr            string   `yaml:"addr" env:"ADDR"`                         // host:port of a Copilot CLI that runs
	Command         []string `yaml:"command" env:"COMMAND"`                   // runs one: the program, then its arguments
	ProviderBackend string   `yaml:"provider_backend" env:"PROVIDER_BACKEND"` // answers the CLI's own model calls
	APIKey          Secret   `yaml:"-"`                                       // what the variable of APIKeyEnv holds
	// NAME=value, what Command gets of this process's environment
	CommandEnv []string `yaml:"-"`
}

// Profile are rules of a vendor in place of the built-in ones. In the environment
// it is one YAML value.
type Profile struct {
	sanitize.Overrides
}

// UnmarshalYAML reads the value in a file.
func (p *Profile) UnmarshalYAML(decode func(any) error) error {
	p.Overrides = sanitize.Overrides{}
	return decode(&p.Overrides)
}

// UnmarshalText reads the value of a variable.
func (p *Profile) UnmarshalText(text []byte) error {
	p.Overrides = sanitize.Overrides{}
	return yaml.UnmarshalWithOptions(text, &p.Overrides, yaml.Strict())
}

// MarshalYAML writes the rules that are there.
func (p Profile) MarshalYAML() ([]byte, error) {
	return yaml.MarshalWithOptions(p.Overrides, yaml.OmitZero())
}

// Thinking bounds a backend's thinking.
type Thinking struct {
	BudgetTokens int    `yaml:"budget_tokens" env:"BUDGET_TOKENS"` // upper bound; 0: the request decides
	Unproven     string `yaml:"unproven" env:"UNPROVEN"`           // lazy, text or drop; empty: lazy
}

// StateMachine bounds the gateway's server-side conversations.
type StateMachine struct {
	Enabled  bool          `yaml:"enabled" env:"ENABLED"`
	TTL      time.Duration `yaml:"ttl" env:"TTL"` // since the last request
	MaxTurns int           `yaml:"max_turns" env:"MAX_TURNS"`
	Wait     time.Duration `yaml:"wait" env:"WAIT"` // of a call for Redis, before and after
}

// Retrieval is how documents are searched.
type Retrieval struct {
	Embeddings   Embeddings `yaml:"embeddings" envPrefix:"EMBEDDINGS_"`
	Fusion       string     `yaml:"fusion" env:"FUSION"`               // wsum or rrf, see rag.Fusion
	VectorWeight float64    `yaml:"vector_weight" env:"VECTOR_WEIGHT"` // what vectors weigh in a fusion, of 1
	Rerank       Rerank     `yaml:"rerank" envPrefix:"RERANK_"`
	// Extractors read the files of an extension, such as .pdf, in place of what is built in.
	Extractors map[string]Extractor `yaml:"extractors" env:"-"`
}

// Embeddings are the vectors that make a search hybrid; Proxy.EmbeddingsBackend
// gives them.
type Embeddings struct {
	Model      string `yaml:"model" env:"MODEL"`           // as the backend names it; empty: search by words alone
	Dimensions int    `yaml:"dimensions" env:"DIMENSIONS"` // 0: the model's own
	BatchSize  int    `yaml:"batch_size" env:"BATCH_SIZE"` // texts in one request
}

// Agents are the master and its subagents.
type Agents struct {
	Master    Master     `yaml:"master" envPrefix:"MASTER_"`
	Subagents []Subagent `yaml:"subagents" env:"-"`
}

// Master answers the user.
type Master struct {
	Model           string       `yaml:"model" env:"MODEL"`
	ReasoningEffort string       `yaml:"reasoning_effort" env:"REASONING_EFFORT"` // auto, a level, or none; empty is none
	System          string       `yaml:"system" env:"SYSTEM"`                     // added to the built-in prompt
	SystemReplace   string       `yaml:"system_replace" env:"SYSTEM_REPLACE"`     // takes the built-in prompt's place
	MaxSteps        int          `yaml:"max_steps" env:"MAX_STEPS"`               // model calls in one run
	Tools           []*ToolEntry `yaml:"tools,omitempty" env:"TOOLS"`             // beside its subagents
	// of the model's context window; 0: as the gateway tells it
	ContextTokens int            `yaml:"context_tokens" env:"CONTEXT_TOKENS"`
	Recall        RecallOverride `yaml:"recall,omitempty" envPrefix:"RECALL_"`
	Notes         NotesOverride  `yaml:"notes,omitempty" envPrefix:"NOTES_"`
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
	Name        string       `yaml:"name" env:"NAME"`
	Description string       `yaml:"description" env:"DESCRIPTION"` // tells the master what to delegate here
	System      string       `yaml:"system" env:"SYSTEM"`
	Model       string       `yaml:"model" env:"MODEL"`
	Tools       []*ToolEntry `yaml:"tools" env:"TOOLS"`
	// what ToolDocuments searches, beside the chat's own documents
	Collections []*Collection `yaml:"collections" env:"COLLECTIONS"`
	Calls       string        `yaml:"calls" env:"CALLS"`         // serial or isolated, see event.Delegation
	MaxSteps    int           `yaml:"max_steps" env:"MAX_STEPS"` // model calls for one task

	// as of the master; empty: not sent
	ReasoningEffort string   `yaml:"reasoning_effort,omitempty" env:"REASONING_EFFORT"`
	Temperature     *float64 `yaml:"temperature,omitempty" env:"TEMPERATURE"` // nil: not sent
	MaxTokens       int      `yaml:"max_tokens,omitempty" env:"MAX_TOKENS"`   // of one answer; 0: not sent

	// of the model's context window; 0: as the gateway tells it
	ContextTokens int            `yaml:"context_tokens" env:"CONTEXT_TOKENS"`
	Recall        RecallOverride `yaml:"recall,omitempty" envPrefix:"RECALL_"`
	Notes         NotesOverride  `yaml:"notes,omitempty" envPrefix:"NOTES_"`
}

// Panel are the models of discussions and ensembles. Without members there is none.
type Panel struct {
	Members   []Member      `yaml:"members" env:"-"`
	Moderator Member        `yaml:"moderator" envPrefix:"MODERATOR_"` // of discussions; empty: the first member
	Limit     int           `yaml:"limit" env:"LIMIT"`                // calls at once in one apiserver
	Timeout   time.Duration `yaml:"timeout" env:"TIMEOUT"`            // of one model's answer, review, plan or vote
	Commands  bool          `yaml:"commands" env:"COMMANDS"`          // a user's "/discuss …" and "/ensemble …" call it
}

// On says whether there is a panel.
func (p Panel) On() bool { return len(p.Members) > 0 }

// Member is one model of the panel.
type Member struct {
	Name  string `yaml:"name" env:"NAME"` // it is reached at /teammate/<name>
	Model string `yaml:"model" env:"MODEL"`
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

// Secret is a value that no log and no dump of the configuration shows.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret from JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secrets are all credentials of the configuration that no backend's key is.
func (c Config) Secrets() []string {
	var out []string
	if c.Redis.Password != "" {
		out = append(out, c.Redis.Password.Reveal())
	}
	if c.Retrieval.Rerank.APIKey != "" {
		out = append(out, c.Retrieval.Rerank.APIKey.Reveal())
	}
	if c.Auth.InternalSecret != "" {
		out = append(out, c.Auth.InternalSecret.Reveal())
	}
	out = append(out, c.toolSecrets()...)
	if u, err := url.Parse(c.Redis.URL); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			out = append(out, password)
		}
	}
	return out
}

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }
