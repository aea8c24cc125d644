package sanitize

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// readCalls reads the tool calls of assistant messages. An empty list of calls is removed, because
// vendors refuse it.
func (r *request) readCalls() {
	for _, m := range r.messages {
		raw := m.get("tool_calls")
		if m.role != wire.RoleAssistant || len(raw) == 0 || raw[0] != '[' {
			continue
		}
		listSpan := m.members.Get("tool_calls")
		for i, span := range r.Outline.Elements(listSpan) {
			c := &editedCall{object{body: m.body, span: span, members: r.Outline.Object(span)}, i}
			if m.calls = append(m.calls, c); c.mendArguments() {
				r.noteCall(KindArguments, m, c)
			}
		}
		if len(m.calls) == 0 {
			m.drop("tool_calls")
			r.note(KindEmpty, m, nil)
		}
	}
}

// mendArguments makes a call's arguments the text of a JSON object, and reports whether they were something else. Servers
// parse them again: https://github.com/vllm-project/vllm/pull/48922 https://github.com/bytedance/deer-flow/issues/4445
// https://github.com/OpenHands/software-agent-sdk/issues/2887
func (c *editedCall) mendArguments() bool {
	function := c.get("function")
	raw := gjson.GetBytes(function, "arguments")
	text := strings.TrimSpace(raw.Str)
	if !raw.Exists() || strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		return false
	}
	if text = raw.Raw; !raw.IsObject() {
		text = string(wire.InputObject(raw.Str))
	}
	f := objectOf(function)
	f.set("arguments", wire.Quote(text))
	c.set("function", f.raw())
	return true
}

// dropReasoning removes members in which the vendor accepts no reasoning.
func (r *request) dropReasoning() {
	replay := &r.p.Replay
	if replay.Fields == nil && replay.Reasoning != Forbidden {
		return
	}
	for _, m := range r.messages {
		if m.role != wire.RoleAssistant {
			continue
		}
		for _, name := range reasoningFields {
			if slices.Contains(replay.Fields, name) {
				continue
			}
			if m.drop(name) {
				r.note(KindReasoning, m, nil)
			}
			for _, c := range m.calls {
				if name == extraContent && c.drop(name) {
					r.noteCall(KindReasoning, m, c)
				}
			}
		}
	}
}

// noteCall records a change of a tool call.
func (r *request) noteCall(kind Kind, m *editedMessage, c *editedCall) {
	r.changed(kind, "messages."+strconv.Itoa(m.index)+".tool_calls."+strconv.Itoa(c.index))
}

// chainCalls chains calls and results in the chat dialect: the results are messages directly behind
// the one with the calls. System messages in between do not count; results further away become
// text.
func (r *request) chainCalls() {
	ids := newIDs(r.p.ToolIDs, r.Dialect)
	out := make([]*editedMessage, 0, len(r.messages))
	for i := 0; i < len(r.messages); i++ {
		m := r.messages[i]
		out = append(out, m)
		switch {
		case m.role == wire.RoleTool:
			r.tell(m)
		case len(m.calls) > 0:
			end := i + 1
			for k := end; k < len(r.messages) && (r.messages[k].role == wire.RoleTool || prompts(r.messages[k])); k++ {
				if r.messages[k].role == wire.RoleTool {
					end = k + 1
				}
			}
			ids.turn()
			out = append(out, r.answered(m, r.messages[i+1:end], ids)...)
			i = end - 1
		}
	}
	r.messages = out
}

func prompts(m *editedMessage) bool { return wire.IsSystem(m.role) }

