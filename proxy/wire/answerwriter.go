package wire

import (
	"github.com/go-json-experiment/json/jsontext"
)

// AnswerWriter makes the events of an answer that is translated into the messages dialect. It sees to the order of
// blocks, of which one at most is open.
type AnswerWriter struct {
	Sink func(e *Event) // takes each event as it is made, and must not keep it

	open   string // type of the open block; empty for none
	index  int    // of the next block
	latest Event  // the newest
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
	w.latest = e
	w.Sink(&w.latest)
}
