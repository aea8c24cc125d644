package thinking

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Errors of vendors and of gateways before them, as their users have reported them.
func TestSchemaRefused(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   RefusedSchema
	}{
		{400, `{"error":{"message":"Invalid schema for function 'update-event': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.","type":"invalid_request_error","param":"tools[5].function.parameters","code":"invalid_function_parameters"}}`,
			RefusedSchema{true, []string{"update-event"}, []int{5}}},
		{400, `{"error":{"message":"Invalid schema for function 'get_shell_config': schema must be a JSON Schema of 'type: \"object\"', got 'type: null'."}}`,
			RefusedSchema{Matched: true, Names: []string{"get_shell_config"}}},
		{400, `{"error":{"message":"Invalid schema for function 'json_edit_tool': In context=('properties', 'value'), 'additionalProperties' is required to be supplied and to be false.","type":"invalid_request_error","param":"tools[2].parameters","code":"invalid_function_parameters"}}`,
			RefusedSchema{true, []string{"json_edit_tool"}, []int{2}}},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.73.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"}}`,
			RefusedSchema{Matched: true, Indexes: []int{73}}},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.14.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"}}`,
			RefusedSchema{Matched: true, Indexes: []int{14}}},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.39.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 (https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.anthropic.com/en/docs/tool-use."}}`,
			RefusedSchema{Matched: true, Indexes: []int{39}}},
		{400, `[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"additionalProperties\" at 'tools[0].function_declarations[34].parameters.properties[6].value.items.any_of[0]': Cannot find field.\nInvalid JSON payload received. Unknown name \"const\" at 'tools[0].function_declarations[5].parameters': Cannot find field.","status":"INVALID_ARGUMENT"}}]`,
			RefusedSchema{Matched: true, Indexes: []int{34, 5}}},
		{400, `{"error":{"code":400,"message":"* GenerateContentRequest.tools[0].function_declarations[93].parameters.properties[links].items.properties[url].format: only 'enum' and 'date-time' are supported for STRING type"}}`,
			RefusedSchema{Matched: true, Indexes: []int{93}}},
		{400, `{"error":{"message":"tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': when using anyOf, type should be defined in anyOf items instead of the parent schema>","type":"invalid_request_error"}}`,
			RefusedSchema{Matched: true}},
		{400, `{"error":{"message":"Conflict in schema definitions for key 'if'. Previous: {'required': ['expand']}, New: {'required': ['collect']}"}}`,
			RefusedSchema{Matched: true}},
		{400, `{"object":"error","message":"Invalid tool schema: {'type': 'object', 'properties': {'path': {'type': 'string'}}, 'additionalProperties': False} is not valid under any of the given schemas"}`,
			RefusedSchema{Matched: true}},
		{400, `{"message":"Grammar error: at 3(11): failed to compile JSON schema"}`, RefusedSchema{Matched: true}},
		{500, `{"error":{"message":"Error from provider: tools[3].function.parameters must be valid JSON"}}`,
			RefusedSchema{Matched: true, Indexes: []int{3}}},

		{400, `{"error":{"message":"Invalid schema for response_format 'generate_response': In context=(), 'additionalProperties' is required to be supplied and to be false.","param":"response_format"}}`, RefusedSchema{}},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"}}`, RefusedSchema{}},
		{400, `{"error":{"message":"Tool names must be unique"}}`, RefusedSchema{}},
		{400, `{"error":{"message":"Unrecognized request argument supplied: top_k"}}`, RefusedSchema{}},
		{429, `{"error":{"message":"Invalid schema for function 'f'"}}`, RefusedSchema{}},
		{400, `{"type":"error","error":{"message":"messages.1.content.0: Invalid ` + "`signature`" + ` in ` + "`thinking`" + ` block"}}`, RefusedSchema{}},
	} {
		require.Equal(t, c.want, SchemaRefused(c.status, []byte(c.body)), c.body)
	}
}
