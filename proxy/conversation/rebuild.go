package conversation

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// rebuild edits the request so that it has the messages of its branch.
func (c *Continued) rebuild(shown []exchange, m *match) error {
	b := builder{Continued: c, request: c.Outline, branch: m.branch}
	c.Known = make(map[int]*ledger.Node, len(m.pairs))
	for _, p := range slices.Backward(m.pairs) {
		b.pair(shown, p)
	}
	c.Outcome = Forked
	if m.whole {
		c.Outcome, c.parent, c.depth = Hit, m.branch.node, m.branch.end()
		c.from = shown[m.last+1].first + b.moved
		c.names = b.branch.turn(0).answer.Names(shown[m.last].answer)
		c.front = c.parent.Turn().Place.Front
		if oldest := m.pairs[len(m.pairs)-1]; oldest.shown == 0 {
			c.front = b.branch.turn(oldest.opens).first + oldest.cut
			c.GaveUp += ledger.CountResults(shown[0].before) // of calls that the request does not show
		}
	}
	if c.Outcome == Hit && c.GaveUp > 0 {
		c.Outcome = Unused
	}
	c.Moved = !m.whole || c.front != c.parent.Turn().Place.Front
	var err error
	if c.Outline, err = b.request.WithBody(b.edits.Apply(b.request.Body)); c.Outline != b.request {
		c.Read = nil
	}
	return err
}

// builder collects the edits that put a branch into a request.
type builder struct {
	*Continued
	request *wire.Outline
	branch  *branch
	edits   wire.Edits
	moved   int               // by how many messages the following ones have moved
	names   map[string]string // the client's names for the calls with results that follow
	follows bool              // the branch has an older answer of the request
}

// pair restores what precedes an answer, and notes which turn the answer is.
func (b *builder) pair(shown []exchange, p pair) {
	s := &shown[p.shown]
	at := s.first + len(s.before) // of the answer
	if p.before {
		b.before(s, p)
		for i := p.opens; i > p.was; i-- {
			b.round(at, i)
		}
	}
	was := b.branch.turn(p.was)
	if was.node != nil {
		b.Known[at+b.moved] = was.node
		if !was.answer.Shows(s.answer) {
			b.calls(at, was.node)
		}
	}
	b.names, b.follows = was.answer.Names(s.answer), true
}

// before replaces the messages before an answer by their stored bytes, unless they are equal or
// come from another dialect.
func (b *builder) before(s *exchange, p pair) {
	was := b.branch.turn(p.opens)
	stored := was.before[p.cut:]
	if ledger.Equal(s.before, stored) {
		return
	}
	lost := ledger.CountResults(stored) - ledger.CountResults(s.before)
	switch {
	case was.source.Turn().Dialect != b.dialect:
		b.GaveUp += len(stored)
		return
	case lost > 0 && !b.follows: // the client may have deleted their calls
		b.GaveUp += lost
		return
	}
	b.put(s.first, len(s.before), b.stored(was, p.cut, b.names), len(stored))
}

// round inserts an answer with tool calls and its results before the message at an index.
func (b *builder) round(at, i int) {
	called, next := b.branch.turn(i), b.branch.turn(i-1)
	message := called.message()
	if message == nil {
		b.GaveUp += 1 + len(next.before)
		return
	}
	if n := called.node; n != nil {
		b.Known[at+b.moved] = n
	}
	b.put(at, 0, message, 1)
	if len(next.before) > 0 {
		b.put(at, 0, b.stored(next, 0, nil), len(next.before))
	}
}

// message is the message with the turn's answer: without thinking if the ledger has the turn, else
// as a client has shown it. It is nil if the client's tool ids are ambiguous.
func (t *exchange) message() []byte {
	if t.node != nil {
		return visible(t.node)
	}
	return bytes.Clone(t.source.Turn().Place.Input[t.span.Start:t.span.End])
}

// calls restores the tool calls of an answer that the client shows without them. Its thinking is
// put back by package thinking.
func (b *builder) calls(at int, n *ledger.Node) {
	message := visible(n)
	if message == nil || n.Turn().Dialect != b.dialect {
		b.GaveUp++
		return
	}
	b.put(at, 1, message, 1)
}

