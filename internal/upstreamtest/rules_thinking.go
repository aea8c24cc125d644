package upstreamtest

import (
	"errors"
	"fmt"
	"slices"
)

// mark is a thinking block of a request, and what its signature says.
type mark struct {
	i, j  int // message and block
	run   int // which run of assistant messages of the latest turn it is in; -1 in older turns
	block members
	seal  seal
	state markState
}

type markState int

const (
	genuine    markState = iota
	otherModel           // signed by this vendor for another model
	forged               // not what was signed, or signed by another vendor
)

func (m mark) path() string { return fmt.Sprintf("messages.%d.content.%d", m.i, m.j) }

// beginsRun says whether message i is the assistant's, of the latest turn, and the
// one before it is not. Neighbours of one role are one message to the model.
func (x *exchange) beginsRun(i int) bool {
	return i >= x.loop && x.turns[i].role == assistant && (i == x.loop || x.turns[i-1].role != assistant)
}

// runStart is the first of the assistant's messages that message i, or the next
// answer if i is behind the last one, is a part of.
func (x *exchange) runStart(i int) int {
	for i > 0 && x.turns[i-1].role == assistant && (i == len(x.turns) || x.turns[i].role == assistant) {
		i--
	}
	return i
}

// before are the blocks of that run before block j of message i.
func (x *exchange) before(i, j int) (blocks []members) {
	for k := x.runStart(i); k < i; k++ {
		blocks = append(blocks, x.turns[k].blocks...)
	}
	if j > 0 {
		blocks = append(blocks, x.turns[i].blocks[:j]...)
	}
	return blocks
}

// readMarks verifies every thinking block of the request by itself.
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
	x.said = said(x.systemBlocks(), tools, x.turns)
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

// systemBlocks is the prompt; a string is one block.
func (x *exchange) systemBlocks() []members {
	if v := x.body[system]; v.Kind() == '"' {
		return []members{{"type": []byte(`"text"`), "text": v}}
	}
	blocks, _ := x.list(x.body, system)
	return blocks
}

// latestTurnKept compares the thinking since the user last spoke with what was
// answered then: it must be all there, each block in its place. Thinking that is
// missing altogether passes, since that is how a client recovers from a
// signature that was refused. Blocks that are not genuine are left to
// signaturesHold, and so is everything while thinking is off.
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
	all, sent, known := x.turn()
	for _, p := range all {
		if !slices.Contains(got, p) {
			x.Lost++
		}
	}
	if len(got) == 0 {
		return nil
	}
	at := -1
	if known && !slices.Equal(got, sent) {
		at = firstDifference(got, all)
	}
	for k, m := range marks {
		if (at < 0 || k < at) && m.seal.place != place(x.before(m.i, m.j)) {
			at = k
		}
	}
	if at < 0 {
		return nil
	}
	x.Lost = 0 // it is refused after all
	return fmt.Errorf("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "+
		"These blocks must remain as they were in the original response.", marks[min(at, len(marks)-1)].path())
}

// firstDifference is where two lists part, or -1.
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

// beginRows hold manual mode to a latest turn that begins with thinking.
var beginRows = rowsOf([]row{{"messages[]@assistant", func(s *spot) bool {
	said := s.turns[s.i].blocks
	if s.mode != "enabled" || s.begun || s.i < s.loop || len(said) == 0 {
		return true
	}
	s.begun = true
	return thinks(said[0]) || s.finds(said[0].kind())
}, says("{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is " +
	"enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` " +
	"and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this " +
	"requirement, disable `thinking`. Please consult our documentation at " + extended)}})

// Why a block was left out of the context, in input_transformations.
const (
	reasonModel  = "model_binding_mismatch"
	reasonPrefix = "prefix_mismatch"
)

// dropBlock in thinking.block_binding.prefix_mismatch_behavior asks for blocks of
// another conversation to be left out.
const dropBlock = "drop_block"

// signaturesHold goes through all thinking in order. What is left in x.marks is
// what the model sees.
func signaturesHold(x *exchange) error {
	if x.config.Thinking.SkipSignatures {
		x.marks = nil
		return nil
	}
	x.mismatch = x.at("thinking").in("block_binding").str("prefix_mismatch_behavior")
	if x.mismatch == "" && x.config.Thinking.PrefixCheck {
		x.mismatch = "error"
	}
	var kept []mark
	for _, m := range x.marks {
		if m.state == otherModel && !x.config.Thinking.RejectOtherModels {
			x.drop(m, reasonModel)
			continue
		}
		var before *mark
		if len(kept) > 0 {
			before = &kept[len(kept)-1]
		}
		switch {
		case m.state != genuine:
			return invalid(m, "")
		case x.mismatch == "" && !x.inPlace(m, before):
			return invalid(m, "")
		case x.mismatch != "" && !x.follows(m, before):
			if x.mismatch == dropBlock {
				x.drop(m, reasonPrefix)
				continue
			}
			return x.elsewhere(m)
		}
		kept = append(kept, m)
	}
	x.marks = kept
	return nil
}

func (x *exchange) drop(m mark, reason string) {
	x.Dropped = append(x.Dropped, m.path())
	x.reasons = append(x.reasons, reason)
}

// inPlace says whether m stands in its answer where it stood. Blocks before it
// may be missing only where no thinking at all is left before it.
func (x *exchange) inPlace(m mark, before *mark) bool {
	switch {
	case m.seal.place != place(x.before(m.i, m.j)):
		return false
	case before == nil:
		return true
	case x.runStart(before.i) == x.runStart(m.i):
		return before.seal.id == m.seal.before
	}
	return m.seal.first
}

// follows says whether the conversation before m is the one that it was made in,
// but for thinking that is missing from its beginning.
func (x *exchange) follows(m mark, before *mark) bool {
	return m.seal.said == x.said[x.runStart(m.i)] && m.seal.place == place(x.before(m.i, m.j)) &&
		(before == nil || before.seal.id == m.seal.before)
}

// invalid refuses m; why follows the sentence.
func invalid(m mark, why string) error {
	if m.block.kind() == redactedBlock {
		return errors.New("Invalid `data` in `redacted_thinking` block" + why)
	}
	return errors.New(m.path() + ": Invalid `signature` in `thinking` block" + why)
}

// elsewhere refuses m as a block of another conversation.
func (x *exchange) elsewhere(m mark) error {
	why := `. The block is bound to a different conversation. Remove the block, or set ` +
		"`thinking.block_binding.prefix_mismatch_behavior`" + ` to "drop_block".`
	if !x.beta(betaBinding) {
		why += " That setting requires the `" + betaBinding + "` value in the `anthropic-beta` header."
	}
	return invalid(m, why)
}
