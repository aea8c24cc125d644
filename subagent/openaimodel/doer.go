package openaimodel

import (
	"io"
	"net/http"
	"time"
)

// maxAnswer bounds an answer, in bytes: the client reads lines and error bodies
// of any length.
const maxAnswer = 64 << 20

// exchange carries, by the context, what go-openai has no way for: headers of
// one call, in both directions.
type exchange struct {
	conversation string
	auto         bool // the gateway chooses the effort
	answered     bool // the head of an answer has come
	retryAfter   time.Duration
}

type exchangeKey struct{}

// doer sends go-openai's requests.
type doer struct{ http *http.Client }

// Do adds the call's headers and notes those of the answer.
func (d doer) Do(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if ok && x.conversation != "" {
		r.Header.Set("X-AG-Conversation-Id", x.conversation)
	}
	if ok && x.auto {
		r.Header.Set("X-AG-Effort", EffortAuto)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, err
	}
	if ok {
		x.answered, x.retryAfter = true, retryAfter(resp.Header)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
