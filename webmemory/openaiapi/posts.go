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
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// maxReads bounds how often a history is read for one request, if other clients speak in the chat meanwhile.
const maxReads = 5

// Sizes of pages of a history, in messages: of the newest page at least, and of older pages.
const leastPage, largePage = 20, 200

// Events are the events that answer a request.
type Events = iter.Seq2[event.Event, error]

func failed(err error) Events {
	return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
}

// run returns the events that answer a request. Before the first one it sets a.memory.
func (h *Handler) run(ctx context.Context, r *http.Request, c *call, a *answer) Events {
	if c.last().Role == memory.RoleTool {
		return h.results(ctx, c, a)
	}
	if c.bare || c.chat == nil {
		if !c.bare && c.options == nil { // Responses say so by store
			h.noChat.Do(func() {
				h.Log.Warn().Str("headers", strings.Join(h.ChatHeaders, ", ")).Msg("a request for a chat completion names no " +
					"chat, so nothing of it is remembered; send one of these headers, metadata.chat_id, or use the base URL " +
					"/c/{chat}/v1")
			})
		}
		return h.oneShot(ctx, c, a)
	}
	return h.postMessage(ctx, r, c, a)
}

// postMessage posts a message of the user to a chat.
func (h *Handler) postMessage(ctx context.Context, r *http.Request, c *call, a *answer) Events {
	var t transcript
	if err := fair.Share(ctx, func(context.Context) error { t = c.transcript(); return nil }); err != nil {
		return failed(err)
	}
	t.Parent, _ = firstOf(r, h.ParentHeaders)
	t.ClientID, _ = firstOf(r, h.MessageHeaders)
	t.Client = clientOf(r)
	t.Retry, t.Abandoned = isRetry(r), h.abandoned.has
	switch {
	case c.run != "":
		t.Exchanges, t.Run = t.Exchanges[len(t.Exchanges)-1:], c.run
	case c.chat == c.fresh:
		t.Exchanges = nil
	}
	pairs := map[string]string{}
	for name, value := range c.metadata {
		if !slices.Contains(api.OwnMembers, name) {
			pairs[name] = value
		}
	}
	answerID, _ := firstOf(r, h.AnswerHeaders)
	client := t.Client
	if client != "" && len(t.Exchanges) == 1 {
		client += aloneMark
	}
	for name, value := range map[string]string{
		api.MessageIDMember: t.ClientID, api.AnswerIDMember: answerID, api.ClientMember: client,
	} {
		if value != "" {
			pairs[name] = value
		}
	}
	body := webapi.MessageRequest{Message: c.last().Content.Text, AgentVersion: c.agent, Stream: true, User: c.User,
		Pasted: c.last().Content.Pasted, Tools: c.own, Wishes: c.wishes, Instructions: c.instructions, Metadata: pairs,
		Images: c.last().Content.Images, ImagesBefore: c.earlierImages()}
	return postAt(ctx, h, c, a, t, body, r.Header.Get(webapi.IdempotencyKey))
}

// Post is a message of the user to a chat, read from another protocol.
type Post struct {
	Chat     memory.Chat
	Messages []ChatMessage // of the user and the assistant, oldest first; the last one is new
	// Replaces asks for another text of the new message, or for another answer to it. Newest asks for another answer to
	// the message that the client believes to be the newest. Otherwise the message follows all others.
	Replaces, Newest bool
	Key              string // Idempotency-Key, "" for none
	// Request has all but the message's content. Its metadata has the client's id of the message.
	Request webapi.MessageRequest
}

// Post posts a message at its place, and returns the events that answer it. It stores the message's files first.
func (h *Handler) Post(ctx context.Context, s *Stream, p Post) (Events, error) {
	c := &call{request: request{Messages: p.Messages}, dialog: p.Messages, chat: &p.Chat}
	if err := c.readFiles(); err != nil {
		return nil, err
	}
	r, m, t := &p.Request, c.last().Content, transcript{}
	r.Message, r.Pasted, r.Images, r.ImagesBefore = m.Text, m.Pasted, m.Images, c.earlierImages()
	if p.Replaces || p.Newest {
		t = c.transcript()
		t.ClientID, t.Replaces, t.Newest = r.Metadata[api.MessageIDMember], p.Replaces, p.Newest
	}
	return postAt(ctx, h, c, &answer{h: h, stream: s, call: c}, t, *r, p.Key), nil
}

