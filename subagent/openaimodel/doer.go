package openaimodel

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"mneme/memory/telemetry"
)

// maxAnswer bounds an answer, in bytes: the client reads lines and error bodies
// of any length.
const maxAnswer = 64 << 20

// exchange carries, by the context, what go-openai has no way for: headers of
// one call, in both directions.
type exchange struct {
	conversation string
	over         bool // hardly anybody goes on from the answer
	auto         bool // the gateway chooses the effort
	recalled     bool // the first part of the newest user message is of this request alone
	answered     bool // the head of an answer has come
	retryAfter   time.Duration
	request      string // the gateway's id of the call
	window       int    // tokens of the model's context window; 0 if the gateway does not know
	reason       string // why the vendor refused
	keyName      string // the variable that holds the key that it refused
	limit, sent  int    // of a request that is too long, in tokens
}

// read notes the gateway's headers.
func (x *exchange) read(h http.Header) {
	number := func(name string) int {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	x.answered, x.retryAfter = true, retryAfter(h)
	x.request, x.reason, x.keyName = h.Get("X-AG-Request-Id"), h.Get("X-AG-Error"), h.Get("X-AG-Key-Name")
	x.window, x.limit, x.sent = number(contextHeader), number("X-AG-Limit-Tokens"), number("X-AG-Sent-Tokens")
}

// contextHeader tells the context window of the model that was asked, in tokens.
const contextHeader = "X-AG-Context-Tokens"

type exchangeKey struct{}

// doer sends go-openai's requests.
type doer struct{ http *http.Client }

// Do adds the call's headers and notes those of the answer.
func (d doer) Do(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if ok && x.conversation != "" {
		r.Header.Set("X-AG-Conversation-Id", x.conversation)
	}
	if ok && x.over {
		r.Header.Set("X-AG-Conversation-Over", "true")
	}
	if ok && x.auto {
		r.Header.Set("X-AG-Effort", EffortAuto)
	}
	if ok && x.recalled {
		r.Header.Set("X-AG-Ephemeral-Parts", "1")
	}
	// By these the gateway's log and its records of usage name the run.
	if trail := telemetry.From(r.Context()); trail.Run != "" {
		r.Header.Set("X-AG-Run-Id", trail.Run)
		r.Header.Set("X-AG-Chat-Id", trail.Chat)
		// These a backend may see that is the operator's own.
		r.Header.Set("Mneme-Run-Id", trail.Run)
		if trail.Call != "" {
			r.Header.Set("Mneme-Call-Id", trail.Call)
		}
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, err
	}
	if ok {
		x.read(resp.Header)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
