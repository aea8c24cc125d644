package chatwire

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// MessagesAnswer translates one answer of a chat backend into the messages dialect. Its methods are
// those of ChatAnswer.
//
// Blocks of the messages dialect are sequential, while pieces of several chat calls may be
// interleaved. Text, reasoning and the first tool call are sent as they come; the other calls wait
// for the end.
type MessagesAnswer struct {
	asked     Asked
	assembler wire.Assembler // collects the events if the client wants one JSON body

	started bool
	done    bool
	open    string // type of the open block; empty for none
	index   int    // of the next block

	calls  []*partialCall
	late   strings.Builder // text that came after the first call had begun
	usage  wire.Usage
	finish string
}

// partialCall is a tool call whose pieces are still coming.
type partialCall struct {
	index     int // its index in the chunks
	id, name  string
	arguments strings.Builder
}

// NewMessagesAnswer begins an answer.
func NewMessagesAnswer(a Asked) *MessagesAnswer { return &MessagesAnswer{asked: a} }

// Event takes the data of one server-sent event. An error chunk is returned as a wire.Failure.
func (a *MessagesAnswer) Event(dst, data []byte) ([]byte, error) {
	if len(data) == 0 || string(data) == "[DONE]" || a.done {
		return dst, nil
	}
	var c chunk
	if err := wire.Unmarshal(data, &c); err != nil {
		return dst, err
	}
	if len(c.Error) > 0 && c.Error.Kind() != 'n' {
		return dst, wire.ReadFailure(0, data)
	}
	return a.step(dst, c)
}

// Body takes an answer that came as one JSON body.
func (a *MessagesAnswer) Body(dst, body []byte) ([]byte, error) {
	var full completion
	if err := wire.Unmarshal(body, &full); err != nil {
		return dst, err
	}
	if len(full.Error) > 0 && full.Error.Kind() != 'n' {
		return dst, wire.ReadFailure(0, body)
	}
	c := chunk{ID: full.ID, Model: full.Model, Usage: full.Usage}
	if len(full.Choices) > 0 {
		m := full.Choices[0].Message
		for i := range m.ToolCalls {
			m.ToolCalls[i].Index = &i
		}
		c.Choices = []choice{{
			Delta: delta{Content: m.Content, Reasoning: m.Reasoning, Thoughts: m.Thoughts, Refusal: m.Refusal,
				ToolCalls: m.ToolCalls},
			FinishReason: wire.NullString(full.Choices[0].FinishReason),
		}}
	}
	return a.step(dst, c)
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *MessagesAnswer) End(dst []byte) ([]byte, error) {
	if a.finish == "" {
		return dst, ErrCut
	}
	a.done = true
	w := writer{a: a, dst: dst}
	w.closeBlock()
	for i, c := range a.calls {
		if i > 0 { // the first call was sent as it came
			w.openCall(c)
			w.delta(wire.Delta{Type: wire.InputDelta, PartialJSON: orEmpty(c.arguments.String())})
			w.closeBlock()
		}
	}
	if a.late.Len() > 0 {
		w.grow(wire.TextBlock, wire.Delta{Type: wire.TextDelta, Text: a.late.String()})
		w.closeBlock()
	}
	w.event(wire.Event{Type: wire.MessageDelta, Delta: wire.Delta{StopReason: a.stopReason()}, Usage: a.usage})
	w.event(wire.Event{Type: wire.MessageStop})
	if w.err != nil || a.asked.Stream {
		return w.dst, w.err
	}
	r, _ := a.assembler.Response()
	b, err := wire.Marshal(r)
	return append(w.dst, b...), err
}

// step translates one chunk.
func (a *MessagesAnswer) step(dst []byte, c chunk) ([]byte, error) {
	w := writer{a: a, dst: dst}
	if !a.started {
		a.started = true
		head := wire.Response{ID: c.ID, Type: "message", Role: wire.RoleAssistant, Model: c.Model, Content: wire.Content{}}
		if head.ID == "" {
			head.ID = newID("msg_")
		}
		if a.asked.Model != "" {
			head.Model = a.asked.Model
		}
		w.event(wire.Event{Type: wire.MessageStart, Message: &head})
	}
	if c.Usage != nil {
		a.usage.Update(c.Usage.Messages())
	}
	for _, ch := range c.Choices {
		if ch.Index == 0 {
			a.take(&w, ch)
		}
	}
	return w.dst, w.err
}

