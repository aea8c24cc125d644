package chatwire

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// MessagesAnswer translates one answer of a chat backend into the messages dialect.
//
// Blocks of the messages dialect are sequential, while pieces of several chat calls may be
// interleaved. Text, reasoning and the first tool call are sent as they come; the other calls wait
// for the end.
type MessagesAnswer struct {
	options AnswerOptions
	out     wire.AnswerWriter

	started bool
	done    bool

	calls  []*partialCall
	late   strings.Builder // text that came after the first call had begun
	usage  wire.Usage
	finish string
}

// partialCall is a tool call of which pieces are still coming.
type partialCall struct {
	index     int64 // its index in the chunks
	id, name  string
	arguments strings.Builder
}

// NewMessagesAnswer begins an answer. To takes each event of it.
func NewMessagesAnswer(a AnswerOptions, sink func(*wire.Event)) *MessagesAnswer {
	return &MessagesAnswer{options: a, out: wire.AnswerWriter{Sink: sink}}
}

// Event takes what the backend said. An error is returned as a wire.Failure.
func (a *MessagesAnswer) Event(c *wire.Chunk) error {
	switch {
	case c.Members == nil || a.done:
		return nil
	case c.Failed():
		return wire.ReadFailure(0, c.Body)
	case !a.started:
		a.started = true
		id, _ := c.Text(c.Members.Get("id"))
		model, _ := c.Text(c.Members.Get("model"))
		a.out.Start(cmp.Or(id, newID("msg_")), cmp.Or(a.options.Model, model))
	}
	a.usage.Update(c.Usage)
	if i := slices.IndexFunc(c.Choices, func(ch wire.Choice) bool { return ch.Index == 0 }); i >= 0 {
		return a.take(c, &c.Choices[i])
	}
	return nil
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *MessagesAnswer) End() error {
	if a.finish == "" {
		return ErrCut
	}
	if e := wire.EndingOf(a.finish); e == wire.EndFailed || e == wire.EndStopped { // no vendor says stopped
		return wire.FailedEnding(a.finish)
	}
	a.done = true
	w := &a.out
	w.CloseBlock()
	for i, c := range a.calls {
		if c.name == "" {
			return wire.Failure{Status: http.StatusBadGateway, Message: "the backend called a tool without a name"}
		}
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
	return nil
}

// take translates the first choice of a chunk.
func (a *MessagesAnswer) take(c *wire.Chunk, ch *wire.Choice) error {
	member := func(name string) string {
		s, _ := c.Text(ch.Delta.Get(name))
		return s
	}
	if content := c.Raw(ch.Delta.Get("content")); content != nil && content.Kind() != '"' && content.Kind() != 'n' {
		return fmt.Errorf("%w: the content of a choice has the wrong type (a JSON %s)", wire.ErrBadJSON, content.Kind())
	}
	if thoughts := cmp.Or(member("reasoning_content"), member("reasoning")); thoughts != "" && len(a.calls) == 0 {
		a.out.Thinking(thoughts)
	}
	if text := member("content") + member("refusal"); text != "" && len(a.calls) > 0 {
		a.late.WriteString(text)
	} else if text != "" {
		a.out.Text(text)
	}
	for i := range ch.Calls {
		a.call(c, &ch.Calls[i])
	}
	a.finish = cmp.Or(a.finish, ch.Finish)
	return nil
}

// call takes a piece of a tool call.
func (a *MessagesAnswer) call(chunk *wire.Chunk, piece *wire.CallPiece) {
	id, _ := chunk.Text(piece.Members.Get("id"))
	span := piece.Function.Get("arguments")
	arguments, ok := chunk.Text(span)
	if !ok && chunk.Raw(span).Kind() == '{' { // some vendors send the object itself
		arguments = string(chunk.Raw(span))
	}
	c := a.find(piece, id)
	if c == nil {
		c = &partialCall{index: int64(len(a.calls)), id: cmp.Or(id, newID("call_"))}
		if piece.Placed {
			c.index = piece.Index
		}
		a.calls = append(a.calls, c)
	}
	if name, _ := chunk.Text(piece.Function.Get("name")); c.name == "" && name != "" {
		c.name = name
		if c == a.calls[0] {
			a.out.CloseBlock()
			a.out.OpenCall(c.id, c.name)
			arguments = c.arguments.String() + arguments // pieces that came before the name
			c.arguments.Reset()
		}
	}
	c.arguments.WriteString(arguments)
	if c == a.calls[0] && c.name != "" && arguments != "" {
		a.out.Delta(wire.Delta{Type: wire.InputDelta, PartialJSON: arguments})
	}
}

// find is the call that a piece continues; nil if it begins a new one. Some vendors give every call
// the index 0, or none: then a different id means a new call.
func (a *MessagesAnswer) find(piece *wire.CallPiece, id string) *partialCall {
	for i := len(a.calls) - 1; i >= 0; i-- {
		c := a.calls[i]
		if piece.Placed && piece.Index != c.index {
			continue
		}
		if id != "" && id != c.id {
			return nil
		}
		return c
	}
	return nil
}

func (a *MessagesAnswer) stopReason() wire.NullString {
	switch ending := wire.EndingOf(a.finish); {
	case ending == wire.EndLength:
		return wire.StopMaxTokens
	case ending == wire.EndWindow:
		return wire.StopWindow
	case ending == wire.EndFilter:
		return wire.StopRefusal
	case ending == wire.EndTools || len(a.calls) > 0:
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
