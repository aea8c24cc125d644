package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Session is a conversation with the CLI. It has one turn at a time:
//
//	Send, Stream, { RespondTool for every call, Stream }, Send, …
//
// Stream and its callback run in the caller's goroutine. Abort, Close and RespondTool may be called
// from other goroutines meanwhile.
type Session struct {
	router *Router
	route  *route

	// consumer is a mutex that can be tried with a deadline. Its holder reads the events and owns
	// turn and broken.
	consumer chan struct{}
	turn     *promptState // nil between turns
	broken   error        // why there can be no further turn

	mu    sync.Mutex
	calls []ToolCall // tool calls without a result that the turn waits for

	closing  sync.Once
	closeErr error
}

// Outcome is a part of a turn: up to tool calls, or up to its end.
type Outcome struct {
	Text  string     // the text that onText was given
	Calls []ToolCall // if not empty, the turn is parked until they are answered
	Usage Usage      // of the model calls in this part
}

func newSession(r *Router, route *route) *Session {
	return &Session{router: r, route: route, consumer: make(chan struct{}, 1)}
}

// ID identifies the session for Resume.
func (s *Session) ID() string { return s.route.id }

// Err is why the session can have no further turn; nil as long as it can.
func (s *Session) Err() error { return s.route.endErr() }

func (s *Session) tryLock() bool {
	select {
	case s.consumer <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Session) unlock() { <-s.consumer }

// Send begins a turn. ErrBusy refuses it while there is one.
//
// A prompt that the CLI has taken cannot be withdrawn: if ctx ends meanwhile, the turn is aborted
// before Send returns, which takes up to twice RouterConfig.Grace.
func (s *Session) Send(ctx context.Context, prompt string) error {
	if !s.tryLock() {
		return ErrBusy
	}
	defer s.unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.turn != nil {
		return ErrBusy
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.route.stale() {
		return s.shutDown()
	}
	if s.router.Hangs() {
		return ErrHangs
	}
	// The CLI loses an abort that arrives before it has taken the prompt, so the reply is waited
	// for a little longer than ctx allows.
	call, cancel := outlive(ctx, s.router.config.Grace)
	defer cancel()
	s.turn = newPromptState()
	defer s.router.expect()()
	err := s.router.conn.call(call, methodSend, sendParams{SessionID: s.ID(), Prompt: prompt}, nil)
	var rpc *RPCError
	switch {
	case errors.As(err, &rpc):
		s.turn = nil
		if err = unknownSession(err); errors.Is(err, ErrSessionUnknown) {
			return s.breakWith(err)
		}
		return err
	case err != nil && ctx.Err() == nil:
		s.turn = nil
		return s.breakWith(err)
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), s.settle(context.WithoutCancel(ctx)))
	}
	return nil
}

// outlive is a context that ends later than ctx by a fixed time.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel(context.Canceled) }
}

// usable is nil if the session can have a turn.
func (s *Session) usable() error { return cmp.Or(s.broken, s.route.endErr()) }

// breakWith ends the turn and the session for good, for this reason.
func (s *Session) breakWith(err error) error {
	s.turn = nil
	s.park(nil)
	s.broken = err
	s.route.drop(err)
	return err
}

func (s *Session) shutDown() error {
	return s.breakWith(fmt.Errorf("%w: the CLI shut it down", ErrSessionClosed))
}

// Stream reads the turn until it is parked on tool calls or over, and passes every piece of text to
// onText, which may be nil. Each text is passed once, whether the CLI sent it in pieces, as a
// whole, or both; text before an error has been passed too.
//
// While calls are unanswered it returns them at once. Errors: a *SessionError or ErrAborted if the
// turn ended so, after which the session can be used again; ErrSlowConsumer, ErrSessionClosed,
// ErrTransportClosed or ErrRouterStopped, after which it cannot. If ctx ends, or the CLI is silent
// for too long (ErrInactive), the turn is aborted before Stream returns, which takes up to
// RouterConfig.Grace; then the session can be used again if Err is nil.
func (s *Session) Stream(ctx context.Context, onText func(string)) (Outcome, error) {
	if !s.tryLock() {
		return Outcome{}, ErrBusy
	}
	defer s.unlock()
	if s.turn == nil {
		if err := s.usable(); err != nil {
			return Outcome{}, err
		}
		return Outcome{}, ErrNoTurn
	}
	if calls := s.Parked(); len(calls) > 0 && s.route.endErr() == nil {
		return Outcome{Calls: calls}, nil
	}
	s.turn.resume()
	for {
		e, err := s.route.next(ctx, s.patience())
		if err != nil {
			return s.interrupted(ctx, err)
		}
		text, now := s.turn.take(e)
		if text != "" && onText != nil {
			onText(text)
		}
		switch now {
		case running:
			continue
		case parked:
			s.park(s.turn.calls)
			return s.turn.outcome(), nil
		case sessionClosed:
			out := s.turn.outcome()
			return out, s.shutDown()
		}
		out, end := s.turn.outcome(), s.turn.end()
		s.turn = nil
		return out, end
	}
}

// patience is how long the CLI may be silent. After an error in a turn its idle event comes soon or
// never.
func (s *Session) patience() time.Duration {
	if s.turn.failed != nil {
		return s.router.config.Grace
	}
	return s.router.config.Inactivity
}

