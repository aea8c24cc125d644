package openaiapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/secrets"
	webapi "mneme/webmemory/api"
)

// This file is about what useChat of the AI SDK asks for: a message to a chat, an answer once more, answers to what a
// run waits for, or the stream of a run under way.
//
// The chat is that of the path, and its history is webmemory's: of the messages that useChat holds only the new one
// counts. A new message follows all there is; one that is regenerated or edited is found by its id, whatever has become
// of the words, and takes its own place.

// States of a part that is a call of a tool, as far as they are read.
const (
	partResponded = "approval-responded"
	partOutput    = "output-available"
	partError     = "output-error"
)

// uiRequest is the body of DefaultChatTransport. Beside its members an application may send some of a message's.
type uiRequest struct {
	Messages  []uiMessage `json:"messages"`
	Trigger   string      `json:"trigger"`
	MessageID string      `json:"messageId"` // of the message that is edited, regenerated, or has the answers

	AgentVersion string              `json:"agent_version"`
	OnBusy       string              `json:"on_busy"`
	User         string              `json:"user"`
	Tools        []webapi.ClientTool `json:"tools"`
	Instructions string              `json:"instructions"`
}

type uiMessage struct {
	ID    string   `json:"id"`
	Role  string   `json:"role"`
	Parts []uiPart `json:"parts"`
}

// uiPart is a part of a message, as far as it is read.
type uiPart struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Text       string          `json:"text"`
	MediaType  string          `json:"mediaType"`
	URL        string          `json:"url"`
	Data       json.RawMessage `json:"data"`
	ToolCallID string          `json:"toolCallId"`
	State      string          `json:"state"`
	Output     json.RawMessage `json:"output"`
	ErrorText  string          `json:"errorText"`
	Approval   struct {
		ID       string `json:"id"`
		Approved bool   `json:"approved"`
		Reason   string `json:"reason"`
	} `json:"approval"`
}

// RefuseUI answers a request of useChat that does not come to the Handler: by the sentence alone, which useChat shows
// as the error's message.
func RefuseUI(w http.ResponseWriter, p *api.Problem) {
	if p.Retryable {
		p.RetryAfter = max(p.RetryAfter, 2*time.Second)
	}
	p.SetHeader(w.Header())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set(CodeHeader, p.Code)
	w.WriteHeader(cmp.Or(p.Status, http.StatusInternalServerError))
	_, _ = w.Write([]byte(secrets.Keyless(p.Message))) // a client that has left needs none
}

// CodeHeader has the code of an error that is told by its sentence alone.
const CodeHeader = "Mneme-Error-Code"

// postUI is POST /v1/chats/{chat}/ui.
func (h *Handler) postUI(w http.ResponseWriter, r *http.Request) {
	h.uiStream(w, r, func(ctx context.Context, a *uiAnswer) (events, error) {
		raw, err := api.ReadBody(w, r, maxBody, jsonbound.Transcript)
		if err != nil {
			return nil, err
		}
		var body uiRequest
		if err := json.Unmarshal(raw, &body); err != nil {
			return nil, invalid("", "The body is none of useChat's: %v.", err)
		}
		if err := api.CheckMembers(raw, &body); err != nil {
			return nil, err
		}
		at := len(body.Messages) - 1
		if body.Trigger == "regenerate-message" {
			for at >= 0 && body.Messages[at].Role != memory.RoleUser {
				at--
			}
		} else if i := slices.IndexFunc(body.Messages, func(m uiMessage) bool { return m.ID == body.MessageID }); i >= 0 {
			at = i
		}
		switch {
		case body.Trigger != "submit-message" && body.Trigger != "regenerate-message":
			return nil, invalid("trigger", "trigger is submit-message or regenerate-message, not %.40q.", body.Trigger)
		case at >= 0 && body.Messages[at].Role == memory.RoleUser:
			return h.uiSaid(ctx, &body, at, a)
		case at >= 0 && body.Messages[at].Role == memory.RoleAssistant:
			return a.answered(ctx, body.Messages[at])
		}
		return nil, invalid("messages", "messages has to end with one of the user, or with answers to what a run waits for.")
	})
}

// resumeUI is GET /v1/chats/{chat}/ui/{id}/stream: the run under way, or the one that waits, from its first event.
func (h *Handler) resumeUI(w http.ResponseWriter, r *http.Request) {
	h.uiStream(w, r, func(ctx context.Context, a *uiAnswer) (events, error) {
		info, err := h.Memory.Chat(goingOn(ctx), *a.chat)
		if info.Run == "" && info.Waiting != nil {
			info.Run = info.Waiting.RunID
		}
		if err != nil || info.Run == "" {
			return nil, err
		}
		a.run = info.Run
		return a.client().Follow(ctx, *a.chat, info.Run), nil
	})
}

