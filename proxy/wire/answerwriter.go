package wire

import "github.com/go-json-experiment/json/jsontext"

// AnswerWriter writes an answer of the messages dialect that is translated from another one: as the events of
// a stream, or put together as one JSON body. It sees to the order of blocks, of which one at most is open.
// The zero value writes a body.
type AnswerWriter struct {
	Stream bool

	assembler Assembler // collects the events of a body
	open      string    // type of the open block; empty for none
	index     int       // of the next block
	out       []byte    // not yet taken
	err       error     // the first
}

// Take appends to dst what was written since it was last called, and returns the first error there was.
func (w *AnswerWriter) Take(dst []byte) ([]byte, error) {
	if dst == nil {
		dst, w.out = w.out, nil // a body, which is taken once, is not copied
		return dst, w.err
	}
	dst = append(dst, w.out...)
	w.out = w.out[:0]
	return dst, w.err
}

// Start begins the answer.
func (w *AnswerWriter) Start(id, model string) {
	w.event(Event{Type: MessageStart, Message: &Response{
		ID: id, Type: "message", Role: RoleAssistant, Model: model, Content: Content{},
	}})
}

// End finishes the answer.
func (w *AnswerWriter) End(stop NullString, u Usage) {
	w.CloseBlock()
	w.event(Event{Type: MessageDelta, Delta: Delta{StopReason: stop}, Usage: u})
	w.event(Event{Type: MessageStop})
	if w.Stream || w.err != nil {
		return
	}
	r, _ := w.assembler.Response()
	w.out, w.err = r.append(w.out)
}

// Text adds to the open block if that is a text, else closes it and opens one.
func (w *AnswerWriter) Text(s string) { w.grow(TextBlock, Delta{Type: TextDelta, Text: s}) }

// Thinking is Text for a block of thinking.
func (w *AnswerWriter) Thinking(s string) {
	w.grow(ThinkingBlock, Delta{Type: ThinkingDelta, Thinking: s})
}

// Signature ends the thinking of the open block, or of a new one without any.
func (w *AnswerWriter) Signature(s string) {
	w.grow(ThinkingBlock, Delta{Type: SignatureDelta, Signature: s})
	w.CloseBlock()
}

// Blocks is the number of blocks that are closed.
func (w *AnswerWriter) Blocks() int { return w.index }

func (w *AnswerWriter) grow(kind string, d Delta) {
	if w.open != kind {
		w.CloseBlock()
		w.openBlock(Block{Type: kind})
	}
	w.Delta(d)
}

// Delta adds to the open block.
func (w *AnswerWriter) Delta(d Delta) { w.event(Event{Type: BlockDelta, Index: w.index, Delta: d}) }

// OpenCall opens the call of a tool. No block may be open.
func (w *AnswerWriter) OpenCall(id, name string) {
	w.openBlock(Block{Type: ToolUseBlock, ID: id, Name: name, Input: jsontext.Value("{}")})
}

func (w *AnswerWriter) openBlock(b Block) {
	w.open = b.Type
	w.event(Event{Type: BlockStart, Index: w.index, Block: &b})
}

// CloseBlock closes the open block, if there is one.
func (w *AnswerWriter) CloseBlock() {
	if w.open == "" {
		return
	}
	w.event(Event{Type: BlockStop, Index: w.index})
	w.open = ""
	w.index++
}

func (w *AnswerWriter) event(e Event) {
	if w.err != nil {
		return
	}
	if !w.Stream {
		w.err = w.assembler.Add(e)
		return
	}
	var b []byte
	b, w.err = Marshal(e)
	w.out = AppendFrame(w.out, e.Type, b)
}
