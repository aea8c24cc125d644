// Package offline is a small model for demonstrations and tests. It answers requests of the messages dialect in English
// and Russian, without a key or a network. It is not a language model: every answer is a statement of the user, a
// sentence of a document, the result of a tool, or one of a few fixed sentences.
//
// [Model] keeps no state. It finds the user's statements again in each request. The lexicon has grammar and synonyms.
package offline

// The model is a master if it has a tool whose only required parameter is a task. A master splits a message into
// sentences. It passes a statement to the tool remember, answers a question from the statements, and gives other
// questions to a subagent. A subagent answers from its history, or quotes the documents that its search tool finds.
// Anything else gets one short refusal.
//
// The newest statement that has all topics of a question answers it. Topics are stems of words, with a few synonyms.
// Images, sampling parameters, max_tokens and a required tool_choice are ignored. Token counts are estimates.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// maxBody and maxText bound a request and one message, in bytes. The first one is the vendor's limit. maxParts bounds
// the steps of a sentence.
const maxBody, maxText, maxParts = 32 << 20, 32 << 10, 20

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
	stream := cmp.Or[io.ReadCloser](r.Body, http.NoBody)
	defer stream.Close()
	body, err := io.ReadAll(io.LimitReader(stream, maxBody+1))
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

func answer(method, path string, body []byte) (code int, contentType string, out []byte) {
	counting := strings.HasSuffix(path, "/v1/messages/count_tokens")
	var req wire.Request
	status, message := http.StatusBadRequest, ""
	if method != http.MethodPost || !counting && !strings.HasSuffix(path, "/v1/messages") {
		status = http.StatusNotFound
		message = "the offline model serves POST /v1/messages and POST /v1/messages/count_tokens only"
	} else if len(body) > maxBody {
		status, message = http.StatusRequestEntityTooLarge, "the request is larger than 32 MiB: send less"
	} else if err := wire.Unmarshal(body, &req); err != nil {
		message = err.Error()
	} else if req.Model == "" || len(req.Messages) == 0 {
		message = "the fields model and messages are required, with at least one message"
	}
	if message != "" {
		return status, "application/json", wire.Failure{Status: status, Message: message}.Body(wire.Messages)
	}
	// Identifiers are hashes of the request, so equal requests get equal answers. Token counts are estimates. The errors
	// of Marshal are ignored because everything here was just read or is a type of ours.
	seed, _ := wire.Marshal([]any{req.System, req.Messages, req.Tools})
	sum, tokens := sha256.Sum256(seed), int64(len(seed)/4+1)
	if counting {
		return http.StatusOK, "application/json", fmt.Appendf(nil, `{"input_tokens":%d}`, tokens)
	}
	block, id := decide(&req), base32.StdEncoding.EncodeToString(sum[:15])
	usage := wire.Usage{InputTokens: tokens, OutputTokens: int64((len(block.Text)+len(block.Input))/4 + 1)}
	reply := wire.Response{ID: "msg_" + id, Type: "message", Role: wire.RoleAssistant, Model: req.Model, Usage: usage,
		StopReason: wire.StopEndTurn}
	if block.Type == wire.ToolUseBlock {
		block.ID, reply.StopReason = "toolu_"+id, wire.StopToolUse
	}
	reply.Content = wire.Content{block}
	if !req.Stream {
		out, _ = wire.Marshal(reply)
		return http.StatusOK, "application/json", out
	}
	for _, e := range reply.Events() {
		for _, piece := range strings.SplitAfter(e.Delta.Text, " ") {
			e.Delta.Text = piece
			data, _ := wire.Marshal(e)
			out = wire.AppendFrame(out, e.Type, data)
		}
	}
	return http.StatusOK, "text/event-stream; charset=utf-8", out
}

// isAgent reports whether a tool is a subagent: its only required parameter is a task.
func isAgent(t wire.Tool) bool {
	return gjson.GetBytes(t.InputSchema, "required|@ugly").Raw == `["task"]`
}