// put replaces some of the request's messages by others, or inserts those before one.
func (b *builder) put(at, instead int, messages []byte, count int) {
	b.Rebuilt += count
	b.moved += count - instead
	o := b.request
	if instead == 0 {
		b.edits.Replace(wire.Span{Start: o.Messages[at].Start, End: o.Messages[at].Start}, append(messages, ','))
		return
	}
	replaced := o.Messages[at : at+instead]
	b.edits.Replace(wire.Span{Start: replaced[0].Start, End: replaced[instead-1].End}, mark(o, replaced, messages))
}

// stored are the stored messages before a turn's answer, separated by commas, without the first cut
// ones, and with the client's names for the tool uses that they answer.
func (b *builder) stored(t *exchange, cut int, names map[string]string) []byte {
	var messages [][]byte
	for _, m := range t.before[cut:] {
		messages = append(messages, t.source.Turn().Place.Input[m.Start:m.End])
	}
	joined := bytes.Join(messages, []byte(","))
	if len(names) == 0 {
		return joined
	}
	o, err := wire.ReadMessages(slices.Concat([]byte("["), joined, []byte("]")))
	if err != nil {
		return joined // impossible: they were parsed before
	}
	var e wire.Edits
	for i := range o.Messages {
		e.Rename(o, o.ResultIDs(b.dialect, &o.Messages[i]), names)
	}
	changed := e.Apply(o.Body)
	return changed[1 : len(changed)-1]
}

// mark moves the cache markers of replaced messages onto the messages in their place, which are
// separated by commas. Blocks are matched from the end, where markers are.
func mark(o *wire.Outline, replaced []wire.MessageOutline, messages []byte) []byte {
	var marks []jsontext.Value
	for _, m := range replaced {
		marks = append(marks, o.Marks(m.Blocks)...)
	}
	if !slices.ContainsFunc(marks, func(m jsontext.Value) bool { return m != nil }) {
		return messages
	}
	stored, err := wire.ReadMessages(slices.Concat([]byte("["), messages, []byte("]")))
	if err != nil {
		return messages // impossible: they were parsed before
	}
	var e wire.Edits
	next := len(marks)
	for _, m := range slices.Backward(stored.Messages) {
		if text, ok := stored.Text(m.Content); ok && next > 0 {
			if next--; marks[next] != nil {
				e.Replace(m.Content, wire.MarkedText(text, marks[next]))
			}
		}
		for _, b := range slices.Backward(m.Blocks) {
			if next == 0 {
				break
			}
			if next--; marks[next] != nil && len(b.Members) > 0 {
				e.Mark(b.Span, marks[next])
			}
		}
	}
	changed := e.Apply(stored.Body)
	return changed[1 : len(changed)-1]
}

// visible is the message that shows an answer without its thinking; nil if the client's tool ids
// are ambiguous.
func visible(n *ledger.Node) []byte {
	seen := n.Seen()
	if seen == nil {
		return nil
	}
	if n.Turn().Dialect == wire.Chat {
		o := &wire.Outline{Body: seen}
		members := o.Object(wire.Span{End: len(seen)})
		out := []byte(`{"role":"assistant"`)
		for _, name := range []string{"content", "tool_calls"} {
			if at := members.Get(name); at.Found() {
				out = slices.Concat(out, []byte(`,"`+name+`":`), o.Of(at))
			}
		}
		return append(out, '}')
	}
	o, err := wire.ReadContent(seen)
	if err != nil {
		return nil
	}
	blocks := o.Messages[0].Blocks
	spans := make([]wire.Span, len(blocks))
	for i, b := range blocks {
		spans[i] = b.Span
	}
	var e wire.Edits
	e.Keep(spans, func(i int) bool { return !wire.IsThinking(blocks[i].Type) })
	return slices.Concat([]byte(`{"role":"assistant","content":`), e.Apply(seen), []byte("}"))
}
