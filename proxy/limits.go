package proxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// defaultAnswerTokens is what a request that bounds its answer by nothing may be answered with, as budgets see it.
const defaultAnswerTokens = 4096

// Headers of what rates and budgets leave: of the one that is closest to its end.
const (
	rateLimitHeader     = "RateLimit-Limit"
	rateRemainingHeader = "RateLimit-Remaining"
	rateResetHeader     = "RateLimit-Reset" // seconds
	// shouldRetryHeader keeps the vendors' client libraries from trying again what a wait of seconds does not help.
	shouldRetryHeader = "X-Should-Retry"
)

// longWait is a wait that no client library should sit out.
const longWait = time.Minute

// admitted is what the limits made of a request.
type admitted struct {
	reserved limit.Reservation
	input    int64 // tokens of the request, as estimated; 0 where nothing bounds it
	price    price.Price
	priced   bool // the price is known
}

// admit asks the limits of whoever sends the request, before a vendor is asked for the first time. What is tried
// again, by the gateway itself, is one call. The model calls of a Copilot CLI are not asked for: the request that the
// CLI answers has been.
func (s *Server) admit(ctx context.Context, x routed, o *wire.Outline) error {
	who := access.From(ctx)
	if s.limiter == nil || x.endpoint.counts || x.backend.once || !s.limiter.Limited(who) {
		return nil
	}
	got := &x.result.admitted
	got.price, got.priced = s.config.Prices.Of(x.model)
	got.input = usage.EstimateInput(o.Body)
	output := s.answerTokens(x.endpoint, o)
	estimate := limit.Amount{Tokens: got.input + output}
	if got.priced {
		estimate.Micros = got.price.Most(got.input, output)
	}
	var err error
	got.reserved, err = s.limiter.Reserve(ctx, who, x.id, estimate)
	var refused *limit.Refusal
	switch {
	case err == nil:
		tellStanding(x.client.Header(), got.reserved.Standing)
		return nil
	case errors.As(err, &refused):
		return x.overLimit(refused)
	case errors.Is(err, limit.ErrAway):
		h := x.client.Header()
		h.Set("Retry-After", "5")
		h[reasonHeader] = []string{string(reasonOwnAway)}
		return wire.Failure{Status: http.StatusServiceUnavailable, Code: string(reasonOwnAway),
			Message: "the limits of this call cannot be checked, since the store does not answer: try again in some seconds"}
	}
	return err
}

// answerTokens is the most that an answer may have.
func (s *Server) answerTokens(e endpoint, o *wire.Outline) int64 {
	if e.name == embeddingsEndpoint.name {
		return 0
	}
	most := s.config.AnswerTokens
	if most == 0 {
		most = defaultAnswerTokens
	}
	for _, name := range outputMembers {
		if m := o.Members.Get(name); m.Found() {
			if n := gjson.ParseBytes(o.Of(m)); n.Type == gjson.Number && n.Num >= 1 && n.Num <= access.Most {
				most = n.Int()
			}
		}
	}
	if m := o.Members.Get("n"); m.Found() { // answers of chat completions
		if n := gjson.ParseBytes(o.Of(m)); n.Num > 1 && n.Num <= 1024 {
			most *= n.Int()
		}
	}
	return most
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

// overLimit is a refusal in the words of the client's dialect.
func (x routed) overLimit(r *limit.Refusal) error {
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
	return wire.Failure{Status: http.StatusTooManyRequests, Code: string(why), Message: r.Error()}
}

// settle charges what a call took: what was counted, however it ended. A client that leaves before a vendor has said
// anything has made it read the request.
func (s *Server) settle(x *request, outcome string, t usage.Tokens) {
	got := x.result.admitted
	if outcome == outcomeCanceled && t == (usage.Tokens{}) && x.result.attempts > 0 {
		t.Input = got.input
	}
	actual := limit.Amount{Tokens: t.Input + t.CacheRead + t.CacheCreation + t.Output}
	if got.priced {
		actual.Micros = got.price.Cost(priceTokens(t))
	}
	got.reserved.Commit(actual)
}

func priceTokens(t usage.Tokens) price.Tokens {
	return price.Tokens{Input: t.Input, CachedInput: t.CacheRead, CacheWrite: t.CacheCreation, Output: t.Output}
}
