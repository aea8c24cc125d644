package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/memory"
	"mneme/memory/event"
)

// maxFailures is how often in a row a stream may break without a new event.
const maxFailures = 6

var (
	errForeign   = errors.New("this does not look like webmemory")
	errEndUnseen = errors.New("the run is over, but its end was not seen; the history has its answer")
)

// Say posts a message and walks the events of its run, each once, across broken
// connections. key must be new for every message: it is what keeps a repeated
// post from running twice. An error is the last thing walked; without one the
// last event is Terminal, or Waits: the run goes on by Resume.
func (c *Client) Say(ctx context.Context, chat memory.Chat, message, key string) iter.Seq2[event.Event, error] {
	return c.Post(ctx, chat, MessageRequest{Message: message}, key)
}

// Ask is Say to one subagent, past the master.
func (c *Client) Ask(ctx context.Context, chat memory.Chat, agent memory.Agent, message,
	key string) iter.Seq2[event.Event, error] {
	return c.Post(ctx, chat, MessageRequest{Message: message, AgentVersion: string(agent)}, key)
}

// Post is Say with all that a message may say; without a key it has one of its own.
func (c *Client) Post(ctx context.Context, chat memory.Chat, p MessageRequest,
	key string) iter.Seq2[event.Event, error] {
	return (&stream{client: c, chat: chat, path: MessagesPath(chat), body: p, key: cmp.Or(key, rand.Text())}).walk(ctx)
}

// OneShot posts a message without a chat and walks the events of its run. A broken connection ends the run with an error.
func (c *Client) OneShot(ctx context.Context, p OneShotRequest) iter.Seq2[event.Event, error] {
	return (&stream{client: c, path: OneShotPath, body: p, oneShot: true}).walk(ctx)
}

// Follow walks the events of a run that is already there, from its first.
func (c *Client) Follow(ctx context.Context, chat memory.Chat, run string) iter.Seq2[event.Event, error] {
	return (&stream{client: c, chat: chat, run: run}).walk(ctx)
}

// Resume answers what a run waits for, and walks the events that follow. after is the number of
// the event that said so, or 0.
func (c *Client) Resume(ctx context.Context, chat memory.Chat, run string, seq int64,
	answers ...event.WaitAnswer) iter.Seq2[event.Event, error] {
	return (&stream{client: c, chat: chat, run: run, last: seq, answers: answers}).walk(ctx)
}

// stream is one run as it is received.
type stream struct {
	client  *Client
	chat    memory.Chat
	path    string // where body is posted until the run has a name
	body    any
	key     string // empty for none
	oneShot bool   // the run is that of one connection

	answers []event.WaitAnswer // what is posted until the run goes on; nil for one that does

	run     string // known from the first event on
	last    int64  // seq of the last event received
	waiting bool   // that was an event.RunWaiting, behind which the stream may end
	reached bool   // somebody answered before
}

func (s *stream) walk(ctx context.Context) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for failures := 0; ; failures++ {
			last := s.last
			done, err := s.connection(ctx, yield)
			if done {
				return
			}
			if s.last > last {
				failures = 0
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if ctx.Err() != nil || failures == maxFailures || !s.canRetry(err) {
				yield(event.Event{}, err)
				return
			}
			select {
			case <-time.After(s.client.Pause << failures):
			case <-ctx.Done():
				yield(event.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// canRetry reports whether another connection may deliver the missing events.
func (s *stream) canRetry(err error) bool {
	var refused *api.Problem
	switch {
	case s.oneShot, errors.Is(err, errForeign), errors.Is(err, errEndUnseen):
		return false
	case errors.As(err, &refused) && refused.Code == CodeShuttingDown && s.client.Inside:
		return false
	case refused != nil:
		// A refused post ran nothing and is the user's to repeat; a run that has
		// begun is waited for while its server restarts.
		return s.run != "" && (refused.Status >= 500 || refused.Status == 0 && refused.Retryable)
	}
	return s.reached || !errors.Is(err, syscall.ECONNREFUSED)
}

// connection walks what one connection brings. done says that the walk is over;
// else err says why the connection is.
func (s *stream) connection(ctx context.Context, yield func(event.Event, error) bool) (done bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := s.open(ctx)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	s.reached = true
	if resp.StatusCode == http.StatusNoContent {
		return s.waiting, errEndUnseen
	}
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return false, fmt.Errorf("%w: %s answered with %q instead of events; is --url right?", errForeign, s.client.base,
			kind)
	}
	if run := resp.Header.Get(RunID); run != "" && s.client.Run != nil {
		s.client.Run(run)
	}
	frames := sse.NewReader(resp.Body, api.MaxEvent, s.client.Idle, func() { cancel(sse.ErrSilent) })
	if s.client.Quiet != nil {
		frames.OnWait(func() error { s.client.Quiet(); return nil })
	}
	for {
		f, err := frames.Next()
		if s.waiting && errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("the stream of events broke: %w", cmp.Or(context.Cause(ctx), err))
		}
		e, err := decode(f.Data)
		if err != nil {
			return false, err
		}
		if e.Seq <= s.last {
			continue
		}
		s.run, s.last, s.waiting, s.answers = e.RunID, e.Seq, e.Blocking(), nil
		if !yield(e, nil) || e.Terminal() {
			return true, nil
		}
	}
}

func (s *stream) open(ctx context.Context) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.answers != nil {
		body, err := json.Marshal(ResumeRequest{Answers: s.answers})
		if err != nil {
			return nil, err
		}
		header.Set("Content-Type", "application/json")
		return s.client.Send(ctx, http.MethodPost, ResumePath(s.chat, s.run), header, bytes.NewReader(body))
	}
	if s.run != "" && !s.oneShot {
		if s.last > 0 {
			header.Set("Last-Event-ID", strconv.FormatInt(s.last, 10))
		}
		return s.client.Send(ctx, http.MethodGet, RunPath(s.chat, s.run)+"/events", header, nil)
	}
	body, err := json.Marshal(s.body)
	if err != nil {
		return nil, err
	}
	header.Set("Content-Type", "application/json")
	if s.key != "" {
		header.Set(IdempotencyKey, s.key)
	}
	return s.client.Send(ctx, http.MethodPost, s.path, header, bytes.NewReader(body))
}

// decode reads an event, or the error without a number that ends a stream early.
func decode(data []byte) (event.Event, error) {
	e, err := event.Decode(data)
	if err == nil {
		return e, nil
	}
	p := &api.Problem{}
	if json.Unmarshal(data, p) == nil && p.Code != "" && p.Message != "" {
		return e, p
	}
	return e, fmt.Errorf("%w: %w", errForeign, err)
}
