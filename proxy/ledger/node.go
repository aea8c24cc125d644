package ledger

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Place is the position of a turn in the tree of its conversation.
type Place struct {
	Parent string `json:"parent,omitzero"` // ID of the turn that the request continued; empty at the root of a branch
	// Input is the array of the request's messages behind the parent's answer, in the turn's
	// dialect, with the tool ids that the client got and without cache markers. Leading system
	// messages are left out.
	Input jsontext.Value `json:"-"`              // stored beside it
	Depth int            `json:"depth,omitzero"` // messages of the branch before Input
	Front int            `json:"front,omitzero"` // position in the branch of the first message that the request had
	// Ephemeral is the PartsPrint of the content parts that the request's newest user message had
	// and that are in no Input; empty for none.
	Ephemeral string `json:"ephemeral,omitzero"`
}

// placeSize is the estimated memory of a Place beside its Input's bytes, and of each of its
// messages.
const placeSize = 256

// Message is what the ledger reads of one message of a request or of an Input.
type Message struct {
	wire.Span
	Answer      *Form        // for an assistant's message; nil for others
	Fingerprint *Fingerprint // for a message of another role
	// Node is the turn that the message certainly is: it shows the turn, and has a signature or a
	// tool id that no other turn has. It is nil if no turn matches, or if two messages match the same
	// turn. Conversation sets it.
	Node *Node
	// Apart: it certainly is a turn that has no place in the tree, and so none of it that says the same. It is set by
	// Conversation.
	Detached bool
}

// Node is a turn in the tree of its conversation. Apart from the guarded fields it is immutable.
type Node struct {
	entry    *entry
	id       string
	answer   *Form
	parent   atomic.Pointer[Node] // nil at the root of a branch, and where the parent is not known here
	children []*Node              // guarded by Ledger.mu

	inputOnce sync.Once
	input     []Message // parsed on first use
}

// ID is the turn's identity within its scope.
func (n *Node) ID() string { return n.id }

// Parent is the turn that this one follows, as far as this process knows it.
func (n *Node) Parent() *Node { return n.parent.Load() }

// Turn is the stored turn. It must not be changed.
func (n *Node) Turn() *Turn { return n.entry.turn }

// Answer is the form of the turn's content, with the tool ids that the client got.
func (n *Node) Answer() *Form { return n.answer }

// Input are the messages of Place.Input; their spans are offsets into it.
func (n *Node) Input() []Message {
	n.inputOnce.Do(func() {
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
				n.input[i].Fingerprint = fingerprintOf(o, m, t.Dialect)
			}
		}
	})
	return n.input
}

// ClientContent is the turn's content as the client saw it; nil if the client's tool ids are ambiguous.
func (n *Node) ClientContent() jsontext.Value {
	o, m, err := outlineOf(n.entry.turn)
	if err != nil {
		return nil
	}
	content, _ := n.entry.clientView(o, m)
	return content
}

// ToolIDs returns the turn's tool ids as the client got them.
func (n *Node) ToolIDs() (ids []string) {
	for _, id := range n.entry.ids {
		ids = append(ids, id.Client)
	}
	return ids
}

// EndsWith reports whether a message shows the last blocks of the turn and not all of it. A message that begins with
// thinking must end the turn from that thinking on: behind it the client has deleted what is missing.
func (n *Node) EndsWith(m *Form) bool {
	f := n.answer
	if len(m.tools) == 0 || len(m.tools) > len(f.tools) || f.Shows(m) {
		return false
	}
	if n.Turn().Dialect == wire.Chat { // has the text before the calls
		same := func(a, b tool) bool { return a.sum == b.sum }
		silent := slices.Contains(m.visibleNoTools, sumOf(nil)) && !m.thinks()
		return silent && slices.EqualFunc(m.tools, f.tools[len(f.tools)-len(m.tools):], same)
	}
	content := n.ClientContent()
	o, err := wire.ReadContent(content)
	if err != nil {
		return false // the client's tool ids are ambiguous
	}
	thinks := func(f *Form) bool { return f.parts[0].key != "" }
	return slices.ContainsFunc(o.Messages[0].Blocks, func(b wire.BlockOutline) bool {
		end, err := wire.ReadContent(slices.Concat([]byte("["), content[b.Start:]))
		if err != nil {
			return false // impossible: it was parsed before
		}
		f := formOf(end, &end.Messages[0], wire.Messages)
		return thinks(f) == thinks(m) && f.Shows(m)
	})
}

