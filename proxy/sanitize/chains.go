package sanitize

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// orphan introduces a tool result without its call.
const orphan = "Result of a tool call that is not shown:"

// chainBlocks chains calls and results in the messages dialect: the results of a message's calls
// are at the beginning of the next message. They are looked for in that message and, as long as
// those hold nothing but results of these calls, in the messages behind it, or else in the one
// behind a system message. Further away, moving a result would change what was sent before (and the
// vendor's cache), so that it becomes text.
func (r *request) chainBlocks() {
	ids := newIDs(r.p.ToolIDs, r.Dialect)
	var x exchange
	for i := 0; i < len(r.messages); i++ {
		m := r.messages[i]
		if m.role != wire.RoleAssistant || !x.begin(m) {
			continue
		}
		following := r.messages[i+1:]
		x.claim(following)
		ids.turn()
		var missing []*block
		for j, use := range x.uses {
			fresh := ids.next(x.ids[j])
			if fresh != x.ids[j] {
				use.set("id", wire.Quote(fresh))
				r.note(KindToolID, m, use)
			}
			switch {
			case x.results[j] == nil:
				missing = append(missing, missingResult(fresh))
				r.note(KindUnanswered, m, use)
			case fresh != x.ids[j]:
				x.results[j].set("tool_use_id", wire.Quote(fresh))
			}
		}
		claimed := len(x.uses) - len(missing)
		if len(following) > 0 && following[0].role == wire.RoleUser {
			r.place(following[0], following[1:], claimed, missing)
			continue
		}
		target := &editedMessage{object: objectOf([]byte(`{"role":"user","content":[]}`)), index: -1, role: wire.RoleUser,
			listed: true}
		r.place(target, following, claimed, missing)
		r.messages, r.moved = slices.Insert(r.messages, i+1, target), true
	}
	r.sweep()
	r.freeOrphans()
}

// exchange is the calls of one message and their results. Its buffers are reused for the next
// message.
type exchange struct {
	uses    []*block
	ids     []string // of the uses, as the client sent them
	results []*block // by use; nil for a missing one
	open    queues
}

// begin collects the calls of a message, and reports whether there are any.
func (x *exchange) begin(m *editedMessage) bool {
	x.uses, x.ids, x.results = x.uses[:0], x.ids[:0], x.results[:0]
	for _, b := range m.blocks {
		if b.kind == wire.ToolUseBlock {
			x.uses, x.ids, x.results = append(x.uses, b), append(x.ids, b.text("id")), append(x.results, nil)
		}
	}
	return len(x.uses) > 0
}

// claim finds the results in the messages behind the calls.
func (x *exchange) claim(following []*editedMessage) {
	x.open.fill(x.ids)
	remaining := len(x.uses)
	direct := true
	for _, m := range following {
		if m.role == wire.RoleSystem {
			direct = false
			continue
		}
		if remaining == 0 || m.role != wire.RoleUser {
			return
		}
		only := m.listed
		for _, b := range m.blocks {
			if b.kind == wire.ToolResultBlock {
				if j := x.open.pop(wire.Unquoted(b.get("tool_use_id"))); j >= 0 {
					x.results[j], b.claimed = b, true
					remaining--
				}
			}
			only = only && b.claimed
		}
		if !direct || !only {
			return
		}
	}
}

// queues are the calls that wait for a result, by id and in order: two calls with the same id get
// the first and the second result.
type queues struct {
	ids   []string
	first map[string]int
	next  []int // for each call, the next one with its id; -1 for none
}

func (q *queues) fill(ids []string) {
	if q.first == nil {
		q.first = map[string]int{}
	}
	clear(q.first)
	q.ids, q.next = ids, q.next[:0]
	for range ids {
		q.next = append(q.next, -1)
	}
	for j := len(ids) - 1; j >= 0; j-- {
		if k, ok := q.first[ids[j]]; ok {
			q.next[j] = k
		}
		q.first[ids[j]] = j
	}
}

// pop is the first waiting call with an id; -1 for none.
func (q *queues) pop(id []byte) int {
	j, ok := q.first[string(id)]
	if !ok {
		return -1
	}
	if q.next[j] < 0 {
		delete(q.first, q.ids[j])
	} else {
		q.first[q.ids[j]] = q.next[j]
	}
	return j
}

