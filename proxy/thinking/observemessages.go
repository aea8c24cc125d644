package thinking

import (
	"bytes"

	"github.com/tidwall/gjson"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Event hears an event of the messages dialect. It changes the id of a tool use that the vendor could give again.
func (o *Observer) Event(e *wire.Event) {
	_ = o.blocks.Add(e) // blocks that are out of order are the client's to judge
	if e.Type == wire.BlockStart {
		o.blockCount++
		if e.Block != nil && e.Block.Type == wire.ToolUseBlock {
			o.tool(e)
		}
	}
	o.finished = o.finished || e.Type == wire.MessageStop
	o.complete = o.finished
	o.keep(0)
}

// tool gives a tool use's id the name that the client gets.
func (o *Observer) tool(e *wire.Event) {
	tool := o.names.toolID(e.Block.ID)
	if tool.Client != tool.Vendor {
		id := gjson.GetBytes(e.JSON(), "content_block.id")
		if id.Type != gjson.String {
			return
		}
		e.Data = wire.Splice(e.JSON(), wire.Span{Start: id.Index, End: id.Index + len(id.Raw)}, wire.Quote(tool.Client))
		e.Block.ID = tool.Client
	}
	o.tools = append(o.tools, toolAt{o.blockCount - 1, tool})
}

// toolAt is the id of a tool use, which is a block at an index.
type toolAt struct {
	block int
	id    ledger.ToolID
}

// put is a streamed answer as far as it came; without Content if nothing came. A block that was not closed or not
// understood, and those behind it, are left out.
func (o *Observer) put() (out Answer) {
	content, blocks, complete := o.blocks.Content()
	if out.Cut = !complete; blocks > 0 {
		out.Content = content
	}
	for _, t := range o.tools {
		if t.block < blocks {
			out.Tools = append(out.Tools, t.id)
		}
	}
	return out
}

// Message hears an answer of the messages dialect that came as one JSON body, which wire.ReadMessage has read, and
// returns what the client is to get: the body itself if nothing changes.
func (o *Observer) Message(read *wire.Outline) []byte {
	m := read.Messages[0]
	if m.Blocks == nil || m.Members.Twice("content") {
		return read.Body
	}
	var e wire.Edits
	var out Answer
	for _, b := range m.Blocks {
		if b.Type != wire.ToolUseBlock {
			continue
		}
		span := b.Members.Get("id")
		if id, ok := read.Text(span); ok {
			tool := o.names.toolID(id)
			renamed(&e, span, tool)
			out.Tools = append(out.Tools, tool)
		}
	}
	out.Outline, out.Content = read, bytes.Clone(read.Raw(m.Content))
	o.take(out)
	return e.Apply(read.Body)
}