// Speaks is Shows for a message without the turn's tool calls.
func (f *Form) Speaks(m *Form) bool {
	return len(m.tools) == 0 && len(f.tools) > 0 && (overlap(f.visibleNoTools, m.visible) ||
		overlap(f.visibleNoTools, m.unthought))
}

// HasUniqueKey reports whether a message has a signature, data or an id that only one turn can have.
func (f *Form) HasUniqueKey() bool { return slices.ContainsFunc(f.keys[:f.visibleStart], key.unique) }

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
			out[i].Answer = l.Form(o, m, d)
			continue
		}
		print := l.fingerprints.print(o.Body[m.Start:m.End], d == wire.Chat)
		s, ok := l.fingerprints.GetIfPresent(print)
		if !ok {
			s = fingerprintOf(o, m, d)
			l.fingerprints.Set(print, s)
		}
		out[i].Fingerprint = s
	}
	return out
}

// Form returns the form of an assistant message, from the cache if it was parsed before.
func (l *Ledger) Form(o *wire.Outline, m *wire.MessageOutline, d wire.Dialect) *Form {
	print := l.forms.print(o.Raw(contentSpan(m, d)), d == wire.Chat)
	f, ok := l.forms.GetIfPresent(print)
	if !ok {
		f = formOf(o, m, d)
		l.forms.Set(print, f)
	}
	return f
}

// Tree is the tree of a conversation's turns, as far as this process knows it.
type Tree struct {
	ledger *Ledger
	scope  Scope
	Size   int // the number of turns
	// Known: the scope was read from the remote before, or there is no remote.
	Loaded bool
	// Lapsed: this process knew the scope and has dropped it, for its age or for room.
	Lapsed bool
}

// Conversation returns the tree of a scope and sets By in the messages of a request.
func (l *Ledger) Conversation(s Scope, messages []Message) Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := Tree{ledger: l, scope: s, Loaded: l.writer == nil}
	b := l.find(s)
	if b == nil {
		_, t.Lapsed = l.store.lapsed[s]
		_, old := l.store.olderLapsed[s]
		t.Lapsed = t.Lapsed || old
		return t
	}
	t.Size, t.Loaded = len(b.nodes), t.Loaded || b.loaded
	positions := map[*Node]int{}
	for i := range messages {
		m := &messages[i]
		if m.Answer == nil {
			continue
		}
		if m.Node, m.Detached = b.findNode(m.Answer); m.Node == nil {
			continue
		}
		if prev, twice := positions[m.Node]; twice { // the client mixed up signatures
			messages[prev].Node, m.Node = nil, nil
			continue
		}
		positions[m.Node] = i
	}
	return t
}

// Showing yields the turns that a message with this form shows, the newest first.
func (t Tree) Showing(m *Form) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		var entries []*entry
		t.ledger.mu.Lock()
		if b := t.ledger.find(t.scope); b != nil {
			for i, k := range m.keys[m.visibleStart:] {
				if !slices.Contains(m.keys[m.visibleStart:m.visibleStart+i], k) {
					entries = append(entries, b.index[k]...)
				}
			}
		}
		t.ledger.mu.Unlock()
		newer := func(a, b *entry) int { return b.turn.Time.Compare(a.turn.Time) } // others' come in any order
		if !slices.IsSortedFunc(entries, newer) {
			slices.SortStableFunc(entries, newer)
		}
		for i, e := range entries {
			dup := len(m.keys)-m.visibleStart > 1 && slices.Contains(entries[:i], e)
			if e.node == nil || dup || !e.node.answer.Shows(m) {
				continue
			}
			if !yield(e.node) {
				return
			}
		}
	}
}

