package conversation

import (
	"bytes"
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Ledger is where turns are kept; a *ledger.Ledger.
type Ledger interface {
	Read(o *wire.Outline, d wire.Dialect) []ledger.Message
	Conversation(s ledger.Scope, shown []ledger.Message) (nodes []*ledger.Node, known bool)
	Refresh(ctx context.Context, s ledger.Scope) bool
}

// Outcome is what a request is to its conversation.
type Outcome string

// The outcomes.
const (
	Began    Outcome = "began"    // it shows no answer: a new conversation, or a new branch
	Hit      Outcome = "hit"      // it goes on from a turn, with all that it shows
	Forked   Outcome = "forked"   // it goes on from a turn, but shows something else before
	Missed   Outcome = "missed"   // the conversation is known, and nothing in it is what the request shows
	NotKnown Outcome = "notknown" // nothing is known of the conversation, for instance since it has expired
)

// Continued is a request as its conversation has it, and where its answer belongs.
type Continued struct {
	// Outline is the request. It is the one that came if there was nothing to do.
	Outline *wire.Outline
	// Read are the messages of Outline as the ledger has read them; nil if it was
	// rebuilt, or shows no answer.
	Read []ledger.Message
	// Known are the turns that its messages show, by their index.
	Known map[int]*ledger.Node
	// Moved: what stands in front of an answer is not what stood there when it was
	// given. Thinking may be bound to that.
	Moved   bool
	Outcome Outcome
	Rebuilt int  // messages that were put in, or put back as they were
	Branch  bool // the answer begins a branch beside others

	dialect wire.Dialect
	parent  *ledger.Node
	depth   int
	front   int
	from    int               // the first message of the Input
	names   map[string]string // the client's names for tool uses of the parent, by those that it was given
}

// Continue finds what a request goes on from. The scope's conversation must be one
// that the client has named.
func Continue(ctx context.Context, l Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline) (*Continued, error) {
	c := &Continued{Outline: o, dialect: d, Outcome: Began, from: leading(o)}
	if !slices.ContainsFunc(o.Messages, func(m wire.MessageOutline) bool { return m.Role == wire.RoleAssistant }) {
		// Many requests are the first of something, and nothing in them is anybody's.
		nodes, _ := l.Conversation(s, nil)
		c.Branch = len(nodes) > 0
		return c, nil
	}
	c.Read = l.Read(o, d)
	nodes, known := l.Conversation(s, c.Read)
	shown := split(c.Read, c.from)
	best := find(shown, nodes, d)
	if (!known || best == nil || best.last < len(shown)-2 || !best.whole) && l.Refresh(ctx, s) {
		nodes, _ = l.Conversation(s, c.Read)
		shown = split(c.Read, c.from)
		best = find(shown, nodes, d)
	}
	if best == nil {
		c.Outcome = NotKnown
		if len(nodes) > 0 {
			c.Outcome, c.Branch, c.Moved = Missed, true, true
		}
		return c, nil
	}
	err := c.rebuild(shown, best)
	c.Moved = c.Moved || elsewhere(shown[best.last+1:len(shown)-1], nodes)
	c.Branch = c.parent == nil || slices.ContainsFunc(nodes, func(n *ledger.Node) bool {
		return n.Turn().Place.Parent == c.parent.ID()
	})
	return c, err
}

// elsewhere reports whether one of these turns has an answer that was given at
// another place of the conversation: behind something that was edited since.
func elsewhere(turns []turn, nodes []*ledger.Node) bool {
	return slices.ContainsFunc(turns, func(t turn) bool {
		return slices.ContainsFunc(nodes, func(n *ledger.Node) bool { return n.Answer().Shows(t.answer) })
	})
}

// Place is where the answer to the request stands in the conversation.
func (c *Continued) Place() *ledger.Place {
	p := &ledger.Place{Depth: c.depth, Front: c.front}
	if c.parent != nil {
		p.Parent = c.parent.ID()
	}
	p.Input = c.input()
	return p
}

// input are the messages that no turn of the branch has.
func (c *Continued) input() []byte {
	o := c.Outline
	if c.from == len(o.Messages) {
		return []byte("[]")
	}
	var e wire.Edits
	given := make(map[string]string, len(c.names))
	for id, name := range c.names {
		given[name] = id
	}
	for i := c.from; i < len(o.Messages); i++ {
		m := &o.Messages[i]
		e.Unmark(o, m)
		if m.Role == wire.RoleAssistant {
			given = nil
		}
		if len(given) > 0 {
			e.Rename(o, o.ResultIDs(c.dialect, m), given)
		}
	}
	first, last := o.Messages[c.from].Start, o.Messages[len(o.Messages)-1].End
	if e.None() {
		return slices.Concat([]byte("["), o.Body[first:last], []byte("]"))
	}
	e.Replace(wire.Span{End: first}, []byte("["))
	e.Replace(wire.Span{Start: last, End: len(o.Body)}, []byte("]"))
	return bytes.Clone(e.Apply(o.Body)) // it is kept, and what is applied has room for the whole body
}

// leading is how many messages of the system stand in front. They are the
// request's own, like the member "system".
func leading(o *wire.Outline) int {
	n := 0
	for n < len(o.Messages) && wire.IsSystem(o.Messages[n].Role) {
		n++
	}
	return n
}
