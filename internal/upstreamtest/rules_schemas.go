package upstreamtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schemas is what a vendor takes of the schemas of tools.
type Schemas int

// AnySchema refuses only a top that is no object, which every vendor does.
const (
	AnySchema Schemas = iota
	// OpenAISchemas have no composition at the top. It is part of ChatRules.OpenAI.
	OpenAISchemas
	// GeminiSchemas are Google's subset of OpenAPI 3.0.
	GeminiSchemas
	// MoonshotSchemas are "moonshot flavored": every node has a type, and it stands where the node is.
	MoonshotSchemas
	// PlainSchemas have nothing but types, descriptions, properties, items and lists of strings.
	PlainSchemas
)

var legalKey = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// anthropicSchemas refuses what Anthropic refuses of the schemas of tools.
func anthropicSchemas(x *exchange) error {
	tools, _ := x.body.list("tools")
	for i, t := range tools {
		at := fmt.Sprintf("tools.%d.custom.input_schema", i)
		schema, ok := t.object("input_schema")
		if !ok {
			continue
		}
		if schema["oneOf"] != nil || schema["anyOf"] != nil || schema["allOf"] != nil {
			return errors.New(at + ": input_schema does not support oneOf, allOf, or anyOf at the top level")
		}
		properties, _ := schema.object("properties")
		for name, property := range properties {
			if !legalKey.MatchString(name) {
				return fmt.Errorf("%s.properties: Property keys should match pattern '%s'", at, legalKey)
			}
			var p members
			if property.Kind() == '{' && json.Unmarshal(property, &p, lenient) == nil && p["exclusiveMinimum"].Kind() == 't' {
				return errors.New(at + ": JSON schema is invalid. It must match JSON Schema draft 2020-12 " +
					"(https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use.")
			}
		}
	}
	return nil
}

