package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/access"
	"mneme/access/fair"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// defaultAnswerTokens bounds an answer, where budgets hold and the request does not bound it.
const defaultAnswerTokens = 4096

// mostAnswer is the largest bound of an answer that a client may send, in tokens.
const mostAnswer = 1 << 31

// Headers of what rates and budgets leave: of the one that is closest to its end.
const (
	rateLimitHeader     = "RateLimit-Limit"
	rateRemainingHeader = "RateLimit-Remaining"
	rateResetHeader     = "RateLimit-Reset" // seconds
	// shouldRetryHeader keeps the vendors' client libraries from trying again what a wait of seconds does not help.
	shouldRetryHeader = "X-Should-Retry"
)

// callPatience is how long a call waits for a place.
const callPatience = 5 * time.Second

// longWait is a wait that no client library should sit out.
const longWait = time.Minute

// admitted is what the limits make of a request.
type admitted struct {
	limiter  *limit.Limiter
	who      access.Principal
	price    price.Price
	priced   bool // the price is known
	reserved limit.Reservation
	most     limit.Amount // that was reserved
}

// admit finds out which limits bind the caller. The model calls of a Copilot CLI are not asked for: the request that
// the CLI answers has been.
func (s *Server) admit(ctx context.Context, x routedRequest) error {
	who := access.FromContext(ctx)
	if x.endpoint.counts || x.backend.noRetry {
		return nil
	}
	if x.result.leave == nil { // else the backend before had the place
		leave, err := s.places.Enter(ctx, who.Tenant)
		if errors.Is(err, fair.ErrFull) {
			return x.busy()
		}
		x.result.leave = leave
		if err != nil {
			return err
		}
	}
	if !s.limiter.Limited(who) {
		return nil
	}
	got := cmp.Or(x.result.admitted, &admitted{limiter: s.limiter, who: who}) // what a backend before has reserved stays
	got.price, got.priced = priceOf(x)
	tokens, money := s.limiter.Spends(who)
	if money && !got.priced && !s.config.AllowUnpriced {
		x.client.Header()[reasonHeader] = []string{string(reasonUnpriced)}
		return wire.Failure{Status: http.StatusBadRequest, Code: string(reasonUnpriced), Message: fmt.Sprintf("a budget in "+
			"USD holds for this call, and there is no price of the model %q (backend %q): whoever runs this gateway can write "+
			"what it costs into prices, or set budgets.unpriced: allow", x.model, x.backend.name)}
	}
	if tokens && x.endpoint.name != embeddingsEndpoint.name {
		x.result.answer = cmp.Or(s.config.AnswerTokens, defaultAnswerTokens)
	}
	x.result.admitted = got
	return nil
}

// priceOf is the price of the model to which a request goes; false if it is not known.
func priceOf(x routedRequest) (price.Price, bool) {
	if x.backend.config.Kind == KindOffline { // it answers to any name
		return price.Price{}, true
	}
	return x.prices.LookupAt(x.backend.local, x.model)
}

// reserve has the limits admit what is about to be sent: the input as estimated, and the answer that it bounds. What is
// tried again, by the gateway itself, is one call, which reserves what a further attempt takes beyond the ones before.
func (a *attempt) reserve(ctx context.Context, body []byte) error {
	got := a.result.admitted
	if got == nil {
		return nil
	}
	input, output := usage.EstimateInput(body), a.answerTokens(body)
	need := limit.Amount{Tokens: max(got.most.Tokens, input+output)}
	if got.priced {
		need.Micros = max(got.most.Micros, got.price.Most(input, output))
	}
	if need == got.most {
		return nil
	}
	reserved, err := got.limiter.Reserve(ctx, got.who, a.id, need)
	var refused *limit.Refusal
	switch {
	case err == nil:
		tellStanding(a.client.Header(), reserved.Standing)
		got.reserved, got.most = reserved, need
		return nil
	case got.most != (limit.Amount{}): // the client gets the error of the attempt before
		return err
	case errors.As(err, &refused):
		return a.overLimit(refused, refused.Error())
	case errors.Is(err, limit.ErrAway):
		h := a.client.Header()
		h.Set("Retry-After", "5")
		h[reasonHeader] = []string{string(reasonOwnAway)}
		return wire.Failure{Status: http.StatusServiceUnavailable, Code: string(reasonOwnAway),
			Message: "the limits of this call cannot be checked, since the store does not answer: try again in some seconds"}
	}
	return err
}

