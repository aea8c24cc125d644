package thinking

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// chatCollector collects the first choice of a streamed chat completion.
type chatCollector struct {
	tools   map[callPlace]ledger.ToolID // every call's id, of all choices
	message growing
	calls   []*partialCall
	details pieces // reasoning_details
	blocks  pieces // thinking_blocks
	broken  bool   // a member had a type that cannot be joined
}

// callPlace identifies a tool call: its choice and its index there.
type callPlace struct{ choice, index int64 }

// partialCall is a tool call of the first choice while its pieces are still coming.
type partialCall struct {
	place    callPlace
	function growing
	growing
}

const (
	toolCalls = "tool_calls"
	details   = "reasoning_details"
	blocks    = "thinking_blocks"
)

// Chunk hears a chunk of a chat completion, or a completion that came whole, and returns what the client is to get: the
// chunk's data itself if nothing changes.
func (o *Observer) Chunk(c *wire.Chunk) []byte {
	if c.Done() {
		o.End()
		return c.Body
	}
	var e wire.Edits
	for i := range c.Choices {
		choice := &c.Choices[i]
		complete, first := choice.Complete, choice.Index == 0
		if complete {
			first = i == 0
		} else if first {
			o.chat.grow(c, choice)
			o.keep(choice.End - choice.Start)
			o.finished = o.finished || choice.Finish != ""
		}
		var tools []ledger.ToolID
		for j := range choice.Calls {
			piece := &choice.Calls[j]
			id, hasID := c.Text(piece.Members.Get("id"))
			if complete && hasID {
				tools = append(tools, o.names.toolID(id))
				renamed(&e, piece.Members.Get("id"), tools[len(tools)-1])
			}
			if complete {
				continue
			}
			place := o.chat.place(choice.Index, piece, id)
			if hasID {
				o.name(&e, place, piece.Members.Get("id"), id)
			}
			if first {
				o.chat.growCall(c, place, piece)
			}
		}
		if complete && first && choice.Delta != nil {
			o.take(Answer{Content: bytes.Clone(c.Raw(choice.Span)), Tools: tools})
		}
	}
	return e.Apply(c.Body)
}

// place is the call that a piece belongs to. Where a vendor leaves the index out, a piece belongs
// to the last call, unless it has a different id.
func (a *chatCollector) place(choice int64, piece *wire.CallPiece, id string) callPlace {
	if piece.Placed {
		return callPlace{choice, piece.Index}
	}
	last := int64(-1)
	for p := range a.tools {
		if p.choice == choice {
			last = max(last, p.index)
		}
	}
	if last < 0 || id != "" && a.tools[callPlace{choice, last}].Vendor != id {
		last++
	}
	return callPlace{choice, last}
}

// name gives the id of a call the name that the client gets, in place, which as a rule is in the
// first piece of the call.
func (o *Observer) name(e *wire.Edits, place callPlace, span wire.Span, id string) {
	tool, exists := o.chat.tools[place]
	if !exists {
		if o.chat.tools == nil {
			o.chat.tools = map[callPlace]ledger.ToolID{}
		}
		tool = o.names.toolID(id)
		o.chat.tools[place] = tool
	}
	if tool.Vendor == id && (id != "" || !exists) {
		renamed(e, span, tool)
	}
}

// grow adds a delta to the message, apart from its tool calls.
func (a *chatCollector) grow(c *wire.Chunk, choice *wire.Choice) {
	for _, m := range choice.Delta {
		value := c.Raw(m.Value)
		switch m.Name {
		case "content", "reasoning_content", "reasoning", "refusal":
			a.broken = a.broken || value.Kind() != '"' && value.Kind() != 'n'
			a.message.add(m.Name, value)
		case toolCalls, details, blocks:
			for _, span := range c.Elements(m.Value) {
				a.message.member(m.Name) // keeps its place in the order; put fills in the value
				switch m.Name {
				case details:
					a.details.add(&c.Outline, span)
				case blocks:
					a.blocks.add(&c.Outline, span)
				}
			}
		default:
			a.message.set(m.Name, value)
		}
	}
}

// growCall adds a piece to its tool call.
func (a *chatCollector) growCall(c *wire.Chunk, place callPlace, piece *wire.CallPiece) {
	i := slices.IndexFunc(a.calls, func(c *partialCall) bool { return c.place == place })
	if i < 0 {
		i = len(a.calls)
		a.calls = append(a.calls, &partialCall{place: place})
	}
	call := a.calls[i]
	for _, m := range piece.Members {
		switch m.Name {
		case "index": // only says where the piece belongs
		case "function":
			call.member(m.Name)
			for _, m := range piece.Function {
				if m.Name == "arguments" {
					call.function.add(m.Name, c.Raw(m.Value))
				} else {
					call.function.set(m.Name, c.Raw(m.Value))
				}
			}
		default:
			call.set(m.Name, c.Raw(m.Value))
		}
	}
}

func (c *partialCall) json() jsontext.Value {
	if c.function != nil {
		c.member("function").value = c.function.json()
	}
	return c.growing.json()
}

// put is the answer as far as it came; without Content if nothing came.
func (a *chatCollector) put() Answer {
	out := Answer{Cut: a.broken}
	if len(a.message) == 0 {
		return out
	}
	message := slices.Clone(a.message)
	calls := make([]jsontext.Value, len(a.calls))
	for i, c := range a.calls {
		calls[i] = c.json()
		if tool, ok := a.tools[c.place]; ok {
			out.Tools = append(out.Tools, tool)
		}
	}
	for _, list := range []struct {
		name  string
		value jsontext.Value
	}{{toolCalls, wire.Array(calls)}, {details, a.details.json()}, {blocks, a.blocks.json()}} {
		if i := slices.IndexFunc(message, func(m grown) bool { return m.name == list.name }); i >= 0 {
			message[i].value = list.value
		}
	}
	out.Content = message.json()
	return out
}
