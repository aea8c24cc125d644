package upstreamtest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// rule is one rule of a vendor: what it refuses, in the words of docs/conformance.md, and by which rows.
//
// The source says where that is known from, with spaces between its words: owner/name#number is a public
// thread at GitHub, and https://… a page, in which the vendor is seen to refuse it; certified:2026-01-31 a day on
// which the vendor itself was asked; belief is for what has none of these, beside others for a part of it. Literals
// have no names of fields, so that a rule without a source does not compile.
type rule struct {
	name, refuses string
	rows          rows
	source        string
}

const belief = "belief"

// from is the rule at another vendor or endpoint, for which it is known from elsewhere.
func (r rule) from(source string) rule {
	r.source = source
	return r
}

// row says what must hold at a place of a body, and how a request is refused where it does not.
//
// The place is the body itself if it is empty. "messages[].content[]" is each object of these lists in turn and
// "thinking" an object; where there is none the row holds. ":text|image" stands for an object of one of these types,
// "@user" for one of this role. Neighbours with the same beginning are applied together, one object after the other:
// a body with two defects is refused for the one that stands first.
//
// The refusal may name in braces what it is about: {at} is the place, {i} the object's number, {found} what the test
// found, all else a member of the object. It is nil where the test tells its own.
type row struct {
	at   string
	want test
	no   error
}

// onceMore parts rows of the same place, so that those behind it are applied when those before it hold everywhere.
var onceMore = row{"", func(*spot) bool { return true }, nil}

// test says whether something holds; it may also note what the request says.
type test func(s *spot) bool

// says is the refusal of status 400 by a sentence.
type says string

func (s says) Error() string { return string(s) }

// rows are applied in their order.
type rows []step

// step is a row, or a way deeper into the body with the rows of what is found there.
type step struct {
	row
	way   string
	kinds []string
	inner rows
}

// rowsOf makes rows of several lists of them.
func rowsOf(lists ...[]row) (steps rows) {
	var group []row
	way := ""
	for _, r := range append(slices.Concat(lists...), row{}) {
		first := ways.FindString(r.at)
		if first != way && len(group) > 0 {
			steps = append(steps, stepInto(way, rowsOf(group)))
			group = nil
		}
		switch way = first; {
		case way == "" && r.at != "":
			panic("this is no place: " + r.at) // a row that is never applied would make the vendor mild
		case way == "":
			steps = append(steps, step{row: r})
			continue
		}
		r.at = strings.TrimPrefix(r.at[len(first):], ".")
		group = append(group, r)
	}
	return steps[:len(steps)-1]
}

var ways = regexp.MustCompile(`^([\w]+(\[\])?|[:@][^.:@]*)`)

func stepInto(way string, inner rows) step {
	s := step{way: way, inner: inner}
	if way[0] == ':' || way[0] == '@' {
		s.kinds = strings.Split(way[1:], "|")
		s.way = way[:1]
	}
	return s
}

// under are rows for what stands at a place.
func under(at string, list []row) []row {
	list = slices.Clone(list)
	for i := range list {
		list[i].at = at + list[i].at
	}
	return list
}

// spot is an object of a body while rows are applied to it, and the way to it.
type spot struct {
	*exchange
	members
	up    *spot
	way   string // from up
	i     int    // its number there, of so many
	of    int
	found string          // by the test that does not hold
	err   error           // the refusal, where the test has its own
	seen  map[string]bool // among its siblings
}

// hold holds the request to rules in their order.
func (x *exchange) hold(rules ...rule) error {
	for _, r := range rules {
		if err := (&spot{exchange: x, members: x.body}).walk(r.rows); err != nil {
			return err
		}
	}
	return nil
}

