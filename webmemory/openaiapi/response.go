package openaiapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

// This file is about answers of Responses: a run's words become events of the gateway's inner dialect, of which its
// translation makes what the client gets; and about responses that are in a chat's history.

// response is an answer of Responses while it is made.
type response struct {
	answer *responseswire.ResponsesAnswer
	writer wire.AnswerWriter
	text   strings.Builder // of the item that grows, if it is a message
}

func newResponse(a *answer) *response {
	options := *a.call.options
	options.ID, options.Model, options.Stored = responseID(a), a.call.Model, a.chat != nil
	// By the run's own times an answer that is asked for once more is the same.
	r := &response{answer: responseswire.NewResponsesAnswer(options, func() time.Time { return time.Unix(a.newest, 0) })}
	r.writer.Sink = func(e *wire.Event) {
		frames, _ := r.answer.Event(nil, e)
		shows(a, frames)
	}
	if !a.call.Stream {
		r.writer.Start("", options.Model)
	}
	return r
}

// take takes what a chunk would add to the message.
func (r *response) take(d delta) {
	switch {
	case d.Role != "":
		r.writer.Start("", "")
	case d.Reasoning != "":
		r.text.Reset()
		r.writer.Thinking(d.Reasoning)
	case d.Content != nil:
		r.text.WriteString(*d.Content)
		r.writer.Text(*d.Content)
	}
}

// shows gives events to a client, if there are any.
func shows(a *answer, frames []byte) {
	if len(frames) > 0 {
		a.stream.Frames(frames)
	}
}

// flatAnnotation is an annotation as Responses have it.
type flatAnnotation struct {
	Type string `json:"type"`
	urlCitation
	Citation event.Citation `json:"citation"`
}

// cite has the message that grows cite its documents.
func (r *response) cite(citations []event.Citation) (frames []byte) {
	for _, n := range annotations(citations, r.text.String()) {
		frames = r.answer.Annotate(frames, line(flatAnnotation{n.Type, n.URLCitation, n.Citation}))
	}
	return frames
}

// stopOf returns why an answer ended, in the words of the messages dialect.
func stopOf(partial bool, finish string) wire.NullString {
	switch {
	case partial:
		return wire.StopStopped
	case finish == memory.FinishLength:
		return wire.StopMaxTokens
	case finish == memory.FinishFilter:
		return wire.StopRefusal
	}
	return wire.StopEndTurn
}

// endResponse completes an answer.
func endResponse(a *answer) {
	r, stop := a.response, stopOf(a.collected.Partial, a.collected.FinishReason)
	shows(a, r.cite(a.collected.Citations))
	for _, c := range a.calls {
		stop = wire.StopToolUse
		r.writer.CloseBlock()
		r.writer.OpenCall(c.ID, c.Function.Name)
		r.writer.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: c.Function.Arguments})
	}
	r.writer.End(stop, usageOf(a.collected.Usage, a.baseUsage))
	data, err := r.answer.End(nil)
	switch {
	case err != nil:
		a.fail(err)
	case a.call.Stream:
		shows(a, data)
	default:
		api.WriteJSON(a.w, http.StatusOK, json.RawMessage(data))
	}
}

// answered finds the answer of the response that a path names, in its chat's history.
func answered(h *Handler, r *http.Request) (chat memory.Chat, m memory.Message, err error) {
	id := r.PathValue("response")
	base, err := h.chatOf(r, "", "")
	if err != nil {
		return chat, m, err
	}
	run, runChat, ok := splitID(id)
	if ok && runChat != nil && strings.HasPrefix(id, "resp_") && belongsTo(runChat, base) {
		chat = *runChat
		err = backwards(r.Context(), h, chat, leastPage, func(page []json.RawMessage, _ bool) bool {
			for _, raw := range page {
				if messageOf(raw).Run == run {
					_ = json.Unmarshal(raw, &m) // which messageOf has read
				}
			}
			return m.ID != ""
		})
	}
	if err == nil && (m.Role != memory.RoleAssistant || m.Failure != "" || m.Content == memory.RedactedText) {
		err = refusal(http.StatusNotFound, "", "response_not_found",
			"Response with id '%.200s' not found: there is no answer of this id.", id)
	}
	return chat, m, err
}

// getResponse is GET /v1/responses/{id}: the answer as the chat remembers it, once it does.
func (h *Handler) getResponse(w http.ResponseWriter, r *http.Request) {
	_, m, err := answered(h, r)
	if err != nil {
		Refuse(w, err)
		return
	}
	var record event.Record
	var citations []event.Citation
	_ = errors.Join(json.Unmarshal(m.Run, &record), json.Unmarshal(m.Citations, &citations)) // older answers have neither
	clock := func() time.Time { return time.Unix(int64(m.Timestamp), 0) }
	options := responseswire.AnswerOptions{ID: r.PathValue("response"), Stored: true}
	out := &response{answer: responseswire.NewResponsesAnswer(options, clock)}
	out.writer.Sink = func(e *wire.Event) { _, _ = out.answer.Event(nil, e) }
	out.writer.Start("", masterModel)
	out.take(delta{Content: &m.Content})
	out.cite(citations)
	out.writer.End(stopOf(m.Partial, m.FinishReason), usageOf(record.Usage, event.Usage{}))
	data, _ := out.answer.End(nil) // it has begun and ended
	api.WriteJSON(w, http.StatusOK, json.RawMessage(data))
}

// deleteResponse is DELETE /v1/responses/{id}: the chat forgets what was said and answered, as by a redaction.
func (h *Handler) deleteResponse(w http.ResponseWriter, r *http.Request) {
	chat, m, err := answered(h, r.WithContext(WithMemoryScopes(r.Context()))) // the client gets nothing of what is read
	if err == nil {
		_, err = h.Memory.Redact(r.Context(), memory.ChatKey(chat), m.ID, true, false)
	}
	if err != nil {
		Refuse(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"id": r.PathValue("response"), "object": "response", "deleted": true})
}
