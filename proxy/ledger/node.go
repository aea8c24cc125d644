package ledger

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Place is the position of a turn in the tree of its conversation.
type Place struct {
	Parent string // ID of the turn that the request continued; empty at the root of a branch
	// Input is the array of the request's messages behind the parent's answer, in the turn's
	// dialect, with the tool ids that the client got and without cache markers. Leading system
	// messages are left out.
	Input jsontext.Value
	Depth int // messages of the branch before Input
	Front int // position in the branch of the first message that the request had
}

// placeSize is the estimated memory of a Place beside its Input's bytes, and of each of its
// messages.
const placeSize = 256

// Message is what the ledger reads of one message of a request or of an Input.
type Message struct {
	wire.Span
	Answer *Form // for an assistant's message; nil for others
	Said   *Said // for a message of another role
	// By is the turn that the message certainly is: it shows the turn, and has a signature or a
	// tool id that no other turn has. It is nil for none, and set by Conversation.
	By *Node
}

// Node is a turn in the tree of its conversation. Apart from the guarded fields it is immutable.
type Node struct {
	entry    *entry
	id       string
	answer   *Form
	children int // guarded by Ledger.mu

	once  sync.Once
	input []Message // parsed on first use
}

// ID is the turn's identity within its scope.
func (n *Node) ID() string { return n.id }

// Turn is the stored turn. It must not be changed.
func (n *Node) Turn() *Turn { return n.entry.turn }

// Answer is the form of the turn's content, with the tool ids that the client got.
func (n *Node) Answer() *Form { return n.answer }

// Input are the messages of Place.Input; their spans are offsets into it.
func (n *Node) Input() []Message {
	n.once.Do(func() {
		t := n.entry.turn
		o, err := wire.ReadMessages(t.Place.Input)
		if err != nil {
			return // impossible: reading the entry has parsed it
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

// Seen is the turn's content as the client saw it; nil if the client's tool ids are ambiguous.
func (n *Node) Seen() jsontext.Value {
	o, m, err := outlineOf(n.entry.turn)
	if err != nil {
		return nil
	}
	seen, _ := n.entry.clientView(o, m)
	return seen
}

// Shows reports whether a message with the form m shows the turn with the form f, whatever became
// of its thinking.
func (f *Form) Shows(m *Form) bool { return f.shows(m) }

// Speaks is Shows for a message without the turn's tool calls.
func (f *Form) Speaks(m *Form) bool {
	return len(m.tools) == 0 && len(f.tools) > 0 && (overlap(f.spoken, m.visible) || overlap(f.spoken, m.unthought))
}

// Calls is the number of tool uses.
func (f *Form) Calls() int { return len(f.tools) }

// Names maps each tool id of f to the id that the message m, which shows it, has instead.
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

// Read parses all messages of a request.
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

// form is the form of an assistant message, from the cache if it was parsed before.
func (l *Ledger) form(o *wire.Outline, m *wire.MessageOutline, d wire.Dialect) *Form {
	print := l.forms.print(o.Of(contentSpan(m, d)), d == wire.Chat)
	f, ok := l.forms.get(print)
	if !ok {
		f = formOf(o, m, d)
		l.forms.put(print, f)
	}
	return f
}

// Conversation returns the turns in a scope's tree, the newest first, and sets By in the messages
// of a request. known is true if the scope was loaded from the remote before, or there is no
// remote.
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

// by finds the one turn in the tree that a message shows and has a unique key of.
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

// Refresh loads what other processes added to a scope. It waits for Config.Patience at most, and
// reports whether anything came.
func (l *Ledger) Refresh(ctx context.Context, s Scope) bool {
	return l.writer != nil && l.fetch(ctx, &view{Request: Request{Scope: s}})
}

// maxBranches bounds the branches of a conversation.
const maxBranches = 16

// plant links a new turn into the tree. If there are too many branches it removes the one that was
// not continued for longest.
func (s *store) plant(b *book, n *Node) {
	if parent := b.node(n.entry.turn.Place.Parent); parent != nil {
		parent.children++
	}
	for _, other := range b.nodes { // another process's child may have come before its parent
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

// node finds a turn by its ID; nil if there is none.
func (b *book) node(id string) *Node {
	if id == "" {
		return nil
	}
	return b.nodes[id]
}
