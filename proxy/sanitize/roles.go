package sanitize

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"mneme/proxy/wire"
)

// settleRoles makes the order of roles acceptable to the vendor. No message moves within the conversation: a system
// message that cannot stay becomes text of the user at its place. Only one before all others goes to the system prompt.
func (r *request) settleRoles() {
	r.leadSystem()
	messages := r.messages
	r.messages = make([]*editedMessage, 0, len(messages))
	for i, m := range messages {
		r.turnSystem(m, messages[i+1:])
		if m.removed {
			continue
		}
		last := r.lastMessage()
		switch {
		case last == nil || last.role != m.role:
		case r.joins(last, m) && join(last, m):
			r.moved = true
			if !m.fromSystem {
				r.note(KindRole, m, nil)
			}
			continue
		case r.p.Roles.Strict && m.role == wire.RoleAssistant:
			r.add(wire.RoleUser, noContent, m)
		}
		switch {
		case r.opens(m):
			r.add(wire.RoleUser, noContent, m)
		case last != nil && r.p.Roles.Strict && m.role == wire.RoleUser && (last.role == wire.RoleUser ||
			last.role == wire.RoleTool):
			r.add(wire.RoleAssistant, interrupted, m)
		}
		r.messages = append(r.messages, m)
	}
	if len(r.messages) == 0 && len(r.Outline.Messages) > 0 {
		r.add(wire.RoleUser, noContent, nil)
	}
	r.endWithUser()
}

func (r *request) lastMessage() *editedMessage {
	if len(r.messages) == 0 {
		return nil
	}
	return r.messages[len(r.messages)-1]
}

// add appends a message for the sake of m.
func (r *request) add(role, content string, m *editedMessage) {
	r.messages = append(r.messages, written(role, content))
	r.moved = true
	r.note(KindRole, m, nil)
}

// opens reports whether a message of the user must precede m. The vendor refuses an unknown role itself.
func (r *request) opens(m *editedMessage) bool {
	if m.role != wire.RoleAssistant || r.Dialect != wire.Messages && !r.p.Roles.Strict {
		return false
	}
	return !slices.ContainsFunc(r.messages, speaks)
}

// joins reports whether two neighbours of one role must become one message. Neighbours from the client stay, unless the
// vendor wants alternating roles. Neighbours that a translation or a change of role made are joined. A vendor that
// accepts system messages only at some places accepts one message there.
func (r *request) joins(last, m *editedMessage) bool {
	roles := r.p.Roles
	if prompts(m) {
		return !roles.SystemInside || roles.SystemAfterUser
	}
	return m.role == wire.RoleUser && (roles.Strict || r.Translated || m.fromSystem || last.fromSystem)
}

// leadSystem moves the system messages before all others to the system prompt, a member of its own in the messages
// dialect.
func (r *request) leadSystem() {
	n := 0
	var blocks []*block
	for ; r.Dialect == wire.Messages && n < len(r.messages) && prompts(r.messages[n]); n++ {
		m := r.messages[n]
		m.list()
		blocks = append(blocks, m.blocks...)
		r.note(KindRole, m, nil)
	}
	if n == 0 {
		return
	}
	r.messages, r.moved = r.messages[n:], true
	var prompt [][]byte
	switch raw := r.root.get("system"); {
	case len(raw) > 0 && raw[0] == '[':
		for _, it := range elements(raw) {
			prompt = append(prompt, it.raw)
		}
	case !blank(raw) && len(raw) > 0 && raw[0] == '"':
		b := textBlock(raw)
		prompt = append(prompt, b.raw())
	}
	for _, b := range blocks {
		if b.kind == wire.TextBlock {
			prompt = append(prompt, b.raw())
		}
	}
	r.root.set("system", slices.Concat([]byte("["), bytes.Join(prompt, []byte(",")), []byte("]")))
}

