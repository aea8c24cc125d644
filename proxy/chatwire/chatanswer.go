package chatwire

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// ErrCut is wrapped by the error for an answer that ended without saying why, such as a stream that
// lacks its last events.
var ErrCut = errors.New("the backend's answer was cut off")

// AnswerOptions is the form in which the client asked for an answer.
type AnswerOptions struct {
	Model        string // shown instead of the vendor's model, unless empty
	Stream       bool   // as server-sent events; else as one JSON body
	IncludeUsage bool   // for chat streams: a last chunk has the usage
	AnswerTool   string // its call is the answer; empty for none

	Custom []string // tools whose calls are shown to a chat client with a text as their input
}

// ChatAnswer translates one answer of a messages backend into the chat dialect. Event takes what the
// backend said, and End finishes; each appends to dst what the client gets. Text passes as it is
// written in JSON.
type ChatAnswer struct {
	options AnswerOptions
	created string
	head    []byte // the members that all chunks have in common

	id        []byte // of the answer, as JSON
	content   []byte // of a body
	reasoning []byte
	calls     []*callBlock
	blocks    map[int]*callBlock // the calls, by the index of their block

	usage  wire.Usage
	finish string
	done   bool
}

// callBlock is a tool_use block.
type callBlock struct {
	index     string // among the answer's tool calls
	head      string // the members of the call that do not grow
	piece     string // the beginning of the member that grows
	initial   string // input that came with the start of the block
	arguments []byte // of a body
	started   bool   // a piece of the arguments was sent
	custom    bool   // its input is a text, which is shown when the block is complete
}

// NewChatAnswer begins an answer. now is the value of created in every chunk.
func NewChatAnswer(a AnswerOptions, now time.Time) *ChatAnswer {
	answer := &ChatAnswer{options: a, created: strconv.FormatInt(now.Unix(), 10), blocks: map[int]*callBlock{}}
	answer.begin("")
	return answer
}

// begin begins an answer, and each chunk of it.
func (a *ChatAnswer) begin(id string) {
	a.id = wire.Quote(id)
	a.head = a.open(append(a.head[:0], "data: "...), "chat.completion.chunk")
}

// open appends the members that say what an object is, up to its choices.
func (a *ChatAnswer) open(dst []byte, object string) []byte {
	return join(dst, `{"id":`, string(a.id), `,"object":"`, object, `","created":`, a.created, `,"model":`,
		string(wire.Quote(a.options.Model)), `,"choices":[`)
}

