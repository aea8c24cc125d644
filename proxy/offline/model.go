// Package offline is a demonstration and test model: a small, deterministic, extractive responder behind the messages
// dialect, in English and Russian, so that the service does its main job on a machine with no key and no network. It
// is not a language model. Everything it says is a sentence that it was told, a sentence of a passage that a tool
// returned, or the result of a tool; to everything else it says what it is and how to name a real model.
//
// It owns nothing: [Model] keeps no state, and notes are found anew in the user's messages each time. It never says a
// canned answer to a known question: lexicon.go holds grammar and synonyms, never an answer.
package offline

// The model is the master if a tool has task as its only required property. It splits a message into sentences. It keeps
// a statement by the tool remember, answers a question about a statement, and gives other work to the subagent that the
// sentence names or that does such work. As a subagent it answers from the statements of its history, forgets them on
// request, and calls a calculator or a search of documents, of which it quotes the best sentence with its number. If
// nothing fits, it says that it does not know. To chat pages, which ask for a chat's title and the like, it gives the
// user's own first words.
//
// Of system prompts only the chat's notes are read. Sentences are compared by the stems of their words and a few
// synonyms. Images, sampling parameters and max_tokens are ignored, a tool_choice that demands a call too; token counts
// are estimates.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"mneme/proxy/wire"
)

// maxBody and maxText are how much is read of a request, which is the vendor's limit, and of one message, in bytes.
const maxBody, maxText = 32 << 20, 32 << 10

// Model answers requests of the messages dialect. It is safe for concurrent use and holds no state between calls.
// The zero value is ready to use.
type Model struct{}

// New returns a Model.
func New() *Model { return &Model{} }

// RoundTrip implements [http.RoundTripper], so that a gateway calls the model through the same sending code as a
// vendor. It serves POST …/v1/messages (JSON, or SSE when the body says "stream": true) and
// POST …/v1/messages/count_tokens. Every failure of a request is an answer of the dialect: 400 for a body that
// cannot be used, 404 for anything not served, 413 for a body over 32 MiB. The error is non-nil only when the
// request's context ended or its body could not be read.
func (m *Model) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err = cmp.Or(err, r.Context().Err()); err != nil {
		return nil, fmt.Errorf("offline: reading the request: %w", err)
	}
	status, kind, body := answer(r.Method, r.URL.Path, body)
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}, nil
}

func answer(method, path string, body []byte) (status int, contentType string, out []byte) {
	refusal := wire.Failure{Status: http.StatusBadRequest}
	counting := strings.HasSuffix(path, "/v1/messages/count_tokens")
	var req wire.Request
	if method != http.MethodPost || !counting && !strings.HasSuffix(path, "/v1/messages") {
		refusal = wire.Failure{
			Status:  http.StatusNotFound,
			Message: "the offline model serves POST /v1/messages and POST /v1/messages/count_tokens only",
		}
	} else if len(body) > maxBody {
		refusal = wire.Failure{Status: http.StatusRequestEntityTooLarge,
			Message: "the request is larger than 32 MiB: send less"}
	} else if err := wire.Unmarshal(body, &req); err != nil {
		refusal.Message = err.Error()
	} else if req.Model == "" || len(req.Messages) == 0 {
		refusal.Message = "the fields model and messages are required, with at least one message"
	}
	if refusal.Message != "" {
		return refusal.Status, "application/json", refusal.Body(wire.Messages)
	}
	// Identifiers are made of the request, so that equal ones get equal answers, streamed or not; tokens are estimates.
	// what was just read, and our own types below, can be written
	seed, _ := wire.Marshal([]any{req.System, req.Messages, req.Tools})
	sum, tokens := sha256.Sum256(seed), int64(len(seed)/4+1)
	if counting {
		return http.StatusOK, "application/json", fmt.Appendf(nil, `{"input_tokens":%d}`, tokens)
	}
	block, id := decide(&req), base32.StdEncoding.EncodeToString(sum[:15])
	said := wire.Response{ID: "msg_" + id, Type: "message", Role: wire.RoleAssistant, Model: req.Model,
		StopReason: wire.StopEndTurn}
	if block.Type == wire.ToolUseBlock {
		block.ID, said.StopReason = "toolu_"+id, wire.StopToolUse
	}
	said.Content, said.Usage = wire.Content{block}, wire.Usage{
		InputTokens: tokens, OutputTokens: int64((len(block.Text)+len(block.Input))/4 + 1),
	}
	if !req.Stream {
		out, _ = wire.Marshal(said)
		return http.StatusOK, "application/json", out
	}
	for _, e := range said.Events() {
		for _, piece := range strings.SplitAfter(e.Delta.Text, " ") {
			e.Delta.Text = piece
			data, _ := wire.Marshal(e)
			out = wire.AppendFrame(out, e.Type, data)
		}
	}
	return http.StatusOK, "text/event-stream; charset=utf-8", out
}

// onlyProperty is the single required property of a tool, "" for none or several.
func onlyProperty(t wire.Tool) string {
	var s struct {
		Required []string `json:"required"`
	}
	// a schema of another form makes no request wrong
	if json.Unmarshal(t.InputSchema, &s) != nil || len(s.Required) != 1 {
		return ""
	}
	return s.Required[0]
}

// read cuts a conversation at its last request: the user's texts, and the results of the calls made since the last of
// them, which come in order, since one call is made at a time. Text of the user that follows tool results in one
// message is a new request, since some clients merge neighbouring messages of one role. What was recalled for the
// last request is apart.
func read(messages []wire.Message) (said []string, before []recollection, results []wire.Block) {
	for _, m := range messages {
		text := ""
		for _, b := range m.Content {
			switch {
			case b.Type == wire.TextBlock && m.Role == wire.RoleUser && strings.TrimSpace(b.Text) != "":
				text += b.Text + "\n"
			case b.Type == wire.ToolResultBlock:
				results = append(results, b)
			}
		}
		if text != "" {
			text, before = takeRecalled(text)
			said, results = append(said, strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxText)], ""))), nil
		}
	}
	if len(said) == 0 {
		said = []string{""}
	}
	return said, before, results
}
