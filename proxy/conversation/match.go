package conversation

import (
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// exchange is an answer with the messages before it, back to the previous answer. The last turn of a
// request has no answer yet.
type exchange struct {
	first  int              // index of the first message, or of the answer if there are none before it
	before []ledger.Message // the messages before the answer
	answer *ledger.Form
	span   wire.Span    // of the answer, if it is among the messages of source
	node   *ledger.Node // the stored turn that the answer is; nil if only a client has shown it
	apart  bool         // the answer is a stored turn of no branch
	source *ledger.Node // the stored turn with an input that holds the messages; nil for those of a request
}

// split appends the turns of messages; first is the index of the first message. The last turn has no
// answer. The turns hold sections of the messages.
func split(turns []exchange, messages []ledger.Message, first int, source *ledger.Node) []exchange {
	from := 0
	for i := range messages {
		if m := &messages[i]; m.Answer != nil {
			turns = append(turns, exchange{
				first: first + from, before: messages[from:i], answer: m.Answer, span: m.Span, node: m.By, apart: m.Apart,
				source: source,
			})
			from = i + 1
		}
	}
	return append(turns, exchange{first: first + from, before: messages[from:], source: source})
}

// branch is the path to a node. Its turns are read from the newest to the oldest and only as far as
// they are asked for: what a request goes on from is found in a time that does not depend on how
// long the conversation is. The field first of a turn is its position in the branch.
type branch struct {
	node  *ledger.Node
	turns []exchange   // the newest first
	next  *ledger.Node // the node with the turns that come next; nil after the oldest known one
}

// turn is the i-th turn from the end; nil if the branch has none that is known.
func (b *branch) turn(i int) *exchange {
	for i >= len(b.turns) {
		if b.next == nil {
			return nil
		}
		from := len(b.turns)
		b.turns = split(b.turns, b.next.Input(), b.next.Turn().Place.Depth, b.next)
		last := &b.turns[len(b.turns)-1]
		last.answer, last.node = b.next.Answer(), b.next
		slices.Reverse(b.turns[from:])
		b.next = b.next.Parent()
	}
	return &b.turns[i]
}

// end is the position of the message that would follow the branch.
func (b *branch) end() int {
	last := b.turn(0)
	return last.first + len(last.before) + 1
}

// pair matches a turn that the client shows to a turn of the branch, which counts from its end.
type pair struct {
	shown, was int
	// before: what precedes the answer agrees too. Then the turns of the branch from opens down to
	// was are tool rounds that the client left out, and the messages before the client's answer are
	// those before the answer of opens.
	before bool
	opens  int
	cut    int // messages before the answer of opens that the request does not show
}

// match is what a request and a branch have in common.
type match struct {
	branch *branch
	last   int    // index of the newest turn of the request that the branch has
	pairs  []pair // newest first, without gaps
	size   int    // messages of the request that are matched
	lacks  int    // tool rounds and calls of the branch that the request does not show
	whole  bool   // nothing that the request shows before last contradicts the branch
}

// maxContinued is how many turns that others follow are tried beside one that ends a branch: the
// newest, since a client that steps back seldom steps back far.
const maxContinued = 16

// find returns the longest match of a request's turns; among equally long ones the one that lacks
// least, then the newest. It tries the newest answer that any branch has first, and older ones only
// if that match does not reach the front of the request. If the request shows the end of a branch
// and nothing that contradicts it, the ends of other branches are tried and few turns besides,
// however many have said the same.
func find(shown []exchange, tree ledger.Tree, d wire.Dialect) *match {
	if tree.Size == 0 {
		return nil
	}
	var best *match
	for last := len(shown) - 2; last >= 0; last-- {
		candidates := tree.Showing(shown[last].answer)
		switch n := shown[last].node; {
		case shown[last].apart:
			continue
		case n != nil:
			candidates = slices.Values([]*ledger.Node{n})
		}
		ended, more := false, maxContinued // a match is whole with the end of a branch
		for n := range candidates {
			if ended && tree.Continued(n) {
				if more--; more < 0 {
					continue
				}
			}
			m := &match{branch: &branch{node: n, next: n}, last: last}
			m.walk(shown, d)
			if len(m.pairs) == 0 || !m.pairs[0].before {
				continue // the same answer may have been given to different questions
			}
			if best == nil || m.size > best.size || m.size == best.size && m.lacks < best.lacks {
				best = m
			}
			ended = ended || m.whole && !tree.Continued(n)
		}
		if best != nil && (best.whole || best.last > last) {
			return best
		}
	}
	return best
}

// shows reports whether a turn of the client can be a turn of a branch.
func shows(was, shown *exchange) bool {
	return (was.answer.Shows(shown.answer) || was.answer.Speaks(shown.answer)) && !other(was.node, shown)
}

// other reports whether a turn of the client is certainly not n.
func other(n *ledger.Node, shown *exchange) bool {
	return n != nil && (shown.apart || shown.node != nil && shown.node != n)
}

// walk follows request and branch backwards from the newest common answer, as far as they agree.
func (m *match) walk(shown []exchange, d wire.Dialect) {
	m.pairs = make([]pair, 0, m.last+1)
	at := pair{shown: m.last}
	for {
		s := &shown[at.shown]
		m.size++
		at = m.opens(shown, at, d)
		if at.before {
			m.lacks += at.opens - at.was
		}
		if !m.branch.turn(at.was).answer.Shows(s.answer) {
			m.lacks++
		}
		m.pairs = append(m.pairs, at)
		if !at.before {
			return
		}
		m.size += len(s.before)
		if at.shown == 0 {
			m.whole = true
			return
		}
		older := m.branch.turn(at.opens + 1)
		if older == nil {
			// The older turns may have been evicted here. If the client shows exactly as many
			// messages as these had, nothing contradicts the match.
			front := m.branch.turn(at.opens).first - m.branch.node.Turn().Place.Front
			m.whole = s.first-shown[0].first == front
			return
		}
		if !shows(older, &shown[at.shown-1]) {
			return
		}
		at = pair{shown: at.shown - 1, was: at.opens + 1}
	}
}

// opens finds the turn of the branch with the messages that the request shows before a pair's
// answer: that of the answer itself, or an earlier one if only tool rounds are in between. cut is
// how many of its first messages are missing. Of several candidates the first one counts of which
// the request shows the predecessor too.
func (m *match) opens(shown []exchange, at pair, d wire.Dialect) pair {
	front := at.shown == 0
	for i := at.was; ; i++ {
		older := m.branch.turn(i + 1)
		t := m.branch.turn(i)
		if cut, ok := fits(shown[at.shown].before, t.before, front); ok {
			leads := front || older == nil || shows(older, &shown[at.shown-1])
			if leads || !at.before {
				at.before, at.opens, at.cut = true, i, cut
			}
			if leads {
				return at
			}
		}
		if older == nil || !round(older, t, d) {
			return at
		}
	}
}

// round reports whether an answer and the messages behind it are a tool round that can be inserted.
func round(called, then *exchange, d wire.Dialect) bool {
	return called.answer.Calls() > 0 && called.source.Turn().Dialect == d && then.source.Turn().Dialect == d &&
		ledger.Results(then.before)
}

// fits reports whether a client's messages are the stored ones, and without how many of the first
// ones. At the front of a request the first ones may be missing, as may results of calls before it.
func fits(shown, was []ledger.Message, front bool) (cut int, ok bool) {
	if !front {
		return 0, ledger.Shows(shown, was)
	}
	for cut = range len(was) + 1 {
		if ledger.Shows(shown, was[cut:]) && ledger.Shows(was[cut:], shown) {
			return cut, true
		}
	}
	for cut = range was {
		if ledger.Shows(shown, was[cut:]) {
			return cut, true
		}
	}
	return 0, false
}
