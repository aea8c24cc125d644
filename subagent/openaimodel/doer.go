package openaimodel

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
)

// maxAnswer bounds an answer, in bytes: the client reads lines and error bodies
// of any length.
const maxAnswer = 64 << 20

// exchange carries, by the context, what go-openai has no way for: headers of
// one call, in both directions.
type exchange struct {
	conversation        string
	final               bool // the conversation hardly goes on from the answer
	auto                bool // the gateway chooses the effort
	ephemeral           int  // how many parts at the front of the newest user message are of this request alone
	answered            bool // the head of an answer has come
	retryAfter          time.Duration
	request             string // the gateway's id of the call
	window              int    // tokens of the model's context window; 0 if the gateway does not know
	reason              string // why the vendor refused
	keyName             string // the variable that holds the key that it refused
	limit, promptTokens int    // of a request that is too long, in tokens

	response *http.Response // its trailer is complete once its body is read to the end

	answer   collector
	began    time.Time
	end      func(event.ModelCall)
	failure  string // code of it; empty for none
	model    string // as the gateway says, else by its alias
	backend  string
	attempts int
	mended   []string
}

// codeCanceled is the failure of a call that its caller ended, as with the run.
const codeCanceled = "canceled"

// failed takes the error that ends the call, and gives it back.
func (x *exchange) failed(err error) error {
	if e := new(Error); errors.As(err, &e) {
		x.failure = e.Code
	}
	return err
}

// note tells the run that the call has ended.
func (x *exchange) note() {
	took := float64(time.Since(x.began).Milliseconds()) / 1000
	x.end(event.ModelCall{
		Started: event.Seconds(x.began), Seconds: took, Model: x.model, Backend: x.backend, Attempts: x.attempts,
		Mended: x.mended, Usage: x.answer.usage, Error: x.failure,
	})
}

// Bounds of what is believed of the gateway's headers.
const (
	maxName   = 200 // bytes
	maxMended = 32  // names
)

// readAnswerer notes which backend and model answered, and what that took.
func (x *exchange) readAnswerer(h http.Header) {
	short := func(name string) string {
		if s := h.Get(name); len(s) <= maxName && utf8.ValidString(s) {
			return s
		}
		return ""
	}
	x.model, x.backend = cmp.Or(short("X-AG-Model"), x.model), short("X-AG-Backend")
	for name := range strings.SplitSeq(h.Get("X-AG-Mended"), ",") {
		if name != "" && len(name) <= maxName && utf8.ValidString(name) && len(x.mended) < maxMended {
			x.mended = append(x.mended, name)
		}
	}
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
	x.window, x.limit, x.promptTokens = number(contextHeader), number("X-AG-Limit-Tokens"), number("X-AG-Sent-Tokens")
	x.attempts = number("X-AG-Attempts")
	x.readAnswerer(h)
}

// contextHeader tells the context window of the model that was asked, in tokens.
const contextHeader = "X-AG-Context-Tokens"

// costTrailer tells behind a streamed answer what the call cost, in millionths of a USD; without it that is not known.
const costTrailer = "X-AG-Cost-Micro-USD"

// maxRest bounds what may follow the last event of a stream, in bytes.
const maxRest = 64 << 10

// readCost notes what a stream that has ended cost: its trailer comes with the end of the body, which the client does
// not read that far.
func (x *exchange) readCost() {
	if x.response == nil {
		return
	}
	rest, err := io.Copy(io.Discard, io.LimitReader(x.response.Body, maxRest))
	if err != nil || rest == maxRest { // which breaks no answer; there is no trailer before the end
		return
	}
	if n, err := strconv.ParseInt(x.response.Trailer.Get(costTrailer), 10, 64); err == nil && n >= 0 {
		x.answer.usage.CostMicroUSD = &n
	}
}

type exchangeKey struct{}

// doer sends go-openai's requests.
type doer struct{ http *http.Client }

// Do adds the call's headers and notes those of the answer.
func (d doer) Do(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	set := func(name, value string, given bool) {
		if given {
			r.Header.Set(name, value)
		}
	}
	if ok {
		set("X-AG-Conversation-Id", x.conversation, x.conversation != "")
		set("TE", "trailers", true)
		set("X-AG-Conversation-Over", "true", x.final)
		set("X-AG-Effort", EffortAuto, x.auto)
		set("X-AG-Ephemeral-Parts", strconv.Itoa(x.ephemeral), x.ephemeral > 0)
	}
	// By these the gateway's log and its records of usage name the run.
	if trail := telemetry.FromContext(r.Context()); trail.Run != "" {
		r.Header.Set("X-AG-Run-Id", trail.Run)
		if chat, err := memory.ParseChat(trail.Chat); err == nil { // the gateway knows its tenant by the caller
			r.Header.Set("X-AG-Chat-Id", chat.ID())
		}
		// These a backend may see that is the operator's own.
		r.Header.Set("Mneme-Run-Id", trail.Run)
		set("Mneme-Call-Id", trail.Call, trail.Call != "")
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, err
	}
	if ok {
		x.read(resp.Header)
		x.response = resp
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
