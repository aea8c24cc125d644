package copilot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// remembered is the number of closed sessions with late events that are expected and not
// counted as orphans.
const remembered = 256

// Router multiplexes sessions over one connection to a CLI. Its methods may be called from any
// goroutine. It cannot be used after the connection has ended: a Supervisor makes the next one.
type Router struct {
	config   RouterConfig
	conn     *conn
	counters *counters
	greeting greeting
	watched  chan struct{} // closed when watch has returned
	// hung is 1 more than the frames that had come when the CLI left a call unanswered for
	// RouterConfig.Patience; 0 if it never did.
	hung atomic.Uint64

	mu     sync.Mutex
	endErr error // set once the connection has ended; then there are no new routes
	routes map[string]*route
	closed [remembered]string // a ring buffer
	next   int                // index of the next write to closed
}

// Dial connects to a CLI that listens at addr. ctx bounds this call only.
func Dial(ctx context.Context, addr string, config RouterConfig) (*Router, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return NewRouter(ctx, conn, config)
}

// NewRouter starts the protocol on a connection, which it owns from then on, also after an error.
// ctx bounds this call only; Close ends the Router. It fails with ErrUnauthorized or a
// *VersionError if the CLI refuses.
func NewRouter(ctx context.Context, conn net.Conn, config RouterConfig) (*Router, error) {
	config = config.withDefaults()
	r := &Router{config: config, counters: config.counters, routes: map[string]*route{}, watched: make(chan struct{})}
	r.conn = newConn(conn, r)
	if err := r.greet(ctx); err != nil {
		r.conn.stop()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrHangs, err)
		}
		return nil, fmt.Errorf("connecting to the Copilot CLI: %w", err)
	}
	go r.watch()
	return r, nil
}

// greet authenticates and checks the protocol's version. A CLI without the method connect has ping.
func (r *Router) greet(ctx context.Context) error {
	err := r.conn.call(ctx, methodConnect, connectParams{Token: r.config.Token}, &r.greeting)
	if rpc, ok := errors.AsType[*RPCError](err); ok {
		switch rpc.Code {
		case codeAuthRequired, codeAuthFailed:
			return fmt.Errorf("%w: %w", ErrUnauthorized, err)
		case jsonrpc2.CodeMethodNotFound:
			err = r.conn.call(ctx, methodPing, pingParams{}, &r.greeting)
		}
	}
	if err != nil {
		return err
	}
	if v := r.greeting.ProtocolVersion; v < minProtocol || v > maxProtocol {
		return &VersionError{Protocol: v, CLI: r.greeting.Version}
	}
	return nil
}

// watch sends keepalives until the connection ends, and then ends the sessions.
func (r *Router) watch() {
	defer close(r.watched)
	tick := time.NewTicker(r.config.Ping)
	defer tick.Stop()
	for misses := 0; ; {
		select {
		case <-r.conn.ctx.Done():
			r.endRoutes(r.conn.Err())
			return
		case <-tick.C:
		}
		if r.alive() {
			misses = 0
		} else if misses++; misses == 2 {
			_ = r.conn.fail(fmt.Errorf("%w: it left pings unanswered and sent nothing else", ErrHangs))
		}
	}
}

// alive pings the CLI once. Any frame within the interval counts as a sign of life, because the
// reply to a ping waits behind what the CLI is already sending.
func (r *Router) alive() bool {
	frames := r.counters.framesIn.Load()
	ctx, cancel := context.WithTimeout(context.Background(), r.config.Ping)
	defer cancel()
	defer r.expect()()
	err := r.conn.call(ctx, methodPing, pingParams{Message: "keepalive"}, nil)
	return err == nil || r.counters.framesIn.Load() > frames
}

