package openapi_test

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/memory"
)

// schemas makes the schemas of Go types, each type with a name under this name.
type schemas struct {
	t     *testing.T
	named map[reflect.Type]*jsonschema.Schema // refs
	made  map[string]*jsonschema.Schema
	notes map[string]map[string]string // comments of types and members, by the package's path
	words map[string]map[string]string // values of constants that are texts, the same
}

func newSchemas(t *testing.T) *schemas {
	return &schemas{t: t, made: map[string]*jsonschema.Schema{}, notes: map[string]map[string]string{},
		words: map[string]map[string]string{}, named: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[json.RawMessage](): {},
			reflect.TypeFor[memory.Chat]():     {Type: "string"},
			reflect.TypeFor[memory.Agent]():    {Type: "string"},
			reflect.TypeFor[memory.Tenant]():   {Type: "string"},
			reflect.TypeFor[access.Rates]():    {Type: "string"},
			reflect.TypeFor[access.Budgets]():  {Type: "string"},
		}}
}

const componentsPath = "#/components/schemas/"

// of is a reference to the schema of a type.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	if s.named[t] == nil {
		s.add(t, cmp.Or(aliases[t], t.Name()))
	}
	return s.named[t].CloneSchemas()
}

// add makes the schema of a struct under a name, and of those that it is made of.
func (s *schemas) add(t reflect.Type, name string) {
	s.t.Helper()
	_, taken := s.made[name]
	require.False(s.t, taken, "two types are named %s", name)
	s.made[name] = nil // a type may be its own member
	s.named[t] = &jsonschema.Schema{Ref: componentsPath + name}
	for _, f := range reflect.VisibleFields(t) {
		member := f.Type
		for member.Kind() == reflect.Pointer || member.Kind() == reflect.Slice || member.Kind() == reflect.Map {
			member = member.Elem()
		}
		ours := member.Kind() == reflect.Struct && strings.HasPrefix(member.PkgPath(), "mneme/")
		if ours && f.IsExported() && !f.Anonymous && f.Tag.Get("json") != "-" {
			s.of(member)
		}
	}
	others := map[reflect.Type]*jsonschema.Schema{}
	for other, ref := range s.named {
		if other != t {
			others[other] = ref
		}
	}
	for _, f := range reflect.VisibleFields(t) {
		if of := f.Type; f.Anonymous {
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			delete(others, of) // its members are the struct's own
		}
	}
	made, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: others})
	require.NoError(s.t, err, name)
	made.AdditionalProperties = nil // a newer version has more
	made.Description = s.note(t, "")
	for _, f := range reflect.VisibleFields(t) {
		member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := made.Properties[member]
		if p == nil {
			continue
		}
		optional := strings.Contains(options, "omitempty")
		of := t
		for _, i := range f.Index[:len(f.Index)-1] { // what is embedded by a pointer may be missing
			of = of.Field(i).Type
			if of.Kind() == reflect.Pointer {
				of, optional = of.Elem(), true
			}
		}
		if optional {
			made.Required = slices.DeleteFunc(made.Required, func(r string) bool { return r == member })
		}
		at := of.Name() + "." + member
		switch {
		case at == "HistoryPage.messages":
			p.Items = s.of(reflect.TypeFor[memory.Message]())
		case at == "OneShotRequest.context", at == "MessageRequest.context", at == "ChatRequest.context":
			p.Items = anyObject()
		case slices.Contains(objects, at):
			*p = *anyObject()
		case eithers[at] != nil:
			p.Type, p.Types = "", nil
			for _, kind := range eithers[at] {
				of := &jsonschema.Schema{Type: kind}
				if kind == "object" {
					of = anyObject()
				}
				p.OneOf = append(p.OneOf, of)
			}
		case at == "ExportLine.message":
			p.Ref = s.of(reflect.TypeFor[memory.Message]()).Ref
		}
		if at == "ChatChunk.usage" {
			p.AnyOf, p.Ref = []*jsonschema.Schema{{Ref: p.Ref}, {Type: "null"}}, ""
			p.Types = nil
		}
		plain(p, !optional && f.Type.Kind() == reflect.Pointer)
		p.Description, p.Enum = cmp.Or(said[at], s.note(of, f.Name)), enums[at]
	}
	for _, member := range unseen[t.Name()] {
		delete(made.Properties, member)
	}
	s.addHidden(t, made)
	s.made[name] = made
}

