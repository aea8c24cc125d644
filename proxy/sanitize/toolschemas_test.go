package sanitize_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// toolRequest is a request with a tool of this schema, in a vendor's dialect.
func toolRequest(t rapid.TB, vendor, schema string) sanitize.Input {
	if vendor == "anthropic" {
		return input(t, wire.Messages, `{"model":"claude-opus-4-8","max_tokens":99,"tools":[{"name":"look","input_schema":`+schema+
			`}],"messages":[{"role":"user","content":"hi"}]}`, vendor)
	}
	return input(t, wire.Chat, `{"model":"m","tools":[{"type":"function","function":{"name":"look","parameters":`+schema+
		`}}],"messages":[{"role":"user","content":"hi"}]}`, vendor)
}

// schemaFrom is what becomes of the schema.
func schemaFrom(t rapid.TB, in sanitize.Input) string {
	out := sanitize.Sanitize(in)
	var body struct {
		Tools []struct {
			Schema   json.RawMessage `json:"input_schema"`
			Function struct{ Parameters json.RawMessage }
		}
	}
	require.NoError(t, json.Unmarshal(out.Body, &body), "%s", out.Body)
	return string(body.Tools[0].Schema) + string(body.Tools[0].Function.Parameters)
}

func TestSchemasOfTools(t *testing.T) {
	const also = "It must match this JSON Schema, too: "
	for _, c := range []struct{ vendor, schema, want string }{
		{"anthropic", `{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{},"b":{}}}`,
			`{"type":"object","properties":{"a":{},"b":{}},"description":"` + also +
				`{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}"}`},
		{"openai", `{"anyOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a","c"]},` +
			`{"type":"object","properties":{"b":{"type":"number"}},"required":["c"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["c"],"description":"` + also +
				`{\"anyOf\":[{\"required\":[\"a\",\"c\"]},{\"required\":[\"c\"]}]}"}`},
		{"openai", `{"type":"object","allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"$ref":"#/$defs/a"}},"required":["y"]}],` +
			`"$defs":{"a":{"properties":{"x":{"type":"string"}},"required":["x"]}}}`,
			`{"type":"object","$defs":{"a":{"properties":{"x":{"type":"string"}},"required":["x"]}},` +
				`"properties":{"x":{"type":"string"},"y":{"$ref":"#/$defs/a"}},"required":["x","y"]}`},
		{"deepseek", `{}`, `{"type":"object","properties":{}}`},
		{"deepseek", `true`, `{"type":"object","properties":{}}`},
		{"deepseek", `{"oneOf":[{"required":["a"]}]}`, `{"oneOf":[{"required":["a"]}],"type":"object"}`},
		{"kimi", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, `{"$defs":{"a":{"type":"object"}},"type":"object"}`},
		{"anthropic", `{"type":"object","properties":{"filter[id]":{"type":"string"},"n":{}},"required":["filter[id]","n"],` +
			`"additionalProperties":false}`,
			`{"type":"object","properties":{"n":{}},"required":["n"],"description":` +
				`"There is also an argument \"filter[id]\": {\"type\":\"string\"}"}`},
		{"gemini", `{"$schema":"x","type":"object","additionalProperties":false,"properties":{` +
			`"a":{"type":["string","null"],"format":"uri"},"b":{"const":"x"},"c":{"type":"integer","exclusiveMinimum":0,"enum":[1,2]},` +
			`"d":{"type":"array"},"e":true,"f":{"type":["string","number"]},"g":{"type":"object","required":["gone"]}}}`,
			`{"type":"object","properties":{` +
				`"a":{"type":"string","nullable":true,"description":"` + also + `{\"format\":\"uri\"}"},"b":{"type":"string","enum":["x"]},` +
				`"c":{"type":"integer","description":"` + also + `{\"enum\":[1,2]} ` + also + `{\"exclusiveMinimum\":0}"},` +
				`"d":{"type":"array","items":{"type":"string","description":"Any JSON value."}},` +
				`"e":{"type":"string","description":"Any JSON value."},` +
				`"f":{"anyOf":[{"type":"string"},{"type":"number"}]},"g":{"type":"object"}}}`},
		{"gemini", `{"type":"object","properties":{"tree":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{` +
			`"left":{"$ref":"#/$defs/node","description":"Smaller."}}}}}`,
			`{"type":"object","properties":{"tree":{"type":"object","properties":{"left":{"description":"Smaller. See node.",` +
				`"type":"object"}}}}}`},
		{"gemini", `{"type":"object","properties":{"x":{"oneOf":[{"type":"string"},{"type":"object","properties":{"y":{}}}]}}}`,
			`{"type":"object","properties":{"x":{"anyOf":[{"type":"string"},` +
				`{"type":"object","properties":{"y":{"description":"Any JSON value.","type":"string"}}}]}}}`},
	} {
		in := toolRequest(t, c.vendor, c.schema)
		require.JSONEq(t, c.want, schemaFrom(t, in), "%s\n%s", c.schema, schemaFrom(t, in))
		require.Equal(t, sanitize.KindSchema, sanitize.Sanitize(in).Changes[0].Kind)
	}
}

