package ledger

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Place is where a turn stands in the tree of its conversation.
type Place struct {
	Parent string // ID of the turn that the request went on from; empty: it begins a branch
	// Input is the array of the request's messages behind the parent's answer, in
	// the turn's dialect, with the tool ids that the client got and without cache
	// markers. System messages in front of all others are left out.
	Input jsontext.Value
	Depth int // how many messages of the branch stand in front of Input
	Front int // the place in the branch of the first message that the request had
}

// placeSize is roughly what a Place takes in memory beside its Input's bytes, and
// each of its messages.
const placeSize = 256

// Message is what the ledger reads of one message of a request, or of an Input.
type Message struct {
	wire.Span
	Answer *Form // of an assistant's message; nil for any other
	Said   *Said // of any other
	// By is the turn that the answer is beyond doubt: it shows it, and has a
	// signature or a tool id that no other has. Nil for none; Conversation sets it.
	By *Node
}

// Node is a turn in the tree of its conversation. It is not changed once it is
// made, apart from what is guarded.
type Node struct {
	entry    *entry
	id       string
	answer   *Form
	children int // guarded by Ledger.mu

	once  sync.Once
	input []Message // read once
}

// ID names the turn in its scope.
func (n *Node) ID() string { return n.id }

// Turn is the turn, which must not be written into.
func (n *Node) Turn() *Turn { return n.entry.turn }

// Answer is the form of the turn's content, with the tool ids that the client got.
func (n *Node) Answer() *Form { return n.answer }

// Input are the messages of Place.Input, in which their spans lie.
func (n *Node) Input() []Message {
	n.once.Do(func() {
		t := n.entry.turn
		o, err := wire.ReadMessages(t.Place.Input)
		if err != nil {
			return // the entry could not have been read
		}
		n.input = make([]Message, len(o.Messages))
		for i := range o.Messages {
			m := &o.Messages[i]
			n.input[i].Span = m.Span
			if m.Role == wire.RoleAssistant {
				n.input[i].Answer = formOf(o, m, t.Dialect)
			} else {
				n.input[i].Said = saidOf(o, m, t.Dialect)
			}
		}
	})
	return n.input
}

// Seen is the turn's content as the client saw it; nil if nobody can tell which of
// the client's tool ids is which.
func (n *Node) Seen() jsontext.Value {
	o, m, err := outlineOf(n.entry.turn)
	if err != nil {
		return nil
	}
	seen, _ := n.entry.clientView(o, m)
	return seen
}

// Shows reports whether a message with the form m says what was said with the form
// f, whatever became of its thinking.
func (f *Form) Shows(m *Form) bool { return f.shows(m) }

// Speaks is Shows for a message that says the same but calls none of the tools.
func (f *Form) Speaks(m *Form) bool {
	return len(m.tools) == 0 && len(f.tools) > 0 && (overlap(f.spoken, m.visible) || overlap(f.spoken, m.unthought))
}

// Calls is how many uses of tools there are.
func (f *Form) Calls() int { return len(f.tools) }

// Names gives for each tool id of f that the message m, which shows it, calls
// otherwise m's name.
func (f *Form) Names(m *Form) map[string]string {
	var names map[string]string
	for i, j := range pair(m.tools, f.tools, func(t tool, j int) bool { return t.id == f.tools[j].id }) {
		if j >= 0 && m.tools[i].id != "" && f.tools[j].id != "" && m.tools[i].id != f.tools[j].id {
			if names == nil {
				names = map[string]string{}
			}
			names[f.tools[j].id] = m.tools[i].id
		}
	}
	return names
}

// Read reads all messages of a request.
func (l *Ledger) Read(o *wire.Outline, d wire.Dialect) []Message {
	out := make([]Message, len(o.Messages))
	for i := range o.Messages {
		m := &o.Messages[i]
		out[i].Span = m.Span
		if m.Role == wire.RoleAssistant {
			out[i].Answer = l.form(o, m, d)
			continue
		}
		print := l.said.print(o.Body[m.Start:m.End], d == wire.Chat)
		s, ok := l.said.get(print)
		if !ok {
			s = saidOf(o, m, d)
			l.said.put(print, s)
		}
		out[i].Said = s
	}
	return out
}

// form reads an assistant message.
func (l *Ledger) form(o *wire.Outline, m *wire.MessageOutline, d wire.Dialect) *Form {
	print := l.forms.print(o.Of(contentSpan(m, d)), d == wire.Chat)
	f, ok := l.forms.get(print)
	if !ok {
		f = formOf(o, m, d)
		l.forms.put(print, f)
	}
	return f
}

// Conversation gives the turns in the tree of a scope, the newest first, and finds
// whose turns the messages of a request are beyond doubt. Known: the remote was
// asked for the scope before, or there is none.
func (l *Ledger) Conversation(s Scope, shown []Message) (nodes []*Node, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.find(s)
	if b == nil {
		return nil, l.writer == nil
	}
	for _, e := range slices.Backward(b.turns) {
		if e.node != nil {
			nodes = append(nodes, e.node)
		}
	}
	for i := range shown {
		if m := &shown[i]; m.Answer != nil {
			m.By = b.by(m.Answer)
		}
	}
	return nodes, b.loaded || l.writer == nil
}

// by finds the one turn in the tree that a message shows and names.
func (b *book) by(m *Form) *Node {
	var by *entry
	for _, k := range m.keys[:m.shown] {
		if !k.unique() {
			continue
		}
		for _, e := range b.index[k] {
			if e == by || e.node == nil || !e.form.shows(m) {
				continue
			}
			if by != nil {
				return nil
			}
			by = e
		}
	}
	if by == nil {
		return nil
	}
	return by.node
}

// Refresh asks the remote for what other processes added to a scope, for
// Config.Patience at most, and reports whether anything came.
func (l *Ledger) Refresh(ctx context.Context, s Scope) bool {
	return l.writer != nil && l.fetch(ctx, &view{Request: Request{Scope: s}})
}

// maxBranches bounds the branches of a conversation.
const maxBranches = 16

// plant puts a turn that was added into the tree, and takes out of the scope the
// branch that was not gone on with for longest where there are too many.
func (s *store) plant(b *book, n *Node) {
	if parent := b.node(n.entry.turn.Place.Parent); parent != nil {
		parent.children++
	}
	for _, other := range b.nodes { // another process's child may have come first
		if other.entry.turn.Place.Parent == n.id {
			n.children++
		}
	}
	for {
		leaves, oldest := 0, (*Node)(nil)
		for _, e := range b.turns { // oldest first
			if e.node != nil && e.node.children == 0 {
				leaves++
				oldest = cmp.Or(oldest, e.node)
			}
		}
		if leaves <= maxBranches {
			return
		}
		for oldest != nil && oldest.children == 0 {
			parent := b.node(oldest.entry.turn.Place.Parent)
			s.remove(b, oldest.entry)
			oldest = parent
		}
	}
}

// node is the turn of that ID, nil for none.
func (b *book) node(id string) *Node {
	if id == "" {
		return nil
	}
	return b.nodes[id]
}
