// Package responsestest checks answers of the Responses dialect, whole and streamed, against the schemas of Open
// Responses.
package responsestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

// Object is an object of JSON.
type Object = map[string]any

// The schemas of Open Responses, as far as it has them for what is written here: the members that each object must
// have, with their kinds. A question mark allows null; what stands behind an equals sign is the only value.
var (
	responseSchema = map[string]string{
		"id": "string", "object": "=response", "created_at": "number", "completed_at": "number?", "status": "string",
		"incomplete_details": "object?", "model": "string", "previous_response_id": "string?", "instructions": "string?",
		"output": "array", "error": "object?", "tools": "array", "tool_choice": "string|object", "truncation": "string",
		"parallel_tool_calls": "bool", "text": "object", "top_p": "number", "presence_penalty": "number",
		"frequency_penalty": "number", "top_logprobs": "number", "temperature": "number", "reasoning": "object?",
		"usage": "object?", "max_output_tokens": "number?", "max_tool_calls": "number?", "store": "bool",
		"background": "bool", "service_tier": "string", "metadata": "object", "safety_identifier": "string?",
		"prompt_cache_key": "string?",
	}
	itemSchemas = map[string]map[string]string{
		"message": {"id": "string", "status": "string", "role": "=assistant", "content": "array"},
		"function_call": {
			"id": "string", "status": "string", "call_id": "string", "name": "string", "arguments": "string",
		},
		"custom_tool_call": {
			"id": "string", "status": "string", "call_id": "string", "name": "string", "input": "string",
		},
		"reasoning": {"id": "string", "summary": "array"},
	}
	partSchemas = map[string]map[string]string{
		"output_text":  {"text": "string", "annotations": "array", "logprobs": "array"},
		"summary_text": {"text": "string"},
	}
	toolSchema = map[string]string{
		"type": "=function", "name": "string", "description": "string?", "parameters": "object?", "strict": "bool?",
	}
	itemEvent     = map[string]string{"output_index": "number", "item": "object"}
	responseEvent = map[string]string{"response": "object"}
	eventSchemas  = map[string]map[string]string{
		"response.created": responseEvent, "response.in_progress": responseEvent, "response.completed": responseEvent,
		"response.incomplete": responseEvent, "response.failed": responseEvent,
		"response.output_item.added": itemEvent, "response.output_item.done": itemEvent,
		"response.content_part.added":            with("content_index", "part", "object"),
		"response.content_part.done":             with("content_index", "part", "object"),
		"response.output_text.delta":             with("content_index", "delta", "string"),
		"response.output_text.done":              with("content_index", "text", "string"),
		"response.reasoning_summary_part.added":  with("summary_index", "part", "object"),
		"response.reasoning_summary_part.done":   with("summary_index", "part", "object"),
		"response.reasoning_summary_text.delta":  with("summary_index", "delta", "string"),
		"response.reasoning_summary_text.done":   with("summary_index", "text", "string"),
		"response.function_call_arguments.delta": with("", "delta", "string"),
		"response.function_call_arguments.done":  with("", "arguments", "string"),
		"response.custom_tool_call_input.delta":  with("", "delta", "string"),
		"response.custom_tool_call_input.done":   with("", "input", "string"),
		"error":                                  {"error": "object", "code": "string", "message": "string"},
	}
)

func with(index, member, kind string) map[string]string {
	m := map[string]string{"item_id": "string", "output_index": "number", member: kind}
	if index != "" {
		m[index] = "number"
	}
	return m
}

// conform checks an object against a schema.
func conform(t require.TestingT, o Object, schema map[string]string, what string) {
	for name, kind := range schema {
		v, ok := o[name]
		require.True(t, ok, "%s lacks %s", what, name)
		if want, fixed := strings.CutPrefix(kind, "="); fixed {
			require.Equal(t, want, v, "%s: %s", what, name)
			continue
		}
		kind, nullable := strings.CutSuffix(kind, "?")
		if v == nil {
			require.True(t, nullable, "%s: %s is null", what, name)
			continue
		}
		is := map[string]string{"string": "string", "float64": "number", "bool": "bool", "map[string]interface {}": "object",
			"[]interface {}": "array"}[fmt.Sprintf("%T", v)]
		require.Contains(t, strings.Split(kind, "|"), is, "%s: %s", what, name)
	}
}

func itemOf(t require.TestingT, v any) Object {
	it := v.(Object)
	schema, ok := itemSchemas[it["type"].(string)]
	require.True(t, ok, "an item of type %v", it["type"])
	conform(t, it, schema, fmt.Sprint(it["type"]))
	for _, list := range []string{"content", "summary"} {
		parts, _ := it[list].([]any)
		for _, p := range parts {
			partOf(t, p)
		}
	}
	return it
}

