package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"mneme/proxy/wire"
)

// entry is a turn with the keys by which it is found. Most turns are never asked for, so that the
// work is split: an entry is sealed when it is recorded, and read when its scope is next looked at.
type entry struct {
	turn  *Turn
	seals []key // its unique keys, which lead requests that name no conversation to its own

	// The rest is filled in by read. Until then it is guarded by Ledger.mu, and after that it does
	// not change. Only entries that have been read leave the ledger.

	size int   // in bytes, estimated
	form *Form // nil until the entry is read, as are the fields below
	id   sum   // a hash of the turn without its time, so that identical turns are one
	keys []key // all of them
	ids  []ToolID
	node *Node // nil for a turn without a place
}

// overhead is the estimated memory of an entry beside its content and form, in bytes.
const overhead = 768

var errNoContent = errors.New("the content is not an answer of its dialect")

// seal makes the entry of a turn, and keeps the turn. The outline that it returns is the turn's, or
// else that of its content.
func seal(t *Turn) (*entry, *wire.Outline, error) {
	o, m, err := outlineOf(t)
	if err != nil {
		return nil, nil, err
	}
	e := &entry{turn: t, seals: seals(t, o, m), size: overhead + len(t.Content)}
	if t.Place != nil {
		e.size += placeSize + len(t.Place.Input)
	}
	if t.Response != nil {
		e.seals = append(e.seals, t.Response.keys()...)
		e.size += t.Response.Size()
	}
	return e, o, nil
}

// seals finds the unique keys of a turn without making its whole form, which costs more.
func seals(t *Turn, o *wire.Outline, m *wire.MessageOutline) []key {
	var keys []key
	opaque := func(k kind, text []byte) {
		if len(text) > 0 {
			keys = append(keys, key{k, sumOf(text)})
		}
	}
	if t.Dialect == wire.Chat {
		thinking := readReasoning(o, m.Members)
		for _, s := range thinking.signatures {
			opaque(bySignature, s)
		}
		for _, s := range thinking.data {
			opaque(byData, s)
		}
	} else {
		for _, b := range m.Blocks {
			if wire.IsThinking(b.Type) {
				signature, data := vouchers(o, b)
				opaque(bySignature, signature)
				opaque(byData, data)
			}
		}
	}
	if t.Cut {
		return unique(keys)
	}
	called := func(id string) {
		if k := toolKey(id); k.unique() {
			keys = append(keys, k)
		}
	}
	for _, span := range o.CallIDs(t.Dialect, m) {
		id, _ := o.Text(span)
		called(id)
	}
	for _, id := range t.Tools {
		called(id.Client)
	}
	return unique(keys)
}

// unique sorts keys and removes duplicates.
func unique(keys []key) []key {
	slices.SortFunc(keys, key.compare)
	return slices.Compact(keys)
}

// read makes the form and the keys of a sealed entry. o is the outline of its content, nil to parse
// it again. It also returns the content as the client saw it, with its form, so that the client's
// first replay is recognised by its bytes.
func (e *entry) read(o *wire.Outline) (clientContent []byte, clientForm *Form, err error) {
	t := e.turn
	if o == nil {
		if o, _, err = outlineOf(t); err != nil {
			return nil, nil, err
		}
	}
	m := &o.Messages[0]
	e.form, e.id = formOf(o, m, t.Dialect), recordID(t)
	e.ids = toolIDs(e.form.tools, t.Tools)
	e.keys = make([]key, 0, len(e.form.keys)+len(e.ids))
	for _, k := range e.form.keys {
		if !t.Cut || k.opaque() {
			e.keys = append(e.keys, k)
		}
	}
	for _, id := range e.ids {
		if id.Client != id.Vendor && !t.Cut {
			e.keys = append(e.keys, toolKey(id.Client))
		}
	}
	if t.Response != nil {
		e.keys = append(e.keys, t.Response.keys()...)
	}
	e.keys = unique(e.keys)
	e.size += e.form.size() + 24*len(e.keys) + 32*len(e.ids)
	clientContent, clientForm = e.clientView(o, m)
	return clientContent, clientForm, e.place(t.Place, clientForm)
}

// place makes the entry's node in the tree of its conversation.
func (e *entry) place(p *Place, clientForm *Form) error {
	if p == nil {
		return nil
	}
	o, err := wire.ReadMessages(p.Input)
	if err != nil {
		return fmt.Errorf("the input of a turn: %w", err)
	}
	e.node = &Node{entry: e, id: e.id.String(), answer: cmp.Or(clientForm, e.form)}
	e.size += placeSize * len(o.Messages)
	return nil
}

// remote is the entry as a Remote stores it, with the keys that lead to its conversation.
func (e *entry) remote() Entry {
	return Entry{Scope: e.turn.Scope, Time: e.turn.Time, Turn: e.turn, Keys: texts(e.seals)}
}

