package upstreamtest

import (
	"errors"
	"fmt"
	"slices"
)

// mark is a thinking block of a request and the content of its signature.
type mark struct {
	i, j  int // indices of message and block
	run   int // index of its run of assistant messages in the latest turn; -1 in older turns
	block members
	seal  seal
	state markState
}

type markState int

const (
	genuine    markState = iota
	otherModel           // signed by this vendor for another model
	forged               // changed, or signed by another vendor
)

func (m mark) path() string { return fmt.Sprintf("messages.%d.content.%d", m.i, m.j) }

// beginsRun reports whether message i is the first of a run of assistant messages in the latest turn. Consecutive
// messages of one role are one message to the model.
func (x *exchange) beginsRun(i int) bool {
	return i >= x.loop && x.turns[i].role == assistant && (i == x.loop || x.turns[i-1].role != assistant)
}

// runStart returns the index of the first assistant message of the run that contains message i. If i is behind the
// last message, it is the next answer's index.
func (x *exchange) runStart(i int) int {
	for i > 0 && x.turns[i-1].role == assistant && (i == len(x.turns) || x.turns[i].role == assistant) {
		i--
	}
	return i
}

// blocksBefore returns the blocks of the run before block j of message i.
func (x *exchange) blocksBefore(i, j int) (blocks []members) {
	for k := x.runStart(i); k < i; k++ {
		blocks = append(blocks, x.turns[k].blocks...)
	}
	if j > 0 {
		blocks = append(blocks, x.turns[i].blocks[:j]...)
	}
	return blocks
}

// readMarks verifies the signature of every thinking block.
func (x *exchange) readMarks() {
	run := -1
	for i, t := range x.turns {
		if x.beginsRun(i) {
			run++
		}
		for j, b := range t.blocks {
			if !thinks(b) {
				continue
			}
			m := mark{i: i, j: j, run: -1, block: b}
			if i >= x.loop {
				m.run = run
			}
			m.seal, m.state = x.verify(b)
			x.marks = append(x.marks, m)
		}
	}
	tools, _ := x.list(x.body, "tools")
	x.contexts = contextHashes(x.systemBlocks(), tools, x.turns)
}

func (x *exchange) verify(b members) (seal, markState) {
	redacted, signature := b.is("type", redactedBlock), b.str("signature")
	if redacted {
		signature = b.str("data")
	}
	v, ok := x.server.signer.verify(signature, b.str("thinking"))
	switch {
	case !ok || v.redacted != redacted:
		return v, forged
	case v.model != x.Model:
		return v, otherModel
	}
	return v, genuine
}

// systemBlocks returns the system prompt. A string is one block.
func (x *exchange) systemBlocks() []members {
	if v := x.body[system]; v.Kind() == '"' {
		return []members{{"type": []byte(`"text"`), "text": v}}
	}
	blocks, _ := x.list(x.body, system)
	return blocks
}

// latestTurnKept compares the thinking since the user's last message with the issued thinking. It must be complete
// and in order. A turn without any thinking passes, because clients recover from a refused signature that way.
// signaturesHold checks blocks that are not genuine. Nothing is checked while thinking is off.
func latestTurnKept(x *exchange) error {
	x.readMarks()
	if x.config.Thinking.SkipSignatures || !x.Thinking {
		return nil
	}
	var got []placed
	var marks []mark
	for _, m := range x.marks {
		switch {
		case m.run < 0 || m.state == otherModel && !x.config.Thinking.RejectOtherModels:
			continue
		case m.state != genuine:
			return nil
		}
		got, marks = append(got, placed{m.run, m.seal.id}), append(marks, m)
	}
	blocks, input, complete := x.turn()
	for _, p := range blocks {
		if !slices.Contains(got, p) {
			x.Missing++
		}
	}
	if len(got) == 0 {
		return nil
	}
	pos := -1
	if complete && !slices.Equal(got, input) {
		pos = firstDifference(got, blocks)
	}
	for k, m := range marks {
		if (pos < 0 || k < pos) && m.seal.place != place(x.blocksBefore(m.i, m.j)) {
			pos = k
		}
	}
	if pos < 0 {
		return nil
	}
	x.Missing = 0 // the request is refused, so nothing is lost
	return fmt.Errorf("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "+
		"These blocks must remain as they were in the original response.", marks[min(pos, len(marks)-1)].path())
}