// take translates the first choice of a chunk.
func (a *MessagesAnswer) take(w *writer, ch choice) {
	d := ch.Delta
	if d.Reasoning == "" {
		d.Reasoning = d.Thoughts
	}
	if d.Reasoning != "" && len(a.calls) == 0 {
		w.grow(wire.ThinkingBlock, wire.Delta{Type: wire.ThinkingDelta, Thinking: d.Reasoning})
	}
	text := d.Refusal
	if d.Content != nil {
		text = *d.Content + text
	}
	if text != "" && len(a.calls) > 0 {
		a.late.WriteString(text)
	} else if text != "" {
		w.grow(wire.TextBlock, wire.Delta{Type: wire.TextDelta, Text: text})
	}
	for _, piece := range d.ToolCalls {
		a.call(w, piece)
	}
	if a.finish == "" {
		a.finish = string(ch.FinishReason)
	}
}

// call takes a piece of a tool call.
func (a *MessagesAnswer) call(w *writer, piece toolCall) {
	c := a.find(piece)
	if c == nil {
		c = &partialCall{index: len(a.calls), id: piece.ID, name: piece.Function.Name}
		if piece.Index != nil {
			c.index = *piece.Index
		}
		if c.id == "" {
			c.id = newID("call_")
		}
		a.calls = append(a.calls, c)
		if len(a.calls) == 1 {
			w.closeBlock()
			w.openCall(c)
		}
	}
	c.arguments.WriteString(piece.Function.Arguments)
	if c == a.calls[0] && piece.Function.Arguments != "" {
		w.delta(wire.Delta{Type: wire.InputDelta, PartialJSON: piece.Function.Arguments})
	}
}

// find is the call that a piece continues; nil if it begins a new one. Some vendors give every call
// the index 0, or none: then a different id means a new call.
func (a *MessagesAnswer) find(piece toolCall) *partialCall {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := a.calls[i]
		if piece.Index != nil && *piece.Index != c.index {
			continue
		}
		if piece.ID != "" && piece.ID != c.id {
			return nil
		}
		return c
	}
	return nil
}

func (a *MessagesAnswer) stopReason() wire.NullString {
	switch {
	case a.finish == finishLength:
		return wire.StopMaxTokens
	case a.finish == finishFilter:
		return wire.StopRefusal
	case a.finish == finishTools || a.finish == finishOldCall || len(a.calls) > 0:
		return wire.StopToolUse
	}
	return wire.StopEndTurn
}

// writer emits the events of one step and keeps the first error.
type writer struct {
	a   *MessagesAnswer
	dst []byte
	err error
}

func (w *writer) event(e wire.Event) {
	if w.err != nil {
		return
	}
	if !w.a.asked.Stream {
		w.err = w.a.assembler.Add(e)
		return
	}
	b, err := wire.Marshal(e)
	w.dst, w.err = wire.AppendFrame(w.dst, e.Type, b), err
}

func (w *writer) delta(d wire.Delta) {
	w.event(wire.Event{Type: wire.BlockDelta, Index: w.a.index, Delta: d})
}

// grow adds to the open block if it has the type, else closes it and opens one.
func (w *writer) grow(kind string, d wire.Delta) {
	if w.a.open != kind {
		w.closeBlock()
		w.openBlock(wire.Block{Type: kind})
	}
	w.delta(d)
}

func (w *writer) openCall(c *partialCall) {
	w.openBlock(wire.Block{Type: wire.ToolUseBlock, ID: c.id, Name: c.name, Input: jsontext.Value("{}")})
}

func (w *writer) openBlock(b wire.Block) {
	w.a.open = b.Type
	w.event(wire.Event{Type: wire.BlockStart, Index: w.a.index, Block: &b})
}

func (w *writer) closeBlock() {
	if w.a.open == "" {
		return
	}
	w.event(wire.Event{Type: wire.BlockStop, Index: w.a.index})
	w.a.open = ""
	w.a.index++
}

func orEmpty(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}
