package sanitize

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// googleWords are the keywords of Google's subset, plainWords those of the plain form.
var (
	googleWords = []string{"type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems",
		"properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf",
		"propertyOrdering", "default", "items", "minimum", "maximum"}
	plainWords = []string{"type", "description", "properties", "required", "items", "enum"}
	// silentWords tell the model nothing.
	silentWords = []string{"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "nullable"}
	// kindWords belong to one type alone.
	kindWords = map[string]string{
		"properties": "object", "required": "object", "minProperties": "object", "maxProperties": "object",
		"items": "array", "minItems": "array", "maxItems": "array",
		"pattern": "string", "minLength": "string", "maxLength": "string",
	}
)

const (
	matches  = "It must match this JSON Schema, too: "
	maxNote  = 2000 // of what is told at once, in bytes
	anything = `{"type":"string","description":"Any JSON value."}`
	maxNodes = 2000      // of a schema, each reference that is followed included; the ones behind are anything
	maxMore  = 128 << 10 // bytes that references may add to a schema; the ones behind are as those within themselves
)

// node is a schema within the subset or the plain form. Inside are the references that lead to it.
func (f *schemaFitter) node(raw []byte, inside []string) []byte {
	if raw[0] != '{' || f.nodeBudget <= 0 || string(raw) == anything {
		return []byte(anything)
	}
	f.nodeBudget--
	o, inside := f.flat(objectOf(raw), inside)
	if o.has("anyOf") || o.has("oneOf") {
		if f.form == SchemaSubset {
			return f.choice(o, inside)
		}
		inside = f.choose(&o, inside)
	}
	if fit := f.oneType(&o, inside); fit != nil {
		return fit
	}
	f.fitEnum(&o)
	f.fitInner(&o, inside)
	f.fitWords(&o)
	return o.raw()
}

// flat puts what $ref and allOf lead to in their place. A reference within itself is not followed, and none once the
// references have added maxMore bytes: without that bound a short schema could become one of many megabytes.
func (f *schemaFitter) flat(o object, inside []string) (object, []string) {
	for range 32 {
		ref, branches := o.get("$ref"), o.get("allOf")
		switch {
		case ref != nil:
			name := textOf(ref)
			o.drop("$ref")
			target := f.resolve(name)
			if target != nil && !slices.Contains(inside, name) && f.nodeBudget > 0 && f.addedBytes+len(target) <= maxMore {
				f.nodeBudget--
				f.addedBytes += len(target)
				inside = append(slices.Clip(inside), name)
				f.merge(&o, objectOf(target))
				break
			}
			resolved := objectOf(target)
			if kind := resolved.get("type"); !o.has("type") && isText(kind) {
				o.set("type", kind)
			}
			say(&o, "See "+name[strings.LastIndexByte(name, '/')+1:]+".")
		case branches != nil:
			o.drop("allOf")
			for _, it := range elements(branches) {
				var branch object
				branch, inside = f.flat(objectOf(it.raw), inside)
				f.merge(&o, branch)
			}
		default:
			return o, inside
		}
		o = objectOf(o.raw())
	}
	o.drop("$ref")
	o.drop("allOf")
	return objectOf(o.raw()), inside
}

// resolve is what a reference within the schema points to; nil for nothing.
func (f *schemaFitter) resolve(ref string) []byte {
	path, ok := strings.CutPrefix(ref, "#")
	node := f.root
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	for step := range jsontext.Pointer(path).Tokens() {
		if i, err := strconv.Atoi(step); err == nil && node[0] == '[' {
			items := elements(node)
			if i < 0 || i >= len(items) {
				return nil
			}
			node = items[i].raw
			continue
		}
		o := objectOf(node)
		if node = o.get(step); node == nil {
			return nil
		}
	}
	if !ok || node[0] != '{' {
		return nil
	}
	return node
}

// merge gives an object what another one says besides. Where they differ the first one's word stands, and
// the other's is told.
func (f *schemaFitter) merge(into *object, src object) {
	src = objectOf(src.raw())
	for _, m := range src.members {
		value := src.body[m.Value.Start:m.Value.End]
		have := into.get(m.Name)
		switch {
		case m.Name == "$defs", m.Name == "definitions", m.Name == "$schema", m.Name == "$id", bytes.Equal(have, value):
		case m.Name == "required":
			f.require(into, textsIn(value))
		case m.Name == "properties":
			if !f.adopt(into, value) {
				say(into, matches+`{"properties":`+string(value)+"}")
			}
		case have == nil:
			into.set(m.Name, value)
		case m.Name != "description" && m.Name != "title":
			say(into, matches+"{"+string(wire.Quote(m.Name))+":"+string(value)+"}")
		}
	}
}

// adopt adds properties that an object does not have. It is false if one that it has is another one.
func (f *schemaFitter) adopt(o *object, raw []byte) bool {
	if raw == nil || raw[0] != '{' {
		return true
	}
	have := o.get("properties")
	if have == nil || have[0] != '{' {
		o.set("properties", raw)
		return true
	}
	properties, extra, same := objectOf(have), objectOf(raw), true
	for _, m := range extra.members {
		value := extra.body[m.Value.Start:m.Value.End]
		if own := properties.get(m.Name); own == nil {
			properties.set(m.Name, value)
		} else if !bytes.Equal(own, value) {
			same = false
		}
	}
	if properties.changed() {
		o.set("properties", properties.raw())
	}
	return same
}

// require adds to what an object requires.
func (f *schemaFitter) require(o *object, names []string) {
	required := textsIn(o.get("required"))
	n := len(required)
	for _, name := range names {
		if !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	if len(required) > n {
		f.setRequired(o, required)
	}
}

func (f *schemaFitter) setRequired(o *object, names []string) {
	if len(names) == 0 {
		o.drop("required")
		return
	}
	list, _ := wire.Marshal(names) // texts always encode
	o.set("required", list)
}

// choice is a node of several alternatives in Google's subset: each says all of it.
func (f *schemaFitter) choice(o object, inside []string) []byte {
	word := "anyOf"
	if !o.has(word) {
		word = "oneOf"
	}
	raw := o.get(word)
	o.drop(word)
	f.tell(&o, "oneOf")
	shared := objectOf(o.raw())
	node := objectOf([]byte("{}"))
	for _, m := range shared.members {
		if slices.Contains([]string{"description", "title", "default", "nullable"}, m.Name) {
			node.set(m.Name, shared.body[m.Value.Start:m.Value.End])
			shared.drop(m.Name)
		}
	}
	shared = objectOf(shared.raw())
	items, same := elements(raw), word == "anyOf" && len(shared.members) == 0
	if len(items) == 0 {
		return f.node(o.raw(), inside)
	}
	for i, it := range items {
		branch, branchRefs := it.raw, inside
		if len(shared.members) > 0 && branch[0] == '{' {
			with, extra := objectOf(branch), shared
			if with, branchRefs = f.flat(with, inside); with.has("type") {
				extra.drop("type")
			}
			f.merge(&with, extra)
			branch = with.raw()
		}
		items[i].raw = f.node(branch, branchRefs)
		same = same && bytes.Equal(items[i].raw, it.raw)
	}
	if same {
		o.set(word, raw)
		return o.raw()
	}
	node.set("anyOf", array(raw, wire.Span{Start: 0, End: len(raw)}, len(items), items))
	return node.raw()
}

// choose makes one of several alternatives the node's own, and tells the others. It returns the references that lead to
// what is inside.
func (f *schemaFitter) choose(o *object, inside []string) []string {
	var branches []object
	branchRefs := inside // of the first one
	allObjects := true
	for _, word := range []string{"anyOf", "oneOf"} {
		for _, it := range elements(o.get(word)) {
			branch, refs := f.flat(objectOf(it.raw), inside)
			if kind := branch.text("type"); kind == "null" {
				say(o, "May be null.")
				continue
			} else if kind != "object" && !branch.has("properties") {
				allObjects = false
			}
			if branches = append(branches, branch); len(branches) == 1 {
				branchRefs = refs
			}
		}
	}
	if allObjects && len(branches) > 1 {
		inside = f.unite(o, inside)
		o.set("type", []byte(`"object"`))
		*o = objectOf(o.raw())
		return inside
	}
	if len(branches) > 1 {
		f.tell(o, "anyOf", "oneOf")
	}
	o.drop("anyOf")
	o.drop("oneOf")
	if len(branches) > 0 {
		f.merge(o, branches[0])
	}
	*o, branchRefs = f.flat(objectOf(o.raw()), branchRefs)
	f.tell(o, "anyOf", "oneOf") // of the alternative
	*o = objectOf(o.raw())
	return branchRefs
}

// oneType sees to it that a node has one type. It gives the whole node if that is a choice of several.
func (f *schemaFitter) oneType(o *object, inside []string) []byte {
	raw := o.get("type")
	kinds := typesOf(raw)
	nonNull := slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == "null" })
	if isText(raw) {
		return nil
	}
	if len(nonNull) < len(kinds) && f.form == SchemaSubset {
		o.set("nullable", []byte("true"))
	} else if len(nonNull) < len(kinds) {
		say(o, "May be null.")
	}
	switch {
	case len(nonNull) == 0:
		kind := inferred(o)
		if kind == "" {
			kind = "string"
			say(o, "Any JSON value.")
		}
		o.set("type", wire.Quote(kind))
	case len(nonNull) > 1 && f.form == SchemaSubset:
		var branches [][]byte
		for _, kind := range nonNull {
			branches = append(branches, slices.Concat([]byte(`{"type":`), wire.Quote(kind), []byte("}")))
		}
		o.drop("type")
		o.set("anyOf", slices.Concat([]byte("["), bytes.Join(branches, []byte(",")), []byte("]")))
		return f.choice(objectOf(o.raw()), inside)
	case len(nonNull) > 1:
		say(o, "It may also be: "+strings.Join(nonNull[1:], ", ")+".")
		fallthrough
	default:
		o.set("type", wire.Quote(nonNull[0]))
	}
	return nil
}

