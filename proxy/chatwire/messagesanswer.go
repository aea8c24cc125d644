package chatwire

import (
	"cmp"
	"strings"

	"mneme/proxy/wire"
)

// MessagesAnswer translates one answer of a chat backend into the messages dialect. Its methods are
// those of ChatAnswer.
//
// Blocks of the messages dialect are sequential, while pieces of several chat calls may be
// interleaved. Text, reasoning and the first tool call are sent as they come; the other calls wait
// for the end.
type MessagesAnswer struct {
	asked Asked
	out   wire.AnswerWriter

	started bool
	done    bool

	calls  []*partialCall
	late   strings.Builder // text that came after the first call had begun
	usage  wire.Usage
	finish string
}

// partialCall is a tool call of which pieces are still coming.
type partialCall struct {
	index     int // its index in the chunks
	id, name  string
	arguments strings.Builder
}

// NewMessagesAnswer begins an answer.
func NewMessagesAnswer(a Asked) *MessagesAnswer {
	return &MessagesAnswer{asked: a, out: wire.AnswerWriter{Stream: a.Stream}}
}

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
	w := &a.out
	w.CloseBlock()
	for i, c := range a.calls {
		if i > 0 { // the first call was sent as it came
			w.OpenCall(c.id, c.name)
			w.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: orEmpty(c.arguments.String())})
			w.CloseBlock()
		}
	}
	if a.late.Len() > 0 {
		w.Text(a.late.String())
	}
	w.End(a.stopReason(), a.usage)
	return w.Take(dst)
}

// step translates one chunk.
func (a *MessagesAnswer) step(dst []byte, c chunk) ([]byte, error) {
	if !a.started {
		a.started = true
		id := c.ID
		if id == "" {
			id = newID("msg_")
		}
		a.out.Start(id, cmp.Or(a.asked.Model, c.Model))
	}
	if c.Usage != nil {
		a.usage.Update(c.Usage.Messages())
	}
	for _, ch := range c.Choices {
		if ch.Index == 0 {
			a.take(&a.out, ch)
		}
	}
	return a.out.Take(dst)
}

// take translates the first choice of a chunk.
func (a *MessagesAnswer) take(w *wire.AnswerWriter, ch choice) {
	d := ch.Delta
	if d.Reasoning == "" {
		d.Reasoning = d.Thoughts
	}
	if d.Reasoning != "" && len(a.calls) == 0 {
		w.Thinking(d.Reasoning)
	}
	text := d.Refusal
	if d.Content != nil {
		text = *d.Content + text
	}
	if text != "" && len(a.calls) > 0 {
		a.late.WriteString(text)
	} else if text != "" {
		w.Text(text)
	}
	for _, piece := range d.ToolCalls {
		a.call(w, piece)
	}
	if a.finish == "" {
		a.finish = string(ch.FinishReason)
	}
}

// call takes a piece of a tool call.
func (a *MessagesAnswer) call(w *wire.AnswerWriter, piece toolCall) {
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
			w.CloseBlock()
			w.OpenCall(c.id, c.name)
		}
	}
	c.arguments.WriteString(piece.Function.Arguments)
	if c == a.calls[0] && piece.Function.Arguments != "" {
		w.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: piece.Function.Arguments})
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

func orEmpty(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}