// interrupted ends a turn that no event has ended.
func (s *Session) interrupted(ctx context.Context, cause error) (Outcome, error) {
	out, failed := s.turn.outcome(), s.turn.failed
	switch {
	case s.route.endErr() != nil && ctx.Err() == nil:
		return out, s.breakWith(cause)
	case failed != nil && errors.Is(cause, ErrInactive):
		// The turn has failed; only its idle event is missing, which could end the next turn
		// instead.
		_ = s.breakWith(fmt.Errorf("%w: it did not become idle after: %w", ErrSessionClosed, failed))
		return out, failed
	}
	_ = s.settle(context.WithoutCancel(ctx)) // its failure shows in Err
	return out, cause
}

// settle aborts the turn and reads it to its end, so that none of its events is left for the next
// turn. If that takes longer than ctx or RouterConfig.Grace allow, the session is broken.
func (s *Session) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.router.config.Grace)
	defer cancel()
	s.park(nil)
	for {
		err := s.abort(ctx)
		if err == nil {
			err = s.drain(ctx)
		}
		switch {
		case err == nil:
			return s.broken
		case s.route.endErr() != nil:
			return s.breakWith(s.route.endErr())
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return s.breakWith(fmt.Errorf("%w: an aborted turn did not end: %w", ErrSessionClosed, err))
		}
		// The CLI loses an abort that comes before the turn has begun, so it is repeated.
	}
}

// drain reads an aborted turn to its end, for a part of RouterConfig.Grace.
func (s *Session) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.router.config.Grace/4)
	defer cancel()
	for {
		e, err := s.route.next(ctx, s.router.config.Grace)
		if err != nil {
			return err
		}
		switch _, now := s.turn.take(e); now {
		case idle:
			s.turn = nil
			return nil
		case sessionClosed:
			_ = s.shutDown()
			return nil
		}
	}
}

func (s *Session) abort(ctx context.Context) error {
	return s.router.conn.call(ctx, methodAbort, sessionParams{SessionID: s.ID()}, nil)
}

// Abort ends the turn, if there is one, and with it the CLI's model call; other sessions are not
// affected. A Stream that is running returns ErrAborted. If Abort returns nil the session can be
// used again.
func (s *Session) Abort(ctx context.Context) error {
	for !s.tryLock() {
		if err := s.abort(ctx); err != nil {
			return err
		}
		if s.lockWithin(ctx, s.router.config.Grace/4) {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	defer s.unlock()
	if s.turn == nil {
		return s.usable()
	}
	return s.settle(ctx)
}

// lockWithin takes the consumer's lock, or gives up after a time.
func (s *Session) lockWithin(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case s.consumer <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// park sets the calls that the turn waits for.
func (s *Session) park(calls []ToolCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = slices.Clone(calls)
}

// Parked are the calls without a result that the turn is parked on.
func (s *Session) Parked() []ToolCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// RespondTool sends the CLI the result of a call that the turn is parked on. Once all calls have
// one, Stream goes on. ErrNotPending means that the CLI does not wait for the result.
func (s *Session) RespondTool(ctx context.Context, callID string, result ToolResult) error {
	if err := s.route.endErr(); err != nil {
		return err
	}
	if s.router.Hangs() {
		return ErrHangs
	}
	calls := s.Parked()
	i := slices.IndexFunc(calls, func(c ToolCall) bool { return c.ID == callID })
	if i < 0 {
		return fmt.Errorf("%w: %s", ErrNotPending, callID)
	}
	call, wire := calls[i], result.wire()
	ack := success{}
	if call.rpc != nil {
		if err := s.router.conn.reply(*call.rpc, map[string]toolResult{"result": wire}); err != nil {
			return err
		}
		ack.Success = true
	} else {
		err := s.router.conn.call(ctx, methodToolResult, toolResultParams{SessionID: s.ID(), RequestID: call.requestID,
			Result: &wire}, &ack)
		if err != nil {
			return err
		}
	}
	s.answered(call)
	if !ack.Success {
		return fmt.Errorf("%w: %s", ErrNotPending, callID)
	}
	return nil
}

// answered removes a call from the parked ones. It compares request ids, because models may give
// two calls the same id.
func (s *Session) answered(call ToolCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.calls, func(c ToolCall) bool {
		return c.requestID == call.requestID && c.rpc == call.rpc
	})
	if i >= 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
	}
}

// Close ends the session here and in the CLI, which keeps the conversation for Resume. A Stream
// that is running ends with ErrSessionClosed. It may be called again and takes up to
// RouterConfig.Grace; an error means that the CLI may keep the session open until the connection
// ends.
func (s *Session) Close() error {
	s.closing.Do(func() {
		s.route.drop(ErrSessionClosed)
		s.router.deregister(s.route)
		ctx, cancel := context.WithTimeout(context.Background(), s.router.config.Grace)
		defer cancel()
		err := s.router.conn.call(ctx, methodDestroy, sessionParams{SessionID: s.ID()}, nil)
		if err != nil && s.router.Err() == nil {
			s.closeErr = fmt.Errorf("closing a session: %w", err)
		}
	})
	return s.closeErr
}
