package upstreamtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schemas selects a vendor's rules for the schemas of tools.
type Schemas int

// AnySchema only refuses a schema whose type is not object, like every vendor.
const (
	AnySchema Schemas = iota
	// OpenAISchemas have no composition at the top level. ChatRules.OpenAI includes them.
	OpenAISchemas
	// GeminiSchemas are Google's subset of OpenAPI 3.0.
	GeminiSchemas
	// MoonshotSchemas are "moonshot flavored": every node has its own type.
	MoonshotSchemas
)

var legalKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// functionOf returns a test of a function's schema at vendors with these rules.
func functionOf(kind Schemas, fault func(schema members) string) test {
	return func(s *spot) bool {
		is := s.config.Chat.Schemas
		if s.config.Chat.OpenAI {
			is = OpenAISchemas
		}
		schema, ok := s.object("parameters")
		return is != kind || !ok || s.finds(fault(schema))
	}
}

var (
	anthropicSchemaRows = rowsOf([]row{
		{"tools[]", func(s *spot) bool { return !hasAny(s.in("input_schema"), "oneOf", "anyOf", "allOf") },
			badRequest("{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")},
		{"tools[]", everyProperty(func(name string, _ members) bool { return legalKey.MatchString(name) }),
			badRequest("{at}.custom.input_schema.properties: Property keys should match pattern '" + legalKey.String() + "'")},
		{"tools[]", everyProperty(func(_ string, p members) bool { return p["exclusiveMinimum"].Kind() != 't' }),
			badRequest("{at}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 " +
				"(https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use.")},
	})
	// Each vendor refuses schemas in its own words. Google reports all faults at once.
	functionSchemaRows = rowsOf([]row{
		{"tools[].function", functionOf(OpenAISchemas, composed),
			badRequest("Invalid schema for function '{name}': {found}")},
		{"tools[].function", functionOf(MoonshotSchemas, func(s members) string { return moonshotFault(s, "root") }),
			badRequest("tools.function.parameters is not a valid moonshot flavored json schema, details: <{found}>")},
		{"", func(s *spot) bool {
			if s.config.Chat.OpenAI || s.config.Chat.Schemas != GeminiSchemas {
				return true
			}
			var faults []string
			tools, _ := s.listed("tools")
			for i, t := range tools {
				if schema, ok := t.in("function").object("parameters"); ok {
					faults = append(faults, geminiFaults(schema, fmt.Sprintf("tools[0].function_declarations[%d].parameters", i))...)
				}
			}
			return s.finds(strings.Join(faults, "\n"))
		}, badRequest("{found}")},
	})
)

// everyProperty returns a test of all properties of a tool of the messages dialect.
func everyProperty(holds func(name string, p members) bool) test {
	return func(s *spot) bool {
		properties := s.in("input_schema").in("properties")
		for name := range properties {
			if !holds(name, properties.in(name)) {
				return false
			}
		}
		return true
	}
}

const composedText = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at " +
	"the top level."

func hasAny(schema members, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return schema[word] != nil })
}

// composed returns the fault of a schema with a composition at the top level, or "".
func composed(schema members) string {
	if hasAny(schema, "oneOf", "anyOf", "allOf", "enum", "const", "not") {
		return composedText
	}
	return ""
}

// geminiWords are the fields of Google's Schema.
var geminiWords = []string{"type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems",
	"properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf",
	"propertyOrdering", "default", "items", "minimum", "maximum"}

// geminiFaults returns all faults of a node, in Google's words.
func geminiFaults(node members, path string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, word := range slices.Sorted(maps.Keys(node)) {
		if !slices.Contains(geminiWords, word) {
			fault("Invalid JSON payload received. Unknown name %q at '%s': Cannot find field.", word, path)
		}
	}
	kind, typed := node.text("type")
	properties := node.in("properties")
	var required []string
	_ = json.Unmarshal(node["required"], &required)
	var enum []jsontext.Value
	_ = json.Unmarshal(node["enum"], &enum)
	format := node.str("format")
	switch {
	case node["type"] != nil && !typed:
		fault("Invalid JSON payload received. Unknown name \"type\" at '%s': Proto field is not repeating, cannot start "+
			"list.", path)
	case node["anyOf"] != nil && typed:
		fault("GenerateContentRequest.%s: when using any_of, it must be the only field set", path)
	case node["anyOf"] == nil && !typed:
		fault("GenerateContentRequest.%s.type: must be specified when not using one_of, any_of or all_of fields", path)
	case kind == "array" && !node.has("items"):
		fault("GenerateContentRequest.%s.items: missing field.", path)
	case kind == "string" && format != "" && format != "enum" && format != "date-time":
		fault("GenerateContentRequest.%s.format: only 'enum' and 'date-time' are supported for STRING type", path)
	case node.has("items") && kind != "array":
		fault("GenerateContentRequest.%s.items: field predicate failed: $type == Type.ARRAY", path)
	case node.has("properties") && kind != "object":
		fault("GenerateContentRequest.%s.properties: only allowed for OBJECT type", path)
	case enum != nil && kind != "string":
		fault("GenerateContentRequest.%s.enum: only allowed for STRING type", path)
	}
	for i, value := range enum {
		if value.Kind() != '"' {
			fault("Invalid value at '%s.enum[%d]' (TYPE_STRING), %s", path, i, value)
		} else if string(value) == `""` {
			fault("GenerateContentRequest.%s.enum[%d]: cannot be empty", path, i)
		}
	}
	for i, name := range required {
		if kind != "object" || properties[name] == nil {
			fault("GenerateContentRequest.%s.required[%d]: property is not defined", path, i)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties.object(name)
		if !ok {
			fault("Invalid value at '%s.properties[%d].value'", path, i)
			continue
		}
		faults = append(faults, geminiFaults(p, fmt.Sprintf("%s.properties[%d].value", path, i))...)
	}
	if items, ok := node.object("items"); ok {
		faults = append(faults, geminiFaults(items, path+".items")...)
	} else if node.has("items") {
		fault("Invalid value at '%s.items'", path)
	}
	branches, _ := node.list("anyOf")
	for i, branch := range branches {
		faults = append(faults, geminiFaults(branch, fmt.Sprintf("%s.any_of[%d]", path, i))...)
	}
	return faults
}

// moonshotFault returns the first fault of a node, or "".
func moonshotFault(node members, path string) string {
	typed, fault := node["type"] != nil, ""
	switch {
	case node["$ref"] != nil && typed:
		fault = "when using $ref, type should be defined in the referenced schema instead of the parent schema"
	case node["$ref"] != nil && node["description"] != nil:
		fault = "conflicting keywords found after $ref expansion: description"
	case hasAny(node, "anyOf", "oneOf") && typed:
		fault = "when using anyOf, type should be defined in anyOf items instead of the parent schema"
	case !hasAny(node, "$ref", "anyOf", "type"):
		fault = "type is not defined"
	}
	if fault != "" {
		return "At path '" + path + "': " + fault
	}
	properties := node.in("properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties.object(name)
		if !ok {
			return fmt.Sprintf("At path '%s.properties': property schema for '%s' must be an object", path, name)
		}
		if fault := moonshotFault(p, "properties."+name); fault != "" {
			return fault
		}
	}
	if items, ok := node.object("items"); ok {
		return moonshotFault(items, path+".items")
	}
	return ""
}
