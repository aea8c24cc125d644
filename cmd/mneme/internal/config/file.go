package config

import (
	"bytes"
	"errors"
	"fmt"
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
	file  string            // empty when none was read
	lines map[string]int    // path of a key → its line in file
	vars  map[string]string // path of a key → the variable that set it
	alone bool              // a gateway's, see LoadGateway
}

// locate adds the place to an Error about a key.
func (o origin) locate(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Where != "" {
		return err
	}
	for path := e.Key; path != ""; path = parent(path) {
		if name := o.vars[path]; name != "" {
			return &Error{Where: name, Problem: e.Problem}
		}
		if place := o.place(path); place != "" {
			return &Error{Where: place, Key: e.Key, Problem: e.Problem}
		}
	}
	return &Error{Where: o.file, Key: e.Key, Problem: e.Problem}
}

// has says whether the file or a variable gave the key a value.
func (o origin) has(path string) bool { return o.place(path) != "" }

// place is the variable or the line that gave a key its value; empty for neither. What a variable has replaced as a
// whole has no lines.
func (o origin) place(path string) string {
	if o.vars[path] != "" {
		return o.vars[path]
	}
	for up := parent(path); up != ""; up = parent(up) {
		if o.vars[up] != "" {
			return ""
		}
	}
	if line, ok := o.lines[path]; ok {
		return fmt.Sprintf("%s:%d", o.file, line)
	}
	return ""
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
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return c.yamlError(err, nil)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return &Error{Where: name, Problem: "holds more than one YAML document; keep one"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil // the decoder would take an empty file for an empty Config
	}
	tree := nodes{lines: map[string]int{}, values: map[string]ast.Node{}, places: map[token.Position]string{}}
	ast.Walk(tree, body)
	c.origin.lines = tree.lines
	if err := tree.checkDurations(); err != nil {
		return c.origin.locate(err)
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(c); err != nil {
		return c.yamlError(err, tree.places)
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
	var cause *os.PathError
	if errors.As(err, &cause) {
		return cause.Err.Error()
	}
	return err.Error()
}

// nodes is an ast.Visitor that collects where each key stands.
type nodes struct {
	lines  map[string]int
	values map[string]ast.Node
	places map[token.Position]string // of keys and values
}

// Visit is called for the pair, then its key, then its value, all of one path;
// so the line is the key's and the node the value's.
func (n nodes) Visit(node ast.Node) ast.Visitor {
	path := strings.TrimPrefix(strings.TrimPrefix(node.GetPath(), "$"), ".")
	position := node.GetToken().Position
	if _, pair := node.(*ast.MappingValueNode); !pair {
		if _, seen := n.lines[path]; !seen {
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
func (c *Config) yamlError(err error, places map[token.Position]string) error {
	var own *Error
	if errors.As(err, &own) { // of a value that reads itself
		return c.origin.locate(own)
	}
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		return &Error{Where: c.origin.file, Problem: "not valid YAML: " + firstLine(err.Error())}
	}
	tok := located.GetToken()
	e := &Error{Where: fmt.Sprintf("%s:%d", c.origin.file, tok.Position.Line), Key: places[*tok.Position]}
	switch found := located.(type) {
	case *yaml.UnknownFieldError:
		e.Problem = "unknown key; " + suggest(e.Key)
	case *yaml.TypeError:
		e.Problem = fmt.Sprintf("%s, not %q", wants(found.DstType), tok.Value)
	case *yaml.OverflowError:
		e.Problem = fmt.Sprintf("%s is out of range", tok.Value)
	case *yaml.UnexpectedNodeTypeError:
		e.Problem = fmt.Sprintf("a %s is needed here, not a %s", nodeWord(found.Expected), nodeWord(found.Actual))
	default:
		e.Key, e.Problem = "", "not valid YAML: "+firstLine(located.GetMessage())
		if strings.Contains(located.GetMessage(), "already defined") {
			e.Problem = fmt.Sprintf("the key %s stands here a second time; keep one", tok.Value)
		}
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