// firstDifference returns the index of the first difference, or -1.
func firstDifference(got, want []placed) int {
	if slices.Equal(got, want) {
		return -1
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return i
}

// In manual mode, the latest turn must begin with thinking.
var beginRows = rowsOf([]row{{"messages[]@assistant", func(s *spot) bool {
	blocks := s.turns[s.i].blocks
	if s.mode != "enabled" || s.checked || s.i < s.loop || len(blocks) == 0 {
		return true
	}
	s.checked = true
	return thinks(blocks[0]) || s.finds(blocks[0].kind())
}, badRequest("{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is " +
	"enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` " +
	"and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this " +
	"requirement, disable `thinking`. Please consult our documentation at " + extended)}})

// Reasons in input_transformations for dropping a block.
const (
	reasonModel  = "model_binding_mismatch"
	reasonPrefix = "prefix_mismatch"
)

// dropBlock is a value of thinking.block_binding.prefix_mismatch_behavior. It drops blocks of another conversation.
const dropBlock = "drop_block"

// signaturesHold checks all thinking in order. It leaves the blocks that the model sees in x.marks.
func signaturesHold(x *exchange) error {
	if x.config.Thinking.SkipSignatures {
		x.marks = nil
		return nil
	}
	x.mismatch = x.bodyObject("thinking").in("block_binding").str("prefix_mismatch_behavior")
	if x.mismatch == "" && x.config.Thinking.PrefixCheck {
		x.mismatch = "error"
	}
	var valid []mark
	for _, m := range x.marks {
		if m.state == otherModel && !x.config.Thinking.RejectOtherModels {
			x.drop(m, reasonModel)
			continue
		}
		var previous *mark
		if len(valid) > 0 {
			previous = &valid[len(valid)-1]
		}
		switch {
		case m.state != genuine:
			return invalid(m, "")
		case x.mismatch == "" && !x.inPlace(m, previous):
			return invalid(m, "")
		case x.mismatch != "" && !x.follows(m, previous):
			if x.mismatch == dropBlock {
				x.drop(m, reasonPrefix)
				continue
			}
			return x.boundElsewhere(m)
		}
		valid = append(valid, m)
	}
	x.marks = valid
	return nil
}

func (x *exchange) drop(m mark, reason string) {
	x.Dropped = append(x.Dropped, m.path())
	x.reasons = append(x.reasons, reason)
}

// inPlace reports whether m has its original position in its answer. Earlier blocks may be missing only if no
// thinking is left before it.
func (x *exchange) inPlace(m mark, previous *mark) bool {
	switch {
	case m.seal.place != place(x.blocksBefore(m.i, m.j)):
		return false
	case previous == nil:
		return true
	case x.runStart(previous.i) == x.runStart(m.i):
		return previous.seal.id == m.seal.previous
	}
	return m.seal.first
}

// follows reports whether m follows its original conversation. Thinking at the beginning may be missing.
func (x *exchange) follows(m mark, previous *mark) bool {
	return m.seal.context == x.contexts[x.runStart(m.i)] && m.seal.place == place(x.blocksBefore(m.i, m.j)) &&
		(previous == nil || previous.seal.id == m.seal.previous)
}

// invalid returns the refusal of m. why is appended to the sentence.
func invalid(m mark, why string) error {
	if m.block.kind() == redactedBlock {
		return errors.New("Invalid `data` in `redacted_thinking` block" + why)
	}
	return errors.New(m.path() + ": Invalid `signature` in `thinking` block" + why)
}

// boundElsewhere returns the refusal of a block of another conversation.
func (x *exchange) boundElsewhere(m mark) error {
	why := `. The block is bound to a different conversation. Remove the block, or set ` +
		"`thinking.block_binding.prefix_mismatch_behavior`" + ` to "drop_block".`
	if !x.beta(betaBinding) {
		why += " That setting requires the `" + betaBinding + "` value in the `anthropic-beta` header."
	}
	return invalid(m, why)
}
