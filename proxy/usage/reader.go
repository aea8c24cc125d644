package usage

import (
	"bytes"
	"cmp"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Reader takes the counts out of one answer of a backend. It is given the very
// bytes that pass and keeps none of them.
type Reader struct {
	dialect wire.Dialect
	spoken  [][]byte
	tokens  Tokens
	told    bool // the vendor counted something
	final   bool // and the output to its end
	text    tally
}

// NewReader makes a Reader for an answer in a dialect, the backend's.
func NewReader(d wire.Dialect) *Reader { return &Reader{dialect: d, spoken: spoken[d]} }

// Names that cannot stand inside a JSON string: their quotes would be escaped.
var (
	usageName = []byte(`"usage"`)
	deltaName = []byte(`"delta":`)
)

// Event takes the data of one server-sent event.
func (r *Reader) Event(data []byte) {
	if !r.final && (r.dialect == wire.Chat || wire.EventType(data) == wire.BlockDelta) {
		_, delta, _ := bytes.Cut(data, deltaName)
		r.text.answer(r.spoken, delta)
	}
	if bytes.Contains(data, usageName) {
		r.find(data)
	}
}

// Text is Event for the data of which wire.ReadTextPiece has made a piece with that
// text.
func (r *Reader) Text(text []byte) {
	if !r.final {
		r.text.literal(text)
	}
}

// Body takes an answer that is not streamed.
func (r *Reader) Body(body []byte) {
	r.find(body)
	if !r.final {
		r.text.answer(r.spoken, body)
	}
}

// Message is Body for an answer of the messages dialect of which wire.ReadMessage has
// made an outline.
func (r *Reader) Message(o *wire.Outline) {
	if u := gjson.ParseBytes(o.Of(o.Messages[0].Members.Get("usage"))); u.IsObject() {
		r.messages(u)
		r.final = true
		return
	}
	r.text.answer(r.spoken, o.Body)
}

// find looks for counts where the dialects have them. All of them are cumulative.
func (r *Reader) find(data []byte) {
	if r.dialect == wire.Messages {
		if wire.EventType(data) == wire.MessageStart {
			if u := gjson.GetBytes(data, "message.usage"); u.IsObject() {
				r.messages(u)
			}
		} else if u := gjson.GetBytes(data, "usage"); u.IsObject() {
			r.messages(u)
			r.final = true
		}
		return
	}
	u := gjson.GetBytes(data, "usage")
	if !u.IsObject() {
		u = gjson.GetBytes(data, "choices.0.usage") // Moonshot's streams
	}
	if u.IsObject() {
		r.chat(u)
	}
}

// messages takes what u has: later events of a stream repeat only some counts.
func (r *Reader) messages(u gjson.Result) {
	u.ForEach(func(name, value gjson.Result) bool {
		var to *int64
		switch name.Str {
		case "input_tokens":
			to = &r.tokens.Input
		case "output_tokens":
			to = &r.tokens.Output
		case "cache_read_input_tokens":
			to = &r.tokens.CacheRead
		case "cache_creation_input_tokens":
			to = &r.tokens.CacheCreation
		case "output_tokens_details":
			to, value = &r.tokens.Reasoning, value.Get("thinking_tokens")
		default:
			return true
		}
		if n := number(value); n > 0 {
			*to, r.told = n, true
		}
		return true
	})
}

// chat takes counts of a prompt that includes what came from the cache. Vendors have
// three names for that. What the total has beyond prompt and completion is thinking that
// some (Google, xAI) leave out of the completion.
func (r *Reader) chat(u gjson.Result) {
	cached := count(u, "prompt_tokens_details.cached_tokens", "cached_tokens", "prompt_cache_hit_tokens")
	prompt, output := count(u, "prompt_tokens"), count(u, "completion_tokens")
	if prompt == 0 && output == 0 {
		return // a chunk that has counts, and none of them yet
	}
	said := output
	output = max(output, count(u, "total_tokens")-prompt)
	r.tokens = Tokens{
		Input: max(0, prompt-cached), CacheRead: min(cached, prompt), Output: output,
		Reasoning: min(cmp.Or(count(u, "completion_tokens_details.reasoning_tokens"), output-said), output),
	}
	r.told, r.final = true, true
}

// mostTokens bounds what is believed of a vendor's count, so that sums stay
// sound.
const mostTokens = 1e12

// count is the first of the named counts that u has.
func count(u gjson.Result, names ...string) int64 {
	for _, name := range names {
		if n := number(u.Get(name)); n > 0 {
			return n
		}
	}
	return 0
}

// number is 0 for what is no count.
func number(v gjson.Result) int64 {
	if v.Type != gjson.Number || v.Num < 0 || v.Num > mostTokens {
		return 0
	}
	return int64(v.Num)
}

// Tokens gives the counts when the answer is over, or broke off. What the vendor
// left untold is estimated, from the request as it was sent and from the text
// that came; estimated then says so. Without an answer there is nothing to count.
func (r *Reader) Tokens(request []byte) (t Tokens, estimated bool) {
	t = r.tokens
	spoken := r.text.tokens()
	if !r.told && spoken == 0 {
		return Tokens{}, false
	}
	if t.Input+t.CacheRead+t.CacheCreation == 0 {
		t.Input, estimated = EstimateInput(request), true
	}
	if (!r.final || t.Output == 0) && spoken > t.Output {
		t.Output, estimated = spoken, true
	}
	return t, estimated
}
