package wire

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Assembler puts a streamed answer together, its texts in the form in which they stand between the quotes of JSON. The
// zero value is ready for use.
type Assembler struct {
	response Response // without content
	blocks   []*grownBlock
	started  bool
	stopped  bool
	size     int
}

// grownBlock is a content block of which the pieces come.
type grownBlock struct {
	index     int
	start     jsontext.Value // the block as the stream opened it
	text      []byte         // of its text or thinking
	input     []byte         // of a string that contains JSON
	signature []byte         // the newest one, since one comes whole; nil if none came
	citations []jsontext.Value
	closed    bool
	broken    bool // it cannot be understood
}

// Size returns the number of buffered bytes of the answer.
func (a *Assembler) Size() int { return a.size }

// Add takes the next event. An event for a block that is not open is an error; it counts as far as it can be understood.
func (a *Assembler) Add(e *Event) (err error) {
	switch e.Type {
	case MessageStart:
		if e.Message == nil {
			return fmt.Errorf("%s without a message", e.Type)
		}
		a.response, a.started = *e.Message, true
	case BlockStart:
		if e.Block == nil || e.Index != len(a.blocks) {
			err = fmt.Errorf("%s at index %d, expected a block at %d", e.Type, e.Index, len(a.blocks))
		}
		b := &grownBlock{index: e.Index, broken: e.Block == nil}
		if !b.broken && e.Block.Raw != nil {
			b.start = e.Block.Raw.Clone()
		} else if !b.broken {
			b.start = e.Block.append(make([]byte, 0, 128))
		}
		a.size += len(b.start)
		a.blocks = append(a.blocks, b)
	case BlockDelta, BlockStop:
		b := a.block(e.Index)
		if b == nil {
			return fmt.Errorf("%s at index %d, where no block is open", e.Type, e.Index)
		}
		if b.closed = e.Type == BlockStop; !b.closed {
			a.size += len(e.Delta.Inner())
			b.grow(&e.Delta)
		}
	case MessageDelta:
		a.response.StopReason, a.response.StopSequence = e.Delta.StopReason, e.Delta.StopSequence
		a.response.Usage.Update(e.Usage)
	case MessageStop:
		for _, b := range a.blocks {
			b.closed = true
		}
		a.stopped = true
	}
	return err
}

// block is the newest block with an index, because some gateways give every block the index 0.
func (a *Assembler) block(index int) *grownBlock {
	for _, b := range slices.Backward(a.blocks) {
		if b.index == index {
			return b
		}
	}
	return nil
}

func (b *grownBlock) grow(d *Delta) {
	switch piece := d.Inner(); d.Type {
	case TextDelta, ThinkingDelta:
		if b.text == nil {
			b.text = make([]byte, 0, max(256, len(piece))) // saves the first steps of growing
		}
		b.text = append(b.text, piece...)
	case InputDelta:
		b.input = append(b.input, piece...)
	case SignatureDelta:
		b.signature = slices.Concat([]byte(`"`), piece, []byte(`"`))
	case CitationsDelta:
		b.citations = append(b.citations, slices.Clone(piece))
	default:
		b.broken = true
	}
}

// json is the complete block: the opening one with what the deltas added.
func (b *grownBlock) json() jsontext.Value {
	switch string(b.start) { // most blocks
	case `{"type":"text","text":""}`:
		if b.citations == nil {
			return slices.Concat([]byte(`{"type":"text","text":"`), b.text, []byte(`"}`))
		}
	case `{"type":"thinking","thinking":"","signature":""}`:
		signature := b.signature
		if signature == nil {
			signature = []byte(`""`)
		}
		return slices.Concat([]byte(`{"type":"thinking","thinking":"`), b.text, []byte(`","signature":`), signature, []byte("}"))
	}
	o, _ := readObject(b.start) // it was read before
	var e Edits
	set := func(name string, value []byte) { e.Set(o.Members, name, value) } // the type, at least, stands before it
	if len(b.text) > 0 {
		name := "text"
		if kind, _ := o.Text(o.Members.Get("type")); IsThinking(kind) {
			name = "thinking"
		}
		set(name, slices.Concat([]byte(`"`), inner(o.Raw(o.Members.Get(name))), b.text, []byte(`"`)))
	}
	if b.signature != nil {
		set("signature", b.signature)
	}
	if len(b.input) > 0 {
		set("input", InputObject(stringOf(slices.Concat([]byte(`"`), b.input, []byte(`"`)))))
	}
	if len(b.citations) > 0 {
		var citations []jsontext.Value
		for _, s := range o.Elements(o.Members.Get("citations")) {
			citations = append(citations, o.Raw(s))
		}
		set("citations", Array(append(citations, b.citations...)))
	}
	return e.Apply(b.start)
}

// Content is the array of the blocks that are whole, up to the first that is not, and their number; all says that there
// are no others.
func (a *Assembler) Content() (content jsontext.Value, blocks int, complete bool) {
	values := make([]jsontext.Value, 0, len(a.blocks))
	for _, b := range a.blocks {
		if !b.closed || b.broken {
			break
		}
		values = append(values, b.json())
	}
	return Array(values), len(values), len(values) == len(a.blocks)
}

// JSON is the answer as one body; ok is false until it is complete.
func (a *Assembler) JSON() (body []byte, ok bool) {
	content, _, complete := a.Content()
	return a.response.append(nil, content), complete && a.started && a.stopped
}

// Array is the JSON array of these values.
func Array(values []jsontext.Value) jsontext.Value {
	size := 1 + max(len(values), 1)
	for _, v := range values {
		size += len(v)
	}
	out := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
