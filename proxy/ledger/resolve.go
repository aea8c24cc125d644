package ledger

import (
	"slices"

	"mneme/proxy/wire"
)

// turnOf finds the turn that a message shows; before are the turns of the messages in front of it.
// It is nil if several could be meant, however likely one of them is. edited says that a key of the
// message belongs to a known turn that the message does not show.
//
// Keys that only the model can have produced, and its thinking, count more than the visible text:
// two turns may say "yes".
func (v *view) turnOf(at int, before []*entry) (turn *entry, edited bool) {
	m := &v.messages[at]
	if m.strange() {
		return nil, false
	}
	var named []*entry     // by a key that no other turn has
	var several [][]*entry // by a key that several turns have
	for i := range m.form.keys[:m.form.shown] {
		hits := m.hits[i]
		if one := only(hits); one != nil {
			if !one.turn.Cut && !slices.Contains(named, one) {
				named = append(named, one)
			}
		} else if len(hits) > 1 {
			several = append(several, hits)
		}
	}
	if len(named) > 0 {
		shown := m.shown(named)
		return v.settle(at, shown, before), len(shown) == 0
	}
	if v.stranger(m) {
		return nil, false
	}
	var candidates []*entry
	for _, hits := range m.hits[m.form.shown:] {
		for _, e := range m.shown(hits) {
			if !slices.Contains(candidates, e) {
				candidates = append(candidates, e)
			}
		}
	}
	if v.Minted && len(several) > 0 { // visible text does not identify turns across conversations
		candidates = m.shown(several[0])
	}
	for _, hits := range several {
		candidates = slices.DeleteFunc(candidates, func(e *entry) bool { return !slices.Contains(hits, e) })
	}
	return v.settle(at, candidates, before), false
}

// strange reports whether a message has both signed thinking and tool ids that cannot recur, and
// none of them is known. Then it is another turn, even if its thinking and its words are those of a
// known one.
func (m *shownMessage) strange() bool {
	sealed, named := false, false
	for i, k := range m.form.keys[:m.form.shown] {
		if !k.unique() {
			continue
		}
		if len(m.hits[i]) > 0 {
			return false
		}
		sealed = sealed || k.opaque()
		named = named || !k.opaque()
	}
	return sealed && named
}

// shown are the complete turns among entries that the message shows.
func (m *shownMessage) shown(entries []*entry) []*entry {
	var out []*entry
	for _, e := range entries {
		if !e.turn.Cut && e.form.shows(m.form) {
			out = append(out, e)
		}
	}
	return out
}

// stranger reports whether the message has a signed block of which neither the signature nor the
// text is known, or only from an answer that broke off. Then it is a turn of its own, even if the
// same was said before.
func (v *view) stranger(m *shownMessage) bool {
	return slices.ContainsFunc(m.form.parts, func(p part) bool {
		opaque, found := false, false
		for i, k := range m.form.keysOf(p) {
			opaque = opaque || k.opaque()
			for _, e := range m.hits[p.from+i] {
				found = found || !e.turn.Cut
			}
		}
		return opaque && !found
	})
}

// settle chooses among turns that a message shows equally well: by what was asked, and then also by
// the last thinking before. If both agree, the message is where the turn was given.
func (v *view) settle(at int, candidates []*entry, before []*entry) *entry {
	if len(candidates) > 1 {
		from := 0
		if at > 0 {
			from = v.messages[at-1].index + 1
		}
		asked := askedKey(v.Outline, from, v.messages[at].index)
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(e *entry) bool { return e.turn.Asked != asked })
	}
	if len(candidates) > 1 && at > 0 && before[at-1] != nil {
		thought := before[at-1].form.lastThinking()
		candidates = slices.DeleteFunc(candidates, func(e *entry) bool {
			return thought == "" || e.turn.Predecessor != thought
		})
	}
	if len(candidates) != 1 {
		return nil
	}
	return candidates[0]
}

// lastThinking is the key of the last thinking block; empty if there is none.
func (f *Form) lastThinking() string {
	for _, p := range slices.Backward(f.parts) {
		if p.key != "" {
			return p.key
		}
	}
	return ""
}

// AskedKey is a hash of what a request asks: the messages behind its last assistant message,
// normalised like visible text. Tool ids, cache_control and system messages do not count, since
// clients move them.
func AskedKey(o *wire.Outline) string {
	from := 0
	for i := range o.Messages {
		if o.Messages[i].Role == wire.RoleAssistant {
			from = i + 1
		}
	}
	return askedKey(o, from, len(o.Messages))
}

func askedKey(o *wire.Outline, from, to int) string {
	d := newDigest()
	for _, m := range o.Messages[from:to] {
		if wire.IsSystem(m.Role) {
			continue
		}
		d.add(m.Role)
		if text, ok := o.Unquoted(m.Content); ok {
			d.add(wire.TextBlock).addBytes(wire.Fold(text))
		}
		var text pieces // adjacent text blocks, which are hashed as one
		for i, b := range m.Blocks {
			if b.Type == wire.TextBlock {
				more, _ := o.Unquoted(b.Members.Get("text"))
				text = append(text, more)
				if i+1 < len(m.Blocks) && m.Blocks[i+1].Type == wire.TextBlock {
					continue
				}
				d.add(wire.TextBlock).addBytes(wire.Fold(text.joined()))
				text = text[:0]
				continue
			}
			d.asked(o, b)
		}
	}
	return d.sum().String()
}

// asked adds a block that is not text, such as a tool's result.
func (d *digest) asked(o *wire.Outline, b wire.BlockOutline) {
	d.add(b.Type)
	if b.Type != wire.ToolResultBlock {
		d.members(o, b.Members, nothing)
		return
	}
	content := b.Members.Get("content")
	if text, ok := o.Unquoted(content); ok {
		d.add(wire.TextBlock).addBytes(wire.Fold(text))
		return
	}
	for _, element := range o.Elements(content) {
		members := o.Object(element)
		if text, ok := o.Unquoted(members.Get("text")); ok {
			d.add(wire.TextBlock).addBytes(wire.Fold(text))
			continue
		}
		d.members(o, members, nothing)
	}
}