// anyObject is a schema of any JSON object.
func anyObject() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{}}
}

// addHidden adds the members of embedded structs that have the name of such a struct, which Go hides and JSON does not.
func (s *schemas) addHidden(t reflect.Type, made *jsonschema.Schema) {
	for i := range t.NumField() {
		of := t.Field(i).Type
		if !t.Field(i).Anonymous || of.Kind() != reflect.Pointer {
			continue
		}
		for _, f := range reflect.VisibleFields(of.Elem()) {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if made.Properties[member] == nil {
				s.of(of.Elem())
				made.Properties[member] = s.made[of.Elem().Name()].Properties[member].CloneSchemas()
			}
		}
	}
}

// plain takes null out of a schema, which the inference allows for whatever may be nil. A pointer that is left out when
// it is nil is never null, and the services write lists without entries as [].
func plain(p *jsonschema.Schema, null bool) {
	if p.Ref != "" {
		p.Types = nil
	}
	if len(p.Types) == 2 && p.Types[0] == "null" && !null {
		p.Type, p.Types = p.Types[1], nil
	}
	if p.Type == "number" {
		p.Format = "double" // else generators for Go take 32 bits, which tell Unix seconds to two minutes
	}
	for _, inner := range []*jsonschema.Schema{p.Items, p.AdditionalProperties} {
		if inner != nil {
			plain(inner, false)
			if inner.Properties != nil {
				inner.AdditionalProperties = nil
			}
		}
	}
}

// note is the comment of a type, or of a member of it.
func (s *schemas) note(t reflect.Type, member string) string {
	if s.notes[t.PkgPath()] == nil {
		s.read(t.PkgPath())
	}
	text := strings.Join(strings.Fields(s.notes[t.PkgPath()][t.Name()+"."+member]), " ")
	if rest, ok := strings.CutPrefix(text, t.Name()+" "); ok && member == "" {
		return cmp.Or(aliases[t], t.Name()) + " " + s.speak(t, rest)
	}
	return s.speak(t, text)
}

// constant is what may be the name of one, of the own package or of another one.
var constant = regexp.MustCompile(`\b([a-z]+\.)?[A-Z][A-Za-z]+\b`)

// speak puts the values of constants, and the names of members in JSON, into the place of their names in Go.
func (s *schemas) speak(t reflect.Type, text string) string {
	text = strings.NewReplacer("nil for", "absent for", "Nil:", "Left out:").Replace(strings.TrimSuffix(text, " below"))
	return constant.ReplaceAllStringFunc(text, func(name string) string {
		pkg, short, qualified := strings.Cut(name, ".")
		if !qualified {
			if f, ok := t.FieldByName(name); ok && f.Tag.Get("json") != "" {
				jsonName, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return jsonName
			}
			if value, ok := s.words[t.PkgPath()][name]; ok {
				return value
			}
			return name
		}
		for path, words := range s.words {
			if value, ok := words[short]; ok && filepath.Base(path) == pkg {
				return value
			}
		}
		return short
	})
}

// read reads the comments and constants of a package.
func (s *schemas) read(path string) {
	notes, words := map[string]string{}, map[string]string{}
	s.notes[path], s.words[path] = notes, words
	folder := strings.TrimPrefix(strings.TrimSuffix(path, "_test"), "mneme/")
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	require.NoError(s.t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(s.t, err)
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					notes[spec.Name.Name+"."] = cmp.Or(spec.Doc.Text(), g.Doc.Text())
					if of, ok := spec.Type.(*ast.StructType); ok {
						for _, f := range of.Fields.List {
							for _, n := range f.Names {
								notes[spec.Name.Name+"."+n.Name] = f.Doc.Text() + f.Comment.Text()
							}
						}
					}
				case *ast.ValueSpec:
					for i, n := range spec.Names {
						if i < len(spec.Values) {
							if value := constantText(spec.Values[i]); value != "" {
								words[n.Name] = value
							}
						}
					}
				}
			}
		}
	}
}

// constantText is how a constant is said: a text in backquotes, or a number; "" for others.
func constantText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return "`" + text + "`"
		}
		return e.Value
	case *ast.BinaryExpr: // such as 64 << 10
		x, y := constantText(e.X), constantText(e.Y)
		a, errA := strconv.Atoi(x)
		b, errB := strconv.Atoi(y)
		if e.Op == token.SHL && errA == nil && errB == nil {
			return strconv.Itoa(a << b)
		}
	}
	return ""
}
