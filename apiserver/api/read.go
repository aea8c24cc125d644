package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"path"
	"strconv"
	"time"

	"mneme/apiserver/api/sse"
	"mneme/memory/event"
)

// Batches reads a run's events after a number (0 for all) from its events URL,
// until run_finished. It ends without an error only when the run is over, or waits: then
// the last event is an event.RunWaiting. An
// error is the last thing it yields: ErrCut or ErrUnreachable (ask again for the
// events after the last one received), a *Problem such as ErrGone, or the cause
// of ctx's end. Events come in order and without gaps, by the batch, for one round trip to
// a store: those that came together, at most size of them. It starts no goroutine; while
// the caller works, the sender waits (backpressure).
func (c *Client) Batches(ctx context.Context, url string, cursor int64, size int) iter.Seq2[[]event.Event, error] {
	return func(yield func([]event.Event, error) bool) {
		var batch []event.Event
		stopped := false // by the caller
		give := func() error {
			if len(batch) == 0 {
				return nil
			}
			events := batch
			batch = nil
			if stopped = !yield(events, nil); stopped {
				return errLeft
			}
			return nil
		}
		err := c.stream(ctx, url, cursor, give, func(e event.Event) error {
			if batch = append(batch, e); len(batch) < size && !e.Terminal() && !e.Blocking() {
				return nil
			}
			return give()
		})
		if !stopped && give() == nil && err != nil {
			yield(nil, err)
		}
	}
}

// errLeft ends a stream if its reader wants no more of it.
var errLeft = errors.New("the reader has left")

// stream hands each event to take until the run is over, which is nil, or until an error of
// take's; it calls wait before it waits for more.
func (c *Client) stream(
	parent context.Context, url string, cursor int64, wait func() error, take func(event.Event) error,
) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silent := func() { cancel(sse.ErrSilent) }
	body, err := c.open(ctx, url, cursor, silent)
	if err != nil {
		return broken(parent, ctx, err)
	}
	if body == nil {
		return nil
	}
	defer body.Close()
	reader := sse.NewReader(body, MaxEvent, c.Idle, silent)
	reader.OnWait(wait)
	if err := readEvents(reader, cursor, take); err != nil {
		return broken(parent, ctx, err)
	}
	// Nothing follows but the body's end; a client that reads it can use the connection again.
	defer time.AfterFunc(time.Second, silent).Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 4<<10))
	return nil
}

// open asks for events and gives the stream of them; nil if the run is over and has no more.
func (c *Client) open(ctx context.Context, url string, cursor int64, silent func()) (io.ReadCloser, error) {
	watch := time.AfterFunc(c.Idle, silent)
	defer watch.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("an events URL: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if cursor > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(cursor, 10))
	}
	resp, err := do(c, req, path.Base(path.Dir(req.URL.Path))) // …/v1/runs/RUN/events
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil, resp.Body.Close()
	case kind != "text/event-stream":
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answered with %q instead of an event stream", url, kind)
	}
	return resp.Body, nil
}

// broken says why a transfer ended with err: because the caller's ctx did, because it went
// silent, or for err itself.
func broken(parent, ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return context.Cause(parent)
	case !errors.Is(context.Cause(ctx), sse.ErrSilent):
		return err
	case errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w: %w", ErrUnreachable, sse.ErrSilent)
	}
	return fmt.Errorf("%w: %w", ErrCut, sse.ErrSilent)
}

// readEvents hands each event after a number to take, up to the last one of the run. Thousands
// of streams wait in its Next; what it does else is in functions that are not inlined, so that
// its frame, and with it each waiting goroutine's stack, is small.
func readEvents(reader *sse.Reader, cursor int64, take func(event.Event) error) error {
	for pos := (place{last: cursor}); !pos.done; {
		frame, err := reader.Next()
		if pos.suspended && errors.Is(err, io.EOF) {
			return nil // the server has ended the stream, and nothing else has
		}
		if err != nil {
			return cut(pos.last, err)
		}
		if err = takeFrame(frame, &pos, take); err != nil {
			return err
		}
	}
	return nil
}

// place is how far a stream was read.
type place struct {
	last      int64 // number of the last event
	done      bool  // it was the run's last one
	suspended bool  // it was an event.RunWaiting: the stream may end behind it
}

func cut(cursor int64, err error) error {
	if errors.Is(err, sse.ErrTooLong) {
		return fmt.Errorf("the event after %d is larger than %d bytes", cursor, MaxEvent)
	}
	return fmt.Errorf("%w after event %d: %w", ErrCut, cursor, err)
}

// takeFrame hands the event in a frame to take, unless it is known.
//
//go:noinline
func takeFrame(f sse.Event, pos *place, take func(event.Event) error) error {
	if f.ID == nil {
		return closingProblem(f.Data)
	}
	e, err := event.Decode(f.Data)
	switch {
	case err != nil:
		return fmt.Errorf("after event %d: %w", pos.last, err)
	case e.Seq <= pos.last:
		return nil
	case e.Seq != pos.last+1:
		return fmt.Errorf("%w: event %d came after event %d", ErrCut, e.Seq, pos.last)
	}
	*pos = place{e.Seq, e.Terminal(), e.Blocking()}
	return take(e)
}

// closingProblem reads the error frame with which a server ends a stream early.
func closingProblem(data []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(data, p); err != nil || p.Code == "" {
		return fmt.Errorf("%w: by a frame without id that is no error", ErrCut)
	}
	return p
}
