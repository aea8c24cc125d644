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
	if content.IsArray() {
		content.ForEach(func(_, block gjson.Result) bool { empty = empty && !carries(block); return empty })
	}
	return empty
}

// carries reports whether a block or a message has a member that says anything, beside what it is.
func carries(object gjson.Result) (any bool) {
	if !object.IsObject() {
		return false
	}
	object.ForEach(func(name, value gjson.Result) bool {
		blank := value.Type == gjson.Null || value.Raw == `""` || value.Raw == "[]" || value.Raw == "{}"
		any = !blank && name.Str != "type" && name.Str != "role"
		return !any
	})
	return any
}

// Observer hears one answer on its way to the client, in the backend's dialect, as a stream or as
// JSON, and collects what the model said. It replaces tool ids that the vendor could give again by
// unique names; every other byte passes unchanged. It owns no resources, so it may simply be dropped.
// It is not safe for concurrent use.
type Observer struct {
	dialect wire.Dialect
	names   names

	blocks     wire.Assembler // of a stream of messages
	blockCount int            // blocks of it
	tools      []toolAt
	chat       chatCollector // of a stream of chat completions
	answer     Answer        // the answer, if it came as one JSON body
	chatBytes  int           // bytes collected so far of chat
	overflow   bool          // the answer was longer than maxKept and is not recorded
	finished   bool          // the stream reported the end of the answer
	complete   bool          // the answer is complete
}

// NewObserver observes one answer. Recurring says that the vendor may give its tool ids again,
// whatever they look like.
func NewObserver(d wire.Dialect, recurring bool) *Observer {
	return &Observer{dialect: d, names: names{recurring: recurring}}
}

// KeepIDs has the client get the vendor's tool ids, whatever they look like.
func (o *Observer) KeepIDs() { o.names.keepIDs = true }

// keep accounts for bytes that were collected, and gives the answer up when it is too long.
func (o *Observer) keep(n int) {
	if o.chatBytes += n; o.chatBytes+o.blocks.Size() > maxKept {
		o.chatBytes, o.overflow, o.blocks, o.chat = 0, true, wire.Assembler{}, chatCollector{}
	}
}

// take keeps an answer that came whole.
func (o *Observer) take(a Answer) {
	o.answer = a
	o.complete, o.overflow = len(a.Content) > 0, len(a.Content) > maxKept
}

// End says that the stream ended without an error. It is needed because a chat stream may end
// without [DONE].
func (o *Observer) End() { o.complete = o.complete || o.finished }

// Complete reports whether all of the answer is there. It is true as soon as the terminating event
// was heard, so that the answer can be recorded before the client sees that event
// and asks its next question.
func (o *Observer) Complete() bool { return o.complete }

// Answer is what has been collected so far; ok is false if there is nothing to record.
func (o *Observer) Answer() (a Answer, ok bool) {
	switch {
	case o.overflow:
		return Answer{Cut: true}, false
	case len(o.answer.Content) > 0:
		return o.answer, true
	case o.dialect == wire.Chat:
		a = o.chat.put()
	default:
		a = o.put()
	}
	if len(a.Content) == 0 {
		return a, false
	}
	a.Cut = a.Cut || !o.complete
	return a, true
}

// names decides which name the client gets for a vendor's tool id.
type names struct {
	recurring bool // the vendor may give its tool ids again
	keepIDs   bool // even then
}

func (n names) toolID(vendor string) ledger.ToolID {
	if !n.keepIDs && (n.recurring || ledger.CanRecur(vendor)) {
		return ledger.ToolID{Vendor: vendor, Client: "call_" + rand.Text()[:24]}
	}
	return ledger.ToolID{Vendor: vendor, Client: vendor}
}

// renamed replaces a vendor's tool id by the client's name for it.
func renamed(e *wire.Edits, span wire.Span, id ledger.ToolID) {
	if id.Client != id.Vendor {
		e.Replace(span, wire.Quote(id.Client))
	}
}

// inner is what stands between the quotes of a raw JSON string, with its escapes. Raw pieces of a
// string can be joined even where one ends inside of a surrogate pair, which decoded pieces cannot.
func inner(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}
