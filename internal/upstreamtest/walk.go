package upstreamtest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// rule is one rule of a vendor. refuses describes the refused requests for docs/conformance.md.
//
// The source is a list of words. The word owner/name#number is a public thread, and https://… is a page. Both show the
// vendor refusing such a request. The word default marks a rule, or a part of one, without a public source. Such a rule
// is as strict as a vendor may be. Rule literals have no field names, so a rule without a source does not compile.
type rule struct {
	name, refuses string
	rows          rows
	source        string
}

const unsourced = "default"

// withSource returns the rule with the source for another vendor or endpoint.
func (r rule) withSource(source string) rule {
	r.source = source
	return r
}

// row is a condition at a place of the request body, and the refusal if the condition fails.
//
// An empty place is the body itself. "thinking" is an object, and "messages[].content[]" is each object in these lists.
// The row holds if the object is missing. ":text|image" selects objects by type, and "@user" selects them by role.
// Neighboring rows with a common prefix run together, object by object. So the refusal is about the first defect of a
// body.
//
// The refusal may contain names in braces. {at} is the place, {i} is the object's index, and {found} is the test's
// finding. Any other name is a member of the object. The refusal is nil if the test has its own.
type row struct {
	place   string
	want    test
	refusal error
}

// onceMore separates rows of the same place. The rows before it must hold everywhere before the rows after it run.
var onceMore = row{"", func(*spot) bool { return true }, nil}

// test reports whether a condition holds. It may also store parts of the request.
type test func(s *spot) bool

// badRequest is a refusal of status 400 with this message.
type badRequest string

func (s badRequest) Error() string { return string(s) }

// rows run in order.
type rows []step

// step is a row, or the rows for the objects one level down in the body.
type step struct {
	row
	way   string
	kinds []string
	inner rows
}