// Follow returns the events of a run from its first one.
func (h *Handler) Follow(ctx context.Context, s *Stream, chat memory.Chat, run string) Events {
	return (&answer{h: h, stream: s}).client().Follow(ctx, chat, run)
}

// Resume answers the waits of a run, and returns the events that follow.
func (h *Handler) Resume(ctx context.Context, s *Stream, chat memory.Chat, run string,
	answers []event.WaitAnswer) Events {
	return resumed(ctx, &answer{h: h, stream: s, call: &call{}, chat: &chat, run: run}, answers)
}

// aloneMark ends the name of the client of a message that came without a transcript.
const aloneMark = ".alone"

// retryHeader is the header in which the SDKs of OpenAI and Anthropic count the earlier attempts of the same request.
const retryHeader = "X-Stainless-Retry-Count"

// isRetry reports whether an SDK has sent the same request before.
func isRetry(r *http.Request) bool { return strings.Trim(r.Header.Get(retryHeader), "0 ") != "" }

// postAt posts a message to a chat at the place that match returns. If another client posts in between, postAt reads the
// chat again. key is the Idempotency-Key, "" for none.
func postAt(ctx context.Context, h *Handler, c *call, a *answer, t transcript, body webapi.MessageRequest,
	key string) Events {
	return func(yield func(event.Event, error) bool) {
		p := &placement{h: h, c: c, a: a, t: t, body: body, chosen: key, keyed: key != "",
			key: cmp.Or(key, rand.Text())}
		for p.reads = 1; ; p.reads++ {
			answers, err := p.place(ctx)
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			retry := false
			answers(func(e event.Event, err error) bool {
				if retry = p.mustReadAgain(e, err); retry {
					return false
				}
				return yield(e, err)
			})
			if !retry {
				return
			}
			if p.stopped { // the key has its answer
				p.key, p.keyed, p.stopped = rand.Text(), false, false
			}
		}
	}
}

// placement is a message on its way to its place in a chat.
type placement struct {
	h         *Handler
	c         *call
	a         *answer
	t         transcript
	body      webapi.MessageRequest
	chosen    string // the client's key, "" for none
	key       string
	keyed     bool // key is the client's
	reads     int
	newest    string // as of the decision at the first read
	joins     bool   // the events may come from the run of an earlier request
	delivered bool   // the client got some of them
	// stopped reports that the earlier request's run was stopped.
	stopped bool
}

// place reads the chat, decides where the message goes, and returns the events that answer it.
func (p *placement) place(ctx context.Context) (Events, error) {
	h, c, a, chat := p.h, p.c, p.a, *p.c.chat
	a.memory, a.chat = MemoryNone, nil
	d, err := p.decide(ctx)
	if err != nil {
		return nil, err
	}
	switch p.joins = d.Outcome == join; {
	case p.joins:
		a.memory, a.chat, a.run = MemoryChat, &chat, d.Run
		return p.join(a.client().Follow(ctx, chat, d.Run)), nil
	case d.Outcome == conflict:
		return nil, errNotNewest
	case d.Outcome == missing && c.missing != nil:
		return nil, c.missing
	case d.Outcome == task:
		h.taskByID.Do(func() {
			h.Log.Warn().Str("chat", chat.String()).Str("message_id", p.t.ClientID).Msg("a request with the id of a stored " +
				"message and other words is answered as a task, such as a title, and not stored; give each message its own id")
		})
		c.bare = true
		return h.oneShot(ctx, c, a), nil
	case d.Diverged && h.OnMismatch == Transcript && len(c.uploads) == 0: // files need a chat
		p.logDivergence(chat, d, "nothing is stored")
		a.memory = MemoryMismatch
		return h.oneShot(ctx, c, a), nil
	}
	return p.post(ctx, d)
}

// decide returns the decision of match. Messages that came since the first read were sent at the same time, so the user
// cannot have edited them.
func (p *placement) decide(ctx context.Context) (decision, error) {
	d, err := p.h.decide(ctx, *p.c.chat, p.t)
	if p.reads == 1 {
		p.newest = d.Newest
	}
	if d.Guess && (d.Newest != p.newest || p.reads == maxReads) {
		d.Outcome, d.ParentID, d.Diverged = post, nil, true
	}
	return d, err
}