// Has reports whether a message with this form shows a turn.
func (t Tree) Has(m *Form) bool {
	for range t.Showing(m) {
		return true
	}
	return false
}

// Continued reports whether a turn of the tree follows n.
func (t Tree) Continued(n *Node) bool {
	t.ledger.mu.Lock()
	defer t.ledger.mu.Unlock()
	return len(n.children) > 0
}

// findNode finds the one turn that a message shows and has a unique key of; apart if it has no place in the tree.
func (b *book) findNode(m *Form) (n *Node, detached bool) {
	var match *entry
	for _, k := range m.keys[:m.visibleStart] {
		if !k.unique() {
			continue
		}
		for _, e := range b.index[k] {
			if e == match || e.turn.Cut || !e.form.Shows(m) {
				continue
			}
			if match != nil {
				return nil, false
			}
			match = e
		}
	}
	if match == nil {
		return nil, false
	}
	return match.node, match.node == nil
}

// Refresh loads what other processes added to a scope. It waits as long as Judge, and reports whether
// anything came.
func (l *Ledger) Refresh(ctx context.Context, s Scope) bool {
	return l.writer != nil && l.fetch(ctx, s)
}

// maxBranches bounds the branches of a conversation.
const maxBranches = 16

// plant links a new turn into the tree. If there are too many branches it removes the one that was
// not continued for longest. A stored response is no such branch, since its client holds nothing that
// it could show instead.
func (s *store) plant(b *book, n *Node) {
	b.leaves++
	if parent := n.entry.turn.Place.Parent; parent != "" {
		b.orphans[parent] = append(b.orphans[parent], n)
		b.adopt(b.nodes[parent])
	}
	b.adopt(n) // another process's child may have come before its parent
	for b.leaves > maxBranches {
		isLeaf := func(e *entry) bool {
			return e.node != nil && len(e.node.children) == 0 && e.turn.Response == nil
		}
		oldest := slices.IndexFunc(b.turns, isLeaf)
		if oldest < 0 {
			return
		}
		for leaf := b.turns[oldest].node; leaf != nil && isLeaf(leaf.entry); {
			parent := leaf.Parent()
			s.remove(b, leaf.entry)
			leaf = parent
		}
	}
}

// adopt links a turn, if there is one, to the children that wait for it.
func (b *book) adopt(parent *Node) {
	if parent == nil || len(b.orphans[parent.id]) == 0 {
		return
	}
	if len(parent.children) == 0 {
		b.leaves--
	}
	for _, child := range b.orphans[parent.id] {
		child.parent.Store(parent)
		parent.children = append(parent.children, child)
	}
	delete(b.orphans, parent.id)
}

// uproot takes a turn out of the tree. Its children wait for it again, so that nothing holds what
// was removed.
func (b *book) uproot(n *Node) {
	delete(b.nodes, n.id)
	isChild := func(other *Node) bool { return other == n }
	if len(n.children) == 0 {
		b.leaves--
	} else {
		for _, child := range n.children {
			child.parent.Store(nil)
		}
		b.orphans[n.id], n.children = n.children, nil
	}
	if parent := n.Parent(); parent != nil {
		if parent.children = slices.DeleteFunc(parent.children, isChild); len(parent.children) == 0 {
			b.leaves++
		}
	} else if parentID := n.entry.turn.Place.Parent; parentID != "" {
		if b.orphans[parentID] = slices.DeleteFunc(b.orphans[parentID], isChild); len(b.orphans[parentID]) == 0 {
			delete(b.orphans, parentID)
		}
	}
}
