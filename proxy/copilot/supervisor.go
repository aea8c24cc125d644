package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// SupervisorConfig says where the CLI is. Either Addr or Command must be set.
type SupervisorConfig struct {
	Addr    string   // host:port of a CLI that runs already
	Command *Command // a CLI to run; it is given a token of its own

	Router RouterConfig

	Connect    time.Duration // for one attempt, the start of the CLI included; 30 s
	MinBackoff time.Duration // before the second attempt, then doubled; 100 ms
	MaxBackoff time.Duration // 10 s
}

// Supervisor keeps one connection to a CLI. It redials when that ends, and runs a
// CLI of its own again when it has died. Sessions do not survive their connection:
// they end with ErrTransportClosed, and whoever wants one back calls Resume.
type Supervisor struct {
	config SupervisorConfig
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex
	router  *Router       // nil while there is no connection
	failure error         // of the last attempt, while there is no connection
	changed chan struct{} // closed and replaced at every change of the two
	past    Stats         // of Routers that have ended
	dials   uint64        // that succeeded
}

// Supervise starts to keep a connection. It does not wait for the first: Router
// does. Close ends it, and the CLI with it if it is ours.
func Supervise(config SupervisorConfig) (*Supervisor, error) {
	if (config.Addr == "") == (config.Command == nil) {
		return nil, errors.New("a copilot backend needs either the address of a running CLI or a command that runs one")
	}
	config.Connect = cmp.Or(config.Connect, 30*time.Second)
	config.MinBackoff = cmp.Or(config.MinBackoff, 100*time.Millisecond)
	config.MaxBackoff = cmp.Or(config.MaxBackoff, 10*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Supervisor{config: config, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	go s.run(ctx)
	return s, nil
}

// Close ends the connection and, if it is ours, the CLI. It may be called again.
func (s *Supervisor) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run keeps the connection until ctx ends.
func (s *Supervisor) run(ctx context.Context) {
	// A child that is to die with this process dies with the thread that made it,
	// see command. The thread stays with this goroutine, which outlives the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	defer s.set(nil, ErrRouterStopped)
	backoff := s.config.MinBackoff
	for ctx.Err() == nil {
		router, stop, err := s.connect(ctx)
		if err != nil {
			s.config.Router.Log.Warn().Err(err).Msg("no connection to the Copilot CLI")
			s.set(nil, err)
		} else {
			began := time.Now()
			s.set(router, nil)
			select {
			case <-router.Done():
			case <-ctx.Done():
			}
			s.set(nil, fmt.Errorf("%w: %w", ErrUnavailable, cmp.Or(router.Err(), ErrRouterStopped)))
			_ = router.Close()
			s.retire(router)
			stop()
			if time.Since(began) > s.config.MaxBackoff { // one that dies at once is no success
				backoff = s.config.MinBackoff
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
			backoff = min(2*backoff, s.config.MaxBackoff)
		}
	}
}

// connect makes a Router; stop ends what it runs on.
func (s *Supervisor) connect(ctx context.Context) (r *Router, stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Connect)
	defer cancel()
	config, addr := s.config.Router, s.config.Addr
	stop = func() {}
	if s.config.Command != nil {
		child, err := s.config.Command.start(ctx, config.Log)
		if err != nil {
			return nil, nil, err
		}
		addr, config.Token, stop = child.addr, child.token, child.stop
	}
	if r, err = Dial(ctx, addr, config); err != nil {
		stop()
		return nil, nil, err
	}
	return r, stop, nil
}

// set publishes a change.
func (s *Supervisor) set(r *Router, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil {
		s.dials++
	}
	s.router, s.failure = r, failure
	close(s.changed)
	s.changed = make(chan struct{})
}

// retire keeps the counters of a Router that has ended.
func (s *Supervisor) retire(r *Router) {
	stats := r.Stats()
	stats.Routes, stats.RPC.Pending = 0, 0 // a call that fails right now is no call of the past
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past = s.past.Add(stats)
}

// Router is the Router of the connection. Without one it waits until ctx ends, and
// then fails with ErrUnavailable and the failure of the last attempt. A failure
// that another attempt will hardly mend it returns at once: ErrStart,
// ErrUnauthorized, a *VersionError. After Close it is ErrRouterStopped.
func (s *Supervisor) Router(ctx context.Context) (*Router, error) {
	for {
		s.mu.Lock()
		router, failure, changed := s.router, s.failure, s.changed
		s.mu.Unlock()
		if router != nil && router.Err() == nil {
			return router, nil
		}
		if lasting(failure) {
			return nil, failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure == nil {
				return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
			}
			return nil, fmt.Errorf("%w: %w (last attempt: %w)", ErrUnavailable, context.Cause(ctx), failure)
		}
	}
}

// lasting reports whether a failure needs a person. Attempts go on nevertheless.
func lasting(err error) bool {
	var version *VersionError
	return errors.Is(err, ErrRouterStopped) && !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrStart) ||
		errors.Is(err, ErrUnauthorized) || errors.As(err, &version)
}

// Create makes a session on the present connection, waiting for one as Router does.
func (s *Supervisor) Create(ctx context.Context, config SessionConfig) (*Session, error) {
	r, err := s.Router(ctx)
	if err != nil {
		return nil, err
	}
	return r.Create(ctx, config)
}

// Resume takes up a session of an earlier connection on the present one.
func (s *Supervisor) Resume(ctx context.Context, id string, config SessionConfig) (*Session, error) {
	r, err := s.Router(ctx)
	if err != nil {
		return nil, err
	}
	return r.Resume(ctx, id, config)
}

// Delete has the CLI forget a session and what was said in it.
func (s *Supervisor) Delete(ctx context.Context, id string) error {
	r, err := s.Router(ctx)
	if err != nil {
		return err
	}
	return r.Delete(ctx, id)
}

// Stats sums the counters of all connections.
func (s *Supervisor) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.past
	if s.router != nil {
		stats = stats.Add(s.router.Stats())
	}
	stats.Redials = max(s.dials, 1) - 1
	return stats
}