// post posts the message at its place, in a fork of the chat or in a new chat if the decision says so.
func (p *placement) post(ctx context.Context, d decision) (_ Events, err error) {
	h, c, a, chat := p.h, p.c, p.a, *p.c.chat
	isNew := c.chat == c.fresh
	switch {
	case d.Outcome == branch && p.keyed && p.reads == 1: // the message may be there, under its key
		d.ParentID, d.Last = nil, d.ParentID
	case d.Outcome == branch:
		if chat, d, err = p.fork(ctx, chat, *d.ParentID); err != nil {
			return nil, err
		}
		if d.Outcome == join {
			a.memory, a.chat, a.run = MemoryChat, &chat, d.Run
			return p.join(a.client().Follow(ctx, chat, d.Run)), nil
		}
	case d.Outcome == missing:
		chat, isNew, d = *c.fresh, true, decision{}
	}
	if isNew && len(c.dialog) > 1 {
		if err := begin(ctx, h, chat, c.dialog[:len(c.dialog)-1]); err != nil {
			return nil, err
		}
	}
	if err := giveFiles(ctx, h, chat, c.uploads); err != nil {
		return nil, err
	}
	c.uploads = nil
	if err := p.diverge(ctx, chat, d); err != nil {
		return nil, err
	}
	a.memory, a.chat = MemoryChat, &chat
	p.body.ParentID, p.body.IfLast = d.ParentID, d.Last
	if d.Outcome == post && p.reads == maxReads {
		p.body.IfLast = nil // whatever was said meanwhile, the message follows it
	}
	events := a.client().Post(ctx, chat, p.body, p.key)
	if p.joins = p.keyed && p.t.Retry; p.joins { // the run of the first attempt may have been stopped
		events = p.join(events)
	}
	return events, nil
}

// diverge has the model answer from the client's transcript if that does not end where the chat does, and marks the
// message so.
func (p *placement) diverge(ctx context.Context, chat memory.Chat, d decision) error {
	p.body.Context = nil
	delete(p.body.Metadata, api.DivergedMember)
	if !d.Diverged {
		return nil
	}
	p.body.Metadata[api.DivergedMember] = "true"
	p.logDivergence(chat, d, "the message is appended")
	return fair.Share(ctx, func(context.Context) error {
		p.body.Context = fitContext(contextOf(p.c.dialog[:len(p.c.dialog)-1]))
		return nil
	})
}

// maxForks bounds the forks that are looked at for one message. Behind them, a fork gets a random id.
const maxForks = 16

// fork returns a fork of a chat after the message at, and the effect of the message there. Equal messages of a client look
// at the same forks in the same order, so a retry finds the fork of the first attempt.
func (p *placement) fork(ctx context.Context, chat memory.Chat,
	messageID string) (as memory.Chat, d decision, err error) {
	for n := range maxForks + 1 {
		base := cmp.Or(p.chosen, p.t.Client+"\n"+p.t.question())
		if n == maxForks {
			base = rand.Text()
		}
		created := false
		as, created, err = branchOf(ctx, p.h, chat, messageID, fmt.Sprint(base, "\n", n))
		if err != nil || created || p.keyed {
			return as, decision{Outcome: post, Last: &messageID}, err
		}
		if d, err = p.h.decide(ctx, as, p.t); err != nil || d.Outcome != branch && d.Outcome != missing {
			return as, d, err
		}
	}
	return as, d, err
}

func (p *placement) logDivergence(chat memory.Chat, d decision, effect string) {
	if !d.PrevDiverged {
		p.h.Log.Warn().Str("chat", chat.String()).Str("client", p.t.Client).
			Msg("a transcript does not end where its chat does: " + effect + ", and it is answered from the transcript")
	}
}

// mustReadAgain reports whether an event or an error means that the chat has changed since it was read, or that the
// earlier request was stopped before it had an answer, as when it timed out.
func (p *placement) mustReadAgain(e event.Event, err error) bool {
	if p.reads >= maxReads {
		return false
	}
	if problem := new(api.Problem); errors.As(err, &problem) {
		return problem.Code == webapi.CodeMessagesSince
	}
	end, ok := e.Payload.(*event.RunFinished)
	p.stopped = ok && end.Outcome == event.Stopped && p.joins && !p.delivered
	return p.stopped
}

