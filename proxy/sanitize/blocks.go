package sanitize

import (
	"slices"

	"mneme/proxy/wire"
)

// emptyThought stands for thinking that is missing.
var emptyThought = []byte(`{"type":"thinking","thinking":"","signature":""}`)

func (b *block) thinks() bool { return b.kind == wire.ThinkingBlock || b.kind == wire.RedactedBlock }

func thinks(b *block) bool { return b.thinks() }

func (m *editedMessage) holds(kind string) bool {
	return slices.ContainsFunc(m.blocks, func(b *block) bool { return b.kind == kind })
}

// dropThinking removes the thinking blocks that the vendor would refuse. Where
// it verifies signatures it also sees that some of a message's blocks are
// missing: there one bad block takes the others of its message along.
func (r *request) dropThinking() {
	replay := &r.p.Replay
	for _, m := range r.messages {
		if !slices.ContainsFunc(m.blocks, thinks) {
			continue
		}
		bad := func(b *block) bool {
			return b.thinks() && (b.hollow() || b.kind == wire.RedactedBlock && !replay.Redacted ||
				b.kind == wire.ThinkingBlock && replay.Signed && !isText(b.get("signature")))
		}
		if replay.Reasoning == Forbidden || m.role != wire.RoleAssistant || replay.Signed && slices.ContainsFunc(m.blocks, bad) {
			bad = thinks
		}
		r.remove(RuleThinking, m, bad)
	}
}

// hollow says whether a thinking block lacks what makes it one.
func (b *block) hollow() bool {
	name := "thinking"
	if b.kind == wire.RedactedBlock {
		name = "data"
	}
	raw := b.get(name)
	return len(raw) == 0 || raw[0] != '"' || name == "data" && len(raw) == 2
}

// signable are the blocks on which careless clients leave a signature. Others
// may have one of their own.
var signable = []string{wire.TextBlock, wire.ImageBlock, wire.DocumentBlock, wire.ToolUseBlock, wire.ToolResultBlock}

// dropStrayMembers removes signatures where there is no thinking, and cache
// markers where there is.
func (r *request) dropStrayMembers() {
	for _, m := range r.messages {
		for _, b := range m.blocks {
			switch {
			case b.thinks() && b.drop(wire.CacheControl):
				r.note(RuleMarked, m, b)
			case slices.Contains(signable, b.kind) && b.drop("signature"):
				r.note(RuleSignature, m, b)
			}
		}
	}
}

// dropMisplacedThinking: where the model does not decide by itself when to think,
// a message that has thinking begins with it.
func (r *request) dropMisplacedThinking() {
	if !r.p.Replay.First || r.mode() == Adaptive {
		return
	}
	for _, m := range r.messages {
		if len(m.blocks) > 0 && !m.blocks[0].thinks() {
			r.remove(RuleThinking, m, thinks)
		}
	}
}

// dropThinkingWhenOff: some vendors take no thinking at all while it is off.
func (r *request) dropThinkingWhenOff() {
	if !r.p.Replay.StrictOff || !r.off() {
		return
	}
	for _, m := range r.messages {
		r.remove(RuleThinking, m, thinks)
	}
}

// dropTrailingThinking is about an assistant message at the end, which the model
// is to go on with: it may not end with thinking, nor have any while that is off.
func (r *request) dropTrailingThinking() {
	off := r.off()
	for _, m := range slices.Backward(r.messages) {
		if m.role != wire.RoleAssistant || !slices.ContainsFunc(m.blocks, thinks) {
			return
		}
		last := map[*block]bool{}
		for _, b := range slices.Backward(m.blocks) {
			if !b.thinks() {
				break
			}
			last[b] = true
		}
		r.remove(RuleTrailing, m, func(b *block) bool { return b.thinks() && (off || last[b]) })
		if !m.gone {
			return
		}
	}
}

// standForBlocks puts an empty thinking block where one is required.
func (r *request) standForBlocks() {
	all := r.p.Replay.Reasoning == Always && r.usesTools()
	if r.p.Replay.Signed || !all && r.p.Replay.Reasoning != Required || !r.mayThink() {
		return
	}
	for _, m := range r.messages {
		if m.role != wire.RoleAssistant || slices.ContainsFunc(m.blocks, thinks) || !all && !m.holds(wire.ToolUseBlock) {
			continue
		}
		if !m.listed && blank(m.get("content")) || m.listed && len(m.blocks) == 0 {
			continue // the model is to begin
		}
		m.list()
		m.blocks = slices.Concat([]*block{{object: objectOf(emptyThought), index: -1, kind: wire.ThinkingBlock}}, m.blocks)
		m.moved = true
		r.note(RulePlaceholder, m, nil)
	}
}

// mayThink is whether reasoning could be missed. A model whose modes are known
// and that was told nothing may think by default.
func (r *request) mayThink() bool { return r.on() || !r.off() && r.p.Thinking.Modes != nil }

// usesTools says whether this is a conversation with tools.
func (r *request) usesTools() bool {
	return r.tools() || slices.ContainsFunc(r.messages, func(m *editedMessage) bool {
		return m.holds(wire.ToolUseBlock) || len(m.calls) > 0
	})
}
