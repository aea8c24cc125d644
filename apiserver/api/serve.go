package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/r3labs/sse/v2"

	"mneme/memory/event"
)

// Pace sets the timing of a stream. Zero fields take the defaults.
type Pace struct {
	Heartbeat time.Duration // between comments on an idle stream; 15 s
	Write     time.Duration // for 64 KiB to be taken by the client; 30 s
}

func (p Pace) withDefaults() Pace {
	if p.Heartbeat <= 0 {
		p.Heartbeat = 15 * time.Second
	}
	if p.Write <= 0 {
		p.Write = 30 * time.Second
	}
	return p
}

const (
	streamName = "events"
	// window is how many frames may be on their way between log and client.
	window = 16
	// piece is how many bytes one write deadline is for.
	piece = 64 << 10
)

// ServeEvents answers a request for a run's events: those after the request's
// Last-Event-ID (or ?last_event_id=), then those to come until the run is over.
// Nothing new in a run that is over → 204. It returns when the stream has ended:
// drained after the last event, or because the client went away or took nothing
// for pace.Write; such a client resumes with Last-Event-ID. No goroutine outlives
// the call by more than its last step.
func ServeEvents(w http.ResponseWriter, r *http.Request, log *Log, pace Pace) {
	after, err := LastEventID(r)
	if err == nil {
		_, _, err = log.next(after)
	}
	if err == io.EOF {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var problem *Problem
	if errors.As(err, &problem) {
		p := *problem
		p.RunID = log.run
		WriteProblem(w, &p)
		return
	}
	pace = pace.withDefaults()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := newFrames(w, pace.Write, cancel)

	subscribed, unsubscribed := make(chan struct{}), make(chan struct{})
	server := sse.NewWithCallback(
		func(string, *sse.Subscriber) { close(subscribed) },
		func(string, *sse.Subscriber) { close(unsubscribed) },
	)
	server.AutoReplay = false
	server.BufferSize = 2 * window
	server.Headers["X-Accel-Buffering"] = "no"
	// A connection with a write deadline must not be used for another request.
	server.Headers["Connection"] = "close"
	server.CreateStream(streamName)

	var feeding sync.WaitGroup
	feeding.Go(func() {
		select {
		case <-subscribed:
			feed(ctx, log, after, pace.Heartbeat, func(e *sse.Event) bool {
				if out.reserve(ctx) && server.TryPublish(streamName, e) {
					return true
				}
				cancel()
				return false
			})
		case <-ctx.Done():
		}
	})
	req := r.WithContext(ctx)
	req.URL = &url.URL{RawQuery: url.Values{"stream": {streamName}}.Encode()}
	server.ServeHTTP(out, req)

	// This order leaves nothing behind: the subscriber's goroutine needs the
	// stream's to say goodbye to, and that one ends with RemoveStream.
	cancel()
	feeding.Wait()
	<-unsubscribed
	server.RemoveStream(streamName)
	out.extend() // for the end of the body, which net/http writes
}

// LastEventID is where the client wants to go on. The header wins: a browser that
// reconnects sends it along with the query of the first request.
func LastEventID(r *http.Request) (int64, error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last_event_id")
	}
	if id == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0, ErrPosition
	}
	return after, nil
}

// feed sends the log's entries until nothing can follow, with a comment whenever
// the ticker finds the stream idle; then the event that ends the stream. It
// returns early if send refuses or ctx ends.
func feed(ctx context.Context, log *Log, after int64, heartbeat time.Duration, send func(*sse.Event) bool) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		en, changed, err := log.next(after)
		switch {
		case changed != nil:
			select {
			case <-changed:
			case <-beat.C:
				if !send(&sse.Event{Comment: []byte("heartbeat")}) {
					return
				}
			case <-ctx.Done():
				return
			}
		case err != nil:
			if err == io.EOF || send(closingFrame(log.run, err)) {
				send(&sse.Event{})
			}
			return
		default:
			after++
			if !send(&sse.Event{ID: strconv.AppendInt(nil, after, 10), Event: []byte(en.role), Data: en.line}) {
				return
			}
		}
	}
}

// closingFrame tells why a stream ends before its run: an error event without id.
// It follows a comment line because r3labs gives every frame with data an id, and
// an empty one would make a browser forget where it was.
func closingFrame(run string, err error) *sse.Event {
	problem := &Problem{Code: "internal", Message: "The stream broke off."}
	errors.As(err, &problem)
	cause := event.Error{Code: problem.Code, Message: problem.Message, Retryable: problem.Retryable}
	data, _ := json.Marshal(struct { // strings and a bool cannot fail
		Role  string `json:"role"`
		RunID string `json:"run_id"`
		event.Error
	}{cause.Role(), run, cause})
	return &sse.Event{Comment: []byte("closing\nevent: " + cause.Role() + "\ndata: " + string(data))}
}

// frames is the ResponseWriter that r3labs writes to. It puts a deadline on every
// write, ends the subscription on the first that fails, and counts the frames
// between log and client by r3labs's one Flush per frame.
type frames struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	end     context.CancelFunc
	failed  error         // used by the goroutine of ServeHTTP only
	free    chan struct{} // one token per frame that may still be sent
}

func newFrames(w http.ResponseWriter, timeout time.Duration, end context.CancelFunc) *frames {
	f := &frames{
		ResponseWriter: w, control: http.NewResponseController(w),
		timeout: timeout, end: end, free: make(chan struct{}, window),
	}
	for range window {
		f.free <- struct{}{}
	}
	return f
}

// reserve waits for room for one more frame.
func (f *frames) reserve(ctx context.Context) bool {
	select {
	case <-f.free:
		return true
	case <-ctx.Done():
		return false
	}
}

// extend starts the deadline anew; a writer without deadlines goes without.
func (f *frames) extend() { _ = f.control.SetWriteDeadline(time.Now().Add(f.timeout)) }

func (f *frames) fail(err error) {
	if err != nil && f.failed == nil {
		f.failed = err
		f.end()
	}
}

// Write writes in pieces, so that a slow client is given time for a large frame
// and a stuck one is not.
func (f *frames) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) && f.failed == nil {
		f.extend()
		n, err := f.ResponseWriter.Write(p[written:min(written+piece, len(p))])
		written += n
		f.fail(err)
	}
	return written, f.failed
}

// Flush ends a frame (the first one ends the head, and finds all tokens there).
func (f *frames) Flush() {
	if f.failed == nil {
		f.extend()
		f.fail(f.control.Flush())
	}
	select {
	case f.free <- struct{}{}:
	default:
	}
}
