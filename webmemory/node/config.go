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

// Webhook is told what runs wait for. It gets ids and the tool's name, and never arguments.
type Webhook struct {
	URL    string // "" for none
	Secret string // of the signature; never empty with a URL
}

// Bounds of a request's body, in bytes.
const (
	MaxBody = 2 << 20
	MaxPost = MaxBody + (memory.MaxAllImages+2)/3*4 // of a message, with its images in base64
)

// Config says how the service behaves. Zero values mean the defaults.
type Config struct {
	Agents                func() []memory.Agent // the configured subagents of the moment; nil: none
	ContextWindow         int                   // messages of a chat shown to the master; 10
	SubagentContextWindow int                   // messages of a subagent's history shown to it; 50
	MaxHistory            int                   // messages kept per history; 0 keeps all
	// bytes of a history above which no exchange begins; memory.MaxHistory less a message
	FullAt      int
	SessionLogs string         // folder of the session logs; "" writes none
	Erasures    *erasures.File // what was erased from this disk; nil is a list in memory
	Cuts        *erasures.File // histories that were deleted or rewritten by hand; nil is a list in memory
	EndStoreDir string         // folder for the events of runs that ended lately; "" keeps none
	QueueLimit  int            // posts that wait for one chat; 16
	QueueWait   time.Duration  // for the chat's turn; 30 s
	MaxChats    int            // chats with work in hand at one time; 10,000
	Lease       time.Duration  // of a chat's turn, renewed three times in it; 15 s
	RunTimeout  time.Duration  // after which a run is given up; 10 min and a little
	// RecallVectors is how many of a history's newest messages are placed by the apiserver's
	// embedding model, once the history is searched; 0 searches by words alone
	RecallVectors int
	// VectorWeight is the part of vectors in a search, against that of the words; 0 for recall's default.
	VectorWeight float64
	// RecallEverywhere is how many of a user's chats, those used last, are searched together; 0 for no such search.
	RecallEverywhere int
	RecallBytes      int64         // of memory for indexes of what was said, those used least lately leave first; 256 MiB
	KeepRuns         time.Duration // how long a finished run is held in memory; 15 min
	KeepBytes        int           // of memory for finished runs, those that ended first leave first; 64 MiB
	ResumeWait       time.Duration // for events that a client has seen in another process; 10 s
	Patience         time.Duration // with an apiserver that cannot be reached, before its run is closed; 15 s
	// GrantWait is for how long after Redis lost data no call of a tool is granted, and no run that waits goes on, while
	// a process cannot be asked that is not known to be dead; a minute.
	GrantWait time.Duration
	Heartbeat time.Duration // comment on a quiet stream; 15 s
	Advertise string        // base URL under which other processes reach this one; "": they do not
	Webhook   Webhook       // is told what runs wait for
	SelfURL   string        // base URL under which the apiserver reaches this one; "": agents do not search
	MCP       http.Handler  // of POST /mcp; nil for none
	OpenAI    http.Handler  // of POST /v1/chat/completions and its kin; nil for none
	UI        http.Handler  // of useChat of the AI SDK; nil for none
	Gate      *access.Gate  // lets requests in; nil asks nobody
	// DialTLS connects to other webmemories by https; nil: as to any server. See http.Transport.DialTLSContext.
	DialTLS func(ctx context.Context, network, addr string) (net.Conn, error)
	Keys    *access.Store // those that /v1/keys is about; nil where nobody is asked for one
	Usage   *tally.Book   // what GET /v1/usage reads; nil: it is refused
	Audit   *audit.Log    // of who did what can hurt others; nil keeps none
	// EraseLimits removes what a tenant has spent of its budgets; nil where there are none.
	EraseLimits func(context.Context, memory.Tenant) error

	Limiter *limit.Limiter // of runs at once; nil lets all in
	Work    *fair.Places   // of requests that read texts or change the memory; nil: one for each processor

	Cold Cold // where idle chats go

	Telemetry *telemetry.Service // what the service counts in; nil for one of its own
	Traces    *tracing.Tracer    // makes spans of runs and of what they do to the memory; nil makes none
}

// WithDefaults returns c with the defaults in place of zero values.
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
		c.Erasures, _ = erasures.Open("") // without a file nothing can fail
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
