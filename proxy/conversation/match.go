package conversation

import (
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// turn is an answer with the messages that stand before it, back to the answer
// before that. In the last turn of a request the answer is still to come.
type turn struct {
	first  int            // index of the first message, the answer's if there are none before
	before []*ledger.Said // by message
	answer *ledger.Form
	node   *ledger.Node // whose answer it is; nil for one that only a client has shown
	source *ledger.Node // in whose input the messages lie; nil for a request's
	spans  []wire.Span  // of the messages, then of an answer that lies there too
}

// splitter makes turns of messages. Their slices are parts of its own, which have
// room for all messages that will come.
type splitter struct {
	turns []turn
	said  []*ledger.Said
	spans []wire.Span
}

func newSplitter(messages, turns int) *splitter {
	return &splitter{make([]turn, 0, turns), make([]*ledger.Said, 0, messages), make([]wire.Span, 0, messages)}
}

// add appends the turns of messages, the first of which is the one of that index.
// The last turn has no answer.
func (s *splitter) add(messages []ledger.Message, first int, source *ledger.Node) {
	said, spans := len(s.said), len(s.spans)
	end := func(next int) *turn {
		s.turns = append(s.turns, turn{
			first: first, before: s.said[said:len(s.said):len(s.said)], spans: s.spans[spans:len(s.spans):len(s.spans)], source: source,
		})
		first, said, spans = next, len(s.said), len(s.spans)
		return &s.turns[len(s.turns)-1]
	}
	begin := first
	for i := range messages {
		m := &messages[i]
		s.spans = append(s.spans, m.Span)
		if m.Answer == nil {
			s.said = append(s.said, m.Said)
			continue
		}
		t := end(begin + i + 1)
		t.answer, t.node = m.Answer, m.By
	}
	end(0)
}

// split makes turns of a request's messages, from the index on.
func split(messages []ledger.Message, from int) []turn {
	s := newSplitter(len(messages)-from, (len(messages)-from)/2+1)
	s.add(messages[from:], from, nil)
	return s.turns
}

// branch is the way to a node: its turns from the oldest that is known. The first
// message of a turn is its place in the branch.
type branch struct {
	node  *ledger.Node
	turns []turn
}

func branchOf(n *ledger.Node, byID map[string]*ledger.Node) branch {
	b := branch{node: n}
	var way []*ledger.Node
	for at := n; at != nil && len(way) <= len(byID); at = byID[at.Turn().Place.Parent] {
		way = append(way, at)
	}
	messages := 0
	for _, at := range way {
		messages += len(at.Input())
	}
	s := newSplitter(messages, len(way)+messages/2)
	for _, at := range slices.Backward(way) {
		s.add(at.Input(), at.Turn().Place.Depth, at)
		last := &s.turns[len(s.turns)-1]
		last.answer, last.node = at.Answer(), at
	}
	b.turns = s.turns
	return b
}

// end is the place of the message that follows the branch.
func (b branch) end() int {
	last := b.turns[len(b.turns)-1]
	return last.first + len(last.before) + 1
}

// pair is a turn that the client shows and the turn of the branch that it is.
type pair struct {
	shown, was int
	// before: what stands before the answer is the same, too. Then the turns of the
	// branch from opens on to was are rounds of tools that the client left out, and
	// what it shows before its answer stood before that of opens.
	before bool
	opens  int
	cut    int // how many messages in front of opens' answer the request does not show
}

// match is what a request has in common with a branch.
type match struct {
	branch branch
	last   int    // index of the newest turn that the request shows of it
	pairs  []pair // the newest first, without gaps
	size   int    // how many messages of the request are in it
	lacks  int    // how many rounds of tools, or calls, of the branch the request does not show
	whole  bool   // nothing that the request shows before last contradicts the branch
}

// find gives the longest match of a request's turns, of equal ones the one that
// lacks the least, then the newest.
// The newest answer that any branch has is tried first, and what is older only
// when that does not lead to the front. Nodes are the newest first.
func find(shown []turn, nodes []*ledger.Node, d wire.Dialect) *match {
	if len(nodes) == 0 {
		return nil
	}
	byID := make(map[string]*ledger.Node, len(nodes))
	for _, n := range nodes {
		byID[n.ID()] = n
	}
	var best *match
	for last := len(shown) - 2; last >= 0; last-- {
		for _, n := range nodes {
			if !n.Answer().Shows(shown[last].answer) || other(n, &shown[last]) {
				continue
			}
			m := &match{branch: branchOf(n, byID), last: last}
			m.walk(shown, d)
			if len(m.pairs) == 0 || !m.pairs[0].before {
				continue // two may say the same in answer to different things
			}
			if best == nil || m.size > best.size || m.size == best.size && m.lacks < best.lacks {
				best = m
			}
		}
		if best != nil && (best.whole || best.last > last) {
			return best
		}
	}
	return best
}

// shows reports whether the client's turn can be one of a branch.
func shows(was, shown *turn) bool {
	return (was.answer.Shows(shown.answer) || was.answer.Speaks(shown.answer)) && !other(was.node, shown)
}

// other reports whether the client's turn is another one than n beyond doubt.
func other(n *ledger.Node, shown *turn) bool { return n != nil && shown.node != nil && shown.node != n }

// walk goes back from the newest common answer as far as both say the same.
func (m *match) walk(shown []turn, d wire.Dialect) {
	turns := m.branch.turns
	m.pairs = make([]pair, 0, m.last+1)
	at := pair{shown: m.last, was: len(turns) - 1}
	for {
		s := &shown[at.shown]
		m.size++
		at = m.opens(shown, at, d)
		if at.before {
			m.lacks += at.was - at.opens
		}
		if !turns[at.was].answer.Shows(s.answer) {
			m.lacks++
		}
		m.pairs = append(m.pairs, at)
		if !at.before {
			return
		}
		m.size += len(s.before)
		switch {
		case at.shown == 0:
			m.whole = true
			return
		case at.opens == 0:
			// The older turns may be gone from here. If there are as many of them as the
			// client shows, nothing tells against these.
			m.whole = s.first-shown[0].first == turns[0].first-m.branch.node.Turn().Place.Front
			return
		}
		if !shows(&turns[at.opens-1], &shown[at.shown-1]) {
			return
		}
		at = pair{shown: at.shown - 1, was: at.opens - 1}
	}
}

// opens finds the turn of the branch whose messages the request shows before the
// answer of a pair, and without how many of the first: that of the answer itself,
// or an earlier one, if what lies between are rounds of tools. Of several the first
// counts whose own predecessor the request shows, too.
func (m *match) opens(shown []turn, at pair, d wire.Dialect) pair {
	turns := m.branch.turns
	front := at.shown == 0
	for i := at.was; i >= 0; i-- {
		if cut, ok := fits(shown[at.shown].before, turns[i].before, front); ok {
			leads := front || i == 0 || shows(&turns[i-1], &shown[at.shown-1])
			if leads || !at.before {
				at.before, at.opens, at.cut = true, i, cut
			}
			if leads {
				break
			}
		}
		if i == 0 || !round(&turns[i-1], &turns[i], d) {
			break
		}
	}
	return at
}

// round reports whether an answer and what follows it are a round of tools that can
// be put back.
func round(called, then *turn, d wire.Dialect) bool {
	return called.answer.Calls() > 0 && called.source.Turn().Dialect == d && then.source.Turn().Dialect == d && ledger.Results(then.before)
}

// fits reports whether a client shows the messages that were, and without how many
// of the first ones: at the front of what it shows some may be missing, as may the
// results of calls that are in front of it.
func fits(shown, was []*ledger.Said, front bool) (cut int, ok bool) {
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