func join(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// End finishes the answer. It fails with ErrCut if the backend did not finish it.
func (a *ChatAnswer) End(dst []byte) ([]byte, error) {
	if a.finish == "" {
		return dst, ErrCut
	}
	a.done = true
	usage, err := wire.Marshal(a.usage.Chat())
	if !a.options.Stream {
		return join(a.message(a.open(dst, "chat.completion")), `"}],"usage":`, string(usage), "}"), err
	}
	if a.options.IncludeUsage {
		dst = join(append(dst, a.head...), `],"usage":`, string(usage), "}\n\n")
	}
	return wire.AppendFrame(dst, "", []byte("[DONE]")), err
}

// message appends the only choice of a body.
func (a *ChatAnswer) message(dst []byte) []byte {
	dst = join(dst, `{"index":0,"message":{"role":"assistant","content":`)
	if len(a.content) > 0 || len(a.calls) == 0 {
		dst = join(dst, `"`, string(a.content), `"`)
	} else {
		dst = join(dst, "null")
	}
	if len(a.reasoning) > 0 {
		dst = join(dst, `,"reasoning_content":"`, string(a.reasoning), `"`)
	}
	for i, call := range a.calls {
		sep := ","
		if i == 0 {
			sep = `,"tool_calls":[`
		}
		dst = join(dst, sep, "{", call.head, string(call.arguments), `"}}`)
	}
	if len(a.calls) > 0 {
		dst = append(dst, ']')
	}
	return join(dst, `},"finish_reason":"`, a.finish)
}

// Event takes an event of the messages dialect.
func (a *ChatAnswer) Event(dst []byte, e *wire.Event) ([]byte, error) {
	if a.done {
		return dst, nil
	}
	switch e.Type {
	case wire.MessageStart:
		if e.Message == nil {
			return dst, nil
		}
		a.options.Model = cmp.Or(a.options.Model, e.Message.Model)
		a.begin(e.Message.ID)
		a.usage.Update(e.Message.Usage)
		return a.emit(dst, `"role":"assistant","content":"`, nil, `"`), nil
	case wire.BlockStart: // it may have content already: vendors put some into the start
		if b := e.Block; b != nil && b.Type == wire.ToolUseBlock {
			return a.start(dst, e.Index, *b), nil
		} else if b != nil {
			dst = a.grow(dst, `"content":"`, &a.content, wire.Inner(b.Text))
			return a.grow(dst, `"reasoning_content":"`, &a.reasoning, wire.Inner(b.Thinking)), nil
		}
	case wire.BlockDelta:
		switch piece := e.Delta.Inner(); e.Delta.Type {
		case wire.TextDelta:
			return a.grow(dst, `"content":"`, &a.content, piece), nil
		case wire.ThinkingDelta:
			return a.grow(dst, `"reasoning_content":"`, &a.reasoning, piece), nil
		case wire.InputDelta:
			if b := a.blocks[e.Index]; b != nil && len(piece) > 0 {
				return a.argument(dst, b, piece), nil
			}
		}
	case wire.BlockStop:
		if b := a.blocks[e.Index]; b != nil && (b.custom || !b.started) {
			return a.end(dst, b), nil
		}
	case wire.MessageDelta:
		a.usage.Update(e.Usage)
		if e.Delta.StopReason != "" {
			return a.finishWith(dst, string(e.Delta.StopReason))
		}
	case wire.MessageStop:
		if len(a.calls) > 0 { // some imitators of Anthropic give no reason
			return a.finishWith(dst, wire.StopToolUse)
		}
	}
	return dst, nil
}

// finishWith takes the reason for the end of the answer. The first one counts.
func (a *ChatAnswer) finishWith(dst []byte, stop string) ([]byte, error) {
	if a.finish != "" {
		return dst, nil
	}
	ending := wire.EndingOf(stop)
	if ending == wire.EndFailed {
		return dst, wire.FailedEnding(stop)
	}
	a.finish = cmp.Or(endingWords[ending], finishStop)
	if ending == wire.EndTurn && len(a.calls) > 0 { // some imitators of Anthropic end a call like this
		a.finish = finishTools
	}
	if a.options.Stream {
		dst = join(append(dst, a.head...), `{"index":0,"delta":{},"finish_reason":"`, a.finish, "\"}]}\n\n")
	}
	return dst, nil
}

// grow adds a piece to a member of the message.
func (a *ChatAnswer) grow(dst []byte, prefix string, buf *[]byte, piece []byte) []byte {
	if len(piece) == 0 {
		return dst
	}
	if !a.options.Stream {
		*buf = append(*buf, piece...)
		return dst
	}
	return a.emit(dst, prefix, piece, `"`)
}

// start opens a call.
func (a *ChatAnswer) start(dst []byte, index int, b wire.Block) []byte {
	call := &callBlock{index: strconv.Itoa(len(a.calls)), initial: string(wire.InputObject(string(b.Input)))}
	kind, member := functionTool, "arguments"
	if call.custom = slices.Contains(a.options.Custom, b.Name); call.custom {
		kind, member = customTool, "input"
	}
	call.piece = `"` + kind + `":{"` + member + `":"`
	call.head = `"id":` + string(wire.Quote(b.ID)) + `,"type":"` + kind + `","` + kind + `":{"name":` +
		string(wire.Quote(b.Name)) + `,"` + member + `":"`
	a.calls = append(a.calls, call)
	a.blocks[index] = call
	return a.emit(dst, `"tool_calls":[{"index":`+call.index+","+call.head, nil, `"}}]`)
}

// argument sends a piece of a call's arguments.
func (a *ChatAnswer) argument(dst []byte, b *callBlock, piece []byte) []byte {
	if b.started = true; !a.options.Stream || b.custom {
		b.arguments = append(b.arguments, piece...)
		return dst
	}
	return a.emit(dst, `"tool_calls":[{"index":`+b.index+","+b.piece, piece, `"}}]`)
}

// end completes a call: without a piece of its arguments the initial ones count.
func (a *ChatAnswer) end(dst []byte, b *callBlock) []byte {
	if !b.custom {
		return a.argument(dst, b, wire.Inner(b.initial))
	}
	input := b.initial
	if b.started {
		input = gjson.Parse(`"` + string(b.arguments) + `"`).Str
	}
	if v := gjson.Get(input, "input"); v.Type == gjson.String {
		input = v.Str
	}
	b.arguments, b.custom = nil, false
	return a.argument(dst, b, wire.Inner(input))
}

// emit sends a chunk of a stream that adds to the message.
func (a *ChatAnswer) emit(dst []byte, prefix string, piece []byte, suffix string) []byte {
	if !a.options.Stream {
		return dst
	}
	dst = append(append(append(dst, a.head...), `{"index":0,"delta":{`...), prefix...)
	return append(append(append(dst, piece...), suffix...), "},\"finish_reason\":null}]}\n\n"...)
}