// What a vendor takes leaves byte for byte.
func TestSchemasThatAreFineStay(t *testing.T) {
	for vendor, schemas := range map[string][]string{
		"anthropic": {`{"type" : "object"}`, `{"type":"object","properties":{"a.b-c":{"anyOf":[{"type":"string"},{"type":"null"}]}},` +
			`"$defs":{"x":{}}, "additionalProperties":false,"not":{}}`},
		"openai":   {`{"type" : "object"}`, `{"type":"object","properties":{"a[b]":{"oneOf":[{"const":1}],"$ref":"#/$defs/x"}},"$defs":{"x":{}}}`},
		"deepseek": {`{"type":"object","oneOf":[{"required":["a"]}] }`, `null`, `{"type":"string"}`},
		"kimi":     {`{"type":"object","anyOf":[{"required":["a"]}] }`},
		"gemini": {`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}, {"type":"null"}],"description":"A."},` +
			`"b":{"type":"number","minimum":1,"default":2},"c":{"type":"string","format":"date-time","nullable":true},` +
			`"d":{"type":"array","items":{"type":"string","enum":["x" ,"y"]}}},"required":[ "a"]}`},
		"generic": {`{}`, `true`, `{"oneOf":[{"$ref":"#/x"}]}`}, "glm": {`{"allOf":[]}`},
	} {
		for _, schema := range schemas {
			in := toolRequest(t, vendor, schema)
			out := sanitize.Sanitize(in)
			require.Same(t, &in.Outline.Body[0], &out.Body[0], "%s: %s", vendor, schema)
		}
	}
}

// A sanitized schema has a bounded size, and a second pass does not change it.
func TestSchemasWithManyReferencesStaySmall(t *testing.T) {
	t.Parallel()
	fork := ""
	for i := range 40 {
		fork += fmt.Sprintf(`"d%d":{"type":"object","description":"%s","properties":{"l":{"$ref":"#/$defs/d%d"},"r":{"$ref":"#/$defs/d%d"}}},`,
			i, strings.Repeat("long ", 400), i+1, i+1)
	}
	for schema, most := range map[string]int{
		`{"$ref":"#","type":"object","properties":{"a":{"anyOf":[{"type":"object","properties":{"b":{"type":"array"}}},` +
			`{"$ref":"#","prefixItems":[]}],"type":["string","null"],"const":true}}}`: 1000,
		`{"type":"object","properties":{"x":{"anyOf":[{"$ref":"#"},{"$ref":"#"}],"prefixItems":[{"$ref":"#"}]}}}`: 1000,
		`{"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{` + fork + `"x":{}}}`:                 200_000,
	} {
		for _, vendor := range []string{"gemini", "openai", "anthropic", "glm"} {
			in := toolRequest(t, vendor, schema)
			if vendor == "glm" {
				in.Rules = []sanitize.Rule{{Schemas: []string{sanitize.Tools(in.Outline, in.Dialect)[0].Key}}}
			}
			once := schemaFrom(t, in)
			require.Less(t, len(once), max(most, len(schema)+500), "%s: %.300s", vendor, schema)
			require.Equal(t, once, schemaFrom(t, toolRequest(t, vendor, once)), vendor)
		}
	}
}

