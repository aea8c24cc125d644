package thinking

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// chatAnswer collects the first choice of a streamed chat completion.
type chatCollector struct {
	names   names
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

// event implements collector.
func (a *chatCollector) event(data []byte, e *wire.Edits) (kept int, finished bool) {
	if !gjson.ValidBytes(data) {
		return 0, false
	}
	// From here on no slice of data is kept: gjson.GetBytes copies what it finds.
	elements(gjson.GetBytes(data, "choices"), func(choice gjson.Result) {
		index, delta := choice.Get("index").Int(), choice.Get("delta")
		if index == 0 {
			a.grow(delta)
			kept += len(delta.Raw)
			finished = finished || choice.Get("finish_reason").Str != ""
		}
		elements(delta.Get(toolCalls), func(piece gjson.Result) {
			at := a.place(index, piece)
			a.name(e, at, piece)
			if index == 0 {
				a.growCall(at, piece)
			}
		})
	})
	return kept, finished
}

// place is the call that a piece belongs to. Where a vendor leaves the index out, a piece belongs
// to the last call, unless it has a different id.
func (a *chatCollector) place(choice int64, piece gjson.Result) callPlace {
	if index := piece.Get("index"); index.Type == gjson.Number {
		return callPlace{choice, index.Int()}
	}
	last := int64(-1)
	for p := range a.tools {
		if p.choice == choice {
			last = max(last, p.index)
		}
	}
	id := piece.Get("id").Str
	if last < 0 || id != "" && a.tools[callPlace{choice, last}].Vendor != id {
		last++
	}
	return callPlace{choice, last}
}

// name gives the id of a call the name that the client gets, in place, which as a rule is in the
// first piece of the call.
func (a *chatCollector) name(e *wire.Edits, at callPlace, piece gjson.Result) {
	id := piece.Get("id")
	if id.Type != gjson.String {
		return
	}
	tool, known := a.tools[at]
	if !known {
		tool = a.names.of(id.Str)
		a.tools[at] = tool
	}
	if tool.Vendor == id.Str && (id.Str != "" || !known) {
		renamed(e, spanOf(id), tool)
	}
}

// grow adds a delta to the message, apart from its tool calls.
func (a *chatCollector) grow(delta gjson.Result) {
	members(delta, func(name string, value gjson.Result) {
		switch name {
		case "content", "reasoning_content", "reasoning", "refusal":
			a.broken = a.broken || value.Type != gjson.String && value.Type != gjson.Null
			a.message.add(name, value)
		case toolCalls, details, blocks:
			elements(value, func(piece gjson.Result) {
				a.message.member(name) // keeps its place in the order; put fills in the value
				switch name {
				case details:
					a.details.add(piece)
				case blocks:
					a.blocks.add(piece)
				}
			})
		default:
			a.message.set(name, value)
		}
	})
}

// growCall adds a piece to its tool call.
func (a *chatCollector) growCall(at callPlace, piece gjson.Result) {
	i := slices.IndexFunc(a.calls, func(c *partialCall) bool { return c.place == at })
	if i < 0 {
		i = len(a.calls)
		a.calls = append(a.calls, &partialCall{place: at})
	}
	c := a.calls[i]
	members(piece, func(name string, value gjson.Result) {
		switch name {
		case "index": // only says where the piece belongs
		case "function":
			c.member(name)
			members(value, func(name string, value gjson.Result) {
				if name == "arguments" {
					c.function.add(name, value)
				} else {
					c.function.set(name, value)
				}
			})
		default:
			c.set(name, value)
		}
	})
}

func (c *partialCall) json() jsontext.Value {
	if c.function != nil {
		c.member("function").value = c.function.json()
	}
	return c.growing.json()
}

// put implements collector.
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
	}{{toolCalls, array(calls)}, {details, a.details.json()}, {blocks, a.blocks.json()}} {
		if i := slices.IndexFunc(message, func(m grown) bool { return m.name == list.name }); i >= 0 {
			message[i].value = list.value
		}
	}
	out.Content = message.json()
	return out
}

// chatBody reads a chat completion that came as one JSON body.
func chatBody(body []byte, e *wire.Edits, n names) (out Answer) {
	spans, err := wire.Members(body, "choices")
	if err != nil {
		return out
	}
	o := &wire.Outline{Body: body}
	for i, choice := range o.Elements(spans[0]) {
		message := o.Object(choice).Get("message")
		for _, s := range o.Elements(o.Object(message).Get(toolCalls)) {
			at := o.Object(s).Get("id")
			id, ok := o.Text(at)
			if !ok {
				continue
			}
			tool := n.of(id)
			renamed(e, at, tool)
			if i == 0 {
				out.Tools = append(out.Tools, tool)
			}
		}
		if i == 0 && o.Of(message).Kind() == '{' {
			out.Content = bytes.Clone(o.Of(message))
		}
	}
	return out
}