// join yields the events of the run that answers the same message. It holds them until there is something to show, or to
// the end if the client gets the answer whole. Of a run that is stopped before that it yields the last event only.
func (p *placement) join(events Events) Events {
	return func(yield func(event.Event, error) bool) {
		var buffered []event.Event
		for e, err := range events {
			if err != nil {
				yield(e, err)
				return
			}
			if end, ok := e.Payload.(*event.RunFinished); ok && end.Outcome == event.Stopped && !p.delivered {
				buffered = nil
			}
			if buffered = append(buffered, e); p.c.Stream && (p.delivered || p.a.isAnswerStart(e)) {
				p.delivered = true
				for _, e := range buffered {
					if !yield(e, nil) {
						return
					}
				}
				buffered = nil
			}
		}
		for _, e := range buffered {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// clientOf identifies a client by what is the same in all its requests: its key and its User-Agent.
func clientOf(r *http.Request) string {
	sum := sha256.Sum256([]byte(access.FromContext(r.Context()).Key + "\x00" + r.UserAgent()))
	return fmt.Sprintf("%x", sum[:8])
}

var errNotNewest = refusal(http.StatusConflict, "messages", webapi.CodeMessagesSince,
	"The chat has newer messages than the one to regenerate, so nothing was changed. Reload the chat and retry.")

// decide matches a transcript with a chat's history. It reads the history from the end, as far as match needs it.
func (h *Handler) decide(ctx context.Context, chat memory.Chat, t transcript) (d decision, err error) {
	if len(t.Exchanges) == 0 {
		return decision{Outcome: post}, nil
	}
	var messages []message
	var unplaced error
	size := min(max(2*len(t.Exchanges)+8, leastPage), largePage)
	err = backwards(WithMemoryScopes(ctx), h, chat, size, func(page []json.RawMessage, complete bool) (enough bool) {
		unplaced = fair.Share(ctx, func(context.Context) error {
			var older []message
			for _, raw := range page {
				older = append(older, messageOf(raw))
			}
			messages = slices.Concat(older, messages)
			d, enough = match(t, messages, complete)
			return nil
		})
		return enough || unplaced != nil
	})
	if unplaced != nil {
		return d, unplaced
	}
	if err != nil && len(t.Exchanges) == 1 && t.Parent == "" && t.ClientID == "" && t.Run == "" {
		return decision{Outcome: post}, nil // a message is taken where a history cannot be read
	}
	return d, err
}

// backwards reads a chat's history from its end, the newest so many messages first, until they are enough, or whole.
func backwards(ctx context.Context, h *Handler, chat memory.Chat, size int,
	take func(page []json.RawMessage, complete bool) (enough bool)) error {
	for offset, limit := -size, size; ; {
		page, err := h.Memory.PageOf(ctx, memory.ChatKey(chat), webapi.PageQuery{Offset: offset, Limit: limit, Archive: true})
		if err != nil {
			return err
		}
		if take(page.Messages, page.Offset == 0) || page.Offset == 0 {
			return nil
		}
		offset = max(page.Offset-largePage, 0)
		limit = page.Offset - offset
	}
}

// WithMemoryScopes returns a context with the memory scopes. With it, a chat is read and forked to find the place of a
// message. The scope chat includes this, because the client gets nothing of it.
func WithMemoryScopes(ctx context.Context) context.Context {
	p, ok := access.Authenticated(ctx)
	if !ok {
		return ctx
	}
	p.Scopes = append(slices.Clip(p.Scopes), access.MemoryRead, access.MemoryWrite)
	return access.With(ctx, p)
}

// messageOf returns a stored message as matching needs it.
func messageOf(raw json.RawMessage) message {
	var stored memory.Message
	if json.Unmarshal(raw, &stored) != nil {
		return message{} // without a role it is neither a message of the user nor an answer with a text
	}
	m := message{ID: stored.ID, Run: memory.RunOf(stored.ID), Failed: stored.Failure != "", Partial: stored.Partial}
	if m.User = stored.Role == memory.RoleUser; !m.User {
		m.Text = normal(stored.Content)
		return m
	}
	m.Text = sight(memory.WithoutImages(stored.Content, stored.Images), stored.Images)
	var pairs struct {
		Metadata map[string]string `json:"metadata"`
	}
	if bytes.Contains(raw, []byte(`"metadata"`)) && json.Unmarshal(raw, &pairs) == nil {
		own := pairs.Metadata
		m.ClientID, m.AnswerID, m.Content = own[api.MessageIDMember], own[api.AnswerIDMember], stored.Content
		m.Client, m.NoTranscript = strings.CutSuffix(own[api.ClientMember], aloneMark)
		m.Diverged = own[api.DivergedMember] != ""
	}
	return m
}

// forkPrefix returns the prefix of the ids of a chat's forks.
func forkPrefix(chat memory.Chat) string { return fmt.Sprintf("%.100s.fork-", chat) }

// ignoreNotEmpty returns the error of filling a chat. A chat that was filled before is not an error; made is false then.
func ignoreNotEmpty(err error) (created bool, _ error) {
	if p := new(api.Problem); errors.As(err, &p) && p.Code == webapi.CodeChatNotEmpty {
		return false, nil
	}
	return err == nil, err
}

// oneShot is a request without a chat.
func (h *Handler) oneShot(ctx context.Context, c *call, a *answer) Events {
	body := webapi.OneShotRequest{AgentVersion: c.agent, Stream: true, Instructions: c.instructions, User: c.User,
		Tools: c.own, Wishes: c.wishes, Bare: c.bare}
	history := c.dialog
	if last := c.last(); last.Role == memory.RoleUser {
		body.Message, body.Images, history = last.Content.Text, last.Content.Images, c.dialog[:len(c.dialog)-1]
		body.Pasted = last.Content.Pasted
	}
	body.ImagesBefore = c.earlierImages()
	if err := fair.Share(ctx, func(context.Context) error { body.Context = contextOf(history); return nil }); err != nil {
		return failed(err)
	}
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
	c.Run, c.Quiet, c.Inside = func(id string) { a.run = id }, a.stream.Flush, true
	return &c
}

// callID is the id by which a client knows a call of its tool: it leads back to the run and to the wait, and in
// Responses to the chat.
func callID(a *answer, wait string) string {
	id := CallID(a.run, wait)
	if a.call.options != nil {
		id += ofChat(a.chat)
	}
	return id
}

// CallID returns the id of a call without a chat.
func CallID(run, wait string) string { return "call_" + run + "_" + wait }

// SplitCallID returns the run and the wait of a call's id.
func SplitCallID(id string) (run, wait string, ok bool) {
	if id, ok = strings.CutPrefix(id, "call_"); ok {
		run, wait, ok = strings.Cut(id, "_")
		wait, _, _ = strings.Cut(wait, "_") // behind it stands the chat, in Responses
	}
	return run, wait, ok && api.ValidRunID(run) && wait != ""
}

// results answers what a run waits for with the results of the client's tools, with which a
// request ends.
func (h *Handler) results(ctx context.Context, c *call, a *answer) Events {
	start := len(c.dialog)
	for start > 0 && c.dialog[start-1].Role == memory.RoleTool {
		start--
	}
	var runID string
	var answers []event.WaitAnswer
	foreign := 0
	for _, m := range c.dialog[start:] {
		run, wait, ok := SplitCallID(m.ToolCallID)
		if !ok {
			foreign++
			continue
		}
		if runID != "" && runID != run {
			return failed(invalid("messages", "The results at the end are of two answers; send those of the last one."))
		}
		result, err := json.Marshal(m.Content.Text)
		if err != nil {
			return failed(err)
		}
		runID = run
		answers = slices.DeleteFunc(answers, func(a event.WaitAnswer) bool { return a.ID == wait })
		answers = append(answers, event.WaitAnswer{ID: wait, Decision: event.Approve, Result: result})
	}
	switch {
	case runID == "" && c.chat == nil:
		return h.oneShot(ctx, c, a)
	case runID == "": // another service made the calls
		a.memory = MemoryMismatch
		return h.oneShot(ctx, c, a)
	case foreign > 0:
		return failed(invalid("messages", "A tool_call_id at the end is none that was given here."))
	case c.chat == nil && c.missing != nil:
		return failed(c.missing)
	case c.chat == nil:
		if missing := unanswered(c.dialog[:start], c.dialog[start:]); len(missing) > 0 {
			return failed(missingResults(missing))
		}
		return h.oneShot(ctx, c, a)
	}
	a.memory, a.chat, a.run = MemoryChat, c.chat, runID
	return resumed(ctx, a, answers)
}

// resumed is what follows some answers. A client that gives them once more may be shown the
// run from its first event on.
func resumed(ctx context.Context, a *answer, answers []event.WaitAnswer) Events {
	return func(yield func(event.Event, error) bool) {
		skips := false
		for e, err := range a.client().Resume(ctx, *a.chat, a.run, 0, answers...) {
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
	for _, w := range p.Pending {
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
func unanswered(history, results []ChatMessage) (ids []string) {
	if len(history) == 0 {
		return nil
	}
	for _, call := range history[len(history)-1].ToolCalls {
		if !slices.ContainsFunc(results, func(r ChatMessage) bool { return r.ToolCallID == call.ID }) {
			ids = append(ids, call.ID)
		}
	}
	return ids
}
