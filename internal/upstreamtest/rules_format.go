package upstreamtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// chatFormat holds the form of an answer to what OpenAI takes: a strict schema leaves nothing open.
func chatFormat(x *exchange) error {
	form := x.at("response_format")
	if form.kind() != "json_schema" {
		return nil
	}
	named, _ := form.object("json_schema")
	schema, ok := named.object("schema")
	if name, _ := named.text("name"); name == "" || !ok {
		return errors.New("Missing required parameter: 'response_format.json_schema.name'.")
	}
	x.format = named["schema"]
	if string(named["strict"]) != "true" {
		return nil
	}
	properties, _ := schema.object("properties")
	var required []string
	if json.Unmarshal(schema["required"], &required) != nil || string(schema["additionalProperties"]) != "false" ||
		len(required) != len(properties) {
		return fmt.Errorf("Invalid schema for response_format '%s': In context=(), 'additionalProperties' is required to be "+
			"supplied and to be false, and 'required' is required to include every key in properties.", named["name"])
	}
	return nil
}

// deepSeekFormat takes any JSON object, which the messages must speak of, and no schema.
func deepSeekFormat(x *exchange) error {
	switch kind := x.at("response_format").kind(); {
	case !slices.Contains([]string{"", "text", "json_object"}, kind):
		return errors.New("This response_format type is unavailable now")
	case kind == "json_object" && !slices.ContainsFunc(x.messages, func(m members) bool {
		return strings.Contains(strings.ToLower(strings.Join(texts(m), "\n")), "json")
	}):
		return errors.New("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.")
	case kind == "json_object":
		x.format = schemaIn(x.messages)
	}
	return nil
}

// schemaIn is the schema of an object that messages speak of, the one of any object if there is none.
func schemaIn(messages []members) jsontext.Value {
	for _, m := range messages {
		text := strings.Join(texts(m), "\n")
		at := strings.Index(text, "{")
		if at < 0 {
			continue
		}
		schema, err := jsontext.NewDecoder(strings.NewReader(text[at:])).ReadValue()
		if object, ok := (members{"schema": schema}).object("schema"); err == nil && ok && object.kind() == "object" {
			return schema
		}
	}
	return jsontext.Value("{}")
}
