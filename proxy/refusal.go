package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// Headers of an answer that is a backend's error.
const (
	// reasonHeader says why, as one of the reasons: an agent need not know every
	// vendor's words. It is there for a limit of our own too.
	reasonHeader = "X-Ag-Error"
	// keyNameHeader names, where the key was refused, the variable that holds it.
	keyNameHeader = "X-Ag-Key-Name"
	// limitHeader and sentHeader tell of a request that is too long what the backend
	// said: the window or the allowance, and what it counted of the prompt, in tokens.
	limitHeader = "X-Ag-Limit-Tokens"
	sentHeader  = "X-Ag-Sent-Tokens"
)

// reason is why a backend refused a request, as far as it says so.
type reason string

// The reasons.
const (
	reasonTooLong   reason = "context_length_exceeded" // longer than the model's context window
	reasonAllowance reason = "request_too_large"       // larger than the account's allowance per minute
	reasonKey       reason = "key_refused"
	reasonQuota     reason = "quota_exhausted"
	reasonRate      reason = "rate_limited"
	reasonContent   reason = "content_refused"     // what the user or the model wrote
	reasonImages    reason = "image_not_supported" // the model takes none, and the request has some
	reasonDocuments reason = "document_not_supported"
	reasonModel     reason = "model_unknown"
	reasonDown      reason = "vendor_failed"
	reasonRejected  reason = "rejected"    // anything else
	reasonUnfit     reason = "cannot_take" // by mneme itself, for a choice of a route; never sent to a client
)

// Reasons of refusals by limits of mneme's own, which no backend was asked for. They are the errors' codes too.
const (
	reasonOwnRate   reason = "rate_limit_exceeded" // of a key, a tenant or a user
	reasonOwnBudget reason = "budget_exceeded"
	reasonOwnAway   reason = "budgets_unavailable" // the limits cannot be checked
	reasonUnpriced  reason = "unpriced_model"      // a budget in USD holds, and the model has no price
)

// wordings are how errors tell what their status does not.
var wordings = []struct {
	reason reason
	words  *regexp.Regexp
}{
	{
		reasonQuota,
		regexp.MustCompile(`insufficient[_ ](quota|balance|credit)|credit balance is too low|exceeded your current ` +
			`quota|billing_hard_limit|payment required`),
	},
	{reasonContent,
		regexp.MustCompile(`content[_ ](filter|policy|management|moderation)|responsible ?ai ?policy|safety ` +
			`system|prohibited[_ ]content|` +
			`data_?inspection|considered high risk|inappropriate content|sensitive ` +
			`(content|words)|moderation_(blocked|error)|usage policy|content_blocked|request blocked due to|` +
			`^ (safety|recitation|language|spii|blocklist) `)},
	{reasonModel,
		regexp.MustCompile(`model_?not_?(found|exists?)|model_not_found_error|(unknown|invalid|no such) ` +
			`model\b|not_found_error model:|` +
			`\bmodel\b[^.;]{0,80}(not found|not exist|is not available|no longer available|has been (deprecated|retired))|no ` +
			`endpoints found`)},
	{
		reasonKey,
		regexp.MustCompile(`(invalid|incorrect|missing|no|expired)[_ ](api|x-api)[_ -]?key|\bapi[_ ]?key[^.;]{0,30}(not ` +
			`valid|invalid|expired|revoked)|authentication[_ ](error|failed)|invalid_authentication`),
	},
	{reasonRate, regexp.MustCompile(`rate[_ ]?limit`)},
}

// reasonOf reads an error.
func (a *attempt) reasonOf(f wire.Failure) reason {
	got := a.answer
	switch kinds := a.refusedContent(); {
	case slices.Contains(kinds, wire.ImageContent):
		return reasonImages
	case slices.Contains(kinds, wire.DocumentContent):
		return reasonDocuments
	}
	switch got.length.Excess {
	case thinking.OverWindow:
		return reasonTooLong
	case thinking.OverAllowance:
		return reasonAllowance
	}
	if got.class != thinking.ClassOther { // whatever status and words gateways in between have put around it
		return reasonRejected
	}
	text := strings.ToLower(f.Type + " " + f.Code + " " + f.Message)
	for _, w := range wordings {
		if w.words.MatchString(text) && (got.status < 500 || w.reason == reasonRate || w.reason == reasonQuota) {
			return w.reason
		}
	}
	switch status := f.Status; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return reasonKey
	case status == http.StatusPaymentRequired:
		return reasonQuota
	case status == http.StatusTooManyRequests:
		return reasonRate
	case status == http.StatusNotFound && strings.Contains(text, "model"):
		return reasonModel
	case status >= 500, status == http.StatusRequestTimeout:
		return reasonDown
	}
	return reasonRejected
}