func partOf(t require.TestingT, v any) {
	p := v.(Object)
	schema, ok := partSchemas[p["type"].(string)]
	require.True(t, ok, "a part of type %v", p["type"])
	conform(t, p, schema, "part")
}

// Response checks a whole response.
func Response(t require.TestingT, r Object) {
	conform(t, r, responseSchema, "response")
	for _, it := range r["output"].([]any) {
		itemOf(t, it)
	}
	for _, v := range r["tools"].([]any) {
		if tool := v.(Object); tool["type"] == "function" {
			conform(t, tool, toolSchema, "tool")
		}
	}
	conform(t, r["text"].(Object)["format"].(Object), map[string]string{"type": "string"}, "text.format")
	if usage, ok := r["usage"].(Object); ok {
		conform(t, usage, map[string]string{"input_tokens": "number", "output_tokens": "number", "total_tokens": "number",
			"input_tokens_details": "object", "output_tokens_details": "object"}, "usage")
	}
	if failed, ok := r["error"].(Object); ok {
		conform(t, failed, map[string]string{"code": "string", "message": "string"}, "error")
	}
}

// Assemble reads a stream as a client does, checks each event and their order, and puts the response together from
// the pieces. What the last event shows must be the same.
func Assemble(t require.TestingT, stream string) (last Object) {
	var items []any
	var open Object // the item that grows
	text, part := "", false
	frames := wire.NewFrameReader(strings.NewReader(stream))
	for number := 0; ; number++ {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			require.Fail(t, "the stream does not end with [DONE]")
		}
		require.NoError(t, err)
		if string(f.Data) == "[DONE]" {
			require.NotNil(t, last, "[DONE] before the response is over")
			return last
		}
		require.Nil(t, last, "an event behind the last one")
		var e Object
		require.NoError(t, json.Unmarshal(f.Data, &e), "%s", f.Data)
		kind := e["type"].(string)
		require.True(t, strings.HasPrefix(string(f.Raw), "event: "+kind+"\ndata: "), "%s", f.Raw)
		require.EqualValues(t, number, e["sequence_number"])
		schema, ok := eventSchemas[kind]
		require.True(t, ok, "an event %s", kind)
		conform(t, e, schema, kind)
		if r, ok := e["response"].(Object); ok {
			Response(t, r)
		}
		if id, ok := e["item_id"]; ok {
			require.NotNil(t, open, kind)
			require.Equal(t, open["id"], id)
			require.EqualValues(t, len(items), e["output_index"])
		}
		switch kind {
		case "response.created", "response.in_progress":
			require.Equal(t, kind == "response.created", number == 0)
			require.Equal(t, "in_progress", e["response"].(Object)["status"])
		case "response.output_item.added":
			require.Nil(t, open)
			open, text, part = itemOf(t, e["item"]), "", false
			prefix := map[string]string{"message": "msg_", "reasoning": "rs_", "function_call": "fc_",
				"custom_tool_call": "ctc_"}[open["type"].(string)]
			require.True(t, strings.HasPrefix(open["id"].(string), prefix), open["id"])
		case "response.content_part.added", "response.reasoning_summary_part.added":
			partOf(t, e["part"])
			require.Empty(t, e["part"].(Object)["text"])
			part = true
		case "response.content_part.done", "response.reasoning_summary_part.done":
			partOf(t, e["part"])
			require.Equal(t, text, e["part"].(Object)["text"])
			part = false
		case "response.output_item.done":
			require.False(t, part)
			it := itemOf(t, e["item"])
			require.Equal(t, open["id"], it["id"])
			require.Equal(t, text, itemText(it))
			items, open = append(items, it), nil
		case "error":
		case "response.completed", "response.incomplete", "response.failed":
			last = e["response"].(Object)
			require.Equal(t, kind, "response."+last["status"].(string))
			if kind != "response.failed" {
				require.Nil(t, open)
			}
			output := last["output"].([]any)
			require.Len(t, output, len(items))
			for i := range items {
				require.Equal(t, items[i], output[i])
			}
		default:
			if delta, ok := e["delta"].(string); ok {
				text += delta
				require.True(t, part || strings.HasSuffix(open["type"].(string), "_call"), kind)
				continue
			}
			for _, field := range []string{"text", "arguments", "input"} {
				if v, ok := e[field]; ok {
					require.Equal(t, text, v)
				}
			}
		}
	}
}

// itemText is what grew in an item.
func itemText(it Object) string {
	for _, list := range []string{"content", "summary"} {
		if parts, ok := it[list].([]any); ok {
			if len(parts) == 0 {
				return ""
			}
			return parts[0].(Object)["text"].(string)
		}
	}
	for _, member := range []string{"arguments", "input"} {
		if v, ok := it[member].(string); ok {
			return v
		}
	}
	return ""
}