// place moves the results of an assistant message to the beginning of the following user message,
// in the order in which they came. found is how many of them are there or further behind; the
// missing ones are placeholders.
func (r *request) place(target *editedMessage, following []*editedMessage, claimed int, missing []*block) {
	stand := 0
	for stand < len(target.blocks) && target.blocks[stand].claimed {
		stand++
	}
	if stand == claimed && len(missing) == 0 {
		return
	}
	target.list()
	target.moved = true
	for _, b := range target.blocks[min(stand, len(target.blocks)):] {
		if b.claimed {
			r.note(KindPlace, target, b)
		}
	}
	leading := target.take(make([]*block, 0, claimed+len(missing)))
	for _, m := range following {
		if m.role == wire.RoleAssistant || len(leading) == claimed {
			break
		}
		start := len(leading)
		if leading = m.take(leading); len(leading) == start {
			continue
		}
		m.moved = true
		for _, b := range leading[start:] {
			r.note(KindPlace, m, b)
			b.index = -1
		}
		if len(m.blocks) == 0 {
			r.omit(m)
		}
	}
	target.blocks = slices.Concat(leading, missing, target.blocks)
}

// take appends the claimed results of a message to results and removes them from the message.
func (m *editedMessage) take(results []*block) []*block {
	m.blocks = slices.DeleteFunc(slices.Clone(m.blocks), func(b *block) bool {
		if b.claimed {
			results = append(results, b)
		}
		return b.claimed
	})
	return results
}

// missingResult is a placeholder for the result of a call.
func missingResult(id string) *block {
	raw := slices.Concat([]byte(`{"type":"tool_result","tool_use_id":`), wire.Quote(id),
		[]byte(`,"content":"`+noResult+`","is_error":true}`))
	return &block{object: objectOf(raw), index: -1, kind: wire.ToolResultBlock, claimed: true}
}

// freeOrphans turns unclaimed results into text. An unclaimed copy of a claimed result is removed.
func (r *request) freeOrphans() {
	loose := func(b *block) bool { return b.kind == wire.ToolResultBlock && !b.claimed }
	for _, m := range r.messages {
		if !slices.ContainsFunc(m.blocks, loose) {
			continue
		}
		var out []*block
		for _, b := range m.blocks {
			if !loose(b) {
				out = append(out, b)
				continue
			}
			if slices.ContainsFunc(m.blocks, func(c *block) bool {
				return c.claimed && bytes.Equal(c.get("content"), b.get("content"))
			}) {
				r.note(KindDoubled, m, b)
				continue
			}
			r.note(KindOrphan, m, b)
			out = append(out, resultBlocks(b, m.role)...)
		}
		m.blocks, m.moved = out, true
	}
}

// tellServerTools turns calls of tools that the vendor runs into text if they have no result, and results without their
// call (https://github.com/anthropics/claude-code/issues/80439). The vendor continues the last answer.
func tellServerTools(r *request) {
	var called, answered []string
	for _, m := range r.messages {
		for _, b := range m.blocks {
			if calls, answers := b.ofServerTool(); calls {
				called = append(called, b.text("id"))
			} else if answers {
				answered = append(answered, b.text("tool_use_id"))
			}
		}
	}
	last := len(r.messages) - 1
	for last >= 0 && (prompts(r.messages[last]) || r.messages[last].holds(wire.ToolResultBlock)) {
		last--
	}
	for i, m := range r.messages {
		for j, b := range m.blocks {
			calls, answers := b.ofServerTool()
			if calls && i != last && !slices.Contains(answered, b.text("id")) ||
				answers && !slices.Contains(called, b.text("tool_use_id")) {
				m.blocks[j], m.moved = textBlock(wire.Quote(wire.StandIn(gjson.ParseBytes(b.raw())))), true
				r.note(KindContent, m, b)
			}
		}
	}
}

// ofServerTool reports whether a block is a call of a tool that the vendor runs, or the result of one.
func (b *block) ofServerTool() (calls, answers bool) {
	return b.kind == wire.ServerTool || b.kind == "mcp_tool_use",
		strings.HasSuffix(b.kind, "_tool_result")
}

// resultBlocks is a result as blocks for a message of this role. Content that may not be there becomes its
// JSON text.
func resultBlocks(b *block, role string) []*block {
	content := b.get("content")
	if len(content) > 0 && content[0] == '"' {
		return []*block{textBlock(introduced(content))}
	}
	out := []*block{textBlock(wire.Quote(orphan))}
	if len(content) == 0 || content[0] != '[' {
		return []*block{textBlock(introduced(wire.Quote(noOutput)))}
	}
	for _, it := range elements(content) {
		o := objectOf(it.raw)
		kind := o.text("type")
		picture := kind == wire.ImageBlock || kind == wire.DocumentBlock
		switch {
		case kind == wire.TextBlock, picture && role == wire.RoleUser:
			out = append(out, &block{object: o, index: -1, kind: kind})
		default:
			out = append(out, textBlock(wire.Quote(string(bytes.TrimSpace(it.raw)))))
		}
	}
	return out
}

// introduced is the text of an orphaned result with its introduction, as JSON.
func introduced(quoted []byte) []byte {
	if blank(quoted) {
		quoted = wire.Quote(noOutput)
	}
	// Concatenated in raw form, so that the text keeps its escapes.
	return slices.Concat([]byte(`"`+orphan+`\n`), quoted[1:])
}
