package conversation

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// rebuild edits the request so that it has the messages of its branch.
func (c *Continued) rebuild(turns []exchange, m *match) error {
	b := builder{Continued: c, request: c.Outline, branch: m.branch}
	c.Nodes = make(map[int]*ledger.Node, len(m.pairs))
	for _, p := range slices.Backward(m.pairs) {
		b.pair(turns, p)
	}
	c.Outcome = Forked
	if m.complete {
		c.Outcome, c.parent, c.depth = Hit, m.branch.node, m.branch.end()
		c.inputStart = turns[m.last+1].first + b.moved
		c.names = b.branch.turn(0).answer.Names(turns[m.last].answer)
		c.front = c.parent.Turn().Place.Front
		if oldest := m.pairs[len(m.pairs)-1]; oldest.client == 0 {
			c.front = b.branch.turn(oldest.opens).first + oldest.cut
			c.GaveUp += ledger.CountResults(turns[0].messages) // of calls that the request does not show
		}
	}
	if c.Outcome == Hit && c.GaveUp > 0 {
		c.Outcome = Unused
	}
	c.Moved = !m.complete || c.front != c.parent.Turn().Place.Front
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
func (b *builder) pair(turns []exchange, p pair) {
	s := &turns[p.client]
	pos := s.first + len(s.messages) // of the answer
	if p.messagesMatch {
		b.restoreMessages(s, p)
		for i := p.opens; i > p.stored; i-- {
			b.round(pos, i)
		}
	}
	was := b.branch.turn(p.stored)
	if was.node != nil {
		b.Nodes[pos+b.moved] = was.node
		if !was.answer.Shows(s.answer) {
			b.calls(pos, was.node)
		}
	}
	b.names, b.follows = was.answer.Names(s.answer), true
}

// restoreMessages replaces the messages before an answer by their stored bytes, unless they are equal or
// come from another dialect.
func (b *builder) restoreMessages(s *exchange, p pair) {
	was := b.branch.turn(p.opens)
	stored := was.messages[p.cut:]
	if ledger.Equal(s.messages, stored) {
		return
	}
	missing := ledger.CountResults(stored) - ledger.CountResults(s.messages)
	switch {
	case was.source.Turn().Dialect != b.dialect:
		b.GaveUp += len(stored)
		return
	case missing > 0 && !b.follows: // the client may have deleted their calls
		b.GaveUp += missing
		return
	}
	b.put(s.first, len(s.messages), b.stored(was, p.cut, b.names), len(stored))
}

// round inserts an answer with tool calls and its results before the message at an index.
func (b *builder) round(pos, i int) {
	called, next := b.branch.turn(i), b.branch.turn(i-1)
	message := called.message()
	if message == nil {
		b.GaveUp += 1 + len(next.messages)
		return
	}
	if n := called.node; n != nil {
		b.Nodes[pos+b.moved] = n
	}
	b.put(pos, 0, message, 1)
	if len(next.messages) > 0 {
		b.put(pos, 0, b.stored(next, 0, nil), len(next.messages))
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
func (b *builder) calls(pos int, n *ledger.Node) {
	message := visible(n)
	if message == nil || n.Turn().Dialect != b.dialect {
		b.GaveUp++
		return
	}
	b.put(pos, 1, message, 1)
}

// put replaces some of the request's messages by others, or inserts those before one.
func (b *builder) put(pos, instead int, messages []byte, count int) {
	b.Rebuilt += count
	b.moved += count - instead
	o := b.request
	if instead == 0 {
		b.edits.Replace(wire.Span{Start: o.Messages[pos].Start, End: o.Messages[pos].Start}, append(messages, ','))
		return
	}
	replaced := o.Messages[pos : pos+instead]
	b.edits.Replace(wire.Span{Start: replaced[0].Start, End: replaced[instead-1].End}, mark(o, replaced, messages))
}

// stored are the stored messages before a turn's answer, separated by commas, without the first cut
// ones, and with the client's names for the tool uses that they answer.
func (b *builder) stored(t *exchange, cut int, names map[string]string) []byte {
	var messages [][]byte
	for _, m := range t.messages[cut:] {
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
	content := n.ClientContent()
	if content == nil {
		return nil
	}
	if n.Turn().Dialect == wire.Chat {
		o := &wire.Outline{Body: content}
		members := o.Object(wire.Span{End: len(content)})
		out := []byte(`{"role":"assistant"`)
		for _, name := range []string{"content", "tool_calls"} {
			if span := members.Get(name); span.Exists() {
				out = slices.Concat(out, []byte(`,"`+name+`":`), o.Raw(span))
			}
		}
		return append(out, '}')
	}
	o, err := wire.ReadContent(content)
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
	return slices.Concat([]byte(`{"role":"assistant","content":`), e.Apply(content), []byte("}"))
}
