package node

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/fair"
	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
)

// Webhook is the endpoint that is notified of waiting runs. It receives ids and the tool's name, never arguments.
type Webhook struct {
	URL    string // "" for none
	Secret string // key of the signature; never empty with a URL
}

// Limits of a request's body, in bytes.
const (
	MaxBody = 2 << 20
	MaxPost = MaxBody + (memory.MaxAllImages+2)/3*4 // for a message with its images in base64
)

// Config holds the settings of the service. Zero values mean the defaults.
type Config struct {
	Agents                func() []memory.Agent // returns the currently configured subagents; nil for none
	ContextWindow         int                   // messages of a chat shown to the master; 10
	SubagentContextWindow int                   // messages of a subagent's history shown to it; 50
	MaxHistory            int                   // messages kept per history; 0 keeps all
	// FullAt is the size of a history in bytes above which no exchange begins; memory.MaxHistory less a message.
	FullAt      int
	SessionLogs string         // folder of the session logs; "" for none
	Erasures    *erasures.File // erasures applied to this disk; nil keeps them in memory
	Cuts        *erasures.File // histories deleted or rewritten by hand; nil keeps them in memory
	EndStoreDir string         // folder for the events of recently ended runs; "" for none
	QueueLimit  int            // maximum number of waiting posts of a chat; 16
	QueueWait   time.Duration  // maximum wait for the chat's turn; 30 s
	MaxChats    int            // maximum number of chats with work at one time; 10,000
	Lease       time.Duration  // length of a lease, which is renewed three times in it; 15 s
	RunTimeout  time.Duration  // time after which a run is aborted; 11 min
	// RecallVectors is how many of a history's newest messages get vectors from the apiserver's embedding model, once the
	// history is searched. With 0, a search uses only words.
	RecallVectors int
	// VectorWeight is the weight of vectors against words in a search; 0 for recall's default.
	VectorWeight float64
	// RecallEverywhere is how many of a user's most recently used chats are searched together; 0 disables this search.
	RecallEverywhere int
	RecallBytes      int64         // bytes of search indexes in memory, least recently used dropped first; 256 MiB
	KeepRuns         time.Duration // how long a finished run stays in memory; 15 min
	KeepBytes        int           // bytes of finished runs in memory, oldest dropped first; 64 MiB
	ResumeWait       time.Duration // maximum wait for events that a client saw in another process; 10 s
	Patience         time.Duration // how long an apiserver may be unreachable before its run is closed; 15 s
	// GrantWait is how long an unreachable process blocks work after Redis lost data; 1 min. No tool call is granted and
	// no waiting run resumes meanwhile. A process that is known to be dead blocks nothing.
	GrantWait time.Duration
	Heartbeat time.Duration // interval of comments on a quiet stream; 15 s
	Advertise string        // base URL at which other processes reach this one; "" for none
	Webhook   Webhook       // endpoint that is notified of waiting runs
	SelfURL   string        // base URL at which the apiserver reaches this process; "" disables search by agents
	MCP       http.Handler  // handler of POST /mcp; nil for none
	OpenAI    http.Handler  // handler of POST /v1/chat/completions and related routes; nil for none
	UI        http.Handler  // handler of useChat of the AI SDK; nil for none
	Gate      *access.Gate  // authenticates requests; nil disables authentication
	// DialTLS connects to other webmemory processes by HTTPS; nil for the default. See http.Transport.DialTLSContext.
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)
	Keys    *access.Store // keys that /v1/keys manages; nil without authentication
	Usage   *tally.Book   // source of GET /v1/usage; nil rejects the request
	Audit   *audit.Log    // log of actions that can harm others; nil keeps none
	// EraseLimits removes the spending of a tenant from its budgets; nil without budgets.
	EraseLimits func(context.Context, memory.Tenant) error

	Limiter *limit.Limiter // limits of concurrent runs and of stored bytes; nil for none
	Work    *fair.Places   // slots of requests that read texts or change the memory; nil for one per processor

	Cold Cold // cold store of idle chats

	Telemetry *telemetry.Service // telemetry of the service; nil creates one
	Traces    *tracing.Tracer    // creates spans of runs and of memory operations; nil for none
}

// WithDefaults returns c with defaults in place of zero values.
func (c Config) WithDefaults() Config {
	c.ContextWindow = cmp.Or(c.ContextWindow, 10)
	c.SubagentContextWindow = cmp.Or(c.SubagentContextWindow, 50)
	c.FullAt = cmp.Or(c.FullAt, memory.MaxHistory-memory.MaxMessage)
	c.Work = cmp.Or(c.Work, fair.ForProcessors())
	c.QueueLimit = cmp.Or(c.QueueLimit, 16)
	c.QueueWait = cmp.Or(c.QueueWait, 30*time.Second)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.MaxChats = cmp.Or(c.MaxChats, 10_000)
	c.RunTimeout = cmp.Or(c.RunTimeout, 11*time.Minute)
	c.KeepRuns = cmp.Or(c.KeepRuns, 15*time.Minute)
	c.KeepBytes = cmp.Or(c.KeepBytes, 64<<20)
	c.ResumeWait = cmp.Or(c.ResumeWait, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 15*time.Second)
	c.GrantWait = cmp.Or(c.GrantWait, time.Minute)
	c.Cold.Settle = cmp.Or(c.Cold.Settle, time.Minute)
	if c.Erasures == nil {
		c.Erasures, _ = erasures.Open("") // cannot fail without a file
	}
	if c.Cuts == nil {
		c.Cuts, _ = erasures.Open("")
	}
	if c.Agents == nil {
		c.Agents = func() []memory.Agent { return nil }
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	return c
}
