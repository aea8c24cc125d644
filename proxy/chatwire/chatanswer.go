package chatwire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"mneme/proxy/wire"
)

// ErrCut is wrapped by the error for an answer that ended without saying why, such as a stream that
// lacks its last events.
var ErrCut = errors.New("the backend's answer was cut off")

// Asked is the form in which the client asked for an answer.
type Asked struct {
	Model        string // shown instead of the vendor's model, unless empty
	Stream       bool   // as server-sent events; else as one JSON body
	IncludeUsage bool   // for chat streams: a last chunk has the usage
	AnswerTool   string // its call is the answer; empty for none
}

// ChatAnswer translates one answer of a messages backend into the chat dialect. Event or Body take
// what the backend sent, in whichever form it came, and End finishes; each appends to dst what the
// client gets.
type ChatAnswer struct {
	asked Asked
	out   chatSink

	head     chunk // the members that all chunks have in common
	text     frame // of chunks that add to the content
	thinking frame // of chunks that add to the reasoning

	usage  wire.Usage
	blocks map[int]*callBlock
	calls  int
	finish string
	done   bool
}

// callBlock is an open tool_use block.
type callBlock struct {
	index   int    // among the answer's tool calls
	initial string // input that came with the start of the block
	sent    bool   // a piece of the arguments was sent
}

// NewChatAnswer begins an answer. now is the value of created in every chunk.
func NewChatAnswer(a Asked, now time.Time) *ChatAnswer {
	return &ChatAnswer{
		asked: a, out: chatSink{stream: a.Stream}, blocks: map[int]*callBlock{},
		head: chunk{Object: "chat.completion.chunk", Created: now.Unix(), Model: a.Model},
	}
}

// Event takes the data of one server-sent event. An error event is returned as a wire.Failure.
func (a *ChatAnswer) Event(dst, data []byte) ([]byte, error) {
	if len(data) == 0 || a.done {
		return dst, nil
	}
	if p, ok := wire.ReadTextPiece(data); ok && a.asked.Stream {
		return a.pass(dst, p)
	}
	var e wire.Event
	if err := wire.Unmarshal(data, &e); err != nil {
		return dst, err
	}
	if e.Type == wire.ErrorEvent {
		return dst, wire.ReadFailure(0, data)
	}
	return a.step(dst, e)
}

