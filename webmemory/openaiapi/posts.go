package openaiapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// This file is about what becomes of a request: a message to a chat, one without, or results of
// the client's tools.

// maxReads is how often a history is read for one request, if others speak in the chat meanwhile.
const maxReads = 5

// Pages of a history: the newest messages first, then in larger pieces.
const leastPage, largePage = 20, 200

// events is what answers a request.
type events = iter.Seq2[event.Event, error]

func failed(err error) events {
	return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
}

// run walks the events that answer a request, and says before the first one what is remembered.
func (h *Handler) run(ctx context.Context, r *http.Request, c *call, a *answer) events {
	if c.last().Role == memory.RoleTool {
		return h.results(ctx, c, a)
	}
	if c.bare || c.chat == nil {
		if !c.bare && c.asked == nil { // Responses say so by store
			h.noChat.Do(func() {
				h.Log.Warn().Str("headers", strings.Join(h.ChatHeaders, ", ")).Msg("a request for a chat completion names no " +
					"chat, so nothing of it is remembered; send one of these headers, metadata.chat_id, or use the base URL " +
					"/c/{chat}/v1")
			})
		}
		return h.oneShot(ctx, c, a)
	}
	return h.said(ctx, r, c, a)
}

// said is a message of the user to a chat.
func (h *Handler) said(ctx context.Context, r *http.Request, c *call, a *answer) events {
	t := c.transcript()
	t.Parent, _ = firstOf(r, h.ParentHeaders)
	t.ClientID, _ = firstOf(r, h.MessageHeaders)
	// A chat in the path may be that of several conversations of the client's, each with a beginning of its own.
	if r.PathValue("chat") == "" {
		t.From = clientOf(r)
		t.Root = t.ClientID != "" && slices.ContainsFunc(h.ParentHeaders, func(name string) bool {
			values := r.Header.Values(name)
			return len(values) > 0 && strings.TrimSpace(strings.ReplaceAll(values[0], noParent, "")) == ""
		})
	}
	if t.Parent == noParent {
		t.Parent = ""
	}
	switch {
	case c.run != "":
		t = transcript{Users: t.Users[len(t.Users)-1:], Run: c.run}
	case c.fresh != nil && c.chat == c.fresh:
		t = transcript{}
	}
	answerID, _ := firstOf(r, h.AnswerHeaders)
	pairs := map[string]string{}
	for name, value := range c.metadata {
		pairs[name] = value
	}
	for name, value := range map[string]string{api.MessageIDMember: t.ClientID, api.AnswerIDMember: answerID} {
		if value != "" {
			pairs[name] = value
		}
	}
	body := webapi.MessageRequest{Message: c.last().Content.Text, AgentVersion: c.agent, Stream: true, User: c.User,
		Tools: c.own, Wishes: c.wishes, Instructions: c.instructions, Metadata: pairs, Images: c.last().Content.Images,
		ImagesBefore: c.earlierImages()}
	return postAt(ctx, h, c, a, t, body, r.Header.Get(webapi.IdempotencyKey))
}