// expect takes the CLI to hang if it sends nothing for RouterConfig.Patience. The answer that is
// waited for has come, or is given up, when the caller calls stop. A frame that comes meanwhile,
// such as the last one of an earlier turn, begins the time anew.
func (r *Router) expect() (stop func()) {
	var mu sync.Mutex // guards the rest
	var timer *time.Timer
	stopped, frames := false, r.counters.framesIn.Load()
	quiet := func() {
		mu.Lock()
		defer mu.Unlock()
		switch now := r.counters.framesIn.Load(); {
		case stopped:
		case now == frames:
			r.hung.Store(frames + 1)
		default:
			frames = now
			timer.Reset(r.config.Patience)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(r.config.Patience, quiet)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// Hangs reports whether the CLI left a call unanswered for RouterConfig.Patience and has sent
// nothing since then. Calls still leave: the first frame of the CLI shows that it goes on.
func (r *Router) Hangs() bool {
	hung := r.hung.Load()
	return hung != 0 && r.counters.framesIn.Load() == hung-1
}

// endRoutes ends all sessions with an error.
func (r *Router) endRoutes(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endErr = err
	for _, route := range r.routes {
		route.end(err)
	}
	clear(r.routes)
}

// Version is the CLI's version; empty if it does not tell.
func (r *Router) Version() string { return r.greeting.Version }

// Done is closed once the connection has ended and every session was told.
func (r *Router) Done() <-chan struct{} { return r.watched }

// Err is why the connection ended: ErrRouterStopped, or ErrTransportClosed with
// its cause. It is nil before that.
func (r *Router) Err() error { return r.conn.Err() }

// Close ends the connection; its sessions end with ErrRouterStopped. The CLI closes them but keeps
// the conversations, so that they can be resumed.
func (r *Router) Close() error {
	r.conn.stop()
	<-r.watched
	return nil
}

// Create makes a session under a new id. If ctx ends first, a session that the CLI makes later is
// closed.
func (r *Router) Create(ctx context.Context, config SessionConfig) (*Session, error) {
	return r.open(ctx, methodCreate, newSessionID(), config)
}

// Resume reopens a session of an earlier connection, with its conversation. It fails with
// ErrSessionUnknown if the CLI does not know it or has deleted it.
func (r *Router) Resume(ctx context.Context, id string, config SessionConfig) (*Session, error) {
	return r.open(ctx, methodResume, id, config)
}

// Delete makes the CLI delete a session and its conversation. Close a live session first.
func (r *Router) Delete(ctx context.Context, id string) error {
	return unknownSession(r.conn.call(ctx, methodDelete, sessionParams{SessionID: id}, nil))
}

// open registers the route before the CLI learns of the session, so that its first events are not
// lost.
func (r *Router) open(ctx context.Context, method, id string, config SessionConfig) (*Session, error) {
	route := newRoute(id, config.Tools, r.config)
	if err := r.register(route); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	var created sessionParams
	defer r.expect()()
	err := r.conn.call(ctx, method, newCreateParams(id, config), &created)
	if err == nil && created.SessionID != id {
		// The session that the CLI named may belong to another client.
		r.conn.post(methodDestroy, sessionParams{SessionID: id})
		err = fmt.Errorf("%w: asked for the session %s, the CLI gave %q", ErrProtocol, id, created.SessionID)
	}
	if err != nil && r.Hangs() {
		err = fmt.Errorf("%w: %w", ErrHangs, err)
	}
	if err != nil {
		r.deregister(route)
		return nil, unknownSession(err)
	}
	return newSession(r, route), nil
}

func (r *Router) register(route *route) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endErr != nil {
		return r.endErr
	}
	if r.routes[route.id] != nil {
		return fmt.Errorf("%w: %s", ErrSessionLive, route.id)
	}
	r.routes[route.id] = route
	return nil
}

// deregister removes a route and remembers its id.
func (r *Router) deregister(route *route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.routes[route.id] == route {
		delete(r.routes, route.id)
		r.closed[r.next] = route.id
		r.next = (r.next + 1) % remembered
	}
}

// route finds a session's route; closed means that the session was closed recently.
func (r *Router) route(id string) (route *route, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if route = r.routes[id]; route != nil {
		return route, false
	}
	return nil, id != "" && slices.Contains(r.closed[:], id)
}