// rowsOf groups lists of rows into steps.
func rowsOf(lists ...[]row) (steps rows) {
	var group []row
	way := ""
	for _, r := range append(slices.Concat(lists...), row{}) {
		first := ways.FindString(r.place)
		if first != way && len(group) > 0 {
			steps = append(steps, stepInto(way, rowsOf(group)))
			group = nil
		}
		switch way = first; {
		case way == "" && r.place != "":
			panic("this is no place: " + r.place) // such a row would never run
		case way == "":
			steps = append(steps, step{row: r})
			continue
		}
		r.place = strings.TrimPrefix(r.place[len(first):], ".")
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

// nest prepends a place to the places of rows.
func nest(prefix string, list []row) []row {
	list = slices.Clone(list)
	for i := range list {
		list[i].place = prefix + list[i].place
	}
	return list
}

// spot is an object of the body and the path to it. Rows run at a spot.
type spot struct {
	*exchange
	members
	up       *spot
	way      string          // the step from up
	i        int             // index in its list
	count    int             // length of its list
	finding  string          // finding of the failed test
	err      error           // refusal of a test with its own refusal
	siblings map[string]bool // texts of earlier siblings, for unique
}

// hold applies rules in order. It returns the first refusal and stores its rule in x.rule.
func (x *exchange) hold(rules ...rule) error {
	for i := range rules {
		if err := (&spot{exchange: x, members: x.body}).walk(rules[i].rows); err != nil {
			x.rule = &rules[i]
			return err
		}
	}
	return nil
}

// walk applies rows to an object and its contents. It returns the first refusal.
func (s *spot) walk(list rows) error {
	for k := range list {
		r := &list[k]
		switch {
		case r.want != nil:
			if r.want(s) {
				continue
			}
			if r.refusal == nil {
				return s.err
			}
			return s.refuse(r.refusal)
		case r.way == ":" || r.way == "@":
			inner := s
			if r.way == "@" && !s.is("role", r.kinds[0]) || r.way == ":" && !slices.ContainsFunc(r.kinds, s.typed) {
				continue
			}
			if r.way == ":" && s.dotted() {
				inner = &spot{exchange: s.exchange, members: s.members, up: s, way: ":", i: s.i, count: s.count}
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

// enter applies the rows of a step.
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
	inner := &spot{exchange: s.exchange, up: s, way: r.way, count: len(objects)}
	for inner.i, inner.members = range objects {
		if err := inner.walk(r.inner); err != nil {
			return err
		}
	}
	return nil
}

// listed returns a list of objects. A request decodes each list once.
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
	cached, ok := x.lists[&value[0]]
	if !ok {
		cached.objects, cached.ok = m.list(name)
		if x.lists == nil {
			x.lists = map[*byte]decoded{}
		}
		x.lists[&value[0]] = cached
	}
	return cached.objects, cached.ok
}

// decoded is a list of objects. If the list contains something else, it ends there and ok is false.
type decoded struct {
	objects []members
	ok      bool
}

// typed reports whether the object has this type.
func (s *spot) typed(kind string) bool {
	return s.is("type", kind) || kind == messageItem && s.Endpoint == EndpointResponses && !s.has("type") && s.has("role")
}

// dotted reports whether the dialect separates all parts of a place by dots and includes the types of objects.
func (s *spot) dotted() bool { return s.Endpoint.dialect() == wire.Messages }

// place returns the place of the object in the dialect's notation.
func (s *spot) place() string {
	if s.up == nil {
		return ""
	}
	parent := s.up.place()
	name, isList := strings.CutSuffix(s.way, "[]")
	switch {
	case s.way == ":":
		name = s.kind()
	case isList && s.dotted():
		name += fmt.Sprintf(".%d", s.i)
	case isList:
		name += fmt.Sprintf("[%d]", s.i)
	}
	if parent == "" {
		return name
	}
	return parent + "." + name
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
			return s.finding
		case "model":
			return s.Model
		case "mode":
			return s.mode
		}
		return s.str(name)
	})
}

// refuse fills in the names in a refusal.
func (s *spot) refuse(err error) error {
	var r refusal
	if !errors.As(err, &r) {
		return errors.New(s.expand(err.Error()))
	}
	r.message, r.param, r.body = s.expand(r.message), s.expand(r.param), s.expand(r.body)
	return r
}

// finds stores a fault for {found} and reports whether the fault is empty.
func (s *spot) finds(fault string) bool {
	s.finding = fault
	return fault == ""
}

// passes returns a test that applies check to the whole request. The test has its own refusal.
func passes(check func(*exchange) error) test {
	return func(s *spot) bool {
		s.err = check(s.exchange)
		return s.err == nil
	}
}

// run returns a test that calls read and always holds.
func run(read func(*exchange)) test {
	return func(s *spot) bool {
		read(s.exchange)
		return true
	}
}

// checkRows and runRows return the rows of a rule that has a single row.
func checkRows(check func(*exchange) error) rows { return rowsOf([]row{{"", passes(check), nil}}) }

func runRows(read func(*exchange)) rows { return rowsOf([]row{{"", run(read), nil}}) }

// recurse applies rows to the object. It is for rows that contain themselves.
func recurse(list *rows) test {
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

// hasType holds for a member of this type.
func hasType(name, kind string) test {
	return func(s *spot) bool { return s.in(name).is("type", kind) }
}

// isFull holds for a list that is not empty.
func isFull(name string) test {
	return func(s *spot) bool {
		list, ok := s.listed(name)
		return ok && len(list) > 0
	}
}

// isOne holds if the member is one of these texts. The value "" also matches a missing or non-text member.
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

// hasName holds for a name of this form.
func hasName(pattern *regexp.Regexp) test {
	return func(s *spot) bool { return pattern.MatchString(s.str("name")) }
}

// knows holds if the object has only these members. It finds the first other member.
func knows(names ...string) test { return func(s *spot) bool { return s.finds(s.unknown(names...)) } }

// unique holds unless an earlier object of the list has the same text.
func unique(text func(m members) string) test {
	return func(s *spot) bool {
		if s.siblings == nil {
			s.siblings = map[string]bool{}
			for _, item := range s.items[:s.input] {
				s.siblings[text(item)] = true
			}
		}
		value := text(s.members)
		defer func() { s.siblings[value] = true }()
		return value == "" || !s.siblings[value]
	}
}

func either(tests ...test) test {
	return func(s *spot) bool { return slices.ContainsFunc(tests, func(t test) bool { return t(s) }) }
}

func not(t test) test { return func(s *spot) bool { return !t(s) } }
