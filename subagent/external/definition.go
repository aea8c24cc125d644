package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/envelope"
	"mneme/memory/provenance"
)

// Bounds of what a definition says. Beyond those of a schema its arguments are only checked to be
// an object.
const (
	maxDescription = 1024     // characters, of a tool and of each part of its schema
	maxSchema      = 64 << 10 // bytes
	maxNesting     = 64       // of a schema
	maxSchemaParts = 20_000   // with all that $ref refers to
	maxKept        = 4096     // definitions that Definitions holds
)

// Definitions are what models are shown of tools and how arguments are checked, made once per
// definition. Safe for concurrent use. The zero value is ready.
type Definitions struct {
	mu     sync.Mutex
	byID   map[string]*prepared // by ID; guarded by mu
	logged map[string]bool      // what the log says once; guarded by mu
}

// prepared is a definition as it is used.
type prepared struct {
	definition  Definition
	hash        string
	description string
	parameters  json.RawMessage
	schema      *jsonschema.Resolved // nil: any object fits
	telling     func() string        // see provenance.Telling; computed once
}

// prepare prepares a definition.
func (d *Definitions) prepare(def Definition, log zerolog.Logger) *prepared {
	id := def.ID()
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.byID[id]; p != nil && p.definition.equal(def) {
		return p
	}
	if d.byID == nil || len(d.byID) >= maxKept {
		d.byID = map[string]*prepared{}
	}
	p := &prepared{definition: def, hash: def.Hash(), description: bounded(def.Description), parameters: plainObject,
		telling: sync.OnceValue(func() string { return provenance.Telling(def.Description + " " + string(def.Parameters)) })}
	schema, err := shownSchema(def.Parameters)
	if err == nil {
		p.parameters = schema
		p.schema, err = compile(def.Parameters)
	}
	if err != nil {
		log.Warn().Str("tool", id).Str("reason", err.Error()).
			Msg("the schema of this tool cannot be used as it is: arguments are only checked to be an object")
	}
	d.byID[id] = p
	return p
}

// shouldLog reports whether a text has not been logged before.
func (d *Definitions) shouldLog(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logged[what] {
		return false
	}
	if d.logged == nil || len(d.logged) >= maxKept {
		d.logged = map[string]bool{}
	}
	d.logged[what] = true
	return true
}

func (d Definition) equal(other Definition) bool {
	return d.Server == other.Server && d.Name == other.Name && d.Description == other.Description &&
		d.Hints == other.Hints && d.Request == other.Request && bytes.Equal(d.Parameters, other.Parameters)
}

// plainObject is the schema of any object.
var plainObject = json.RawMessage(`{"type":"object"}`)

// CheckSchema says why a schema of arguments cannot be used as it is; nil if it can.
func CheckSchema(schema json.RawMessage) error {
	if _, err := shownSchema(schema); err != nil {
		return err
	}
	_, err := compile(schema)
	return err
}

// bounded is a text of a stranger in a prompt, outside of an envelope.
func bounded(text string) string {
	if len(text) > 4*maxDescription { // of a character in UTF-8; the rest is cut anyway
		text = strings.ToValidUTF8(text[:4*maxDescription], "")
	}
	text, _ = envelope.Neutralise(text)
	if runes := []rune(text); len(runes) > maxDescription {
		return string(runes[:maxDescription-1]) + "…"
	}
	return text
}

// shownSchema is a schema as models see it: its descriptions are a stranger's.
func shownSchema(schema json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(schema)) == 0 {
		return plainObject, nil
	}
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("it has more than %d bytes", maxSchema)
	}
	if bytes.TrimSpace(schema)[0] != '{' {
		return nil, errors.New("it is no JSON object")
	}
	return rewrite(schema, maxNesting, func(key, text string) string {
		if key == "description" || key == "title" || key == "$comment" {
			return bounded(text)
		}
		return text
	})
}

