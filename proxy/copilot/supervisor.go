package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// SupervisorConfig says where the CLI is. Exactly one of Addr and Command must be set.
type SupervisorConfig struct {
	Addr    string   // host:port of a running CLI
	Command *Command // a CLI to start, with a token of its own

	Router RouterConfig

	Connect    time.Duration // for one attempt, including the start of the CLI; 30 s
	MinBackoff time.Duration // before the second attempt, then doubled; 100 ms
	MaxBackoff time.Duration // 10 s
}

// Faults are sentences about where the CLI is, each beginning with the key at fault.
func (c SupervisorConfig) Faults() []string {
	switch {
	case c.Addr == "" && c.Command == nil:
		return []string{"addr is missing: give the host:port of a Copilot CLI that runs with --headless, or a command that " +
			"runs one"}
	case c.Addr != "" && c.Command != nil:
		return []string{"command is set beside addr: keep one of them"}
	case c.Addr != "":
		if host, port, err := net.SplitHostPort(c.Addr); err != nil || host == "" || port == "" {
			return []string{fmt.Sprintf("addr must be host:port, such as 127.0.0.1:4321, not %q", c.Addr)}
		}
	case c.Command.Path == "":
		return []string{"command names no program"}
	}
	return nil
}

// Supervisor keeps a connection to a CLI: it redials when the connection ends, and restarts a CLI
// of its own. Sessions do not survive their connection: they end with ErrTransportClosed, and a
// caller that wants one back calls Resume.
type Supervisor struct {
	config SupervisorConfig
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex
	router  *Router       // nil while there is no connection
	failure error         // of the last attempt; set only while there is no connection
	changed chan struct{} // closed and replaced whenever router or failure changes
	dials   uint64        // successful connections
}

// Supervise starts a Supervisor. It does not wait for the first connection; Router does. Close ends
// it, and the CLI too if the Supervisor started it.
func Supervise(config SupervisorConfig) (*Supervisor, error) {
	if faults := config.Faults(); len(faults) > 0 {
		return nil, errors.New(faults[0])
	}
	config.Connect = cmp.Or(config.Connect, 30*time.Second)
	config.MinBackoff = cmp.Or(config.MinBackoff, 100*time.Millisecond)
	config.MaxBackoff = cmp.Or(config.MaxBackoff, 10*time.Second)
	config.Router.counters = &counters{}
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
	// The child is killed when the thread that started it ends (parent death signal), see command.
	// The thread is locked to this goroutine, which outlives the child.
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
			stop()
			if time.Since(began) > s.config.MaxBackoff { // a connection that ends at once is not a success
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

// connect makes a Router; stop ends the CLI that it runs on.
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

// set publishes a change to the callers that wait in Router.
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

// Router returns the Router of the connection. Without one it waits until ctx ends, and then fails
// with ErrUnavailable and the failure of the last attempt. It returns failures at once that another
// attempt will hardly cure: ErrStart, ErrUnauthorized, ErrHangs, a *VersionError. After Close it returns
// ErrRouterStopped.
func (s *Supervisor) Router(ctx context.Context) (*Router, error) {
	for {
		s.mu.Lock()
		router, failure, changed := s.router, s.failure, s.changed
		s.mu.Unlock()
		switch {
		case router != nil && router.Err() == nil && router.Hangs():
			return nil, ErrHangs
		case router != nil && router.Err() == nil:
			return router, nil
		case lasting(failure):
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

// Err is why sessions cannot be had at the moment: ErrHangs, or why there is no connection. It is nil
// while there is one, and before the first attempt has ended.
func (s *Supervisor) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.router != nil && s.router.Hangs() {
		return ErrHangs
	}
	return s.failure
}

// lasting reports whether a failure needs the operator, or a CLI that hangs to go on. Attempts go on
// nevertheless.
func lasting(err error) bool {
	var version *VersionError
	return errors.Is(err, ErrRouterStopped) && !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrStart) ||
		errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrHangs) || errors.As(err, &version)
}

// Create makes a session on the current connection, for which it waits like Router.
func (s *Supervisor) Create(ctx context.Context, config SessionConfig) (*Session, error) {
	r, err := s.Router(ctx)
	if err != nil {
		return nil, err
	}
	return r.Create(ctx, config)
}

// Resume reopens a session of an earlier connection on the current one.
func (s *Supervisor) Resume(ctx context.Context, id string, config SessionConfig) (*Session, error) {
	r, err := s.Router(ctx)
	if err != nil {
		return nil, err
	}
	return r.Resume(ctx, id, config)
}

// Delete makes the CLI delete a session and its conversation.
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
	stats := s.config.Router.counters.stats()
	if s.router != nil {
		stats = s.router.Stats()
	}
	stats.Redials = max(s.dials, 1) - 1
	return stats
}
