package thinking

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// messagesAnswer collects a streamed answer of the messages dialect.
type messagesCollector struct {
	names  names
	blocks []*block
}

// block is a content block while its pieces are still coming. Texts are kept in raw form, as they
// stand between the quotes.
type block struct {
	index     int64
	start     jsontext.Value // the block as the stream opened it
	text      []byte         // raw pieces of its text or thinking
	input     []byte         // raw pieces of a string that contains JSON
	signature jsontext.Value // the newest one; nil if none came
	citations []jsontext.Value
	tool      *ledger.ToolID // of a tool use; nil for other blocks
	closed    bool
	broken    bool // a delta had a type that is not known
}

// event implements collector.
func (a *messagesCollector) event(data []byte, e *wire.Edits) (kept int, finished bool) {
	if d, ok := wire.ReadTextPiece(data); ok {
		return a.growText(d), false
	}
	kind := wire.EventType(data)
	switch kind {
	case wire.BlockStart, wire.BlockDelta, wire.BlockStop, wire.MessageStop:
	default:
		return 0, false
	}
	if !gjson.ValidBytes(data) {
		return 0, false
	}
	switch kind {
	case wire.BlockStart:
		return a.start(string(data), e), false
	case wire.BlockDelta:
		event := string(data)
		return a.grow(gjson.Get(event, "index").Int(), gjson.Get(event, "delta")), false
	case wire.BlockStop:
		if b := a.block(gjson.GetBytes(data, "index").Int()); b != nil {
			b.closed = true
		}
	case wire.MessageStop:
		for _, b := range a.blocks {
			b.closed = true
		}
		return 0, true
	}
	return 0, false
}

// start opens a block and gives a tool use's id the name that the client gets.
func (a *messagesCollector) start(data string, e *wire.Edits) int {
	opened := gjson.Get(data, "content_block")
	b := &block{index: gjson.Get(data, "index").Int(), start: jsontext.Value(opened.Raw), broken: !opened.IsObject()}
	if opened.Get("type").Str == wire.ToolUseBlock {
		if id := opened.Get("id"); id.Type == gjson.String {
			tool := a.names.of(id.Str)
			b.tool = &tool
			renamed(e, spanOf(id), tool)
		}
	}
	a.blocks = append(a.blocks, b)
	return len(b.start)
}

// growText is grow for the most frequent kind of delta, already parsed.
func (a *messagesCollector) growText(d wire.TextPiece) int {
	b := a.block(int64(d.Index))
	if b == nil {
		return 0
	}
	if b.text == nil {
		b.text = make([]byte, 0, 256) // saves the first steps of growing
	}
	b.text = append(b.text, d.Text...)
	return len(d.Text)
}

// block is the newest block with an index, because some gateways give every block the index 0.
func (a *messagesCollector) block(index int64) *block {
	for _, b := range slices.Backward(a.blocks) {
		if b.index == index {
			return b
		}
	}
	return nil
}

// grow adds a delta to its block and returns how many bytes were kept.
func (a *messagesCollector) grow(index int64, delta gjson.Result) int {
	b := a.block(index)
	if b == nil {
		return 0
	}
	switch delta.Get("type").Str {
	case wire.TextDelta:
		b.text = append(b.text, inner(delta.Get("text").Raw)...)
	case wire.ThinkingDelta:
		b.text = append(b.text, inner(delta.Get("thinking").Raw)...)
	case wire.InputDelta:
		b.input = append(b.input, inner(delta.Get("partial_json").Raw)...)
	case wire.SignatureDelta:
		// A signature comes whole, so the newest one counts.
		b.signature = jsontext.Value(delta.Get(signatureKey).Raw)
	case "citations_delta":
		b.citations = append(b.citations, jsontext.Value(delta.Get("citation").Raw))
	default:
		b.broken = true
	}
	return len(delta.Raw)
}

// json is the complete block: the opening one with what the deltas added.
func (b *block) json() jsontext.Value {
	o, at := whole(b.start)
	members := o.Object(at)
	var e wire.Edits
	set := func(name string, value []byte) {
		switch old := members.Get(name); {
		case old.Found():
			e.Replace(old, value)
		default: // the type, at least, stands before it
			e.Replace(wire.Span{Start: at.End - 1, End: at.End - 1}, slices.Concat([]byte(","), wire.Quote(name), []byte(":"),
				value))
		}
	}
	if len(b.text) > 0 {
		name := "text"
		if kind, _ := o.Text(members.Get("type")); wire.IsThinking(kind) {
			name = "thinking"
		}
		set(name, slices.Concat([]byte(`"`), []byte(inner(string(o.Of(members.Get(name))))), b.text, []byte(`"`)))
	}
	if b.signature != nil {
		set(signatureKey, b.signature)
	}
	if len(b.input) > 0 {
		set("input", wire.InputObject(gjson.Parse(`"`+string(b.input)+`"`).Str))
	}
	if len(b.citations) > 0 {
		old := o.Elements(members.Get("citations"))
		all := make([]jsontext.Value, 0, len(old)+len(b.citations))
		for _, s := range old {
			all = append(all, o.Of(s))
		}
		set("citations", array(append(all, b.citations...)))
	}
	return e.Apply(b.start)
}

// put implements collector. A block that was not closed or not understood, and those behind it,
// are left out.
func (a *messagesCollector) put() Answer {
	var blocks []jsontext.Value
	var out Answer
	for _, b := range a.blocks {
		if !b.closed || b.broken {
			out.Cut = true
			break
		}
		blocks = append(blocks, b.json())
		if b.tool != nil {
			out.Tools = append(out.Tools, *b.tool)
		}
	}
	if len(blocks) > 0 {
		out.Content = array(blocks)
	}
	return out
}

// messagesBody reads an answer that came as one JSON body.
func messagesBody(o *wire.Outline, e *wire.Edits, n names) (out Answer) {
	m := o.Messages[0]
	if m.Blocks == nil || m.Members.Twice("content") {
		return out
	}
	for _, b := range m.Blocks {
		if b.Type != wire.ToolUseBlock {
			continue
		}
		at := b.Members.Get("id")
		if id, ok := o.Text(at); ok {
			tool := n.of(id)
			renamed(e, at, tool)
			out.Tools = append(out.Tools, tool)
		}
	}
	out.Outline, out.Content = o, bytes.Clone(o.Of(m.Content))
	return out
}