// schemaOf makes a schema of everything that JSON Schema has, right and wrong.
func (g generator) schemaOf(depth int) string {
	var members []string
	add := func(name, value string) { members = append(members, fmt.Sprintf("%q:%s", name, value)) }
	inner := func() string {
		if depth == 0 {
			return g.pick("leaf", `{}`, `true`, `{"type":"string"}`, `{"$ref":"#/$defs/x"}`, `{"const":5}`)
		}
		return g.schemaOf(depth - 1)
	}
	for _, word := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not", "$ref", "format", "description", "exclusiveMinimum", "additionalProperties",
		"default", "prefixItems", "nullable", "if", "$schema", "minItems"}), 0, 5, rapid.ID).Draw(g.T, "words") {
		switch word {
		case "type":
			add(word, g.pick("type", `"object"`, `"string"`, `"array"`, `["string","null"]`, `["object","array"]`, `"null"`, `7`, `[]`))
		case "properties":
			add(word, `{"a":`+inner()+`,"b c":`+inner()+`}`)
		case "required":
			add(word, g.pick("required", `["a"]`, `["b c","gone"]`, `[]`, `true`))
		case "enum":
			add(word, g.pick("enum", `["a","b"]`, `[1,2]`, `["",null]`, `[]`))
		case "anyOf", "oneOf", "allOf", "prefixItems":
			add(word, g.pick("list", `[]`, `[`+inner()+`]`, `[`+inner()+`,`+inner()+`]`))
		case "$ref":
			add(word, g.pick("ref", `"#"`, `"#/$defs/x"`, `"#/$defs/y"`, `"#/nowhere"`, `"https://elsewhere"`, `"#/anyOf/1"`))
		case "exclusiveMinimum":
			add(word, "0")
		case "items", "not", "additionalProperties", "if":
			add(word, inner())
		default:
			add(word, g.pick("value", `"date-time"`, `"uri"`, `0`, `true`))
		}
	}
	if depth == 3 {
		add("$defs", `{"x":`+inner()+`,"y":{"anyOf":[{"$ref":"#/$defs/y"},{"type":"null"}]}}`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// Whatever a schema is, the vendor takes what it becomes, and it does not become something else again.
func TestSchemasAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true}
		schema := g.schemaOf(3)
		if g.pick("kind", "object", "object", "") != "" {
			var top map[string]any
			require.NoError(t, json.Unmarshal([]byte(schema), &top))
			top["type"] = "object"
			whole, err := json.Marshal(top)
			require.NoError(t, err)
			schema = string(whole)
		}
		for vendor, takes := range map[string]upstreamtest.Schemas{
			"openai": upstreamtest.OpenAISchemas, "gemini": upstreamtest.GeminiSchemas,
			"anthropic": 0, "glm": upstreamtest.MoonshotSchemas,
		} {
			in := toolRequest(t, vendor, schema)
			if vendor == "glm" {
				in.Rules = []sanitize.Rule{{Schemas: []string{sanitize.Tools(in.Outline, in.Dialect)[0].Key}}}
			}
			config := upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{Schemas: takes}}
			if vendor == "anthropic" {
				config = upstreamtest.Config{}
			}
			out := sanitize.Sanitize(in)
			var top struct{ Type any }
			require.NoError(t, json.Unmarshal([]byte(schemaFrom(t, in)), &top))
			if top.Type != "object" {
				continue // no arguments: left as it is
			}
			accepted(t, config, in)
			o, err := in.Outline.WithBody(out.Body)
			require.NoError(t, err)
			again := in
			again.Outline = o
			require.True(t, bytes.Equal(out.Body, sanitize.Sanitize(again).Body), "%s\n%s\n%s", schema, out.Body,
				sanitize.Sanitize(again).Body)
		}
	})
}