// tellRefusal says in headers why the backend refused, keeps what is to be
// remembered of it, and logs what it said.
func (a *attempt) tellRefusal() {
	ans := a.answer
	a.learnWindow(ans.length)
	why := a.reasonOf(wire.ReadFailure(ans.errorStatus(), ans.content))
	h := a.client.Header()
	h[reasonHeader] = []string{string(why)}
	for name, n := range map[string]int{
		limitHeader: ans.length.Limit, sentHeader: cmp.Or(ans.length.Input, ans.length.Total),
	} {
		if n > 0 {
			h[name] = []string{strconv.Itoa(n)}
		}
	}
	if name := a.backend.config.KeyName; why == reasonKey && name != "" {
		h[keyNameHeader] = []string{name}
	}
	a.result.reason = why // for the request's own line, which is always written
	a.often.Warn().Str("request_id", a.id).EmbedObject(a.trail).Str("reason", string(why)).
		Int("upstream_status", ans.status).Str("backend", a.backend.name).Str("model", a.model).Str("error", a.quote()).
		Msgf("the backend refused a request (%s: %s)", a.backend.name, why)
}

// errorStatus is the status of an error; 0 for one that came as a success.
func (a *answer) errorStatus() int {
	if a.status < http.StatusBadRequest {
		return 0
	}
	return a.status
}

// tooLongWords are those of the messages dialect by which its clients know that a
// request is too long.
var tooLongWords = regexp.MustCompile(`prompt is too long: \d+ tokens > \d+ max|exceed context limit: \d+ \+ \d+ > \d+`)

// saysTooLong reports whether an error about length is one that clients of a dialect
// know for it. Vendors and servers have many others.
func (a *answer) saysTooLong(d wire.Dialect) bool {
	errObject := gjson.GetBytes(a.content, "error")
	if d == wire.Messages {
		return a.status == http.StatusBadRequest && tooLongWords.MatchString(errObject.Get("message").Str)
	}
	return a.status == http.StatusBadRequest && errObject.Get("code").Str == string(reasonTooLong)
}

// inOurWords is a backend's error for a client that does not know the backend's
// words: what it does about a request that is too long hangs on them.
func (x routedRequest) inOurWords(f wire.Failure, l thinking.Length) wire.Failure {
	if l.Excess != thinking.OverWindow {
		return f
	}
	limit := cmp.Or(l.Limit, x.backend.windows.size(x.model))
	tokens := cmp.Or(l.Input, l.Total, int(usage.EstimateInput(x.in.outline.Body)))
	f = wire.Failure{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: string(reasonTooLong),
		Param: "messages"}
	messages := x.endpoint.dialect == wire.Messages
	switch {
	case l.Room() > 0 && messages:
		f.Message = fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length "+
			"or `max_tokens` and try again", l.Input, l.Output, l.Limit)
	case l.Room() > 0:
		f.Message = fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d "+
			"in the messages, %d in the completion). "+
			"Please reduce the length of the messages or completion.", l.Limit, l.Input+l.Output, l.Input, l.Output)
	case limit == 0 || tokens <= limit: // nothing is known for sure
		f.Message = "This model's maximum context length is exceeded. Please reduce the length of the messages."
		if messages {
			f.Message = "prompt is too long"
		}
	case messages:
		f.Message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, limit)
	default:
		f.Message = fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d "+
			"tokens. "+
			"Please reduce the length of the messages.", limit, tokens)
	}
	return f
}

// explained is err in words that the client goes by, if it is a backend's error
// that came as the data of an answer.
func (x routedRequest) explained(err error, data []byte) error {
	var f wire.Failure
	if !errors.As(err, &f) {
		return err
	}
	return x.inOurWords(f, thinking.ReadLength(f.Status, data))
}

// leastAnswer is the shortest answer that is worth asking for, in tokens.
const leastAnswer = 256

// lessOutput is the cure for a request with a prompt that fits the model's window while
// the answer that it asks for does not: a smaller max_tokens. Nil if that is not it.
func (a *attempt) lessOutput() *cure {
	room := a.answer.length.Room()
	room -= room / 16 // some vendors only estimate
	if room < leastAnswer {
		return nil
	}
	c := a.newCure(cureLength, "max_tokens")
	c.requestOnly = true
	for _, name := range outputMembers[a.backend.dialect] {
		if a.outline.Members.Get(name).Exists() {
			c.rules = append(c.rules, sanitize.Rule{Name: name, Max: int64(room)})
		}
	}
	if c.rules == nil { // the vendor's own default was too large
		c.rules = []sanitize.Rule{{Name: "max_tokens", Set: strconv.Itoa(room)}}
	}
	return c
}

// outputMembers bound the length of an answer.
var outputMembers = map[wire.Dialect][]string{
	wire.Messages: {"max_tokens"}, wire.Chat: {"max_tokens", "max_completion_tokens"},
	wire.Responses: {"max_output_tokens"},
}

// maxLogged bounds what the log shows of an error, in bytes.
const maxLogged = 500

// shownError is what the log shows of an error that ended a request. One that came
// in the middle of an answer is the backend's, and may hold what the user wrote.
func (x *request) shownError(err error) string {
	var f wire.Failure
	if !x.answered() || !errors.As(err, &f) {
		return err.Error()
	}
	return x.result.attempt.shortened(f.Message)
}

// quote is what the log shows of a backend's error.
func (a *attempt) quote() string {
	return a.shortened(wire.ReadFailure(a.answer.errorStatus(), a.answer.content).Message)
}

// shortened is a backend's text for the log: bounded, and without what it repeats of
// what it was sent, which the user wrote.
func (a *attempt) shortened(text string) string {
	text = withoutRequest(text[:min(len(text), 4*maxLogged)], a.doc.Body)
	return strings.ToValidUTF8(text[:min(len(text), maxLogged)], "")
}
