package thinking

import (
	"crypto/rand"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// maxKept bounds what an Observer keeps of an answer, in bytes of its pieces. A
// longer one passes like any other, but is not recorded.
const maxKept = 8 << 20

// Answer is what a model answered, as the ledger keeps it.
type Answer struct {
	// Content is the array of blocks or, in chat completions, the message object,
	// with the vendor's tool ids. Its memory is its own.
	Content jsontext.Value
	Outline *wire.Outline   // of Content, if it is an array and has been read; else nil
	Tools   []ledger.ToolID // of all tool uses, in their order
	// Cut: the answer broke off, or a part of it could not be read. Content then has
	// the blocks that are whole or, in chat completions, what had come.
	Cut bool
}

// Observer watches one answer pass, in the backend's dialect, as a stream or as
// JSON, and keeps what the model said. On the way it gives tool ids that the
// vendor could give again new names; every other byte passes as it is. What it
// cannot read passes too. It holds nothing but the answer, so that dropping it
// frees all. It is not safe for concurrent use.
type Observer struct {
	dialect   wire.Dialect
	recurring bool

	answer   collector
	edits    wire.Edits // of the event that is being read
	whole    Answer     // of an answer that came as JSON
	kept     int
	lost     bool // it was too long
	finished bool // it said that it is over
	complete bool
}

// collector is a streamed answer of one dialect as it grows.
type collector interface {
	// event takes the data of an event, whose memory it may not keep, notes what is to
	// be changed in it, and says how many bytes it kept; finished: nothing more will
	// be said. It passes over what is no valid JSON.
	event(data []byte, e *wire.Edits) (kept int, finished bool)
	// put is what came, put together; without content, if there is nothing.
	put() Answer
}

// NewObserver begins an answer. Recurring says that the vendor may give its tool
// ids again, whatever they look like.
func NewObserver(d wire.Dialect, recurring bool) *Observer {
	o := &Observer{dialect: d, recurring: recurring}
	o.begin()
	return o
}

func (o *Observer) begin() {
	o.kept = 0
	if o.dialect == wire.Chat {
		o.answer = &chatAnswer{names: names{o.recurring}, tools: map[callPlace]ledger.ToolID{}}
	} else {
		o.answer = &messagesAnswer{names: names{o.recurring}}
	}
}

// Event takes the data of one server-sent event and gives what the client is to
// get: data itself, if nothing in it changes.
func (o *Observer) Event(data []byte) []byte {
	if string(data) == "[DONE]" {
		o.End()
		return data
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

// keep counts bytes that are kept.
func (o *Observer) keep(n int) {
	if o.kept += n; o.kept > maxKept {
		o.lost = true
		o.begin()
	}
}

// Text is Event for the data of which wire.ReadTextPiece has made a piece; nothing
// in it changes. The dialect must be messages.
func (o *Observer) Text(p wire.TextPiece) {
	if a, ok := o.answer.(*messagesAnswer); ok {
		o.keep(a.growText(p))
	}
}

// Body takes an answer that came as JSON and gives what the client is to get: body
// itself, if nothing in it changes.
func (o *Observer) Body(body []byte) []byte {
	if o.dialect == wire.Chat {
		var e wire.Edits
		o.take(chatBody(body, &e, names{o.recurring}))
		return e.Apply(body)
	}
	read, err := wire.ReadMessage(body)
	if err != nil {
		return body
	}
	return o.Message(read)
}

// Message is Body for an answer of the messages dialect of which wire.ReadMessage has
// made an outline.
func (o *Observer) Message(read *wire.Outline) []byte {
	var e wire.Edits
	o.take(messagesBody(read, &e, names{o.recurring}))
	return e.Apply(read.Body)
}

// take takes an answer that came whole.
func (o *Observer) take(a Answer) {
	o.whole = a
	o.complete, o.lost = len(a.Content) > 0, len(a.Content) > maxKept
}

// End says that the stream ended by itself and not by an error: a chat stream may
// end without [DONE].
func (o *Observer) End() { o.complete = o.complete || o.finished }

// Complete reports whether all of the answer is there. It is true as soon as the
// data of the terminating event was taken, so that the answer can be recorded
// before the client sees that event.
func (o *Observer) Complete() bool { return o.complete }

// Answer is what has been seen so far; ok is false if there is nothing to record.
func (o *Observer) Answer() (a Answer, ok bool) {
	switch {
	case o.lost:
		return Answer{}, false
	case len(o.whole.Content) > 0:
		return o.whole, true
	}
	a = o.answer.put()
	a.Cut = a.Cut || !o.complete
	return a, len(a.Content) > 0
}

// names gives tool ids their names for the client.
type names struct{ recurring bool }

func (n names) of(vendor string) ledger.ToolID {
	if n.recurring || ledger.CanRecur(vendor) {
		return ledger.ToolID{Vendor: vendor, Client: "call_" + rand.Text()[:24]}
	}
	return ledger.ToolID{Vendor: vendor, Client: vendor}
}

// renamed puts the client's name of an id where the vendor's stands.
func renamed(e *wire.Edits, at wire.Span, id ledger.ToolID) {
	if id.Client != id.Vendor {
		e.Replace(at, wire.Quote(id.Client))
	}
}

// elements calls f with the elements of an array, members with the members of an
// object; for any other value, with nothing.
func elements(v gjson.Result, f func(element gjson.Result)) {
	if v.IsArray() {
		v.ForEach(func(_, element gjson.Result) bool { f(element); return true })
	}
}

func members(v gjson.Result, f func(name string, value gjson.Result)) {
	if v.IsObject() {
		v.ForEach(func(key, value gjson.Result) bool { f(key.Str, value); return true })
	}
}

// spanOf is where a result of gjson lies in the data that was searched.
func spanOf(r gjson.Result) wire.Span { return wire.Span{Start: r.Index, End: r.Index + len(r.Raw)} }

// inner is what stands between the quotes of a raw string, escapes and all: pieces
// of a string can be joined so even where one ends inside of a surrogate pair.
func inner(raw string) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return raw[1 : len(raw)-1]
}
