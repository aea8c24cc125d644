package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"mneme/apiserver/api/sse"
	"mneme/memory/event"
)

// reopen is after how long a client should open a stream again that broke off.
const reopen = time.Second

// Pace sets the timing of a stream. Zero fields take the defaults.
type Pace struct {
	Heartbeat time.Duration // between comments on an idle stream; 15 s
	Write     time.Duration // for 64 KiB to be taken by the client; 30 s
}

// ServeEvents answers a request for a run's events: those after the request's
// Last-Event-ID (or ?last_event_id=), then those to come until the run is over or waits.
// Nothing new in such a run → 204. It returns when the stream has ended:
// after the last event, or because the client went away or took nothing for
// pace.Write; such a client resumes with Last-Event-ID. It starts no goroutine.
func ServeEvents(w http.ResponseWriter, r *http.Request, log *Log, pace Pace) {
	if cursor, ok := startsAt(w, r, log); ok {
		stream := sse.NewWriter(w, cmp.Or(pace.Write, 30*time.Second))
		follow(r.Context(), log, cursor, cmp.Or(pace.Heartbeat, 15*time.Second), stream)
	}
}

// startsAt is the number after which a request wants events; not ok if there is no stream, which
// it has answered then.
func startsAt(w http.ResponseWriter, r *http.Request, log *Log) (cursor int64, ok bool) {
	cursor, err := LastEventID(r)
	if err == nil {
		_, _, err = log.next(cursor)
	}
	if errors.Is(err, io.EOF) {
		w.WriteHeader(http.StatusNoContent)
		return 0, false
	}
	if problem, ok := errors.AsType[*Problem](err); ok {
		p := *problem
		p.RunID = log.run
		WriteProblem(w, &p)
		return 0, false
	}
	return cursor, true
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
	cursor, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0, ErrPosition
	}
	return cursor, nil
}

// follow writes the log's events until nothing can follow, with a comment whenever the
// ticker finds the stream idle. It returns early if the client is gone or ctx ends.
func follow(ctx context.Context, log *Log, cursor int64, heartbeat time.Duration, stream *sse.Writer) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	stream.Retry(reopen)
	for ctx.Err() == nil {
		changed := send(log, &cursor, stream)
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-beat.C:
			if stream.Comment("heartbeat") != nil {
				return
			}
		case <-ctx.Done():
		}
	}
}

// send sends the events that are there, together. It gives what is closed when there are more;
// nil if the stream is over. It is not inlined, so that the frame in which streams wait is small.
//
//go:noinline
func send(log *Log, cursor *int64, stream *sse.Writer) (changed <-chan struct{}) {
	for {
		en, changed, err := log.next(*cursor)
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) || stream.Closing(closing(log.run, err)) == nil {
				_ = stream.Flush() // the client has disconnected, so the error cannot be reported
			}
			return nil
		case changed == nil:
			*cursor++
			if stream.Event(*cursor, en.role, en.line) != nil {
				return nil
			}
		case stream.Flush() != nil:
			return nil
		default:
			return changed
		}
	}
}

// closing is the error event that tells why a stream ends before its run.
func closing(run string, err error) (role string, data []byte) {
	problem := &Problem{Code: event.Internal, Message: "The stream broke off."}
	errors.As(err, &problem)
	cause := problem.Failure()
	data, _ = json.Marshal(struct { // strings and a bool cannot fail
		Role  string `json:"role"`
		RunID string `json:"run_id"`
		event.Error
	}{cause.Role(), run, cause})
	return cause.Role(), data
}