// typesOf are the types that a keyword "type" names.
func typesOf(raw []byte) []string {
	if isText(raw) {
		return []string{textOf(raw)}
	}
	return textsIn(raw)
}

// textsIn are the strings of an array.
func textsIn(raw []byte) []string {
	var texts []string
	for _, it := range elements(raw) {
		if it.raw[0] == '"' {
			texts = append(texts, textOf(it.raw))
		}
	}
	return texts
}

// inferred is the type that the other keywords of a node speak of; empty for none.
func inferred(o *object) string {
	first := o.get("const")
	if values := elements(o.get("enum")); first == nil && len(values) > 0 {
		first = values[0].raw
	}
	switch {
	case first != nil:
		kinds := map[byte]string{'"': "string", 't': "boolean", 'f': "boolean", 'n': "null", '[': "array", '{': "object"}
		return cmp.Or(kinds[first[0]], "number")
	case o.has("properties"), o.has("required"), o.has("additionalProperties"), o.has("patternProperties"):
		return "object"
	case o.has("items"), o.has("prefixItems"), o.has("minItems"):
		return "array"
	case o.has("pattern"), o.has("minLength"), o.has("maxLength"), o.has("format"):
		return "string"
	case o.has("minimum"), o.has("maximum"), o.has("exclusiveMinimum"), o.has("exclusiveMaximum"), o.has("multipleOf"):
		return "number"
	}
	return ""
}