// walk applies rows to an object and what is in it, and gives the first refusal.
func (s *spot) walk(list rows) error {
	for k := range list {
		r := &list[k]
		switch {
		case r.want != nil:
			if r.want(s) {
				continue
			}
			if r.no == nil {
				return s.err
			}
			return s.refuse(r.no)
		case r.way == ":" || r.way == "@":
			inner := s
			if r.way == "@" && !s.is("role", r.kinds[0]) || r.way == ":" && !slices.ContainsFunc(r.kinds, s.typed) {
				continue
			}
			if r.way == ":" && s.dotted() {
				inner = &spot{exchange: s.exchange, members: s.members, up: s, way: ":", i: s.i, of: s.of}
			}
			if err := inner.walk(r.inner); err != nil {
				return err
			}
		default:
			if err := s.enter(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter applies the rows of a step to what is there.
func (s *spot) enter(r *step) error {
	name, isList := strings.CutSuffix(r.way, "[]")
	objects := []members{nil}
	if isList {
		objects, _ = s.listed(name)
	} else if inner, ok := s.object(name); ok {
		objects[0] = inner
	} else {
		return nil
	}
	inner := &spot{exchange: s.exchange, up: s, way: r.way, of: len(objects)}
	for inner.i, inner.members = range objects {
		if err := inner.walk(r.inner); err != nil {
			return err
		}
	}
	return nil
}

// listed is a list of objects; each is decoded once for a request.
func (s *spot) listed(name string) ([]members, bool) {
	if s.up == nil && name == "input" {
		return s.items[s.input:], true
	}
	return s.exchange.list(s.members, name)
}

func (x *exchange) list(m members, name string) ([]members, bool) {
	value := m[name]
	if value.Kind() != '[' {
		return nil, false
	}
	known, ok := x.lists[&value[0]]
	if !ok {
		known.objects, known.ok = m.list(name)
		if x.lists == nil {
			x.lists = map[*byte]decoded{}
		}
		x.lists[&value[0]] = known
	}
	return known.objects, known.ok
}

// decoded is a list of objects; if it holds something else, it is not ok and ends there.
type decoded struct {
	objects []members
	ok      bool
}

// typed says whether the object has this type.
func (s *spot) typed(kind string) bool {
	return s.is("type", kind) || kind == messageItem && s.Endpoint == EndpointResponses && !s.has("type") && s.has("role")
}

// dotted says whether the dialect writes places with dots only, and with the types of objects on the way.
func (s *spot) dotted() bool { return s.Endpoint.dialect() == wire.Messages }

// place is where the object stands, as the dialect writes it.
func (s *spot) place() string {
	if s.up == nil {
		return ""
	}
	at := s.up.place()
	name, isList := strings.CutSuffix(s.way, "[]")
	switch {
	case s.way == ":":
		name = s.kind()
	case isList && s.dotted():
		name += fmt.Sprintf(".%d", s.i)
	case isList:
		name += fmt.Sprintf("[%d]", s.i)
	}
	if at == "" {
		return name
	}
	return at + "." + name
}

var braced = regexp.MustCompile(`\{[a-z_]+\}`)

func (s *spot) expand(text string) string {
	return braced.ReplaceAllStringFunc(text, func(name string) string {
		switch name = name[1 : len(name)-1]; name {
		case "at":
			return s.place()
		case "i":
			return fmt.Sprint(s.i)
		case "found":
			return s.found
		case "model":
			return s.Model
		case "mode":
			return s.mode
		}
		return s.str(name)
	})
}

// refuse fills in what a refusal is about.
func (s *spot) refuse(no error) error {
	var r refusal
	if !errors.As(no, &r) {
		return errors.New(s.expand(no.Error()))
	}
	r.message, r.param, r.body = s.expand(r.message), s.expand(r.param), s.expand(r.body)
	return r
}

// finds fails with what it found; an empty text holds.
func (s *spot) finds(fault string) bool {
	s.found = fault
	return fault == ""
}

// by is a test that is about more than one object: it reads the whole request and tells its own refusal.
func by(check func(*exchange) error) test {
	return func(s *spot) bool {
		s.err = check(s.exchange)
		return s.err == nil
	}
}

// notes is a test that always holds.
func notes(read func(*exchange)) test {
	return func(s *spot) bool {
		read(s.exchange)
		return true
	}
}

// checked and noted are rules of one row.
func checked(check func(*exchange) error) rows { return rowsOf([]row{{"", by(check), nil}}) }

func noted(read func(*exchange)) rows { return rowsOf([]row{{"", notes(read), nil}}) }

// again applies rows to an object that stands inside of what they are about.
func again(list *rows) test {
	return func(s *spot) bool {
		s.err = s.walk(*list)
		return s.err == nil
	}
}

func has(name string) test { return func(s *spot) bool { return s.has(name) } }

func lacks(name string) test { return not(has(name)) }

func isText(name string) test { return func(s *spot) bool { return s.members[name].Kind() == '"' } }

func isList(name string) test {
	return func(s *spot) bool {
		_, ok := s.listed(name)
		return ok
	}
}

func isObjectAt(name string) test { return func(s *spot) bool { return s.members[name].Kind() == '{' } }

// hasType wants an object of this type.
func hasType(name, kind string) test {
	return func(s *spot) bool { return s.in(name).is("type", kind) }
}

// isFull wants a list with something in it.
func isFull(name string) test {
	return func(s *spot) bool {
		list, ok := s.listed(name)
		return ok && len(list) > 0
	}
}

// isOne wants one of these texts.
func isOne(name string, values ...string) test {
	return func(s *spot) bool {
		for _, value := range values {
			if s.is(name, value) || value == "" && s.str(name) == "" {
				return true
			}
		}
		return false
	}
}

// hasName wants a name of a form.
func hasName(pattern *regexp.Regexp) test {
	return func(s *spot) bool { return pattern.MatchString(s.str("name")) }
}

// knows wants no other members than these, and finds the first.
func knows(names ...string) test { return func(s *spot) bool { return s.finds(s.unknown(names...)) } }

// unique wants a text, if there is one, that none of the objects before it in its list has.
func unique(text func(m members) string) test {
	return func(s *spot) bool {
		if s.seen == nil {
			s.seen = map[string]bool{}
			for _, item := range s.items[:s.input] {
				s.seen[text(item)] = true
			}
		}
		value := text(s.members)
		defer func() { s.seen[value] = true }()
		return value == "" || !s.seen[value]
	}
}

func either(tests ...test) test {
	return func(s *spot) bool { return slices.ContainsFunc(tests, func(t test) bool { return t(s) }) }
}

func not(t test) test { return func(s *spot) bool { return !t(s) } }
