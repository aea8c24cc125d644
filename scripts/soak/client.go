package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/memory"
	"mneme/memory/event"
)

// client speaks to webmemory and enters in the ledger what it hears.
type client struct {
	http   *http.Client
	ledger *ledger
}

func newClient(l *ledger) *client {
	return &client{&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, l}
}

// outcome is how one stream ended.
type outcome struct {
	status int
	run    string
	last   int64 // the last event received
	done   bool  // run_finished was
	left   bool  // we hung up
	code   string
}

// say posts p as a stream. see is shown every event and says whether to go on.
func (c *client) say(ctx context.Context, p *post, web *service, see func(event.Event) bool) outcome {
	return c.try(p, web, func(a *attempt) outcome {
		resp, err := c.send(ctx, http.MethodPost, web, messagesPath(p.chat), p, "text/event-stream")
		if err != nil {
			a.note = err.Error()
			return outcome{}
		}
		defer resp.Body.Close()
		return c.hear(p, web, resp, 0, see, a)
	})
}

// ask posts p and waits for its JSON answer.
func (c *client) ask(ctx context.Context, p *post, web *service) outcome {
	return c.try(p, web, func(a *attempt) outcome {
		resp, err := c.send(ctx, http.MethodPost, web, messagesPath(p.chat), p, "application/json")
		if err != nil {
			a.note = err.Error()
			return outcome{}
		}
		defer resp.Body.Close()
		a.status, a.run = resp.StatusCode, resp.Header.Get("Mneme-Run-Id")
		if resp.StatusCode != http.StatusOK {
			problem := api.ReadProblem(resp)
			a.code = problem.Code
			return outcome{status: resp.StatusCode, run: a.run, code: problem.Code}
		}
		var said answer
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			a.status, a.note = 0, "the answer broke: "+err.Error()
			return outcome{}
		}
		c.ledger.answered(p, said)
		return outcome{status: resp.StatusCode, run: said.RunID, done: true}
	})
}

func (c *client) try(p *post, web *service, how func(*attempt) outcome) outcome {
	a := attempt{at: time.Now(), web: web.name}
	out := how(&a)
	a.note = strings.TrimSpace(fmt.Sprintf("%s, last event %d after %v", a.note, out.last,
		time.Since(a.at).Round(time.Millisecond)))
	c.ledger.tried(p, a)
	return out
}

// follow reads the events of p's run after a number.
func (c *client) follow(ctx context.Context, p *post, web *service, run string, after int64,
	see func(event.Event) bool) outcome {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+web.addr+runPath(p.chat, run)+"/events", nil)
	if err != nil {
		return outcome{run: run, last: after}
	}
	if after > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return outcome{run: run, last: after}
	}
	defer resp.Body.Close()
	var a attempt
	return c.hear(p, web, resp, after, see, &a)
}

// hear takes a stream's events until it ends or see refuses.
func (c *client) hear(p *post, web *service, resp *http.Response, after int64, see func(event.Event) bool,
	a *attempt) outcome {
	a.status, a.run = resp.StatusCode, resp.Header.Get("Mneme-Run-Id")
	out := outcome{status: resp.StatusCode, run: a.run, last: after}
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode == http.StatusNoContent {
			out.done = true
			return out
		}
		out.code = api.ReadProblem(resp).Code
		a.code = out.code
		return out
	}
	in, began := newFrames(resp.Body), time.Now()
	for {
		next, err := in.Next()
		if err != nil {
			a.note = "broken: " + err.Error()
			if age := time.Since(began); age > hung && errors.Is(err, context.DeadlineExceeded) {
				c.ledger.violate(violation{kind: hang, chat: p.chat, run: out.run, seq: out.last, post: p,
					what: fmt.Sprintf("%s has sent no end for %v; runs end after %v", web.name, age.Round(time.Second), runTimeout)})
			}
			return out
		}
		f := frame(next)
		if f.ID == nil {
			out.code = f.problem()
			a.code = out.code
			continue
		}
		e, err := f.event()
		if err == nil && e.Seq != out.last+1 {
			err = fmt.Errorf("event %d came after event %d", e.Seq, out.last)
		}
		if err == nil && a.run != "" && e.RunID != a.run {
			err = fmt.Errorf("Mneme-Run-Id is %s, the event's run %s", a.run, e.RunID)
		}
		if err != nil {
			c.ledger.violate(violation{kind: invalid, chat: p.chat, run: e.RunID, seq: e.Seq, post: p,
				what: fmt.Sprintf("a frame from %s: %v: %s", web.name, err, f.Data)})
			return out
		}
		c.ledger.receive(p, e, f.Data, web.name)
		out.run, out.last, out.done = e.RunID, e.Seq, e.Terminal()
		if goOn := see == nil || see(e); out.done || !goOn {
			out.left = !goOn
			return out
		}
	}
}

// stop asks to end a run.
func (c *client) stop(ctx context.Context, ch *chat, web *service, run string) {
	if resp, err := c.send(ctx, http.MethodPost, web, runPath(ch, run)+"/stop", nil, ""); err == nil {
		resp.Body.Close()
	}
}

// erase deletes a chat or one history of it; false: it is not known to be done.
func (c *client) erase(ctx context.Context, ch *chat, key memory.Key, web *service) (bool, string) {
	path := "/v1/chats/" + ch.id.String()
	switch {
	case key.Agent() != "":
		path += "/subagents/" + string(key.Agent()) + "/history"
	case !key.Chat().IsZero():
		path += "/history"
	}
	resp, err := c.send(ctx, http.MethodDelete, web, path, nil, "")
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, api.ReadProblem(resp).Error()
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil, ""
}

func (c *client) send(ctx context.Context, method string, web *service, path string, p *post,
	accept string) (*http.Response, error) {
	var body io.Reader
	if p != nil {
		raw, err := json.Marshal(struct {
			Message      string `json:"message"`
			AgentVersion string `json:"agent_version"`
		}{p.text, p.agent})
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+web.addr+path, body)
	if err != nil {
		return nil, err
	}
	if p != nil {
		req.Header.Set("Content-Type", "application/json")
		if p.key != "" {
			req.Header["Idempotency-Key"] = []string{p.key}
			req.GetBody = nil // net/http must not repeat it unseen
		}
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return c.http.Do(req)
}

func messagesPath(ch *chat) string        { return "/v1/chats/" + ch.id.String() + "/messages" }
func runPath(ch *chat, run string) string { return "/v1/chats/" + ch.id.String() + "/runs/" + run }

// frame is one server-sent event that arrived whole.
type frame sse.Event

// newFrames reads a stream for as long as its request goes on.
func newFrames(body io.Reader) *sse.Reader { return sse.NewReader(body, 16<<20, 0, func() {}) }

// event is the frame's event, which must be what id and event say.
func (f frame) event() (event.Event, error) {
	e, err := event.Decode(f.Data)
	if err == nil && (strconv.FormatInt(e.Seq, 10) != string(f.ID) || e.Role() != string(f.Name)) {
		err = fmt.Errorf("the frame says id %s, event %s", f.ID, f.Name)
	}
	if err == nil && e.RunID == "" {
		err = errors.New("an event without a run")
	}
	return e, err
}

// problem is the code of an error frame without id.
func (f frame) problem() string {
	var p api.Problem
	if json.Unmarshal(f.Data, &p) != nil {
		return "unreadable"
	}
	return p.Code
}
