package sanitize

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"mneme/proxy/lazyregexp"
	"mneme/proxy/wire"
)

// object is a JSON object with pending changes of its members. It is rendered once, after all
// rules.
type object struct {
	body    []byte
	span    wire.Span // in body
	members wire.Object
	patch   []patch
}

// patch is a member's new value; nil removes the member.
type patch struct {
	name  string
	value []byte
}

// objectOf parses a value. A value that is not an object has no members.
func objectOf(raw []byte) object {
	o := wire.Outline{Body: raw}
	span := wire.Span{Start: 0, End: len(raw)}
	return object{body: raw, span: span, members: o.Object(span)}
}

// get is the raw value of a member with pending changes applied; nil if there is none.
func (o *object) get(name string) []byte {
	for _, p := range o.patch {
		if p.name == name {
			return p.value
		}
	}
	if v := o.members.Get(name); v.Exists() {
		return o.body[v.Start:v.End]
	}
	return nil
}

// has is false for a missing member and for null.
func (o *object) has(name string) bool {
	v := o.get(name)
	return v != nil && v[0] != 'n'
}

// text is the value of a string member; empty for any other.
func (o *object) text(name string) string { return textOf(o.get(name)) }

// set changes a member, or adds it behind the others. nil removes it.
func (o *object) set(name string, value []byte) {
	if i := slices.IndexFunc(o.patch, func(p patch) bool { return p.name == name }); i >= 0 {
		o.patch[i].value = value
		return
	}
	o.patch = append(o.patch, patch{name, value})
}

// drop removes a member, and reports whether there was one.
func (o *object) drop(name string) bool {
	if o.get(name) == nil {
		return false
	}
	o.set(name, nil)
	return true
}

func (o *object) changed() bool { return len(o.patch) > 0 }

// raw is the rendered object.
func (o *object) raw() []byte {
	source := o.body[o.span.Start:o.span.End]
	if !o.changed() {
		return source
	}
	var e wire.Edits
	spans := o.members.Spans()
	for i := range spans {
		spans[i] = o.shifted(spans[i])
	}
	keep := make([]bool, len(spans))
	written := make([]bool, len(o.patch))
	for i, m := range o.members {
		j := slices.IndexFunc(o.patch, func(p patch) bool { return p.name == m.Name })
		// One of several members with the same name is enough.
		if keep[i] = j < 0 || o.patch[j].value != nil && !written[j]; keep[i] && j >= 0 {
			written[j] = true
			e.Replace(o.shifted(m.Value), o.patch[j].value)
		}
	}
	e.Keep(spans, func(i int) bool { return keep[i] })
	hasMembers := slices.Contains(keep, true)
	end := wire.Span{Start: len(source) - 1, End: len(source) - 1}
	for j, p := range o.patch {
		if p.value == nil || written[j] {
			continue
		}
		added := slices.Concat(wire.Quote(p.name), []byte(":"), p.value)
		if hasMembers {
			added = append([]byte(","), added...)
		}
		hasMembers = true
		e.Replace(end, added)
	}
	return e.Apply(source)
}

func (o *object) shifted(s wire.Span) wire.Span {
	return wire.Span{Start: s.Start - o.span.Start, End: s.End - o.span.Start}
}

// item is an element of an array that is rendered.
type item struct {
	index int // its original index, -1 for an inserted one
	span  wire.Span
	raw   []byte
}

// array renders items in place of the n elements of the array at at. White space between neighbours
// that stay neighbours is kept.
func array(body []byte, span wire.Span, n int, items []item) []byte {
	size := span.End - span.Start + 2
	for _, it := range items {
		size += len(it.raw) - (it.span.End - it.span.Start) + 1
	}
	out := make([]byte, 0, max(size, 2))
	prev := item{index: -1, span: wire.Span{Start: span.Start, End: span.Start}}
	for k, it := range items {
		switch {
		case it.index >= 0 && it.index == prev.index+1 && (k == 0) == (it.index == 0):
			out = append(out, body[prev.span.End:it.span.Start]...)
		case k == 0:
			out = append(out, '[')
		default:
			out = append(out, ',')
		}
		out = append(out, it.raw...)
		prev = it
	}
	switch {
	case len(items) == 0:
		return append(out, "[]"...)
	case prev.index >= 0 && prev.index == n-1:
		return append(out, body[prev.span.End:span.End]...)
	}
	return append(out, ']')
}

// textOf is the value of a raw string; empty for any other value.
func textOf(raw []byte) string { return string(wire.Unquoted(raw)) }

// isText reports whether a raw value is a non-empty string.
func isText(raw []byte) bool { return len(raw) > 2 && raw[0] == '"' }

// blank reports whether a raw value is a string of white space only. It does not decode what begins with a word.
func blank(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	text := bytes.TrimLeft(raw[1:len(raw)-1], " ")
	if r, _ := utf8.DecodeRune(text); len(text) > 0 && r != '\\' && !unicode.IsSpace(r) {
		return false
	}
	return len(bytes.TrimSpace(wire.Unquoted(raw))) == 0
}

// mayBeBlank matches a member "text" that may be blank. It is searched for so that most values need not be parsed again.
var mayBeBlank = lazyregexp.New(`"text"[ \t\r\n]*:[ \t\r\n]*"(?:["\\ ]|[^\x00-\x7f])`)
