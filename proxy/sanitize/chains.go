package sanitize

import (
	"bytes"
	"slices"

	"mneme/proxy/wire"
)

// orphan introduces a result whose call is not there.
const orphan = "Result of a tool call that is not shown:"

// chainBlocks chains calls and results in the messages dialect. A call's result
// stands at the beginning of the message that follows it. It is looked for in
// that message and, as long as they hold nothing but results of these calls, in
// those behind it, or else in the one behind a system message. Further away it
// would change what was sent before, and is text.
func (r *request) chainBlocks() {
	ids := newIDs(r.p.ToolIDs, r.Dialect)
	var x exchange
	out := make([]*editedMessage, 0, len(r.messages))
	for i, m := range r.messages {
		out = append(out, m)
		if m.role != wire.RoleAssistant || !x.begin(m) {
			continue
		}
		behind := r.messages[i+1:]
		x.claim(behind)
		ids.turn()
		var missing []*block
		for j, use := range x.uses {
			fresh := ids.next(x.ids[j])
			if fresh != x.ids[j] {
				use.set("id", wire.Quote(fresh))
				r.note(RuleToolID, m, use)
			}
			switch {
			case x.results[j] == nil:
				missing = append(missing, missingResult(fresh))
				r.note(RuleUnanswered, m, use)
			case fresh != x.ids[j]:
				x.results[j].set("tool_use_id", wire.Quote(fresh))
			}
		}
		found := len(x.uses) - len(missing)
		if len(behind) > 0 && behind[0].role == wire.RoleUser {
			r.place(behind[0], behind[1:], found, missing)
			continue
		}
		target := &editedMessage{object: objectOf([]byte(`{"role":"user","content":[]}`)), index: -1, role: wire.RoleUser, listed: true}
		r.place(target, behind, found, missing)
		out, r.moved = append(out, target), true
	}
	r.messages = out
	r.sweep()
	r.freeOrphans()
}

// exchange is the calls of a message and their results. It is used again for the
// next one.
type exchange struct {
	uses    []*block
	ids     []string // of the uses, as they came
	results []*block // of the uses; nil where there is none
	open    queues
}

// begin takes the calls of a message, and says whether there are any.
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
func (x *exchange) claim(behind []*editedMessage) {
	x.open.fill(x.ids)
	left := len(x.uses)
	direct := true
	for len(behind) > 0 && behind[0].role == wire.RoleSystem {
		behind, direct = behind[1:], false
	}
	for _, m := range behind {
		if left == 0 || m.role != wire.RoleUser {
			return
		}
		only := m.listed
		for _, b := range m.blocks {
			if b.kind == wire.ToolResultBlock {
				if j := x.open.pop(unquoted(b.get("tool_use_id"))); j >= 0 {
					x.results[j], b.claimed = b, true
					left--
				}
			}
			only = only && b.claimed
		}
		if !direct || !only {
			return
		}
	}
}

// queues holds the calls that wait for a result, by their ids and in their order:
// two calls of one id take the first and the second result.
type queues struct {
	ids   []string
	first map[string]int
	next  []int // of each call, the next one of its id; -1 for none
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

// pop is the first call of an id that still waits, or -1.
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

// place puts the results of an assistant message at the beginning of the user's
// message that follows it, in the order in which they came: found of them stand
// there or in the messages behind, the missing ones are ours.
func (r *request) place(target *editedMessage, behind []*editedMessage, found int, missing []*block) {
	stand := 0
	for stand < len(target.blocks) && target.blocks[stand].claimed {
		stand++
	}
	if stand == found && len(missing) == 0 {
		return
	}
	target.list()
	target.moved = true
	for _, b := range target.blocks[min(stand, len(target.blocks)):] {
		if b.claimed {
			r.note(RulePlace, target, b)
		}
	}
	leading := target.take(make([]*block, 0, found+len(missing)))
	for _, m := range behind {
		if m.role == wire.RoleAssistant || len(leading) == found {
			break
		}
		before := len(leading)
		if leading = m.take(leading); len(leading) == before {
			continue
		}
		m.moved = true
		for _, b := range leading[before:] {
			r.note(RulePlace, m, b)
			b.index = -1
		}
		if len(m.blocks) == 0 {
			r.omit(m)
		}
	}
	target.blocks = slices.Concat(leading, missing, target.blocks)
}

// take moves the claimed results of a message behind those that there are.
func (m *editedMessage) take(results []*block) []*block {
	m.blocks = slices.DeleteFunc(slices.Clone(m.blocks), func(b *block) bool {
		if b.claimed {
			results = append(results, b)
		}
		return b.claimed
	})
	return results
}

func missingResult(id string) *block {
	raw := slices.Concat([]byte(`{"type":"tool_result","tool_use_id":`), wire.Quote(id), []byte(`,"content":"`+noResult+`","is_error":true}`))
	return &block{object: objectOf(raw), index: -1, kind: wire.ToolResultBlock, claimed: true}
}

// freeOrphans makes text of the results that no call claimed, unless one beside it
// that a call did claim says the same: then it came twice, and goes.
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
			if slices.ContainsFunc(m.blocks, func(c *block) bool { return c.claimed && bytes.Equal(c.get("content"), b.get("content")) }) {
				r.note(RuleDoubled, m, b)
				continue
			}
			r.note(RuleOrphan, m, b)
			out = append(out, told(b, m.role)...)
		}
		m.blocks, m.moved = out, true
	}
}

// told is what a result says, in blocks of a message of this role. What may not
// stand there is shown as the JSON that it is.
func told(b *block, role string) []*block {
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

// introduced is the text of an orphan with its introduction, as JSON.
func introduced(quoted []byte) []byte {
	if blank(quoted) {
		quoted = wire.Quote(noOutput)
	}
	// The text keeps its escapes.
	return slices.Concat([]byte(`"`+orphan+`\n`), quoted[1:])
}
