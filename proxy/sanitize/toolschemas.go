package sanitize

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/maypok86/otter/v2"

	"mneme/proxy/lazyregexp"
	"mneme/proxy/wire"
)

// SchemaForm is what a vendor takes of the schemas of tools.
type SchemaForm string

// The forms, each narrower than the one before.
const (
	SchemaAny    SchemaForm = "any"    // all of JSON Schema
	SchemaObject SchemaForm = "object" // the top must be of type object
	SchemaTop    SchemaForm = "top"    // and has no composition: no oneOf, anyOf, allOf
	SchemaSubset SchemaForm = "subset" // Google's subset of OpenAPI 3.0
	// SchemaPlain is what every vendor takes: one type, a description, properties, items, and lists of texts.
	SchemaPlain SchemaForm = "plain"
)

// Tool is a tool of a request with a schema that can be made to fit.
type Tool struct {
	Name string
	// Key tells its schema from others, in Input.Schemas; empty for one that is in the plain form.
	Key string
}

// Tools are those of a request, in their order.
func Tools(o *wire.Outline, d wire.Dialect) []Tool {
	var tools []Tool
	for _, it := range elements(o.Raw(o.Members.Get("tools"))) {
		_, holder, name := schemaIn(it.raw, d)
		t := Tool{Name: holder.text("name")}
		if schema := holder.get(name); schema != nil && !bytes.Equal(plain(schema, d), schema) {
			t.Key = schemaKey(schema)
		}
		tools = append(tools, t)
	}
	return tools
}

func plain(schema []byte, d wire.Dialect) []byte {
	f := schemaFitter{form: SchemaPlain, root: schema, nodeBudget: maxNodes, keys: d == wire.Messages}
	return f.fit()
}

func schemaKey(schema []byte) string {
	sum := sha256.Sum256(schema)
	return hex.EncodeToString(sum[:16])
}

// schemaIn is a tool, the object in it that has its schema, and the name of that member.
func schemaIn(raw []byte, d wire.Dialect) (tool, holder object, name string) {
	tool = objectOf(raw)
	if d == wire.Chat {
		return tool, objectOf(tool.get("function")), "parameters"
	}
	return tool, tool, "input_schema"
}

// fitSchemas has the schemas of tools say what they mean in the vendor's form. One that is in it stays.
func (r *request) fitSchemas() {
	raw := r.root.get("tools")
	plainly := PlainSchemas(r.Rules)
	if raw == nil || plainly == nil && (r.p.ToolSchemas == "" || r.p.ToolSchemas == SchemaAny) {
		return
	}
	claude := r.p.Vendor == "anthropic" || r.p.Vendor == "bedrock"
	print := uint64(0)
	if plainly == nil {
		if print = printOf(raw, r.p.ToolSchemas, claude, r.Dialect); isFine(print) {
			return
		}
	}
	items, dirty := elements(raw), false
	for i := range items {
		tool, holder, name := schemaIn(items[i].raw, r.Dialect)
		schema := holder.get(name)
		if schema == nil || schema[0] == 'n' {
			continue
		}
		f := schemaFitter{form: r.p.ToolSchemas, root: schema, nodeBudget: maxNodes}
		if plainly != nil && slices.Contains(plainly, schemaKey(schema)) {
			f.form = SchemaPlain
		}
		f.keys = claude || f.form == SchemaPlain && r.Dialect == wire.Messages
		f.lax = claude && f.form == SchemaTop
		fit := f.fit()
		if bytes.Equal(fit, schema) {
			continue
		}
		holder.set(name, fit)
		if r.Dialect == wire.Chat {
			holder.drop("strict") // which demands more than the schema says
			tool.set("function", holder.raw())
			holder = tool
		}
		items[i].raw, dirty = holder.raw(), true
		r.changed(KindSchema, "tools."+strconv.Itoa(i))
	}
	if dirty {
		r.root.set("tools", array(raw, wire.Span{Start: 0, End: len(raw)}, len(items), items))
	} else if print != 0 {
		fine.Set(print, struct{}{})
	}
}

// fine are the prints of lists of tools with which there is nothing to do: an agent sends the same list with
// each request, and reading fifty schemas takes longer than all else in this hop.
var (
	fine = otter.Must(&otter.Options[uint64, struct{}]{MaximumSize: 4096})
	seed = maphash.MakeSeed()
)

