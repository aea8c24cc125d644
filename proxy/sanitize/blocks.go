package sanitize

import (
	"slices"

	"mneme/proxy/wire"
)

func (b *block) thinks() bool { return b.kind == wire.ThinkingBlock || b.kind == wire.RedactedBlock }

func (m *editedMessage) holds(kind string) bool {
	return slices.ContainsFunc(m.blocks, func(b *block) bool { return b.kind == kind })
}

// dropThinking removes thinking blocks that the vendor would refuse. A vendor that verifies
// signatures also notices when some of a message's blocks are missing, so there one bad block takes
// the others of its message with it.
func (r *request) dropThinking() {
	replay := &r.p.Replay
	for _, m := range r.messages {
		if !slices.ContainsFunc(m.blocks, (*block).thinks) {
			continue
		}
		bad := func(b *block) bool {
			return b.thinks() && (b.hollow() || b.kind == wire.RedactedBlock && !replay.Redacted ||
				b.kind == wire.ThinkingBlock && replay.Signed && !isText(b.get("signature")))
		}
		if replay.Reasoning == Forbidden || m.role != wire.RoleAssistant || replay.Signed &&
			slices.ContainsFunc(m.blocks, bad) {
			bad = (*block).thinks
		}
		r.remove(KindThinking, m, bad)
	}
}

// hollow reports whether a thinking block lacks its content.
func (b *block) hollow() bool {
	name := "thinking"
	if b.kind == wire.RedactedBlock {
		name = "data"
	}
	raw := b.get(name)
	return len(raw) == 0 || raw[0] != '"' || name == "data" && len(raw) == 2
}

// signable are the block types on which clients leave a signature by mistake. Other types may have
// one of their own.
var signable = []string{wire.TextBlock, wire.ImageBlock, wire.DocumentBlock, wire.ToolUseBlock, wire.ToolResultBlock}

// dropStrayMembers removes signatures from blocks that are not thinking, and cache markers from
// blocks that are.
func (r *request) dropStrayMembers() {
	for _, m := range r.messages {
		for _, b := range m.blocks {
			switch {
			case b.thinks() && b.drop(wire.CacheControl):
				r.note(KindMarked, m, b)
			case slices.Contains(signable, b.kind) && b.drop("signature"):
				r.note(KindSignature, m, b)
			}
		}
	}
}

// dropMisplacedThinking enforces that a message with thinking begins with it, except in adaptive
// mode.
func (r *request) dropMisplacedThinking() {
	if !r.p.Replay.First || r.mode() == Adaptive {
		return
	}
	for _, m := range r.messages {
		if len(m.blocks) > 0 && !m.blocks[0].thinks() {
			r.remove(KindThinking, m, (*block).thinks)
		}
	}
}

// dropThinkingWhenOff removes all thinking for vendors that accept none while it is off.
func (r *request) dropThinkingWhenOff() {
	if !r.p.Replay.StrictOff || !r.off() {
		return
	}
	for _, m := range r.messages {
		r.remove(KindThinking, m, (*block).thinks)
	}
}

// dropTrailingThinking is for an assistant message at the end, which the model is to continue: it
// must not end with thinking, and must not have any while thinking is off.
func (r *request) dropTrailingThinking() {
	off := r.off()
	for _, m := range slices.Backward(r.messages) {
		if m.role != wire.RoleAssistant || !slices.ContainsFunc(m.blocks, (*block).thinks) {
			return
		}
		last := map[*block]bool{}
		for _, b := range slices.Backward(m.blocks) {
			if !b.thinks() {
				break
			}
			last[b] = true
		}
		r.remove(KindTrailing, m, func(b *block) bool { return b.thinks() && (off || last[b]) })
		if !m.removed {
			return
		}
	}
}

// standForBlocks puts a placeholder where a thinking block is required and missing, or has no text.
func (r *request) standForBlocks() {
	always := r.p.Replay.Reasoning == Always && r.usesTools()
	if r.p.Replay.Signed || !always && r.p.Replay.Reasoning != Required || !r.mayThink() {
		return
	}
	for _, m := range r.messages {
		if m.role != wire.RoleAssistant || !always && !m.holds(wire.ToolUseBlock) {
			continue
		}
		text := wire.Quote(r.p.Replay.Placeholder)
		if i := slices.IndexFunc(m.blocks, (*block).thinks); i >= 0 {
			hasText := func(b *block) bool { return b.thinks() && string(b.get("thinking")) != `""` }
			if r.p.Replay.Placeholder != "" && !slices.ContainsFunc(m.blocks, hasText) {
				m.blocks[i].set("thinking", text)
				r.note(KindPlaceholder, m, nil)
			}
			continue
		}
		if !m.listed && blank(m.get("content")) || m.listed && len(m.blocks) == 0 {
			continue // an empty message: the model is to begin
		}
		m.list()
		thought := slices.Concat([]byte(`{"type":"thinking","thinking":`), text, []byte(`,"signature":""}`))
		m.blocks = slices.Concat([]*block{{object: objectOf(thought), index: -1, kind: wire.ThinkingBlock}}, m.blocks)
		m.moved = true
		r.note(KindPlaceholder, m, nil)
	}
}

// mayThink reports whether the vendor could miss reasoning. A model with known modes, or one that has
// missed it, may think by default if the request says nothing.
func (r *request) mayThink() bool {
	return r.on() || !r.off() && r.p.Thinking.Modes != nil || r.p.Replay.Missed && r.mode() == "" && !r.unthinking
}

// usesTools reports whether the conversation has tools.
func (r *request) usesTools() bool {
	return r.tools() || slices.ContainsFunc(r.messages, func(m *editedMessage) bool {
		return m.holds(wire.ToolUseBlock) || len(m.calls) > 0
	})
}