// turnSystem makes a system message the user's where the vendor does not accept it. behind are the messages after it.
func (r *request) turnSystem(m *editedMessage, following []*editedMessage) {
	switch {
	case !prompts(m):
		return
	case r.acceptsSystem(following):
		if m.role == wire.RoleDeveloper && !r.p.Roles.Developer {
			r.speakAs(m, wire.RoleSystem)
		}
		return
	}
	r.remove(KindRole, m, func(b *block) bool { return b.kind != wire.TextBlock })
	if m.removed {
		return
	}
	effort := m.has("output_config")
	for _, name := range m.others() {
		m.drop(name)
	}
	m.fromSystem = true
	r.speakAs(m, wire.RoleUser)
	if effort {
		r.changed(KindEffort, "messages.output_config")
	}
}

// acceptsSystem reports whether the vendor accepts a system message between the settled messages and those behind it.
func (r *request) acceptsSystem(following []*editedMessage) bool {
	roles := r.p.Roles
	switch {
	case roles.NoSystem:
		return false
	case r.Dialect == wire.Chat && !slices.ContainsFunc(r.messages, speaks):
		return true
	case !roles.SystemInside || !roles.SystemAfterUser:
		return roles.SystemInside
	}
	last := r.lastMessage()
	if last == nil || last.role != wire.RoleUser && !prompts(last) && !last.endsInServerTool() {
		return false
	}
	next := slices.IndexFunc(following, speaks)
	return next < 0 || following[next].role == wire.RoleAssistant
}

// speaks reports whether a message is from the user, the model or a tool.
func speaks(m *editedMessage) bool { return !prompts(m) }

// endsInServerTool reports whether an answer ends in a tool that its vendor runs, so that the vendor continues it.
func (m *editedMessage) endsInServerTool() bool {
	if m.role != wire.RoleAssistant || len(m.blocks) == 0 {
		return false
	}
	calls, answers := m.blocks[len(m.blocks)-1].ofServerTool()
	return calls || answers
}

// endWithUser adds a message of the user to a history that ends with an answer, if the model does not continue answers.
func (r *request) endWithUser() {
	last := r.lastMessage()
	switch {
	case last == nil, last.role != wire.RoleAssistant, last.calling(), last.endsInServerTool():
		return
	case !r.p.Roles.NoPrefill:
		trimPrefill(r, last)
		return
	}
	if string(last.get("prefix")) != "true" { // Mistral's own mark of an answer to continue
		r.add(wire.RoleUser, goOn, last)
	}
}

// trimPrefill removes white space from the end of an answer to continue, which Claude refuses
// (https://github.com/anomalyco/opencode/issues/1295).
func trimPrefill(r *request, m *editedMessage) {
	raw, set := m.get("content"), m.setContent
	if n := len(m.blocks); n > 0 {
		b := m.blocks[n-1]
		raw, set = b.get("text"), func(text []byte) { b.set("text", text) }
	}
	if r.Dialect != wire.Messages || !isText(raw) {
		return
	}
	text := textOf(raw)
	if trimmed := strings.TrimRightFunc(text, unicode.IsSpace); trimmed != text && trimmed != "" {
		set(wire.Quote(trimmed))
		r.note(KindEmpty, m, nil)
	}
}

func (r *request) speakAs(m *editedMessage, role string) {
	m.set("role", wire.Quote(role))
	m.role = role
	r.note(KindRole, m, nil)
}

// others are the names of a message's members besides its role and content.
func (m *editedMessage) others() (names []string) {
	for _, o := range m.members {
		if o.Name != "role" && o.Name != "content" && m.get(o.Name) != nil {
			names = append(names, o.Name)
		}
	}
	return names
}

// join appends the content of m to a message of its role, and reports whether it could: a message may have more than
// content, such as a name.
func join(last, m *editedMessage) bool {
	if len(last.others()) > 0 || len(m.others()) > 0 {
		return false
	}
	a, b := last.get("content"), m.get("content")
	switch {
	case !last.listed && !isText(a), !m.listed && !isText(b):
		return false
	case !last.listed && !m.listed:
		last.setContent(slices.Concat(a[:len(a)-1], []byte(`\n\n`), b[1:]))
		last.fromSystem = m.fromSystem
		return true
	}
	last.fromSystem = m.fromSystem
	last.list()
	m.list()
	for _, block := range m.blocks {
		block.index = -1
	}
	last.blocks, last.moved = append(slices.Clip(last.blocks), m.blocks...), true
	return true
}
