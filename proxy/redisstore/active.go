package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// activeKey holds the name of the active backend as plain text; without it the
// configured one is active.
const activeKey = "proxy:active"

// Times of the active backend's name.
const (
	activeAge   = time.Second            // how long it is used before it is read again
	activeRead  = 100 * time.Millisecond // how long a call may wait for that
	activeWrite = 2 * time.Second
)

// Active is the name of the active backend, the same for every gateway on one
// Redis and after a restart. It is safe for concurrent use.
type Active struct {
	redis      redis.UniversalClient
	configured string
	hasBackend func(string) bool
	log        zerolog.Logger
	now        func() time.Time

	mu          sync.Mutex
	name        string
	read        time.Time // when Redis was last asked
	unreachable bool      // it did not answer then
	ignored     string    // the unknown name that it had then
}

// NewActive starts from the configured name, one that known knows. The client,
// which the caller closes, must heed deadlines (ContextTimeoutEnabled). Without
// one, nil, the name is this process's.
func NewActive(client redis.UniversalClient, configured string, hasBackend func(name string) bool,
	log zerolog.Logger) *Active {
	return &Active{redis: client, configured: configured, hasBackend: hasBackend, log: log, now: time.Now,
		name: configured}
}

// Name is the active backend's. It asks Redis at most once a second, for 100 ms at
// most; while Redis does not answer, or has an unknown name, the last one stays.
func (a *Active) Name(ctx context.Context) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.redis != nil && (a.read.IsZero() || now.Sub(a.read) >= activeAge) {
		// Others wait for this read, too: it is not the caller's to cancel.
		a.refresh(context.WithoutCancel(ctx))
		a.read = now
	}
	return a.name
}

// refresh reads the name; mu is held.
func (a *Active) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, activeRead)
	defer cancel()
	name, err := a.redis.Get(ctx, activeKey).Result()
	if errors.Is(err, redis.Nil) {
		name, err = a.configured, nil
	}
	switch {
	case err != nil && !a.unreachable:
		a.log.Warn().Err(err).Str("active", a.name).Msg("Redis does not tell the active backend; the last one known stays")
	case err == nil && a.unreachable:
		a.log.Info().Msg("Redis tells the active backend again")
	}
	if a.unreachable = err != nil; a.unreachable {
		return
	}
	if !a.hasBackend(name) {
		if name != a.ignored {
			a.log.Error().Str("key", activeKey).Str("value", name[:min(len(name), 100)]).Str("active", a.name).
				Msg("no backend has the name in Redis; the last one known stays")
		}
		a.ignored = name
		return
	}
	a.ignored = ""
	if name != a.name {
		a.log.Info().Str("from", a.name).Str("to", name).Msg("active backend switched elsewhere")
	}
	a.name = name
}

// Use makes a backend the active one, in Redis first. After an error nothing is
// switched, unless only Redis's answer was lost. An unknown name is refused.
func (a *Active) Use(ctx context.Context, name string) error {
	if !a.hasBackend(name) {
		return fmt.Errorf("there is no backend %q", name)
	}
	var err error
	if a.redis != nil {
		ctx, cancel := context.WithTimeout(ctx, activeWrite)
		defer cancel()
		err = a.redis.Set(ctx, activeKey, name, 0).Err()
	}
	// Only now: calls must not wait for this. A read that began before is over
	// once mu is held, so it cannot bring the old name back.
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.read = time.Time{}
		return fmt.Errorf("writing %s: %w", activeKey, err)
	}
	a.name, a.read, a.ignored = name, a.now(), ""
	return nil
}
