package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"mneme/access"

	"mneme/apiserver/api"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/subagent/rag"
)

// Config bounds a Server. Zero fields take the defaults named here.
type Config struct {
	// Advertise is the base URL under which this very process can be reached;
	// events URLs start with it. Empty: the address at which the request arrived,
	// also if it was sent to a name that stands for several processes; over loopback
	// the host that it was sent to.
	Advertise  string
	Gate       *access.Gate  // lets requests in; nil asks for no keys
	MaxRuns    int           // running at a time; 256
	MaxBody    int64         // of a run request, in bytes, with all events of a run that goes on; 64 MiB
	RunTimeout time.Duration // 10 min
	StopGrace  time.Duration // how long stopped runs are given to publish their end; 10 s

	KeepFinished time.Duration // how long a finished run is known; 15 min
	KeepRuns     int           // finished runs known at a time, oldest leave first; 10,000
	KeepBytes    int           // of finished runs' events, oldest leave first; 512 MiB

	// EraseConversation has the gateway forget a conversation; nil if there is
	// nothing to forget.
	EraseConversation func(ctx context.Context, id string) error

	// EraseTenant has the gateway forget some conversations of the tenant that asks, and says how many are
	// left; nil if there is nothing to forget.
	EraseTenant func(ctx context.Context) (erased, remaining int, err error)

	// KeepConversation has the gateway keep what was said in a conversation until a time, since
	// a run waits that goes on in it; nil if there is nothing to keep.
	KeepConversation func(ctx context.Context, id string, until time.Time) error

	// Embed gives a vector for each text, nil for one that is refused; nil without a model.
	Embed func(ctx context.Context, texts []string) ([][]float32, error)

	// Memory is for what the agents of a run ask the webmemory that holds it, see
	// api.MemoryAccess; nil for http.DefaultClient.
	Memory *http.Client

	Tools func() Tools // of the moment, that lie outside; nil for none

	Documents   *rag.Library // what can be loaded and searched; nil for nothing
	MaxDocument int64        // of an uploaded document, in bytes; 50 MiB

	Telemetry *telemetry.Service // what the server counts in; nil for one of its own
	Traces    *tracing.Tracer    // makes spans of runs' events; nil makes none

	Log api.Limits // of one run's events
}

func (c Config) withDefaults() Config {
	c.Advertise = strings.TrimRight(c.Advertise, "/")
	c.MaxRuns = cmp.Or(c.MaxRuns, 256)
	c.MaxBody = cmp.Or(c.MaxBody, 64<<20)
	c.RunTimeout = cmp.Or(c.RunTimeout, 10*time.Minute)
	c.StopGrace = cmp.Or(c.StopGrace, 10*time.Second)
	c.KeepFinished = cmp.Or(c.KeepFinished, 15*time.Minute)
	c.KeepRuns = cmp.Or(c.KeepRuns, 10_000)
	c.KeepBytes = cmp.Or(c.KeepBytes, 512<<20)
	c.MaxDocument = cmp.Or(c.MaxDocument, 50<<20)
	return c
}
