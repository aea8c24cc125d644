package openaiapi

import (
	"bytes"
	"encoding/json"
	"strings"

	webapi "mneme/webmemory/api"
)

// responseFormat is the form that a client wants the answer in.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
}

// readFormat tells the agent that answers the form of the answer, by words, which every model reads, and to the
// master's model as such, too.
func (c *call) readFormat() error {
	var f responseFormat
	if len(c.ResponseFormat) > 0 && json.Unmarshal(c.ResponseFormat, &f) != nil {
		return invalid("response_format", "response_format is an object of the type text, json_object or json_schema.")
	}
	order := "Your answer is one JSON object and nothing else: no other text, no markers of citations, no code fence."
	switch f.Type {
	case "", "text":
		return nil
	case "json_object":
	case "json_schema":
		var schema bytes.Buffer
		if !bytes.HasPrefix(bytes.TrimSpace(f.JSONSchema.Schema), []byte("{")) {
			return invalid("response_format", "json_schema.schema is missing or no object: it is the JSON schema of the answer.")
		}
		_ = json.Compact(&schema, f.JSONSchema.Schema) // it is a part of valid JSON
		order += " It fits this JSON schema: " + schema.String()
	default:
		return invalid("response_format", "The type of a response_format is text, json_object or json_schema, not %.40q.",
			f.Type)
	}
	if c.agent == webapi.Master {
		c.wishes.ResponseFormat = c.ResponseFormat
	}
	c.instructions = strings.TrimSpace(c.instructions + "\n\n" + order)
	return nil
}
