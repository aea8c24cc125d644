package sanitize

import (
	"bytes"
	"slices"

	"mneme/proxy/wire"
)

// What stands where nothing is said.
const (
	noContent   = "(no content)"
	noOutput    = "(no output)"   // a tool's result
	noResult    = "(no result)"   // a call that was never answered
	interrupted = "(interrupted)" // an answer that never came
)

// fillEmpty removes texts that say nothing, and what they leave behind that says
// nothing.
func (r *request) fillEmpty() {
	if r.Dialect == wire.Messages {
		r.fillSystem()
	}
	for i, m := range r.messages {
		if m.members == nil {
			continue
		}
		if m.listed {
			r.fillResults(m)
			r.remove(RuleEmpty, m, (*block).blank)
		}
		content := m.get("content")
		empty := content == nil || content[0] == 'n' || blank(content)
		if m.listed {
			empty = len(m.blocks) == 0
		}
		if empty && !m.gone {
			r.fill(m, i == len(r.messages)-1)
		}
	}
}

func (b *block) blank() bool { return b.kind == wire.TextBlock && blank(b.get("text")) }

// fill does what is right for a message without content.
func (r *request) fill(m *editedMessage, last bool) {
	content := string(m.get("content"))
	if m.role == wire.RoleAssistant {
		// Nothing to go on with needs no reasoning either.
		begins := r.Dialect == wire.Messages && last && r.p.Replay.Reasoning != Always && (content == `""` || content == "[]")
		silent := m.calling() && (content == "" || content == "null" || content == `""`)
		// Chat messages may say something elsewhere.
		other := m.has("function_call") || m.has("refusal") || m.has("audio")
		if begins || silent || other {
			return
		}
	}
	if r.emptied(m) {
		r.note(RuleEmpty, m, nil)
	}
}

// calling says whether a chat message calls tools.
func (m *editedMessage) calling() bool { return filled(m.get("tool_calls")) }

// filled says whether a raw value is an array of something.
func filled(raw []byte) bool {
	return len(raw) > 2 && raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
}

// fillResults removes blank texts from inside results of tools.
func (r *request) fillResults(m *editedMessage) {
	for _, b := range m.blocks {
		if b.kind != wire.ToolResultBlock {
			continue
		}
		raw := b.get("content")
		if len(raw) == 0 || raw[0] != '[' || !hasBlankText(raw) {
			continue
		}
		kept, some := withoutBlanks(raw)
		if some {
			if kept == nil {
				kept = wire.Quote(noOutput)
			}
			b.set("content", kept)
			r.note(RuleEmpty, m, b)
		}
	}
}

// fillSystem removes blank texts from the system prompt.
func (r *request) fillSystem() {
	raw := r.root.get("system")
	if len(raw) == 0 || raw[0] != '[' || !hasBlankText(raw) {
		return
	}
	if kept, some := withoutBlanks(raw); some {
		r.set(RuleEmpty, "system", kept)
	}
}

// withoutBlanks is an array of blocks without its blank texts, nil if nothing is
// left, and whether there were any.
func withoutBlanks(raw []byte) (kept []byte, some bool) {
	items := elements(raw)
	n := len(items)
	items = slices.DeleteFunc(items, func(it item) bool {
		o := objectOf(it.raw)
		return o.text("type") == wire.TextBlock && blank(o.get("text"))
	})
	if len(items) == n || len(items) == 0 {
		return nil, len(items) < n
	}
	return array(raw, wire.Span{Start: 0, End: len(raw)}, n, items), true
}

// elements are those of an array, as they came.
func elements(raw []byte) []item {
	o := wire.Outline{Body: raw}
	spans := o.Elements(wire.Span{Start: 0, End: len(raw)})
	items := make([]item, len(spans))
	for i, at := range spans {
		items[i] = item{i, at, raw[at.Start:at.End]}
	}
	return items
}

// settleRoles sees to who may speak when.
func (r *request) settleRoles() {
	strict := r.p.Roles.Strict
	before, begun := "", false // begun: something but a prompt was said
	out := make([]*editedMessage, 0, len(r.messages))
	add := func(m *editedMessage) {
		out = append(out, m)
		before, begun = m.role, begun || m.role != wire.RoleSystem
	}
	for _, m := range r.messages {
		r.fitRole(m, begun)
		// A role that nobody knows is the vendor's to refuse, at the place where it stands.
		opens := before == "" && r.Dialect == wire.Messages && (m.role == wire.RoleAssistant || m.role == wire.RoleSystem) || strict && m.role == wire.RoleAssistant && !begun
		switch {
		case opens:
			add(written(wire.RoleUser, noContent))
			r.note(RuleRole, m, nil)
		case strict && m.role == wire.RoleUser && (before == wire.RoleUser || before == wire.RoleTool):
			add(written(wire.RoleAssistant, interrupted))
			r.note(RuleRole, m, nil)
		}
		add(m)
	}
	if len(out) == 0 && len(r.Outline.Messages) > 0 {
		add(written(wire.RoleUser, noContent))
		r.note(RuleRole, nil, nil)
	}
	r.moved = r.moved || len(out) > len(r.messages)
	r.messages = out
}

// fitRole makes a role one that the vendor knows where it stands. Nothing moves:
// a prompt among the messages is not made part of the one before them.
func (r *request) fitRole(m *editedMessage, begun bool) {
	roles := r.p.Roles
	if m.role == wire.RoleDeveloper && !roles.Developer {
		r.speakAs(m, wire.RoleSystem)
	}
	if m.role == wire.RoleSystem && (begun || r.Dialect == wire.Messages) && !roles.SystemInside {
		r.speakAs(m, wire.RoleUser)
	}
}

func (r *request) speakAs(m *editedMessage, role string) {
	m.set("role", wire.Quote(role))
	m.role = role
	r.note(RuleRole, m, nil)
}
