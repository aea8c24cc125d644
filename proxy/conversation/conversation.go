package conversation

import (
	"bytes"
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Outcome says how a request relates to its conversation.
type Outcome string

// The outcomes.
const (
	Began    Outcome = "began"    // it shows no answer, so it starts a conversation or a new branch
	Hit      Outcome = "hit"      // it continues a turn, and everything that it shows agrees with the branch
	Unused   Outcome = "unused"   // as Hit, but something that it lacks cannot be put back, see Continued.GaveUp
	Forked   Outcome = "forked"   // it continues a turn, but shows something different before it
	Missed   Outcome = "missed"   // the conversation is known, but no turn of it is what the request shows
	Expired  Outcome = "expired"  // this process knew the conversation, and it was not used for too long
	NotKnown Outcome = "notknown" // nothing is known of the conversation
)

// Outcomes are all of them.
var Outcomes = []Outcome{Began, Hit, Unused, Forked, Missed, Expired, NotKnown}

// Continued is a request after its conversation was consulted, and the place for its answer.
type Continued struct {
	// Outline is the request. It is the original one if nothing had to be changed.
	Outline *wire.Outline
	// Read are the messages of Outline as the ledger has parsed them; nil if Outline was rebuilt or
	// has no assistant message.
	Read []ledger.Message
	// Nodes are the turns that its messages show, by the index of the message.
	Nodes map[int]*ledger.Node
	// Moved: what precedes an answer differs from what preceded it when it was given. Thinking may
	// be bound to that.
	Moved bool
	// MovedBefore is the index behind the newest answer of an older turn that was given in sight of
	// ephemeral parts, which are gone; 0 for none.
	MovedBefore int
	// MovedLoop: the answers since the newest message of the user were given to other ephemeral
	// parts than the request has.
	MovedLoop bool
	Outcome   Outcome
	Rebuilt   int  // messages that were inserted, or replaced by their stored form
	GaveUp    int  // those that could not be: of another dialect, or with calls that cannot be told apart
	Branch    bool // the answer begins a branch beside others

	ephemeral string

	dialect    wire.Dialect
	parent     *ledger.Node
	depth      int
	front      int
	inputStart int               // index of the first message of the Input
	names      map[string]string // from the stored tool ids of the parent to the client's names for them
}

// Start is a request that begins its conversation, whatever it shows.
func Start(d wire.Dialect, o *wire.Outline, ephemeral string) *Continued {
	c := &Continued{Outline: o, dialect: d, Outcome: Began, inputStart: leading(o), ephemeral: ephemeral}
	if ephemeral != "" { // such a client has likely had others in the messages before
		c.MovedBefore, _ = o.NewestUser()
	}
	return c
}

// Continue finds the turn that a request continues. The scope's conversation must be one that the
// client has named, or that Ledger.Find has led to, not one that begins with the request. ephemeral is the print of the parts that the newest user
// message is sent with beside what the request shows; empty for none.
func Continue(
	ctx context.Context, l *ledger.Ledger, s ledger.Scope, d wire.Dialect, o *wire.Outline, ephemeral string,
) (*Continued, error) {
	c := &Continued{Outline: o, dialect: d, Outcome: Began, inputStart: leading(o), ephemeral: ephemeral}
	if !slices.ContainsFunc(o.Messages, func(m wire.MessageOutline) bool { return m.Role == wire.RoleAssistant }) {
		// A frequent case: the request starts something, and none of its messages can be matched.
		c.Branch = l.Conversation(s, nil).Size > 0
		return c, nil
	}
	c.Read = l.Read(o, d)
	tree := l.Conversation(s, c.Read)
	turns := split(nil, c.Read[c.inputStart:], c.inputStart, nil)
	// What this process recorded it knows. Others may have recorded the newest answer, or the start
	// of the branch: then the shared store is asked, once.
	var best *match
	newest := &turns[len(turns)-2]
	current := tree.Loaded && (newest.node != nil || !newest.answer.HasUniqueKey() && tree.Has(newest.answer))
	if current {
		best = find(turns, tree, d)
		current = best != nil && best.last == len(turns)-2 && best.complete
	}
	if !current {
		if l.Refresh(ctx, s) {
			tree = l.Conversation(s, c.Read)
			turns = split(turns[:0], c.Read[c.inputStart:], c.inputStart, nil)
			best = nil
		}
		if best == nil {
			best = find(turns, tree, d)
		}
	}
	if best == nil {
		switch c.Outcome = NotKnown; {
		case tree.Size > 0: // an answer apart says nothing of what preceded it
			c.Outcome, c.Branch, c.Moved = Missed, true, !turns[len(turns)-2].detached
		case tree.Lapsed:
			c.Outcome = Expired
		}
		if ephemeral != "" { // such a client has likely had others in the messages before
			c.MovedBefore, _ = o.NewestUser()
		}
		return c, nil
	}
	err := c.rebuild(turns, best)
	c.compareEphemeral()
	c.Moved = c.Moved || hasMovedAnswer(turns[best.last+1:len(turns)-1], tree)
	c.Branch = c.parent == nil || tree.Continued(c.parent)
	return c, err
}

// compareEphemeral finds the answers that were given to other ephemeral parts than stand before them.
// Only the newest message of the user has any.
func (c *Continued) compareEphemeral() {
	newest, _ := c.Outline.NewestUser()
	for i, n := range c.Nodes {
		switch had := n.Turn().Place.Ephemeral; {
		case i > newest:
			c.MovedLoop = c.MovedLoop || had != c.ephemeral
		case had != "":
			c.MovedBefore = max(c.MovedBefore, i+1)
		}
	}
}

// hasMovedAnswer reports whether one of these turns has an answer that the ledger knows from another
// position in the conversation, which means that something before it was edited since.
func hasMovedAnswer(turns []exchange, tree ledger.Tree) bool {
	return slices.ContainsFunc(turns, func(t exchange) bool { return tree.Has(t.answer) })
}

// Place is the position of the request's answer in the conversation.
func (c *Continued) Place() *ledger.Place {
	p := &ledger.Place{Depth: c.depth, Front: c.front, Ephemeral: c.ephemeral}
	if c.parent != nil {
		p.Parent = c.parent.ID()
	}
	p.Input = c.input()
	return p
}

// input is the JSON array of the messages that no turn of the branch has.
func (c *Continued) input() []byte {
	o := c.Outline
	if c.inputStart == len(o.Messages) {
		return []byte("[]")
	}
	var e wire.Edits
	storedIDs := make(map[string]string, len(c.names))
	for id, name := range c.names {
		storedIDs[name] = id
	}
	for i := c.inputStart; i < len(o.Messages); i++ {
		m := &o.Messages[i]
		e.Unmark(o, m)
		if m.Role == wire.RoleAssistant {
			storedIDs = nil
		}
		if len(storedIDs) > 0 {
			e.Rename(o, o.ResultIDs(c.dialect, m), storedIDs)
		}
	}
	first, last := o.Messages[c.inputStart].Start, o.Messages[len(o.Messages)-1].End
	if e.Empty() {
		return slices.Concat([]byte("["), o.Body[first:last], []byte("]"))
	}
	e.Replace(wire.Span{End: first}, []byte("["))
	e.Replace(wire.Span{Start: last, End: len(o.Body)}, []byte("]"))
	return bytes.Clone(e.Apply(o.Body)) // a copy, since the edited body has room for the whole request
}

// leading is the number of system messages at the front. They belong to the request, like the
// member "system", and not to the conversation.
func leading(o *wire.Outline) int {
	n := 0
	for n < len(o.Messages) && wire.IsSystem(o.Messages[n].Role) {
		n++
	}
	return n
}