// answered is what follows a message with calls: results in the order in which they came,
// placeholders for missing ones, and then everything else that was there.
func (r *request) answered(m *editedMessage, following []*editedMessage, ids *ids) []*editedMessage {
	results := make([]*editedMessage, len(m.calls))
	names := make([]string, len(m.calls))
	for j, c := range m.calls {
		names[j] = c.text("id")
	}
	var open queues
	open.fill(names)
	var matched, missing, rest []*editedMessage
	for _, b := range following {
		j := -1
		if b.role == wire.RoleTool {
			j = open.pop(wire.Unquoted(b.get("tool_call_id")))
		}
		if j < 0 || m.calls[j].members == nil {
			rest = append(rest, b)
			continue
		}
		results[j] = b
		if matched = append(matched, b); len(rest) > 0 {
			r.moved = true
			r.note(KindPlace, b, nil)
		}
	}
	for j, c := range m.calls {
		if c.members == nil { // not an object, so it is not a call
			continue // no call at all
		}
		fresh := ids.next(names[j])
		if fresh != names[j] {
			c.set("id", wire.Quote(fresh))
			r.noteCall(KindToolID, m, c)
		}
		switch {
		case results[j] == nil:
			raw := slices.Concat([]byte(`{"role":"tool","tool_call_id":`), wire.Quote(fresh),
				[]byte(`,"content":"`+noResult+`"}`))
			missing = append(missing, &editedMessage{object: objectOf(raw), index: -1, role: wire.RoleTool})
			r.moved = true
			r.noteCall(KindUnanswered, m, c)
		case fresh != names[j]:
			results[j].set("tool_call_id", wire.Quote(fresh))
		}
	}
	rest = slices.DeleteFunc(rest, func(b *editedMessage) bool {
		if b.role != wire.RoleTool {
			return false
		}
		if slices.ContainsFunc(matched, func(f *editedMessage) bool {
			return bytes.Equal(f.get("content"), b.get("content"))
		}) {
			r.note(KindDoubled, b, nil)
			r.moved = true
			return true
		}
		r.tell(b)
		return false
	})
	return slices.Concat(matched, missing, rest)
}

// tell turns an unclaimed result into a message of the user.
func (r *request) tell(m *editedMessage) {
	r.note(KindOrphan, m, nil)
	m.set("role", wire.Quote(wire.RoleUser))
	m.role = wire.RoleUser
	m.drop("tool_call_id")
	m.drop("name")
	if m.listed {
		m.blocks = slices.Concat([]*block{textBlock(wire.Quote(orphan))}, m.blocks)
		m.moved = true
		return
	}
	if raw := m.get("content"); len(raw) > 0 && raw[0] == '"' {
		m.setContent(introduced(raw))
	}
}

// standForFields puts a placeholder where a chat message lacks required reasoning, or has no text of it.
func (r *request) standForFields() {
	replay := &r.p.Replay
	always := replay.Reasoning == Always && r.usesTools()
	if !always && replay.Reasoning != Required {
		return
	}
	for _, m := range r.messages {
		switch {
		case m.role != wire.RoleAssistant, !always && len(m.calls) == 0:
		case replay.Field == extraContent:
			r.standForSignature(m)
		case replay.Field != "" && r.mayThink() && (!m.has(replay.Field) ||
			replay.Placeholder != "" && string(m.get(replay.Field)) == `""`):
			m.set(replay.Field, wire.Quote(replay.Placeholder))
			r.note(KindPlaceholder, m, nil)
		}
	}
}

// standForSignature signs the first call of a message, which Gemini requires whether or not
// thinking is on.
func (r *request) standForSignature(m *editedMessage) {
	if len(m.calls) == 0 || m.calls[0].members == nil {
		return
	}
	c := m.calls[0]
	extra := objectOf(c.get(extraContent))
	google := objectOf(extra.get("google"))
	if google.text("thought_signature") != "" {
		return
	}
	for _, o := range []*object{&extra, &google} {
		if o.members == nil {
			*o = objectOf([]byte("{}"))
		}
	}
	google.set("thought_signature", wire.Quote(r.p.Replay.Placeholder))
	extra.set("google", google.raw())
	c.set(extraContent, extra.raw())
	r.noteCall(KindPlaceholder, m, c)
}
