package conversation

import (
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// exchange is an answer with the messages before it, back to the previous answer. The last turn of a
// request has no answer yet.
type exchange struct {
	first    int              // index of the first message, or of the answer if there are none before it
	messages []ledger.Message // the messages before the answer
	answer   *ledger.Form
	span     wire.Span    // of the answer, if it is among the messages of source
	node     *ledger.Node // the stored turn that the answer is; nil if only a client has shown it
	detached bool         // the answer is a stored turn of no branch
	source   *ledger.Node // the stored turn with an input that holds the messages; nil for those of a request
}

// split appends the turns of messages; first is the index of the first message. The last turn has no
// answer. The turns hold sections of the messages.
func split(turns []exchange, messages []ledger.Message, first int, source *ledger.Node) []exchange {
	start := 0
	for i := range messages {
		if m := &messages[i]; m.Answer != nil {
			turns = append(turns, exchange{
				first: first + start, messages: messages[start:i], answer: m.Answer, span: m.Span, node: m.Node,
				detached: m.Detached,
				source:   source,
			})
			start = i + 1
		}
	}
	return append(turns, exchange{first: first + start, messages: messages[start:], source: source})
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
		start := len(b.turns)
		b.turns = split(b.turns, b.next.Input(), b.next.Turn().Place.Depth, b.next)
		last := &b.turns[len(b.turns)-1]
		last.answer, last.node = b.next.Answer(), b.next
		slices.Reverse(b.turns[start:])
		b.next = b.next.Parent()
	}
	return &b.turns[i]
}

// end is the position of the message that would follow the branch.
func (b *branch) end() int {
	last := b.turn(0)
	return last.first + len(last.messages) + 1
}

// pair matches a turn that the client shows to a turn of the branch, which counts from its end.
type pair struct {
	client, stored int
	// before: what precedes the answer agrees too. Then the turns of the branch from opens down to
	// was are tool rounds that the client left out, and the messages before the client's answer are
	// those before the answer of opens.
	messagesMatch bool
	opens         int
	cut           int // messages before the answer of opens that the request does not show
}

// match is what a request and a branch have in common.
type match struct {
	branch   *branch
	last     int    // index of the newest turn of the request that the branch has
	pairs    []pair // newest first, without gaps
	size     int    // messages of the request that are matched
	lacks    int    // tool rounds and calls of the branch that the request does not show
	complete bool   // nothing that the request shows before last contradicts the branch
}

// maxContinued is how many turns that others follow are tried beside one that ends a branch: the
// newest, since a client that steps back seldom steps back far.
const maxContinued = 16

// find returns the longest match of a request's turns; among equally long ones the one that lacks
// least, then the newest. It tries the newest answer that any branch has first, and older ones only
// if that match does not reach the front of the request. If the request shows the end of a branch
// and nothing that contradicts it, the ends of other branches are tried and few turns besides,
// however many have said the same.
func find(turns []exchange, tree ledger.Tree, d wire.Dialect) *match {
	if tree.Size == 0 {
		return nil
	}
	var best *match
	for last := len(turns) - 2; last >= 0; last-- {
		candidates := tree.Showing(turns[last].answer)
		switch n := turns[last].node; {
		case turns[last].detached:
			continue
		case n != nil:
			candidates = slices.Values([]*ledger.Node{n})
		}
		atEnd, budget := false, maxContinued // a match is whole with the end of a branch
		for n := range candidates {
			if atEnd && tree.Continued(n) {
				if budget--; budget < 0 {
					continue
				}
			}
			m := &match{branch: &branch{node: n, next: n}, last: last}
			m.walk(turns, d)
			if len(m.pairs) == 0 || !m.pairs[0].messagesMatch {
				continue // the same answer may have been given to different questions
			}
			if best == nil || m.size > best.size || m.size == best.size && m.lacks < best.lacks {
				best = m
			}
			atEnd = atEnd || m.complete && !tree.Continued(n)
		}
		if best != nil && (best.complete || best.last > last) {
			return best
		}
	}
	return best
}

// shows reports whether a turn of the client can be a turn of a branch.
func shows(stored, client *exchange) bool {
	return (stored.answer.Shows(client.answer) || stored.answer.Speaks(client.answer)) && !other(stored.node, client)
}

// other reports whether a turn of the client is certainly not n.
func other(n *ledger.Node, client *exchange) bool {
	return n != nil && (client.detached || client.node != nil && client.node != n)
}

// walk follows request and branch backwards from the newest common answer, as far as they agree.
func (m *match) walk(turns []exchange, d wire.Dialect) {
	m.pairs = make([]pair, 0, m.last+1)
	p := pair{client: m.last}
	for {
		s := &turns[p.client]
		m.size++
		p = m.opens(turns, p, d)
		if p.messagesMatch {
			m.lacks += p.opens - p.stored
		}
		if !m.branch.turn(p.stored).answer.Shows(s.answer) {
			m.lacks++
		}
		m.pairs = append(m.pairs, p)
		if !p.messagesMatch {
			return
		}
		m.size += len(s.messages)
		if p.client == 0 {
			m.complete = true
			return
		}
		older := m.branch.turn(p.opens + 1)
		if older == nil {
			// The older turns may have been evicted here. If the client shows exactly as many
			// messages as these had, nothing contradicts the match.
			front := m.branch.turn(p.opens).first - m.branch.node.Turn().Place.Front
			m.complete = s.first-turns[0].first == front
			return
		}
		if !shows(older, &turns[p.client-1]) {
			return
		}
		p = pair{client: p.client - 1, stored: p.opens + 1}
	}
}

// opens finds the turn of the branch with the messages that the request shows before a pair's
// answer: that of the answer itself, or an earlier one if only tool rounds are in between. cut is
// how many of its first messages are missing. Of several candidates the first one counts of which
// the request shows the predecessor too.
func (m *match) opens(turns []exchange, p pair, d wire.Dialect) pair {
	front := p.client == 0
	for i := p.stored; ; i++ {
		older := m.branch.turn(i + 1)
		t := m.branch.turn(i)
		if cut, ok := fits(turns[p.client].messages, t.messages, front); ok {
			leads := front || older == nil || shows(older, &turns[p.client-1])
			if leads || !p.messagesMatch {
				p.messagesMatch, p.opens, p.cut = true, i, cut
			}
			if leads {
				return p
			}
		}
		if older == nil || !round(older, t, d) {
			return p
		}
	}
}

// round reports whether an answer and the messages behind it are a tool round that can be inserted.
func round(called, then *exchange, d wire.Dialect) bool {
	return called.answer.Calls() > 0 && called.source.Turn().Dialect == d && then.source.Turn().Dialect == d &&
		ledger.Results(then.messages)
}

// fits reports whether a client's messages are the stored ones, and without how many of the first
// ones. At the front of a request the first ones may be missing, as may results of calls before it.
func fits(client, stored []ledger.Message, front bool) (cut int, ok bool) {
	if !front {
		return 0, ledger.Shows(client, stored)
	}
	for cut = range len(stored) + 1 {
		if ledger.Shows(client, stored[cut:]) && ledger.Shows(stored[cut:], client) {
			return cut, true
		}
	}
	for cut = range stored {
		if ledger.Shows(client, stored[cut:]) {
			return cut, true
		}
	}
	return 0, false
}