// rewrite changes the strings of a JSON value, each with the name of the member that it is the
// value of. Everything else stays as it is, without white space.
func rewrite(value []byte, nesting int, change func(key, text string) string) ([]byte, error) {
	options := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	d := jsontext.NewDecoder(bytes.NewReader(value), options...)
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out, options...)
	key := ""
	for {
		token, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(out.Bytes()), nil
		case err != nil:
			return nil, fmt.Errorf("it is no valid JSON: %w", err)
		case d.StackDepth() > nesting:
			return nil, fmt.Errorf("it is nested more than %d deep", nesting)
		}
		kind, n := d.StackIndex(d.StackDepth())
		name := kind == '{' && n%2 == 1
		if token.Kind() == '"' {
			text := token.String()
			if name {
				token, key = jsontext.String(change("", text)), text
			} else {
				if kind != '{' {
					key = ""
				}
				token = jsontext.String(change(key, text))
			}
		}
		if err := e.WriteToken(token); err != nil {
			return nil, err
		}
	}
}

// drafts of JSON Schema that the validator knows by name. Of others the keywords are taken for
// what they mean there.
var drafts = map[string]bool{
	"http://json-schema.org/draft-07/schema#": true, "https://json-schema.org/draft/2020-12/schema": true,
}

// compile makes a schema ready to check arguments. One that could take very long to check, or
// forever, is refused: it may be a stranger's.
func compile(schema json.RawMessage) (*jsonschema.Resolved, error) {
	if len(bytes.TrimSpace(schema)) == 0 {
		schema = plainObject
	}
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, err
	}
	w := &walk{root: root, parts: map[string]int{}}
	if _, err := w.count(root); err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	if s.Type != "" && s.Type != "object" {
		return nil, fmt.Errorf("its type is %q, and arguments are an object", s.Type)
	}
	if !drafts[s.Schema] {
		s.Schema = ""
	}
	return s.Resolve(nil)
}

// walk counts the parts of a schema.
type walk struct {
	root  any
	parts map[string]int // of what a reference refers to; 0 while it is counted
}

func (w *walk) count(v any) (n int, err error) {
	n = 1
	add := func(v any) error {
		parts, err := w.count(v)
		if n += parts; err == nil && n > maxSchemaParts {
			err = fmt.Errorf("it has more than %d parts", maxSchemaParts)
		}
		return err
	}
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			if err := add(one); err != nil {
				return n, err
			}
		}
	case map[string]any:
		for key, one := range v {
			ref, text := one.(string)
			switch {
			case text && (key == "$dynamicRef" || key == "$recursiveRef"):
				return n, fmt.Errorf("%s is not supported", key)
			case text && key == "$ref":
				parts, err := w.referred(ref)
				if n += parts; err != nil {
					return n, err
				}
			}
			if err := add(one); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// referred counts what a reference refers to.
func (w *walk) referred(ref string) (int, error) {
	n, visited := w.parts[ref]
	switch {
	case visited && n == 0:
		return 0, fmt.Errorf("it refers to itself by %q", ref)
	case visited:
		return n, nil
	}
	fragment, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil || !strings.HasPrefix(ref, "#") || fragment != "" && fragment[0] != '/' {
		return 0, fmt.Errorf("the reference %q is none to a part of it", ref)
	}
	node := w.root
	for step := range jsontext.Pointer(fragment).Tokens() {
		switch v := node.(type) {
		case map[string]any:
			node = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return 0, fmt.Errorf("there is nothing at %q", ref)
			}
			node = v[i]
		default:
			node = nil
		}
		if node == nil {
			return 0, fmt.Errorf("there is nothing at %q", ref)
		}
	}
	w.parts[ref] = 0
	n, err = w.count(node)
	w.parts[ref] = n
	return n, err
}

// arguments reads what a model wrote: one JSON object, in the form in which all that are alike
// are the same bytes. The error is for the model.
func (p *prepared) arguments(text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	if len(text) > maxArguments {
		return nil, fmt.Errorf("the arguments have more than %d bytes; call it with less", maxArguments)
	}
	var plain map[string]any
	if err := json.Unmarshal([]byte(text), &plain); err != nil || plain == nil {
		return nil, errors.New("the arguments are no JSON object; write one that fits the tool's schema, and call it again")
	}
	if p.schema != nil {
		if err := p.schema.Validate(plain); err != nil {
			reason, _ := envelope.Label(err.Error())
			return nil, fmt.Errorf("the arguments do not fit the tool's schema: %s; mend them and call it again", reason)
		}
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var exact map[string]any
	if err := d.Decode(&exact); err != nil {
		return nil, err
	}
	return memory.EncodeJSON(exact)
}

// maxArguments bounds the arguments of a call, in bytes.
const maxArguments = 256 << 10
