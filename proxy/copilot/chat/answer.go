package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mneme/proxy/copilot"
	"mneme/proxy/wire"
)

// Reasons for which an answer ends.
const (
	finishStop  = "stop"
	finishTools = "tool_calls"
)

// completion is an answer, or a piece of one.
type completion struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"` // Unix seconds
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *wire.ChatUsage `json:"usage,omitzero"`
}

type choice struct {
	Index        int             `json:"index"`
	Delta        *answerMessage  `json:"delta,omitzero"`
	Message      *answerMessage  `json:"message,omitzero"`
	FinishReason wire.NullString `json:"finish_reason"`
}

type answerMessage struct {
	Role      string          `json:"role,omitzero"`
	Content   *string         `json:"content,omitzero"`
	ToolCalls []wire.ChatCall `json:"tool_calls,omitempty"`
}

// tally is nil where the CLI has counted nothing.
func tally(u copilot.Usage) *wire.ChatUsage {
	in, out := int64(u.Input), int64(u.Output)
	if in == 0 && out == 0 {
		return nil
	}
	return &wire.ChatUsage{PromptTokens: in, CompletionTokens: out, TotalTokens: in + out,
		PromptDetails: &wire.PromptDetails{CachedTokens: min(int64(u.CacheRead), in)}}
}

// response is an answer that is being given. Its text, end and fail are called by the goroutine of
// the turn.
type response struct {
	http *http.Request
	req  *request
	base completion
	head chan headed // has room for the one

	in      *io.PipeReader
	out     *io.PipeWriter
	started bool
	buf     strings.Builder // of an answer that is not streamed
}

// headed is the beginning of an answer, or why there is none.
type headed struct {
	resp *http.Response
	err  error
}

func newAnswer(hr *http.Request, r *request) *response {
	a := &response{http: hr, req: r, head: make(chan headed, 1)}
	a.in, a.out = io.Pipe()
	a.base = completion{ID: "chatcmpl-" + rand.Text(), Object: "chat.completion", Created: time.Now().Unix(),
		Model: r.model}
	if r.stream {
		a.base.Object = "chat.completion.chunk"
	}
	return a
}

// wait gives the response as soon as it has begun.
func (a *response) wait(ctx context.Context) (*http.Response, error) {
	select {
	case h := <-a.head:
		return h.resp, h.err
	case <-ctx.Done():
		_ = a.in.Close()
		return nil, context.Cause(ctx)
	}
}

// text takes a piece of the answer.
func (a *response) text(piece string) {
	if !a.req.stream {
		a.buf.WriteString(piece)
		return
	}
	a.begin()
	a.chunk(&answerMessage{Content: &piece}, "", nil)
}

// begin starts a stream.
func (a *response) begin() {
	if a.started {
		return
	}
	a.started = true
	a.head <- headed{resp: respond(a.http, http.StatusOK, "text/event-stream", a.in, -1)}
	empty := ""
	a.chunk(&answerMessage{Role: wire.RoleAssistant, Content: &empty}, "", nil)
}

// chunk writes an event of a stream. Its reader may be gone; the turn's context tells so,
// too.
func (a *response) chunk(delta *answerMessage, finish string, u *wire.ChatUsage) {
	c := a.base
	c.Choices, c.Usage = []choice{}, u
	if delta != nil {
		c.Choices = []choice{{Delta: delta, FinishReason: wire.NullString(finish)}}
	}
	_, _ = a.out.Write(wire.AppendFrame(nil, "", encode(c)))
}

func encode(v any) []byte {
	b, err := wire.Marshal(v)
	if err != nil { // strings, numbers and checked JSON always encode
		panic(err)
	}
	return b
}

// end completes the answer.
func (a *response) end(calls []wire.ChatCall, spent copilot.Usage) {
	finish, u := finishStop, tally(spent)
	if len(calls) > 0 {
		finish = finishTools
	}
	if !a.req.stream {
		text := a.buf.String()
		m := &answerMessage{Role: wire.RoleAssistant, Content: &text, ToolCalls: calls}
		c := a.base
		c.Choices, c.Usage = []choice{{Message: m, FinishReason: wire.NullString(finish)}}, u
		a.head <- headed{resp: plain(a.http, http.StatusOK, encode(c))}
		return
	}
	a.begin()
	for i, c := range calls {
		c.Index = &i
		a.chunk(&answerMessage{ToolCalls: []wire.ChatCall{c}}, "", nil)
	}
	last := u // a client that did not ask for a chunk of its own gets no chunk without a choice
	if a.req.tallied {
		last = nil
	}
	a.chunk(&answerMessage{}, finish, last)
	if a.req.tallied && u != nil {
		a.chunk(nil, "", u)
	}
	_, _ = a.out.Write(wire.AppendFrame(nil, "", []byte("[DONE]")))
	_ = a.out.Close()
}

// fail ends the answer: with a status while nothing of it is told, else in its
// middle.
func (a *response) fail(err error) {
	var f wire.Failure
	var r *Refusal
	switch {
	case a.started:
		_ = a.out.CloseWithError(err)
	case errors.As(err, &r):
		resp := failed(a.http, r.Failure)
		if r.RetryAfter != "" {
			resp.Header.Set("Retry-After", r.RetryAfter)
		}
		a.head <- headed{resp: resp}
	case errors.As(err, &f):
		a.head <- headed{resp: failed(a.http, f)}
	default:
		a.head <- headed{err: err}
	}
}

func failed(hr *http.Request, f wire.Failure) *http.Response {
	return plain(hr, f.Status, f.Body(wire.Chat))
}

func plain(hr *http.Request, status int, b []byte) *http.Response {
	return respond(hr, status, "application/json", io.NopCloser(strings.NewReader(string(b))), int64(len(b)))
}

func respond(hr *http.Request, status int, kind string, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {kind}}, Body: body, ContentLength: length, Request: hr,
	}
}
