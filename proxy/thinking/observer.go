package thinking

import (
	"crypto/rand"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// maxKept bounds what an Observer keeps of an answer, in bytes. A longer answer passes to the
// client like any other, but is not recorded in the ledger.
const maxKept = 8 << 20

// Answer is a model's answer in the form in which the ledger keeps it.
type Answer struct {
	// Content is the array of blocks or, in chat completions, the message object, with the vendor's
	// tool ids. It shares no memory with the stream.
	Content jsontext.Value
	Outline *wire.Outline   // of the answer that has Content as its content, if it has been read; else nil
	Tools   []ledger.ToolID // of all tool uses, in their order
	// Cut: the answer broke off, or a part of it could not be read. Content then has the complete
	// blocks or, in chat completions, what had come.
	Cut bool
	// Response is what the client can ask for later; nil for none. It is the caller's to set.
	Response *ledger.Response
}

// Empty reports whether an answer came to its end and carries nothing: no text, no thinking and no
// call. Some vendors answer so in place of an error, Gemini with the finish "stop".
func (a Answer) Empty() bool {
	if a.Cut || len(a.Content) > 1<<9 {
		return false
	}
	content := gjson.ParseBytes(a.Content)
	empty := !carries(content)
	elements(content, func(block gjson.Result) { empty = empty && !carries(block) })
	return empty
}

// carries reports whether a block or a message has a member that says anything, beside what it is.
func carries(object gjson.Result) (any bool) {
	members(object, func(name string, value gjson.Result) {
		blank := value.Type == gjson.Null || value.Raw == `""` || value.Raw == "[]" || value.Raw == "{}"
		any = any || !blank && name != "type" && name != "role"
	})
	return any
}

// Observer taps one answer on its way to the client, in the backend's dialect, as a stream or as
// JSON, and collects what the model said. It replaces tool ids that the vendor could give again by
// unique names; every other byte passes unchanged, and so does what it cannot read. It owns no
// resources, so it may simply be dropped. It is not safe for concurrent use.
type Observer struct {
	dialect wire.Dialect
	names   names

	answer   collector  // of a stream; nil before its first event
	edits    wire.Edits // to the event that is being read
	whole    Answer     // the answer, if it came as one JSON body
	kept     int        // bytes collected so far
	lost     bool       // the answer was longer than maxKept and is not recorded
	finished bool       // the stream said that the answer is over
	complete bool       // all of the answer is there
}

// collector puts one streamed answer together.
type collector interface {
	// event takes the data of one event and must not keep its memory. It adds to e what the
	// client is to see changed, and returns how many bytes it kept; finished means that nothing
	// more will be said. Data that is not valid JSON is skipped.
	event(data []byte, e *wire.Edits) (kept int, finished bool)
	// put is the answer as far as it came; without Content if nothing came.
	put() Answer
}

// NewObserver observes one answer. Recurring says that the vendor may give its tool ids again,
// whatever they look like.
func NewObserver(d wire.Dialect, recurring bool) *Observer {
	return &Observer{dialect: d, names: names{recurring: recurring}}
}

// KeepIDs has the client get the vendor's tool ids, whatever they look like.
func (o *Observer) KeepIDs() { o.names.kept = true }

// begin starts collecting the events of a stream, with nothing.
func (o *Observer) begin() {
	o.kept = 0
	if o.dialect == wire.Chat {
		o.answer = &chatCollector{names: o.names, tools: map[callPlace]ledger.ToolID{}}
	} else {
		o.answer = &messagesCollector{names: o.names}
	}
}

// Event takes the data of one server-sent event and returns what the client is to get, which is
// data itself if nothing changes.
func (o *Observer) Event(data []byte) []byte {
	if string(data) == "[DONE]" {
		o.End()
		return data
	}
	if o.answer == nil {
		o.begin()
	}
	o.edits = wire.Edits{}
	kept, finished := o.answer.event(data, &o.edits)
	o.finished = o.finished || finished
	if o.dialect == wire.Messages {
		o.complete = o.finished
	}
	o.keep(kept)
	return o.edits.Apply(data)
}

// keep accounts for bytes that were collected, and gives the answer up when it is too long.
func (o *Observer) keep(n int) {
	if o.kept += n; o.kept > maxKept {
		o.lost = true
		o.begin()
	}
}

// Text is Event for data that wire.ReadTextPiece has parsed already; nothing in it changes. The
// dialect must be messages.
func (o *Observer) Text(p wire.TextPiece) {
	if o.answer == nil {
		o.begin()
	}
	if a, ok := o.answer.(*messagesCollector); ok {
		o.keep(a.growText(p))
	}
}

// Body takes an answer that came as one JSON body and returns what the client is to get, which is
// body itself if nothing changes.
func (o *Observer) Body(body []byte) []byte {
	if o.dialect == wire.Chat {
		var e wire.Edits
		o.take(chatBody(body, &e, o.names))
		return e.Apply(body)
	}
	read, err := wire.ReadMessage(body)
	if err != nil {
		return body
	}
	return o.Message(read)
}

// Message is Body for an answer of the messages dialect that wire.ReadMessage has parsed already.
func (o *Observer) Message(read *wire.Outline) []byte {
	var e wire.Edits
	o.take(messagesBody(read, &e, o.names))
	return e.Apply(read.Body)
}

// take keeps an answer that came whole.
func (o *Observer) take(a Answer) {
	o.whole = a
	o.complete, o.lost = len(a.Content) > 0, len(a.Content) > maxKept
}

// End says that the stream ended without an error. It is needed because a chat stream may end
// without [DONE].
func (o *Observer) End() { o.complete = o.complete || o.finished }

// Complete reports whether all of the answer is there. It is true as soon as Event has taken the
// terminating event's data, so that the answer can be recorded before the client sees that event
// and asks its next question.
func (o *Observer) Complete() bool { return o.complete }

// Answer is what has been collected so far; ok is false if there is nothing to record.
func (o *Observer) Answer() (a Answer, ok bool) {
	switch {
	case o.lost:
		return Answer{Cut: true}, false
	case o.answer == nil && len(o.whole.Content) == 0:
		return Answer{}, false
	case len(o.whole.Content) > 0:
		return o.whole, true
	}
	a = o.answer.put()
	a.Cut = a.Cut || !o.complete
	return a, len(a.Content) > 0
}

// names decides which name the client gets for a vendor's tool id.
type names struct {
	recurring bool // the vendor may give its tool ids again
	kept      bool // even then
}

func (n names) of(vendor string) ledger.ToolID {
	if !n.kept && (n.recurring || ledger.CanRecur(vendor)) {
		return ledger.ToolID{Vendor: vendor, Client: "call_" + rand.Text()[:24]}
	}
	return ledger.ToolID{Vendor: vendor, Client: vendor}
}

// renamed replaces a vendor's tool id by the client's name for it.
func renamed(e *wire.Edits, at wire.Span, id ledger.ToolID) {
	if id.Client != id.Vendor {
		e.Replace(at, wire.Quote(id.Client))
	}
}

// elements calls f with each element of an array; any other value has none.
func elements(v gjson.Result, f func(element gjson.Result)) {
	if v.IsArray() {
		v.ForEach(func(_, element gjson.Result) bool { f(element); return true })
	}
}

// members calls f with each member of an object; any other value has none.
func members(v gjson.Result, f func(name string, value gjson.Result)) {
	if v.IsObject() {
		v.ForEach(func(key, value gjson.Result) bool { f(key.Str, value); return true })
	}
}

// spanOf is the span of a gjson result in the data that was searched.
func spanOf(r gjson.Result) wire.Span { return wire.Span{Start: r.Index, End: r.Index + len(r.Raw)} }

// inner is what stands between the quotes of a raw JSON string, with its escapes. Raw pieces of a
// string can be joined even where one ends inside of a surrogate pair, which decoded pieces cannot.
func inner(raw string) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return raw[1 : len(raw)-1]
}