// functionSchemas refuses what Config.Chat.Schemas refuses of the schemas of functions, in the words of
// a vendor that has such rules.
func functionSchemas(x *exchange) error {
	tools, _ := x.body.list("tools")
	var faults []string
	for i, t := range tools {
		f, _ := t.object("function")
		name, _ := f.text("name")
		schema, ok := f.object("parameters")
		if !ok {
			continue
		}
		switch {
		case x.config.Chat.OpenAI, x.config.Chat.Schemas == OpenAISchemas:
			if composed(schema) {
				return fmt.Errorf("Invalid schema for function '%s': %s", name, composedText)
			}
		case x.config.Chat.Schemas == GeminiSchemas:
			at := fmt.Sprintf("tools[0].function_declarations[%d].parameters", i)
			faults = append(faults, geminiFaults(schema, at)...)
		case x.config.Chat.Schemas == MoonshotSchemas:
			if fault := moonshotFault(schema, "root"); fault != "" {
				return fmt.Errorf("tools.function.parameters is not a valid moonshot flavored json schema, details: <%s>", fault)
			}
		case x.config.Chat.Schemas == PlainSchemas:
			if word := unplain(schema); word != "" {
				return fmt.Errorf("Invalid schema for function '%s': the keyword '%s' is not supported", name, word)
			}
		}
	}
	if faults != nil {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}

const composedText = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at " +
	"the top level."

// composed says whether a schema has what OpenAI takes below the top only.
func composed(schema members) bool {
	return slices.ContainsFunc([]string{"oneOf", "anyOf", "allOf", "enum", "const", "not"}, func(word string) bool {
		return schema[word] != nil
	})
}

// geminiWords are the fields of Google's Schema.
var geminiWords = []string{"type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems",
	"properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf",
	"propertyOrdering", "default", "items", "minimum", "maximum"}

// geminiFaults are all faults of a node, each a sentence of Google's.
func geminiFaults(node members, at string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, word := range slices.Sorted(maps.Keys(node)) {
		if !slices.Contains(geminiWords, word) {
			fault("Invalid JSON payload received. Unknown name %q at '%s': Cannot find field.", word, at)
		}
	}
	kind, typed := node.text("type")
	properties, _ := node.object("properties")
	var required []string
	_ = json.Unmarshal(node["required"], &required)
	var enum []jsontext.Value
	_ = json.Unmarshal(node["enum"], &enum)
	format, _ := node.text("format")
	switch {
	case node["type"] != nil && !typed:
		fault("Invalid JSON payload received. Unknown name \"type\" at '%s': Proto field is not repeating, cannot start "+
			"list.", at)
	case node["anyOf"] != nil && typed:
		fault("GenerateContentRequest.%s: when using any_of, it must be the only field set", at)
	case node["anyOf"] == nil && !typed:
		fault("GenerateContentRequest.%s.type: must be specified when not using one_of, any_of or all_of fields", at)
	case kind == "array" && !node.has("items"):
		fault("GenerateContentRequest.%s.items: missing field.", at)
	case kind == "string" && format != "" && format != "enum" && format != "date-time":
		fault("GenerateContentRequest.%s.format: only 'enum' and 'date-time' are supported for STRING type", at)
	case node.has("items") && kind != "array":
		fault("GenerateContentRequest.%s.items: field predicate failed: $type == Type.ARRAY", at)
	case node.has("properties") && kind != "object":
		fault("GenerateContentRequest.%s.properties: only allowed for OBJECT type", at)
	case enum != nil && kind != "string":
		fault("GenerateContentRequest.%s.enum: only allowed for STRING type", at)
	}
	for i, value := range enum {
		if value.Kind() != '"' {
			fault("Invalid value at '%s.enum[%d]' (TYPE_STRING), %s", at, i, value)
		} else if string(value) == `""` {
			fault("GenerateContentRequest.%s.enum[%d]: cannot be empty", at, i)
		}
	}
	for i, name := range required {
		if kind != "object" || properties[name] == nil {
			fault("GenerateContentRequest.%s.required[%d]: property is not defined", at, i)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties.object(name)
		if !ok {
			fault("Invalid value at '%s.properties[%d].value'", at, i)
			continue
		}
		faults = append(faults, geminiFaults(p, fmt.Sprintf("%s.properties[%d].value", at, i))...)
	}
	if items, ok := node.object("items"); ok {
		faults = append(faults, geminiFaults(items, at+".items")...)
	} else if node.has("items") {
		fault("Invalid value at '%s.items'", at)
	}
	branches, _ := node.list("anyOf")
	for i, branch := range branches {
		faults = append(faults, geminiFaults(branch, fmt.Sprintf("%s.any_of[%d]", at, i))...)
	}
	return faults
}

// moonshotFault is the first fault of a node; empty for none.
func moonshotFault(node members, at string) string {
	typed := node["type"] != nil
	switch {
	case node["$ref"] != nil && typed:
		return fmt.Sprintf("At path '%s': when using $ref, type should be defined in the referenced schema instead of the "+
			"parent schema", at)
	case node["$ref"] != nil && node["description"] != nil:
		return fmt.Sprintf("At path '%s': conflicting keywords found after $ref expansion: description", at)
	case (node["anyOf"] != nil || node["oneOf"] != nil) && typed:
		return fmt.Sprintf("At path '%s': when using anyOf, type should be defined in anyOf items instead of the parent "+
			"schema", at)
	case node["$ref"] == nil && node["anyOf"] == nil && !typed:
		return fmt.Sprintf("At path '%s': type is not defined", at)
	}
	properties, _ := node.object("properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties.object(name)
		if !ok {
			return fmt.Sprintf("At path '%s.properties': property schema for '%s' must be an object", at, name)
		}
		if fault := moonshotFault(p, "properties."+name); fault != "" {
			return fault
		}
	}
	if items, ok := node.object("items"); ok {
		return moonshotFault(items, at+".items")
	}
	return ""
}

// unplain is a keyword that PlainSchemas do not have; empty for none.
func unplain(node members) string {
	if word := node.unknown("type", "description", "properties", "required", "items", "enum"); word != "" {
		return word
	}
	if _, typed := node.text("type"); !typed {
		return "type"
	}
	var enum []string
	if node["enum"] != nil && json.Unmarshal(node["enum"], &enum) != nil {
		return "enum"
	}
	properties, _ := node.object("properties")
	for name := range properties {
		p, _ := properties.object(name)
		if word := unplain(p); word != "" {
			return word
		}
	}
	if items, ok := node.object("items"); ok {
		return unplain(items)
	}
	return cmp.Or(map[bool]string{true: "items"}[node["items"] != nil], "")
}