func printOf(tools []byte, form SchemaForm, claude bool, d wire.Dialect) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = fmt.Fprint(&h, form, claude, d) // which never fails
	_, _ = h.Write(tools)
	return h.Sum64()
}

func isFine(print uint64) bool {
	_, ok := fine.GetIfPresent(print)
	return ok
}

// schemaFitter makes one schema fit a form. What the form cannot say goes into descriptions, as JSON Schema.
type schemaFitter struct {
	form       SchemaForm
	keys       bool   // names of arguments are of A-Z a-z 0-9 _ . - and at most 64 long
	lax        bool   // at the top enum, const and not are taken
	root       []byte // in which $ref points
	nodeBudget int    // nodes that may still be made, see maxNodes
	addedBytes int    // bytes that references have added, see maxMore
}

// fit is the schema in its form; the same bytes if it is.
func (f *schemaFitter) fit() []byte {
	if f.form == "" || f.form == SchemaAny {
		return f.root
	}
	o, inside := objectOf(f.root), []string{"#"}
	if f.root[0] != '{' {
		return []byte(`{"type":"object","properties":{}}`)
	}
	if o.has("$ref") {
		o, inside = f.flat(o, inside)
	}
	switch kinds := typesOf(o.get("type")); {
	case len(kinds) == 0, len(kinds) > 1 && slices.Contains(kinds, "object"):
		o.set("type", []byte(`"object"`))
	case kinds[0] != "object":
		return f.root // a tool's arguments are an object: this means something that is unknown here
	}
	if len(o.members) == 0 {
		o.set("properties", []byte(`{}`))
	}
	if f.form == SchemaObject {
		return o.raw()
	}
	inside = f.open(&o, inside)
	if f.keys {
		f.renounce(&o)
	}
	if f.form == SchemaTop {
		return o.raw()
	}
	return f.node(o.raw(), inside)
}

// open takes compositions out of the top: what all alternatives have is its own, and which of them go
// together is told. Inside are the references that lead to it, with those that are followed.
func (f *schemaFitter) open(o *object, inside []string) []string {
	if o.has("allOf") {
		*o, inside = f.flat(*o, inside)
	}
	inside = f.unite(o, inside)
	if f.form == SchemaTop && !f.lax {
		f.tell(o, "enum", "const", "not")
	}
	return inside
}

// unite gives an object the properties of its alternatives. Required is what all of them require.
func (f *schemaFitter) unite(o *object, inside []string) []string {
	branchRefs := inside
	for _, word := range []string{"anyOf", "oneOf"} {
		alternatives := o.get(word)
		if alternatives == nil {
			continue
		}
		o.drop(word)
		var required []string
		var parts [][]byte
		for i, it := range elements(alternatives) {
			branch, refs := f.flat(objectOf(it.raw), inside)
			branchRefs = slices.Concat(branchRefs, refs[len(inside):])
			needs := textsIn(branch.get("required"))
			if i == 0 {
				required = needs
			}
			required = slices.DeleteFunc(slices.Clone(required), func(s string) bool { return !slices.Contains(needs, s) })
			if f.adopt(o, branch.get("properties")) {
				branch.drop("properties")
			}
			if branch.text("type") == "object" {
				branch.drop("type")
			}
			parts = append(parts, branch.raw())
		}
		f.require(o, required)
		if len(parts) > 1 || len(parts) == 1 && string(parts[0]) != "{}" {
			say(o, matches+`{"`+word+`":[`+string(bytes.Join(parts, []byte(",")))+"]}")
		}
	}
	return branchRefs
}

// renounce takes out the arguments with names that the vendor refuses. The model may give them all the same.
func (f *schemaFitter) renounce(o *object) {
	properties := objectOf(o.get("properties"))
	var dropped []string
	for _, m := range properties.members {
		if legalKey().MatchString(m.Name) {
			continue
		}
		dropped = append(dropped, m.Name)
		properties.drop(m.Name)
		say(o, "There is also an argument "+string(wire.Quote(m.Name))+": "+
			string(properties.body[m.Value.Start:m.Value.End]))
	}
	if dropped == nil {
		return
	}
	o.set("properties", properties.raw())
	needs := textsIn(o.get("required"))
	f.setRequired(o, slices.DeleteFunc(needs, func(s string) bool { return slices.Contains(dropped, s) }))
	o.drop("additionalProperties")
}

// legalKey matches a name of an argument that Claude takes.
var legalKey = lazyregexp.New(`^[A-Za-z0-9_.-]{1,64}$`)