// Body takes an answer that came as one JSON body.
func (a *ChatAnswer) Body(dst, body []byte) ([]byte, error) {
	var r wire.Response
	if err := wire.Unmarshal(body, &r); err != nil {
		return dst, err
	}
	if r.Type == wire.ErrorEvent {
		return dst, wire.ReadFailure(0, body)
	}
	var err error
	for _, e := range r.Events() {
		if dst, err = a.step(dst, e); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *ChatAnswer) End(dst []byte) ([]byte, error) {
	if a.finish == "" {
		return dst, ErrCut
	}
	a.done = true
	last := a.head
	last.Choices = []choice{}
	last.Usage = a.usage.Chat()
	return a.out.end(dst, last, a.finish, a.asked.IncludeUsage)
}

// step translates one event of the messages dialect.
func (a *ChatAnswer) step(dst []byte, e wire.Event) ([]byte, error) {
	switch e.Type {
	case wire.MessageStart:
		if e.Message == nil {
			return dst, nil
		}
		a.head.ID = e.Message.ID
		if a.asked.Model == "" {
			a.head.Model = e.Message.Model
		}
		a.text, a.thinking = frame{}, frame{}
		a.usage.Update(e.Message.Usage)
		return a.emit(dst, delta{Role: wire.RoleAssistant, Content: new(string)})
	case wire.BlockStart:
		if e.Block == nil {
			return dst, nil
		}
		return a.start(dst, e.Index, *e.Block)
	case wire.BlockDelta:
		return a.grow(dst, e)
	case wire.BlockStop:
		b := a.blocks[e.Index]
		if b == nil || b.sent {
			return dst, nil
		}
		return a.arguments(dst, b, b.initial)
	case wire.MessageDelta:
		a.usage.Update(e.Usage)
		if a.finish != "" || e.Delta.StopReason == "" {
			return dst, nil
		}
		a.finish = finishReason(string(e.Delta.StopReason))
		c := a.head
		c.Choices = []choice{{FinishReason: wire.NullString(a.finish)}}
		return a.out.add(dst, c)
	}
	return dst, nil
}

// start opens a block. It may have content already: vendors put some into the start.
func (a *ChatAnswer) start(dst []byte, index int, b wire.Block) ([]byte, error) {
	if b.Type != wire.ToolUseBlock {
		return a.grow(dst, wire.Event{Index: index, Delta: wire.Delta{Text: b.Text, Thinking: b.Thinking}})
	}
	call := &callBlock{index: a.calls, initial: string(wire.InputObject(string(b.Input)))}
	a.blocks[index] = call
	a.calls++
	return a.emit(dst, delta{ToolCalls: []toolCall{{
		Index: &call.index, ID: b.ID, Type: "function", Function: functionCall{Name: b.Name},
	}}})
}

// grow translates a delta.
func (a *ChatAnswer) grow(dst []byte, e wire.Event) ([]byte, error) {
	if b := a.blocks[e.Index]; b != nil && e.Delta.PartialJSON != "" {
		return a.arguments(dst, b, e.Delta.PartialJSON)
	}
	switch {
	case e.Delta.Text != "":
		return a.emit(dst, delta{Content: &e.Delta.Text})
	case e.Delta.Thinking != "":
		return a.emit(dst, delta{Reasoning: e.Delta.Thinking})
	}
	return dst, nil
}

// arguments sends a piece of a call's arguments.
func (a *ChatAnswer) arguments(dst []byte, b *callBlock, piece string) ([]byte, error) {
	b.sent = true
	return a.emit(dst, delta{ToolCalls: []toolCall{{Index: &b.index, Function: functionCall{Arguments: piece}}}})
}

// emit sends a chunk with one delta.
func (a *ChatAnswer) emit(dst []byte, d delta) ([]byte, error) {
	c := a.head
	c.Choices = []choice{{Delta: d}}
	return a.out.add(dst, c)
}

// frame is the JSON around a piece of text in a chunk. It is cut out of a chunk that was encoded
// like any other, so that clients cannot tell the difference.
type frame struct{ before, behind []byte }

const placeholder = "-"

// pass sends a piece of text in a chunk without decoding or encoding JSON: most events of a stream
// are of this kind.
func (a *ChatAnswer) pass(dst []byte, p wire.TextPiece) ([]byte, error) {
	if len(p.Text) == 0 {
		return dst, nil
	}
	f, name, d := &a.text, "content", delta{Content: new(placeholder)}
	if p.Thinking {
		f, name, d = &a.thinking, "reasoning_content", delta{Reasoning: placeholder}
	}
	if f.before == nil {
		chunk, err := a.emit(nil, d)
		if err != nil {
			return dst, err
		}
		member := `"` + name + `":"` // quotes inside a string would be escaped, so only the member matches
		at := bytes.Index(chunk, []byte(member+placeholder)) + len(member)
		f.before, f.behind = chunk[:at], chunk[at+len(placeholder):]
	}
	return append(append(append(dst, f.before...), p.Text...), f.behind...), nil
}

func finishReason(stop string) string {
	switch stop {
	case wire.StopMaxTokens, wire.StopWindow:
		return finishLength
	case wire.StopToolUse:
		return finishTools
	case wire.StopRefusal:
		return finishFilter
	}
	return finishStop
}

// chatSink takes the chunks for the client. It either writes each one as an event, or puts them
// together to one completion.
type chatSink struct {
	stream    bool
	content   strings.Builder
	reasoning strings.Builder
	calls     []toolCall
	arguments []strings.Builder // of calls, by index
}

// add takes the next chunk.
func (s *chatSink) add(dst []byte, c chunk) ([]byte, error) {
	if s.stream {
		b, err := wire.Marshal(c)
		return wire.AppendFrame(dst, "", b), err
	}
	for _, ch := range c.Choices {
		if ch.Delta.Content != nil {
			s.content.WriteString(*ch.Delta.Content)
		}
		s.reasoning.WriteString(ch.Delta.Reasoning)
		for _, call := range ch.Delta.ToolCalls {
			if *call.Index == len(s.calls) {
				s.calls = append(s.calls, call)
				s.arguments = append(s.arguments, strings.Builder{})
			}
			s.arguments[*call.Index].WriteString(call.Function.Arguments)
		}
	}
	return dst, nil
}

// end takes the last chunk, which has the usage: a stream shows it only if asked to, a JSON body
// always.
func (s *chatSink) end(dst []byte, last chunk, finish string, show bool) ([]byte, error) {
	if s.stream {
		if show {
			b, err := wire.Marshal(last)
			if err != nil {
				return dst, err
			}
			dst = wire.AppendFrame(dst, "", b)
		}
		return wire.AppendFrame(dst, "", []byte("[DONE]")), nil
	}
	m := completionMessage{Role: wire.RoleAssistant, Reasoning: s.reasoning.String(), ToolCalls: slices.Clone(s.calls)}
	if text := s.content.String(); text != "" || len(s.calls) == 0 {
		m.Content = &text
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Index = nil
		m.ToolCalls[i].Function.Arguments = s.arguments[i].String()
	}
	b, err := wire.Marshal(completion{
		ID: last.ID, Object: "chat.completion", Created: last.Created, Model: last.Model, Usage: last.Usage,
		Choices: []fullChoice{{Message: m, FinishReason: finish}},
	})
	return append(dst, b...), err
}
