package ledger

import (
	"cmp"
	"time"

	"github.com/rs/zerolog"
)

// Config bounds what a Ledger keeps. A zero value stands for its default.
type Config struct {
	// Bounds of what this process holds in memory. Above them a scope loses its oldest turns, and
	// the ledger the scope that was not used for longest. Bytes are those of the contents and an
	// estimate of the indexes.
	ScopeTurns int // 200
	ScopeBytes int // 8 MiB
	Turns      int // 50 000
	Bytes      int // 8 MiB

	// TTL is how long an unused scope is kept; 24 h.
	TTL time.Duration

	// Remote stores turns across restarts and for other replicas; nil keeps them in memory only.
	Remote Remote
	// Patience is how long a request waits for the remote at most: once when it is judged, if this
	// process has read something of its conversation before, and once when its answer is recorded; 50 ms.
	Patience time.Duration

	Now func() time.Time // nil: time.Now
	Log zerolog.Logger   // the zero value says nothing
}

func (c Config) withDefaults() Config {
	c.ScopeTurns = cmp.Or(max(c.ScopeTurns, 0), 200)
	c.ScopeBytes = cmp.Or(max(c.ScopeBytes, 0), 8<<20)
	c.Turns = cmp.Or(max(c.Turns, 0), 50_000)
	c.Bytes = cmp.Or(max(c.Bytes, 0), 8<<20)
	c.TTL = cmp.Or(max(c.TTL, 0), 24*time.Hour)
	c.Patience = cmp.Or(max(c.Patience, 0), 50*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
