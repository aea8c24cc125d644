package wire

import (
	"cmp"
	"slices"
)

// Edits are changes to a body, collected and then made at once. Every byte that
// no edit covers stays.
type Edits struct{ list []edit }

type edit struct {
	Span
	with []byte
}

// None says whether nothing is to be changed.
func (e *Edits) None() bool { return len(e.list) == 0 }

// Replace puts other bytes in the place of s. An empty span inserts.
func (e *Edits) Replace(s Span, with []byte) { e.list = append(e.list, edit{s, with}) }

// Keep removes the elements of an array, or the members of an object, that keep
// does not want, each with the comma that parted it from its neighbour. The
// spans are all of them, in order.
func (e *Edits) Keep(spans []Span, keep func(i int) bool) {
	kept := -1 // the last one
	for i := 0; i < len(spans); i++ {
		if keep(i) {
			kept = i
			continue
		}
		next := i + 1
		for next < len(spans) && !keep(next) {
			next++
		}
		switch {
		case next < len(spans):
			e.Replace(Span{spans[i].Start, spans[next].Start}, nil)
		case kept >= 0:
			e.Replace(Span{spans[kept].End, spans[next-1].End}, nil)
		default:
			e.Replace(Span{spans[i].Start, spans[next-1].End}, nil)
		}
		i = next - 1
	}
}

// Spans are where an object's members lie, names included.
func (o Object) Spans() []Span {
	out := make([]Span, len(o))
	for i, m := range o {
		out[i] = Span{m.Key.Start, m.Value.End}
	}
	return out
}

// Without removes the named members of o.
func (e *Edits) Without(o Object, names ...string) {
	if slices.ContainsFunc(names, func(name string) bool { return o.Index(name) >= 0 }) {
		e.Keep(o.Spans(), func(i int) bool { return !slices.Contains(names, o[i].Name) })
	}
}

// Apply makes the edits: body itself, if there are none, else a new one. An edit
// that lies inside another is void; of two at one place the first counts, but
// insertions at one place all stand, in their order.
func (e *Edits) Apply(body []byte) []byte {
	if e.None() {
		return body
	}
	list := slices.Clone(e.list)
	slices.SortStableFunc(list, func(a, b edit) int {
		// The longer first, but an insertion stands before what is replaced there.
		if a.Start == b.Start && (a.Start == a.End) != (b.Start == b.End) {
			return cmp.Compare(a.End, b.End)
		}
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	out := make([]byte, 0, len(body)+grown(list))
	at := 0
	for _, c := range list {
		if c.Start < at {
			continue
		}
		out = append(append(out, body[at:c.Start]...), c.with...)
		at = c.End
	}
	return append(out, body[at:]...)
}

// grown is by how many bytes edits make a body longer, in their order.
func grown(list []edit) int {
	by, at := 0, 0
	for _, c := range list {
		if c.Start < at {
			continue
		}
		by += len(c.with) - (c.End - c.Start)
		at = c.End
	}
	return by
}