// uiSaid is a message of the user, at a place of those that useChat holds.
func (h *Handler) uiSaid(ctx context.Context, body *uiRequest, at int, a *uiAnswer) (events, error) {
	said := body.Messages[at]
	orders := []string{body.Instructions}
	for _, m := range body.Messages[:at+1] {
		c := chatMessage{Role: m.Role}
		for _, p := range m.Parts {
			switch {
			case p.Type == "text":
				c.Content.Text = strings.TrimSpace(c.Content.Text + "\n" + p.Text)
			case p.Type == "file" && strings.HasPrefix(p.MediaType, "image"):
				c.Content.Images = append(c.Content.Images, p.URL)
			case p.Type == "file" && m.ID == said.ID:
				return nil, &api.Problem{Status: http.StatusBadRequest, Code: "part_not_supported", Message: fmt.Sprintf(
					"A message takes text and images, and no file of the type %.40q.", p.MediaType)}
			}
		}
		if m.Role == "system" {
			orders = append(orders, c.Content.Text)
			continue
		}
		a.call.said = append(a.call.said, c)
	}
	post := webapi.MessageRequest{Message: a.call.last().Content.Text, AgentVersion: body.AgentVersion, Stream: true,
		OnBusy: body.OnBusy, User: body.User, Tools: body.Tools, Instructions: strings.TrimSpace(strings.Join(orders, "\n\n")),
		Images: a.call.last().Content.Images, ImagesBefore: a.call.earlierImages()}
	key, replaces := rand.Text(), body.Trigger == "regenerate-message" || body.MessageID != ""
	if said.ID != "" {
		post.Metadata = map[string]string{api.MessageIDMember: said.ID}
		if body.MessageID == "" || body.Trigger == "regenerate-message" { // the same words under the same id are the same post
			key = fmt.Sprintf("ui-%x", sha256.Sum256([]byte(said.ID)))
		}
	}
	return func(yield func(event.Event, error) bool) {
		for reads := 1; ; reads++ {
			if replaces && said.ID != "" {
				after, last, err := h.placeOf(ctx, *a.chat, said.ID)
				if err != nil {
					yield(event.Event{}, err)
					return
				}
				if post.After, post.IfLast = after, last; after != nil {
					key = rand.Text()
				}
			}
			since := false
			a.client().Post(ctx, *a.chat, post, key)(func(e event.Event, err error) bool {
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
	}, nil
}

// placeOf gives what stands before the user's message that a client calls by an id, or the chat itself, as After of a
// post, and the chat's last message, as its IfLast; nil if there is no such message.
func (h *Handler) placeOf(ctx context.Context, chat memory.Chat, id string) (after, last *string, err error) {
	var known []message
	for from, limit := -leastPage, leastPage; ; {
		page, err := h.Memory.PageOf(goingOn(ctx), memory.ChatKey(chat),
			webapi.PageQuery{Offset: from, Limit: limit, Archive: true})
		if err != nil {
			return nil, nil, err
		}
		var older []message
		for _, raw := range page.Messages {
			older = append(older, messageOf(raw))
		}
		known = slices.Concat(older, known)
		for i, m := range slices.Backward(known) {
			switch {
			case !m.User || m.ClientID != id && m.ID != id:
			case i > 0:
				return &known[i-1].ID, &known[len(known)-1].ID, nil
			case page.Offset == 0:
				return new(string), &known[len(known)-1].ID, nil
			}
		}
		if page.Offset == 0 {
			return nil, nil, nil
		}
		from = max(page.Offset-largePage, 0)
		limit = page.Offset - from
	}
}

// answered goes on with a run that waits, by the answers in the last step of the message that asked for them.
func (a *uiAnswer) answered(ctx context.Context, m uiMessage) (events, error) {
	var answers []event.WaitAnswer
	for _, p := range m.Parts {
		if p.Type == "step-start" {
			answers = nil
		}
		if p.Type == "data-subagent" {
			d := delegation{}
			_ = json.Unmarshal(p.Data, &d) // what it does not say is left out of the part from here on
			a.delegations[p.ID] = &d
		}
		if p.ToolCallID == "" {
			continue
		}
		a.shows[p.ToolCallID] = true
		of := p.ToolCallID
		if p.State == partResponded {
			of = p.Approval.ID
		}
		run, wait, ok := splitCallID(of)
		if !ok {
			continue
		}
		w := event.WaitAnswer{ID: wait, Decision: event.Approve}
		switch {
		case p.State == partResponded && !p.Approval.Approved:
			w.Decision, w.Reason = event.Deny, p.Approval.Reason
		case p.State == partResponded:
		case p.State == partOutput:
			w.Result = p.Output
		case p.State == partError:
			w.Decision, w.Reason = event.Deny, p.ErrorText
		default:
			continue
		}
		if p.State == partResponded {
			a.asked[wait] = p.ToolCallID
		}
		a.run, answers = run, append(answers, w)
	}
	if len(answers) == 0 {
		return nil, invalid("messages", "The last message is the assistant's, and has no answer to what a run waits for.")
	}
	return resumed(answers, a.client().Resume(ctx, *a.chat, a.run, 0, answers...)), nil
}

// uiStream answers with the events of a run as a UI message stream; without any, that there is nothing to resume. That
// its client leaves does not stop the run: it comes back for the rest.
func (h *Handler) uiStream(w http.ResponseWriter, r *http.Request,
	begin func(context.Context, *uiAnswer) (events, error)) {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer context.AfterFunc(h.life, func() { end(errShutdown) })()
	a := &uiAnswer{answer: &answer{h: h, w: w, call: &call{}, collected: webapi.NewCollected("")},
		delegations: map[string]*delegation{}, shows: map[string]bool{}, asked: map[string]string{}}
	defer a.close()
	var all events
	var err error
	if a.chat, err = h.chatOf(r, ""); err == nil {
		all, err = begin(ctx, a)
	}
	switch {
	case err != nil:
		a.fail(err)
		return
	case all == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	a.mu.Lock()
	a.quiet = time.AfterFunc(h.Hold, a.ping)
	a.mu.Unlock()
	for e, err := range all {
		if h.life.Err() != nil {
			err = errShutdown
		}
		if err != nil {
			a.fail(err)
			return
		}
		a.show(e)
	}
	a.end()
}