// answerTokens is the most that the answers to a request may have, in the dialect that the vendor speaks. Where tokens
// are bounded, one that is open takes more than any budget has.
func (a *attempt) answerTokens(body []byte) int64 {
	o, err := a.doc.WithBody(body)
	if err != nil {
		return access.Most
	}
	most := int64(-1)
	for _, name := range outputMembers[a.backend.speaks] {
		if n, ok := wholeNumber(o.Raw(o.Members.Get(name))); ok {
			most = max(most, n)
		}
	}
	if most < 0 && a.result.answer > 0 {
		return access.Most
	}
	if n, ok := wholeNumber(o.Raw(o.Members.Get("n"))); ok && n > 1 && a.backend.speaks == wire.Chat {
		most = min(most, access.Most/n) * n
	}
	return max(most, 0)
}

// maxAnswers bounds n of a chat completion: https://platform.openai.com/docs/api-reference/chat/create.
const maxAnswers = 128

// withPlainBounds returns the request with whole numbers for n and for the bounds of its answers. reserve reads the same
// numbers. Translation needs them without an exponent.
func (x scopedRequest) withPlainBounds() (*wire.Outline, error) {
	var e wire.Edits
	other := x.translated() || x.foreign()
	for _, m := range x.outline.Members {
		raw := x.outline.Raw(m.Value)
		if m.Name == "n" && x.endpoint.dialect == wire.Chat && raw.Kind() != 'n' {
			if n, ok := wholeNumber(raw); !ok || n < 1 || n > maxAnswers {
				return nil, wire.Failure{Status: http.StatusBadRequest, Param: m.Name, Message: fmt.Sprintf(
					"n is the number of answers: it must be a whole number from 1 to %d", maxAnswers)}
			}
		}
		if raw.Kind() == 'n' || x.endpoint.counts || !slices.Contains(outputMembers[x.endpoint.dialect], m.Name) {
			continue
		}
		tokens, ok := wholeNumber(raw)
		if !ok || tokens > mostAnswer ||
			tokens < 1 && (other || !x.modelInfo.profile.TakesBound(x.endpoint.dialect, tokens)) {
			return nil, wire.Failure{Status: http.StatusBadRequest, Param: m.Name, Message: fmt.Sprintf(
				"%s bounds the answer, in tokens: it must be a whole number from 1 to %d", m.Name, mostAnswer)}
		}
		if other && bytes.ContainsAny(raw, ".eE") {
			e.Replace(m.Value, strconv.AppendInt(nil, tokens, 10))
		}
	}
	return x.outline.WithBody(e.Apply(x.outline.Body))
}

// wholeNumber reads a number that is whole, however it is written: 60000, 60000.0, 6e4.
func wholeNumber(raw jsontext.Value) (int64, bool) {
	if raw.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) <= access.Most
}

// tellStanding says how far the tightest limit is used.
func tellStanding(h http.Header, s limit.Standing) {
	if s.Limit == 0 {
		return
	}
	h.Set(rateLimitHeader, strconv.FormatInt(s.Limit, 10))
	h.Set(rateRemainingHeader, strconv.FormatInt(s.Remaining, 10))
	h.Set(rateResetHeader, wholeSecondsUp(s.Reset))
}

func wholeSecondsUp(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// busy returns the refusal of a call that waited for a place in vain.
func (x *request) busy() error {
	return x.overLimit(&limit.Refusal{RetryAfter: callPatience}, "as many calls of models as allowed are under way: "+
		"try again in some seconds")
}

// overLimit is a refusal in the words of the client's dialect.
func (x *request) overLimit(r *limit.Refusal, message string) error {
	h := x.client.Header()
	tellStanding(h, r.Standing)
	if r.RetryAfter > 0 {
		h.Set("Retry-After", wholeSecondsUp(r.RetryAfter))
	}
	if r.RetryAfter == 0 || r.RetryAfter > longWait {
		h.Set(shouldRetryHeader, "false")
	}
	why := reasonOwnRate
	if r.Budget {
		why = reasonOwnBudget
	}
	h[reasonHeader] = []string{string(why)}
	return wire.Failure{Status: http.StatusTooManyRequests, Code: string(why), Message: message}
}