// fitEnum leaves a list of values only where all of them are texts.
func (f *schemaFitter) fitEnum(o *object) {
	if value := o.get("const"); value != nil && !o.has("enum") {
		o.drop("const")
		o.set("enum", slices.Concat([]byte("["), value, []byte("]")))
	}
	raw := o.get("enum")
	if raw == nil {
		return
	}
	values := elements(raw)
	other := func(it item) bool { return !isText(it.raw) }
	if o.text("type") != "string" || len(values) == 0 || slices.ContainsFunc(values, other) {
		f.tell(o, "enum")
	}
}

// fitInner fits the schemas within a node.
func (f *schemaFitter) fitInner(o *object, inside []string) {
	kind := o.text("type")
	for word, wordKind := range kindWords {
		if kind != wordKind && o.get(word) != nil {
			o.drop(word)
		}
	}
	if kind == "array" {
		items := o.get("items")
		if items == nil || items[0] != '{' {
			f.tell(o, "items", "prefixItems")
			o.set("items", []byte(anything))
		} else if fit := f.node(items, inside); !bytes.Equal(fit, items) {
			o.set("items", fit)
		}
		return
	}
	if kind != "object" {
		return
	}
	raw := o.get("properties")
	properties := objectOf(raw)
	if raw != nil && raw[0] != '{' {
		o.drop("properties")
	}
	for _, m := range properties.members {
		value := properties.body[m.Value.Start:m.Value.End]
		if fit := f.node(value, inside); !bytes.Equal(fit, value) {
			properties.set(m.Name, fit)
		}
	}
	if properties.changed() {
		o.set("properties", properties.raw())
	}
	required := textsIn(o.get("required"))
	defined := slices.DeleteFunc(slices.Clone(required), func(s string) bool { return properties.get(s) == nil })
	if o.get("required") != nil && (len(defined) == 0 || len(defined) < len(required)) {
		f.setRequired(o, defined)
	}
}

// fitWords leaves the keywords of the form, and tells what the others say.
func (f *schemaFitter) fitWords(o *object) {
	words := plainWords
	if f.form == SchemaSubset {
		words = googleWords
		formats := []string{"", "enum", "date-time"}
		if o.text("type") == "string" && !slices.Contains(formats, o.text("format")) {
			f.tell(o, "format")
		}
	} else if string(o.get("nullable")) == "true" {
		say(o, "May be null.")
	}
	*o = objectOf(o.raw())
	var rest []string
	for _, m := range o.members {
		value := o.body[m.Value.Start:m.Value.End]
		switch {
		case slices.Contains(words, m.Name):
			continue
		case slices.Contains(silentWords, m.Name), strings.HasPrefix(m.Name, "x-"),
			m.Name == "additionalProperties" && value[0] != '{':
			o.drop(m.Name)
		default:
			rest = append(rest, m.Name)
		}
	}
	f.tell(o, rest...)
}

// tell moves keywords into the description.
func (f *schemaFitter) tell(o *object, words ...string) {
	var parts [][]byte
	for _, word := range words {
		if value := o.get(word); value != nil {
			parts = append(parts, slices.Concat(wire.Quote(word), []byte(":"), value))
			o.drop(word)
		}
	}
	if len(parts) > 0 {
		say(o, matches+"{"+string(bytes.Join(parts, []byte(",")))+"}")
	}
}

// say adds a sentence to a description.
func say(o *object, sentence string) {
	sentence = wire.Clip(sentence, maxNote)
	description := o.text("description")
	if strings.Contains(description, sentence) {
		return
	}
	if description != "" {
		description += " "
	}
	o.set("description", wire.Quote(description+sentence))
}
