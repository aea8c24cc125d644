package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"time"

	"mneme/apiserver/api/sse"
	"mneme/memory/event"
)

// Events reads a run's events after a number (0 for all) from its events URL,
// until run_finished. It ends without an error only when the run is over. An
// error is the last thing it yields: ErrCut or ErrUnreachable (ask again for the
// events after the last one received), a *Problem such as ErrGone, or the cause
// of ctx's end. Events come in order and without gaps.
func (c *Client) Events(ctx context.Context, url string, after int64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if err := c.stream(ctx, url, after, func(e event.Event) bool { return yield(e, nil) }); err != nil {
			yield(event.Event{}, err)
		}
	}
}

// stream hands on events until the run is over or give refuses, both nil.
func (c *Client) stream(parent context.Context, url string, after int64, give func(event.Event) bool) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	silent := func() { cancel(sse.ErrSilent) }
	watch := time.AfterFunc(c.Idle, silent)
	defer watch.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("an events URL: %w", err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return broken(parent, ctx, ErrUnreachable, err)
	}
	defer resp.Body.Close()
	watch.Stop()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return ReadProblem(resp)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("%s answered with %q instead of an event stream", url, kind)
	}
	over := false
	err = readEvents(sse.NewReader(resp.Body, MaxEvent, c.Idle, silent), after, func(e event.Event) bool {
		over = e.Terminal()
		return give(e)
	})
	if err != nil {
		return broken(parent, ctx, nil, err)
	}
	if over { // nothing follows but the body's end; who reads it can use the connection again
		watch.Reset(time.Second)
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	}
	return nil
}

// broken says why a transfer ended: because the caller's ctx did, because it went
// silent, or for err, which is wrapped in kind if there is one.
func broken(parent, ctx context.Context, kind, err error) error {
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case errors.Is(context.Cause(ctx), sse.ErrSilent):
		return fmt.Errorf("%w: %w", cmp.Or(kind, ErrCut), sse.ErrSilent)
	case kind != nil:
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func readEvents(from *sse.Reader, after int64, give func(event.Event) bool) error {
	for {
		f, err := from.Next()
		switch {
		case errors.Is(err, sse.ErrTooLong):
			return fmt.Errorf("the event after %d is larger than %d bytes", after, MaxEvent)
		case err != nil:
			return fmt.Errorf("%w after event %d: %w", ErrCut, after, err)
		case f.ID == nil:
			return closingProblem(f.Data)
		}
		e, err := event.Decode(f.Data)
		if err != nil {
			return fmt.Errorf("after event %d: %w", after, err)
		}
		if e.Seq <= after {
			continue
		}
		if e.Seq != after+1 {
			return fmt.Errorf("%w: event %d came after event %d", ErrCut, e.Seq, after)
		}
		after = e.Seq
		if !give(e) || e.Terminal() {
			return nil
		}
	}
}

// closingProblem reads the error frame with which a server ends a stream early.
func closingProblem(data []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(data, p); err != nil || p.Code == "" {
		return fmt.Errorf("%w: by a frame without id that is no error", ErrCut)
	}
	return p
}
