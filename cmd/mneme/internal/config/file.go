package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"mneme/apiserver/api"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// origin remembers where values came from.
type origin struct {
	file        string            // empty when none was read
	places      map[string]string // path of a value → "mneme.yaml:12", or the variable that set it
	vars        map[string]string // path of a key → the variable that set it
	gatewayOnly bool              // a gateway's, see LoadGateway
}

// locate adds the place to an Error about a key.
func (o origin) locate(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Where != "" {
		return err
	}
	if name := o.vars[e.Key]; name != "" {
		return &Error{Where: name, Problem: e.Problem}
	}
	for path := e.Key; path != ""; path = parent(path) {
		if place := o.places[path]; place != "" {
			return &Error{Where: place, Key: e.Key, Problem: e.Problem}
		}
	}
	return &Error{Where: o.file, Key: e.Key, Problem: e.Problem}
}

// has reports whether the file or a variable sets the key.
func (o origin) has(path string) bool { return o.places[path] != "" }

// replace records that a variable set the key at path. The key's earlier value has no places any more.
func (o origin) replace(path, variable string) {
	maps.DeleteFunc(o.places, func(p, _ string) bool {
		return strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[")
	})
	o.places[path], o.vars[path] = variable, variable
}

// source is YAML that sets values: the file, or the value of a variable.
type source struct {
	name string
	key  string // the path of the key that a variable sets; empty for a file
}

// place is a line of the file, or the variable. Line 0 is the file as a whole.
func (s source) place(line int) string {
	if s.key != "" || line == 0 {
		return s.name
	}
	return fmt.Sprintf("%s:%d", s.name, line)
}

// readFile lays the file over c.
func (c *Config) readFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return &Error{Where: name, Problem: readProblem(err)}
	}
	if len(text) > maxFile {
		return &Error{Where: name, Problem: fmt.Sprintf("larger than %d bytes; this cannot be the configuration", maxFile)}
	}
	c.origin.file = name
	s := source{name: name}
	body, err := s.parse(text)
	if err != nil || body == nil { // the decoder would take an empty file for an empty Config
		return err
	}
	return c.decode(s, body, c)
}

// parse returns the only document of a YAML text; nil if the text is empty.
func (s source) parse(text []byte) (body ast.Node, err error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, s.yamlError(err, nil)
	}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, &Error{Where: s.name, Problem: "holds more than one YAML document; keep one"}
		}
		body = doc.Body
	}
	return body, nil
}

// decode lays a document over a value of c: c itself, or the value of the key that a variable sets.
func (c *Config) decode(s source, body ast.Node, value any) error {
	tree := nodes{
		root: s.key, lines: map[string]int{}, values: map[string]ast.Node{}, places: map[token.Position]string{},
	}
	ast.Walk(tree, body)
	for path, line := range tree.lines {
		c.origin.places[path] = s.place(line)
	}
	err := tree.checkDurations()
	if err == nil {
		err = yaml.NodeToValue(body, value, yaml.Strict())
	}
	if err != nil {
		return c.origin.locate(s.yamlError(err, tree.places))
	}
	return nil
}

func readProblem(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "no such file; give an existing one with --config, or leave the flag out for the defaults"
	case errors.Is(err, os.ErrPermission):
		return "it may not be read; check its permissions"
	}
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return cause.Err.Error()
	}
	return err.Error()
}

// nodes is an ast.Visitor that collects where each key stands.
type nodes struct {
	root   string // path of the document, which the visitor puts before the paths of its nodes
	lines  map[string]int
	values map[string]ast.Node
	places map[token.Position]string // of keys and values
}

// Visit is called for the pair, then its key, then its value, all of one path;
// so the line is the key's and the node the value's.
func (n nodes) Visit(node ast.Node) ast.Visitor {
	if n.root != "" {
		node.SetPath("$." + n.root + strings.TrimPrefix(node.GetPath(), "$"))
	}
	path := pathOf(node)
	position := node.GetToken().Position
	if _, pair := node.(*ast.MappingValueNode); !pair {
		if _, exists := n.lines[path]; !exists {
			n.lines[path] = position.Line
		}
		n.values[path] = node
		n.places[*position] = path
	}
	return n
}

// checkDurations finds what the decoder would report without a place.
func (n nodes) checkDurations() error {
	for path, node := range sorted(n.values) {
		if node.Type() == ast.NullType || typeAt(path) != reflect.TypeFor[time.Duration]() {
			continue
		}
		text := node.GetToken().Value
		if _, err := time.ParseDuration(text); err != nil {
			return bad(path, "%s, not %q", wants(reflect.TypeFor[time.Duration]()), text)
		}
	}
	return nil
}

// yamlError turns the library's error into one sentence with a place.
func (s source) yamlError(err error, places map[token.Position]string) error {
	if own, ok := errors.AsType[*Error](err); ok { // of a value that reads itself
		return own
	}
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		return &Error{Where: s.name, Problem: "not valid YAML: " + firstLine(err.Error())}
	}
	tok := located.GetToken()
	e := &Error{Where: s.place(tok.Position.Line), Key: places[*tok.Position]}
	switch yamlErr := located.(type) {
	case *yaml.UnknownFieldError:
		e.Problem = "unknown key; " + suggest(e.Key)
	case *yaml.TypeError:
		e.Problem = fmt.Sprintf("%s, not %q", wants(yamlErr.DstType), tok.Value)
	case *yaml.OverflowError:
		e.Problem = fmt.Sprintf("%s is out of range", tok.Value)
	case *yaml.UnexpectedNodeTypeError:
		e.Problem = fmt.Sprintf("a %s is needed here, not a %s", nodeWord(yamlErr.Expected), nodeWord(yamlErr.Actual))
	default:
		e.Key, e.Problem = "", "not valid YAML: "+firstLine(located.GetMessage())
		if strings.Contains(located.GetMessage(), "already defined") {
			e.Problem = fmt.Sprintf("the key %s stands here a second time; keep one", tok.Value)
		}
	}
	if e.Key == s.key { // the variable's name is enough
		e.Key = ""
	}
	return e
}

func nodeWord(t ast.NodeType) string {
	switch t {
	case ast.MappingType, ast.MappingValueType:
		return "block of keys"
	case ast.SequenceType:
		return "list"
	}
	return "single value"
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// suggest looks for a key near a mistyped path: first among its siblings, then
// for the same name elsewhere.
func suggest(path string) string {
	name := path[strings.LastIndexByte(path, '.')+1:]
	var siblings []string
	block := typeAt(parent(path))
	if block != nil && block.Kind() == reflect.Pointer {
		block = block.Elem()
	}
	if block != nil && block.Kind() == reflect.Struct {
		for sibling := range members(block) {
			siblings = append(siblings, sibling)
		}
	}
	best := api.Nearest(name, siblings)
	if i := slices.IndexFunc(siblings, func(s string) bool { return strings.HasPrefix(s, name) }); best == "" && i >= 0 {
		best = siblings[i]
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	for _, k := range allKeys() {
		for step := k.path; step != ""; step = parent(step) {
			if strings.HasSuffix("."+step, "."+name) {
				return "did you mean " + step + "?"
			}
		}
	}
	return didYouMean(name, nil)
}