// postAt posts a message to a chat, at the place that a transcript says; one without messages says none. Without a key it
// has one of its own.
func postAt(ctx context.Context, h *Handler, c *call, a *answer, t transcript, body webapi.MessageRequest,
	key string) events {
	return func(yield func(event.Event, error) bool) {
		chat, forked := *c.chat, false
		begins, keyed := c.fresh != nil && c.chat == c.fresh, key != ""
		key = cmp.Or(key, rand.Text())
		for reads := 1; ; reads++ {
			d, known, err := h.decide(ctx, chat, t)
			switch {
			case err != nil:
			case d.Outcome == branch && keyed && reads == 1: // the message may be there, under its key
				d.After, d.Last = nil, d.After
			case d.Outcome == branch:
				chat, err = branchOf(ctx, h, chat, *d.After, key)
				d = decision{}
			case d.Outcome == mismatch && c.missing != nil:
				err = c.missing
			case d.Outcome == mismatch && t.Run != "":
				chat, begins, d = *c.fresh, true, decision{}
			}
			if err == nil && begins && len(c.said) > 1 {
				err = begin(ctx, h, chat, c.said[:len(c.said)-1])
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			if d.Outcome == mismatch && !forked {
				switch {
				case h.OnMismatch == Conflict, h.OnMismatch == Transcript && len(c.uploads) > 0: // files are a chat's
					yield(event.Event{}, errMismatch)
					return
				case h.OnMismatch == Fork:
					if chat, err = h.fork(ctx, chat, t, known); err != nil {
						yield(event.Event{}, err)
						return
					}
					forked = true
					continue
				}
				a.memory = MemoryMismatch
				h.oneShot(ctx, c, a)(yield)
				return
			}
			if err := giveFiles(ctx, h, chat, c.uploads); err != nil {
				yield(event.Event{}, err)
				return
			}
			c.uploads = nil
			a.memory, a.chat = MemoryChat, &chat
			body.After, body.IfLast = d.After, d.Last
			if d.Marked && t.From != "" {
				body.Metadata[api.TranscriptMember] = t.From
			}
			since := false
			a.client().Post(ctx, chat, body, key)(func(e event.Event, err error) bool {
				var p *api.Problem
				if since = errors.As(err, &p) && p.Code == webapi.CodeMessagesSince && reads < maxReads; since {
					return false
				}
				return yield(e, err)
			})
			if !since {
				return
			}
		}
	}
}

// noParent is what LibreChat calls the parent of a conversation's first message.
const noParent = "00000000-0000-0000-0000-000000000000"

// clientOf names a client by what stays the same over its requests: its key and its User-Agent.
func clientOf(r *http.Request) string {
	sum := sha256.Sum256([]byte(access.From(r.Context()).Key + "\x00" + r.UserAgent()))
	return fmt.Sprintf("%x", sum[:8])
}

var errMismatch = &failure{Param: "messages", Problem: api.Problem{
	Status: http.StatusConflict, Code: "transcript_mismatch",
	Message: "The messages are not those of the chat, so nothing was done: read its history, or send the new one alone."}}

// decide reads of a chat's history as much as a transcript needs, from its end.
func (h *Handler) decide(ctx context.Context, chat memory.Chat, t transcript) (d decision, known []message, err error) {
	if len(t.Users) == 0 {
		return decision{Outcome: post}, nil, nil
	}
	size := min(max(2*len(t.Users)+8, leastPage), largePage)
	err = backwards(goingOn(ctx), h, chat, size, func(page []json.RawMessage, whole bool) (enough bool) {
		var older []message
		for _, raw := range page {
			older = append(older, messageOf(raw))
		}
		known = slices.Concat(older, known)
		d, enough = match(t, known, whole)
		return enough
	})
	if err != nil && len(t.Users) == 1 && t.Parent == "" && t.ClientID == "" && t.Run == "" {
		return decision{Outcome: post}, nil, nil // a message is taken where a history cannot be read
	}
	return d, known, err
}

// backwards reads a chat's history from its end, the newest so many messages first, until they are enough, or whole.
func backwards(ctx context.Context, h *Handler, chat memory.Chat, size int,
	take func(page []json.RawMessage, whole bool) (enough bool)) error {
	for from, limit := -size, size; ; {
		var page webapi.HistoryPage
		if err := h.Memory.Call(ctx, http.MethodGet, historyPath(chat, from, limit), &page); err != nil {
			return err
		}
		if take(page.Messages, page.Offset == 0) || page.Offset == 0 {
			return nil
		}
		from = max(page.Offset-largePage, 0)
		limit = page.Offset - from
	}
}

// goingOn is a context in which a chat is read, and forked, to find out where a transcript goes on. That
// is a part of the scope chat: its client is shown nothing of what is read.
func goingOn(ctx context.Context) context.Context {
	p, asked := access.Known(ctx)
	if !asked {
		return ctx
	}
	p.Scopes = append(slices.Clip(p.Scopes), access.MemoryRead, access.MemoryWrite)
	return access.With(ctx, p)
}

// messageOf is a stored message as matching needs it.
func messageOf(raw json.RawMessage) message {
	var stored memory.Message
	var beside struct {
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(raw, &stored) != nil {
		return message{} // a role is missing: it is nobody's
	}
	m := message{ID: stored.ID, Run: memory.RunOf(stored.ID), Failed: stored.Failure != ""}
	if m.User = stored.Role == memory.RoleUser; !m.User {
		return m
	}
	m.Text = sight(memory.WithoutImages(stored.Content, stored.Images), stored.Images)
	if bytes.Contains(raw, []byte(`"metadata"`)) && json.Unmarshal(raw, &beside) == nil {
		m.ClientID, m.AnswerID = beside.Metadata[api.MessageIDMember], beside.Metadata[api.AnswerIDMember]
		m.From = beside.Metadata[api.TranscriptMember]
	}
	return m
}

// fork makes the chat in which a transcript goes on that is not the chat's: it has what both
// begin with. The same transcript finds it again when it has grown.
func (h *Handler) fork(ctx context.Context, chat memory.Chat, t transcript, known []message) (memory.Chat, error) {
	same, last := 0, ""
	for i, m := range known {
		if m.User && (same+1 == len(t.Users) || m.Text != t.Users[same]) {
			break
		}
		if m.User {
			same++
		}
		last = known[i].ID
	}
	if same == 0 {
		last = ""
	}
	sum := sha256.Sum256([]byte(strings.Join(t.Users[:same+1], "\n")))
	return forkAs(ctx, h, chat, fmt.Sprintf("%s%x", forkPrefix(chat), sum[:8]), last)
}

// forkPrefix is how the ids of a chat's forks begin.
func forkPrefix(chat memory.Chat) string { return fmt.Sprintf("%.100s.fork-", chat) }

// forkAs makes a chat that begins with what another one remembers up to a message, "" for nothing, unless it was made
// before.
func forkAs(ctx context.Context, h *Handler, chat memory.Chat, id, last string) (memory.Chat, error) {
	as, err := memory.Tenant{}.Chat(id)
	if err != nil || last == "" {
		return as, err
	}
	_, err = h.Memory.Fork(goingOn(ctx), chat, webapi.ForkRequest{As: as, At: last})
	return as, unlessMade(err)
}

// unlessMade is why a chat was not filled, unless that was done before.
func unlessMade(err error) error {
	if p := new(api.Problem); errors.As(err, &p) && p.Code == webapi.CodeChatNotEmpty {
		return nil
	}
	return err
}

// oneShot is a request without a chat.
func (h *Handler) oneShot(ctx context.Context, c *call, a *answer) events {
	body := webapi.OneShotRequest{AgentVersion: c.agent, Stream: true, Instructions: c.instructions, User: c.User,
		Tools: c.own, Wishes: c.wishes, Bare: c.bare}
	before := c.said
	if last := c.last(); last.Role == memory.RoleUser {
		body.Message, body.Images, before = last.Content.Text, last.Content.Images, c.said[:len(c.said)-1]
	}
	body.ImagesBefore = c.earlierImages()
	body.Context = contextOf(before)
	if c.bare {
		body.Tools, body.AgentVersion, body.ToolChoice = nil, "", ""
		if body.Message != "" { // it does without, if need be
			body.Images, body.ImagesBefore = nil, slices.Concat(body.ImagesBefore, body.Images)
		}
	}
	return a.client().OneShot(ctx, body)
}

// client is that of one answer: what it has is sent when no event is there for the moment.
func (a *answer) client() *webapi.Client {
	c := *a.h.Memory
	c.Run, c.Quiet, c.Inside = func(id string) { a.run = id }, a.flush, true
	return &c
}

// callID is the id by which a client knows a call of its tool: it leads back to the run and to the wait, and in
// Responses to the chat.
func callID(a *answer, wait string) string {
	id := "call_" + a.run + "_" + wait
	if a.call.asked != nil {
		id += ofChat(a.chat)
	}
	return id
}

func splitCallID(id string) (run, wait string, ok bool) {
	if id, ok = strings.CutPrefix(id, "call_"); ok {
		run, wait, ok = strings.Cut(id, "_")
		wait, _, _ = strings.Cut(wait, "_") // behind it stands the chat, in Responses
	}
	return run, wait, ok && api.ValidRunID(run) && wait != ""
}

// results answers what a run waits for with the results of the client's tools, with which a
// request ends.
func (h *Handler) results(ctx context.Context, c *call, a *answer) events {
	from := len(c.said)
	for from > 0 && c.said[from-1].Role == memory.RoleTool {
		from--
	}
	var of string
	var answers []event.WaitAnswer
	foreign := 0
	for _, m := range c.said[from:] {
		run, wait, ok := splitCallID(m.ToolCallID)
		if !ok {
			foreign++
			continue
		}
		if of != "" && of != run {
			return failed(invalid("messages", "The results at the end are of two answers; send those of the last one."))
		}
		result, err := json.Marshal(m.Content.Text)
		if err != nil {
			return failed(err)
		}
		of = run
		answers = slices.DeleteFunc(answers, func(a event.WaitAnswer) bool { return a.ID == wait })
		answers = append(answers, event.WaitAnswer{ID: wait, Decision: event.Approve, Result: result})
	}
	switch {
	case of == "" && c.chat == nil:
		return h.oneShot(ctx, c, a)
	case of == "" && h.OnMismatch == Transcript:
		a.memory = MemoryMismatch
		return h.oneShot(ctx, c, a)
	case of == "":
		return failed(errMismatch)
	case foreign > 0:
		return failed(invalid("messages", "A tool_call_id at the end is none that was given here."))
	case c.chat == nil && c.missing != nil:
		return failed(c.missing)
	case c.chat == nil:
		if missing := unanswered(c.said[:from], c.said[from:]); len(missing) > 0 {
			return failed(missingResults(missing))
		}
		return h.oneShot(ctx, c, a)
	}
	a.memory, a.chat, a.run = MemoryChat, c.chat, of
	return resumed(a, answers, a.client().Resume(ctx, *c.chat, of, 0, answers...))
}

// resumed is what follows some answers. A client that gives them once more may be shown the
// run from its first event on.
func resumed(a *answer, answers []event.WaitAnswer, all events) events {
	return func(yield func(event.Event, error) bool) {
		skips := false
		for e, err := range all {
			if err != nil {
				yield(e, resultsError(a, answers, err))
				return
			}
			switch p := e.Payload.(type) {
			case *event.RunStarted:
				skips = true
			case *event.RunResumed:
				skips = skips && !slices.ContainsFunc(p.Answers, func(a event.WaitAnswer) bool { return a.ID == answers[0].ID })
			}
			if !skips && !yield(e, nil) {
				return
			}
		}
	}
}

// resultsError says which results are missing where the run waits for more of them.
func resultsError(a *answer, answers []event.WaitAnswer, err error) error {
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != webapi.CodeWaitsOpen {
		return err
	}
	var missing []string
	for _, w := range p.Waits {
		if !slices.ContainsFunc(answers, func(a event.WaitAnswer) bool { return a.ID == w.ID }) {
			missing = append(missing, callID(a, w.ID))
		}
	}
	return missingResults(missing)
}

func missingResults(ids []string) error {
	return invalid("messages", "The results of all tool calls are sent together; there is none for %s.",
		strings.Join(ids, ", "))
}

// unanswered returns the ids of the last message's tool calls that have no result.
func unanswered(before, results []chatMessage) (ids []string) {
	if len(before) == 0 {
		return nil
	}
	for _, call := range before[len(before)-1].ToolCalls {
		if !slices.ContainsFunc(results, func(r chatMessage) bool { return r.ToolCallID == call.ID }) {
			ids = append(ids, call.ID)
		}
	}
	return ids
}
