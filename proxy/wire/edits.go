package wire

import (
	"cmp"
	"slices"

	"github.com/tidwall/gjson"
)

// Edits are changes to a body that are collected and applied at once. Bytes that no edit covers
// stay unchanged.
type Edits struct{ list []edit }

type edit struct {
	Span
	with []byte
}

// Empty reports whether there are no edits.
func (e *Edits) Empty() bool { return len(e.list) == 0 }

// Replace replaces the bytes at s. An empty span inserts.
func (e *Edits) Replace(s Span, with []byte) { e.list = append(e.list, edit{s, with}) }

// Join adds the edits of another list.
func (e *Edits) Join(other Edits) { e.list = append(e.list, other.list...) }

// Keep removes those elements of an array, or members of an object, for which keep is false, each
// with the comma that separates it from its neighbour. The spans are all elements or members, in
// order.
func (e *Edits) Keep(spans []Span, keep func(i int) bool) {
	last := -1 // index of the last member that stays
	for i := 0; i < len(spans); i++ {
		if keep(i) {
			last = i
			continue
		}
		next := i + 1
		for next < len(spans) && !keep(next) {
			next++
		}
		switch {
		case next < len(spans):
			e.Replace(Span{spans[i].Start, spans[next].Start}, nil)
		case last >= 0:
			e.Replace(Span{spans[last].End, spans[next-1].End}, nil)
		default:
			e.Replace(Span{spans[i].Start, spans[next-1].End}, nil)
		}
		i = next - 1
	}
}

// Set changes a member of o, which has others, or adds it behind them.
func (e *Edits) Set(o Object, name string, value []byte) {
	if old := o.Get(name); old.Exists() {
		e.Replace(old, value)
		return
	}
	end := o[len(o)-1].Value.End
	e.Replace(Span{end, end}, slices.Concat([]byte(","), Quote(name), []byte(":"), value))
}

// Spans are the spans of an object's members, including their names.
func (o Object) Spans() []Span {
	out := make([]Span, len(o))
	for i, m := range o {
		out[i] = Span{m.Key.Start, m.Value.End}
	}
	return out
}

// RemoveMembers removes the named members of o.
func (e *Edits) RemoveMembers(o Object, names ...string) {
	if slices.ContainsFunc(names, func(name string) bool { return o.Index(name) >= 0 }) {
		e.Keep(o.Spans(), func(i int) bool { return !slices.Contains(names, o[i].Name) })
	}
}

// Without is an object without the named members; another value is as it was.
func Without(v []byte, names ...string) []byte {
	o := &Outline{Body: v}
	var e Edits
	e.RemoveMembers(o.Object(Span{0, len(v)}), names...)
	return e.Apply(v)
}

// Merged returns an object with the members of another object that it lacks.
func Merged(object, more []byte) []byte {
	if len(object) == len("{}") {
		return more
	}
	o := &Outline{Body: object}
	have, out := o.Object(Span{0, len(object)}), slices.Clone(object[:len(object)-1])
	gjson.ParseBytes(more).ForEach(func(name, value gjson.Result) bool {
		if have.Index(name.Str) < 0 {
			out = append(append(append(append(out, ','), name.Raw...), ':'), value.Raw...)
		}
		return true
	})
	return append(out, '}')
}

// Apply returns the edited body, or body itself if there are no edits. An edit inside another one
// is void. Of two replacements at one place the first counts, while insertions at one place all
// apply, in their order.
func (e *Edits) Apply(body []byte) []byte {
	if e.Empty() {
		return body
	}
	list := slices.Clone(e.list)
	slices.SortStableFunc(list, func(a, b edit) int {
		// The longer edit first, but insertions before a replacement at the same place.
		if a.Start == b.Start && (a.Start == a.End) != (b.Start == b.End) {
			return cmp.Compare(a.End, b.End)
		}
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	out := make([]byte, 0, len(body)+grown(list))
	pos := 0
	for _, c := range list {
		if c.Start < pos {
			continue
		}
		out = append(append(out, body[pos:c.Start]...), c.with...)
		pos = c.End
	}
	return append(out, body[pos:]...)
}

// grown is by how many bytes the edits, in their order, make a body longer.
func grown(list []edit) int {
	growth, pos := 0, 0
	for _, c := range list {
		if c.Start < pos {
			continue
		}
		growth += len(c.with) - (c.End - c.Start)
		pos = c.End
	}
	return growth
}