// outlineOf is a turn's content as the only message of an outline. It uses the outline that came
// with the turn, if there is one, and then forgets that.
func outlineOf(t *Turn) (*wire.Outline, *wire.MessageOutline, error) {
	if o := t.Outline; o != nil {
		t.Outline = nil
		return o, &o.Messages[0], nil
	}
	read := wire.ReadContent
	if t.Dialect == wire.Chat {
		read = wire.ReadMessage
	}
	o, err := read(t.Content)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoContent, err)
	}
	return o, &o.Messages[0], nil
}

// clientView is the content with the tool ids that the client got, and its form. It is nil if two
// client ids belong to the same vendor id, so that they cannot be told apart.
func (e *entry) clientView(o *wire.Outline, m *wire.MessageOutline) ([]byte, *Form) {
	if !slices.ContainsFunc(e.ids, func(id ToolID) bool { return id.Client != id.Vendor }) {
		return e.turn.Content, e.form
	}
	names := map[string]string{}
	renamed := map[key]key{}
	for _, id := range e.ids {
		if other, twice := names[id.Vendor]; twice && other != id.Client {
			return nil, nil
		}
		names[id.Vendor] = id.Client
		if id.Client != id.Vendor {
			renamed[toolKey(id.Vendor)] = toolKey(id.Client)
		}
	}
	f := *e.form
	f.tools, f.keys = slices.Clone(f.tools), slices.Clone(f.keys)
	for i := range f.tools {
		f.tools[i].id = e.ids[i].Client
	}
	for i, k := range f.keys {
		if clientKey, ok := renamed[k]; ok {
			f.keys[i] = clientKey
		}
	}
	var edits wire.Edits
	for _, span := range o.CallIDs(e.turn.Dialect, m) {
		vendor, _ := o.Text(span)
		edits.Replace(span, wire.Quote(names[vendor]))
	}
	return edits.Apply(o.Body), &f
}

// contentSpan is the part of a message on which its form depends.
func contentSpan(m *wire.MessageOutline, d wire.Dialect) wire.Span {
	if d == wire.Chat {
		return m.Span
	}
	return m.Content
}

// toolIDs are both names of every tool use: matched by position if all of them are named, else by
// the vendor's id.
func toolIDs(tools []tool, aliases []ToolID) []ToolID {
	ids := make([]ToolID, 0, len(tools))
	for i, t := range tools {
		id := ToolID{Vendor: t.id, Client: t.id}
		if len(aliases) == len(tools) && aliases[i].Vendor == t.id {
			id.Client = aliases[i].Client
		} else if j := slices.IndexFunc(aliases, func(n ToolID) bool { return n.Vendor == t.id }); j >= 0 {
			id.Client = aliases[j].Client
		}
		ids = append(ids, id)
	}
	return ids
}

// translate finds the vendor's id for each of a message's tool ids that differs from it. Tool uses
// are matched by id, else by position among those with equal name and input.
func (e *entry) translate(tools []tool) []ToolID {
	same := len(tools) == len(e.ids)
	for i := 0; same && i < len(tools); i++ {
		same = tools[i].id == e.ids[i].Vendor
	}
	if same {
		return nil
	}
	matches := pair(tools, e.form.tools, func(t tool, j int) bool {
		return t.id == e.ids[j].Client ||
			t.id == e.ids[j].Vendor
	})
	var ids []ToolID
	for i, t := range tools {
		if matches[i] >= 0 && t.id != "" && e.ids[matches[i]].Vendor != t.id {
			ids = append(ids, ToolID{Vendor: e.ids[matches[i]].Vendor, Client: t.id})
		}
	}
	return ids
}

// pair matches each tool use that is shown to the one that it was in the turn: by id, else by
// position among those with equal name and input; -1 for no match.
func pair(client, stored []tool, sameID func(t tool, j int) bool) []int {
	used := make([]bool, len(stored))
	matches := make([]int, len(client))
	for i, t := range client {
		matches[i] = take(used, func(j int) bool { return t.id != "" && sameID(t, j) })
	}
	for i, t := range client {
		if matches[i] < 0 {
			matches[i] = take(used, func(j int) bool { return t.sum == stored[j].sum })
		}
	}
	return matches
}

// take claims the first tool use that fits and is not claimed yet; -1 if there is none.
func take(used []bool, fits func(j int) bool) int {
	for j := range used {
		if !used[j] && fits(j) {
			used[j] = true
			return j
		}
	}
	return -1
}

// recordID is a hash of all of a turn but its time and the print of ephemeral parts: its identity.
func recordID(t *Turn) sum {
	d := newDigest().add(t.Origin.Backend).add(t.Origin.Vendor).add(t.Origin.Model).add(string(t.Dialect)).addBytes(
		t.Content,
	)
	d.add(t.Predecessor).add(t.Context).add(t.ResponseID)
	for _, id := range t.Tools {
		d.add(id.Vendor).add(id.Client)
	}
	if t.Cut {
		d.add("cut")
	}
	if t.Place != nil {
		d.add(t.Place.Parent).addBytes(t.Place.Input)
	}
	return d.sum()
}
