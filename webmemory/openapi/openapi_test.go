package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	"mneme/webmemory/openapi"
)

var update = flag.Bool("update", false, "rewrite openapi.json")

// object of JSON.
type fields = map[string]any

// Each event has its payload's members beside the head's; the union is told apart by role.
var payloads = []event.Payload{
	&event.RunStarted{}, &event.MemoryReset{}, &event.Recalled{}, &event.AssistantDelta{}, &event.Delegation{},
	&event.SubagentDelta{}, &event.AssistantWithTools{}, &event.ToolProgress{}, &event.ToolResult{}, &event.Completion{},
	&event.Assistant{}, &event.Error{}, &event.MasterTool{}, &event.RunWaiting{}, &event.RunResumed{},
	&event.RunFinished{},
}

// builder makes the document.
type builder struct{ *schemas }

// document is the description of all operations.
func (b builder) document() []byte {
	paths := map[string]fields{}
	for _, o := range operations() {
		method, path, _ := strings.Cut(o.route, " ")
		if paths[path] == nil {
			paths[path] = fields{}
		}
		require.NotContains(b.t, paths[path], method, o.route)
		paths[path][strings.ToLower(method)] = b.operation(o, method, path)
	}
	info := fields{"title": "mneme, webmemory", "version": "1", "summary": "Chats with agents that remember",
		"description": "docs/api.md says more. Answers and events may have members that are not named here: ignore them."}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"openapi": "3.1.0",%[2]s"info": %[1]s,%[2]s"servers": [{"url": "/"}],%[2]s`+
		`"security": [{"key": []}, {}],%[2]s"paths": {`, b.line(info), "\n")
	for i, path := range slices.Sorted(maps.Keys(paths)) {
		fmt.Fprintf(&out, "%s\n%q: {", []string{"", ","}[min(i, 1)], path)
		b.each(&out, paths[path])
	}
	key := fields{"type": "http", "scheme": "bearer",
		"description": "a key of docs/security.md; none where keys are not configured"}
	fmt.Fprintf(&out, "\n},\n%q: {%q: {%q: %s},\n%q: {", "components", "securitySchemes", "key", b.line(key), "schemas")
	all := fields{}
	for name, s := range b.made {
		all[name] = s
	}
	b.each(&out, all)
	out.WriteString("}}\n")
	return out.Bytes()
}

// each writes members, each in a line, so that a change shows as the line of an operation or of a schema.
func (b builder) each(out *bytes.Buffer, of fields) {
	for i, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(out, "%s\n%q: %s", []string{"", ","}[min(i, 1)], name, b.line(of[name]))
	}
	out.WriteString("}")
}

func (b builder) line(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	require.NoError(b.t, e.Encode(v))
	return bytes.TrimSpace(out.Bytes())
}

func (b builder) operation(o operation, method, path string) fields {
	out := fields{"summary": o.summary, "operationId": operationID(method, path), "tags": []string{tag(path)}}
	if slices.Contains(open, o.route) {
		out["security"] = []any{}
	}
	var all []fields
	names := append(regexp.MustCompile(`\{[a-z]+\}`).FindAllString(path, -1), strings.Fields(o.params)...)
	for _, name := range names {
		p, ok := params[name]
		require.True(b.t, ok, "%s: %s", o.route, name)
		name, _, _ = strings.Cut(name, ":")
		schema := fields{"type": p.kind}
		if p.allowed != nil {
			schema["enum"] = p.allowed
		}
		in, required := "query", strings.HasPrefix(name, "{") || name == "query"
		switch {
		case strings.HasPrefix(name, "{"):
			in = "path"
		case name[0] < 'a':
			in = "header"
		}
		if name == "metadata" {
			schema["additionalProperties"] = fields{"type": "string"}
		}
		if name != "Accept" { // which OpenAPI leaves to the content types of answers
			one := fields{"name": strings.Trim(name, "{}"), "in": in, "description": p.text, "schema": schema}
			if required {
				one["required"] = true
			}
			all = append(all, one)
		}
	}
	if all != nil {
		out["parameters"] = all
	}
	if o.body != nil {
		out["requestBody"] = fields{"required": true, "content": b.content(o.body, true)}
	}
	out["responses"] = b.responses(o)
	return out
}

// responses are an operation's answers, and its refusals with their codes.
func (b builder) responses(o operation) fields {
	out, refusal := fields{}, any(Problem{})
	if strings.Contains(o.route, "/v1/chat/completions") || strings.Contains(o.route, "/v1/models/") ||
		strings.Contains(o.route, "/v1/responses") || strings.Contains(o.route, "/v1/embeddings") ||
		strings.Contains(o.route, "/v1/conversations") {
		refusal = ChatProblem{}
	}
	if tag(strings.Fields(o.route)[1]) == "ui" { // a sentence, its code in a header; others before it
		refusal = media{"text/plain": text{}, "application/json": Problem{}}
	}
	for status, body := range o.answers {
		answer := fields{"description": says{200: "OK", 201: "Made", 202: "Accepted", 204: "Nothing to say",
			207: "Some were refused", 503: "Not ready"}[status]}
		if body != nil {
			content := b.content(body, false)
			if stream, ok := content["text/event-stream"].(fields); ok && strings.HasPrefix(o.route, "POST ") {
				// ogen's clients follow a stream that has ended with the same request once more, which would post a message
				// twice. So they hand the response over as it is.
				stream["x-ogen-raw-response"] = true
			}
			answer["content"] = content
		}
		if status/100 == 2 && strings.Contains(o.params, "Prefer") { // a run answers
			answer["headers"] = fields{"Mneme-Run-Id": fields{"description": "the run", "schema": fields{"type": "string"}}}
		}
		out[strconv.Itoa(status)] = answer
	}
	for status, codes := range o.refused {
		list := strings.Fields(codes + " " + common[status])
		out[strconv.Itoa(status)] = fields{"description": "`" + strings.Join(list, "`, `") + "`",
			"content": b.content(refusal, false), "x-codes": list}
	}
	var rest []string
	for _, status := range slices.Sorted(maps.Keys(common)) {
		if o.refused[status] == "" && o.answers[status] == nil {
			rest = append(rest, strings.Fields(common[status])...)
		}
	}
	out["default"] = fields{"description": "A refusal that any route may answer with: `" + strings.Join(rest, "`, `") + "`",
		"content": b.content(refusal, false), "x-codes": rest}
	return out
}

// content is what a body or an answer may be.
func (b builder) content(of any, request bool) fields {
	byType, ok := of.(media)
	if !ok {
		byType = media{"application/json": of}
	}
	out := fields{}
	for kind, value := range byType {
		out[kind] = b.media(value, request)
	}
	return out
}

func (b builder) media(of any, request bool) fields {
	switch of := of.(type) {
	case events: // 3.1 has no word for the items of a stream; generators take the schema for that of each event's data
		return fields{"schema": fields{"$ref": componentsPath + "Event", "description": "frames of `event:` the role, " +
			"`data:` an Event in one line of JSON, and `id:` its number"},
			"x-item-schema": fields{"$ref": componentsPath + "Event"}}
	case lines:
		return fields{"schema": fields{"type": "string", "description": "a JSON object in each line"},
			"x-item-schema": b.any(of)}
	case chunks:
		return fields{"schema": fields{"type": "string", "description": "frames of `data:` a ChatChunk in one line of JSON, " +
			"and at the end `[DONE]`"}, "x-item-schema": b.of(reflect.TypeFor[ChatChunk]())}
	case parts:
		return fields{"schema": fields{"type": "string", "description": "frames of `data:` a part of the AI SDK's UI message " +
			"stream in one line of JSON, and at the end `[DONE]`"}}
	case oneOf: // told apart by their outcomes, each of which is the only one of its type
		out, mapping := &jsonschema.Schema{}, fields{}
		for _, one := range of {
			ref := b.of(reflect.TypeOf(one))
			out.OneOf = append(out.OneOf, ref)
			outcomes := enums[reflect.TypeOf(one).Name()+".outcome"]
			require.Len(b.t, outcomes, 1)
			mapping[outcomes[0].(string)] = ref.Ref
		}
		out.Extra = fields{"discriminator": fields{"propertyName": "outcome", "mapping": mapping}}
		return fields{"schema": out}
	case text:
		return fields{"schema": fields{"type": "string"}}
	case binary:
		return fields{"schema": fields{}}
	case object:
		return fields{"schema": fields{"type": "object", "additionalProperties": true}}
	}
	schema := b.of(reflect.TypeOf(of))
	if request { // a member that is not known is refused
		name := strings.TrimPrefix(schema.Ref, componentsPath)
		if name != "Document" && name != "SearchRequest" && name != "ChatCompletionRequest" &&
			name != "ResponseRequest" && name != "UIRequest" {
			b.made[name].AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
		}
	}
	return fields{"schema": schema}
}

// any is the schema of one of several types.
func (b builder) any(of []any) *jsonschema.Schema {
	if len(of) == 1 {
		return b.of(reflect.TypeOf(of[0]))
	}
	out := &jsonschema.Schema{}
	for _, one := range of {
		out.AnyOf = append(out.AnyOf, b.of(reflect.TypeOf(one)))
	}
	return out
}

// events makes the schemas of events.
func (b builder) events() {
	head := b.of(reflect.TypeFor[event.Head]())
	union := &jsonschema.Schema{Description: "What happened in a run. Pass over roles that are not named here."}
	mapping := fields{}
	for _, p := range payloads {
		t := reflect.TypeOf(p).Elem()
		payload := b.of(t)
		name := t.Name() + "Event"
		var role any = p.Role()
		b.made[name] = &jsonschema.Schema{
			AllOf: []*jsonschema.Schema{head, payload}, Required: []string{"role"},
			Properties: map[string]*jsonschema.Schema{"role": {Type: "string", Const: &role}},
		}
		union.OneOf = append(union.OneOf, &jsonschema.Schema{Ref: componentsPath + name})
		mapping[p.Role()] = componentsPath + name
	}
	union.Extra = fields{"discriminator": fields{"propertyName": "role", "mapping": mapping}}
	b.made["Event"] = union
}

// operationID is a route's name for programs, such as getChatRunEvents.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/-._", r) })
	for i, word := range words {
		if word == "v1" {
			continue
		}
		if word == "c" {
			word = "chat"
		}
		if strings.HasPrefix(word, "{") {
			continue
		}
		if i+1 < len(words) && strings.HasPrefix(words[i+1], "{") {
			word = strings.TrimSuffix(word, "s")
		}
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// tag is the group of a path.
func tag(path string) string {
	switch {
	case strings.Contains(path, "/documents"), strings.HasPrefix(path, "/v1/collections"):
		return "documents"
	case strings.HasSuffix(path, "/chat/completions"), strings.Contains(path, "/v1/models"),
		strings.Contains(path, "/v1/responses"), strings.HasSuffix(path, "/v1/embeddings"),
		strings.HasPrefix(path, "/v1/conversations"):
		return "openai"
	case strings.HasSuffix(path, "/ui"), strings.Contains(path, "/ui/"):
		return "ui"
	case strings.HasPrefix(path, "/v1/oneshot"):
		return "messages"
	case strings.HasSuffix(path, "/messages"), strings.Contains(path, "/runs/"), path == "/chat", path == "/v1/approvals":
		return "messages"
	case strings.HasPrefix(path, "/v1/chats"):
		return "memory"
	}
	return "service"
}

func TestTheDocumentIsThatOfTheTypesAndRoutes(t *testing.T) {
	b := builder{newSchemas(t)}
	b.events()
	want := b.document()
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", want, 0o644))
		return
	}
	require.Equal(t, string(want), string(openapi.Document()), "run: go test ./webmemory/openapi -update")
}

func TestTheDocumentIsValid(t *testing.T) {
	if *update {
		t.Skip("it is written anew")
	}
	raw, err := os.ReadFile("testdata/openapi-3.1-2022-10-07.json") // of spec.openapis.org, Apache-2.0
	require.NoError(t, err)
	var official *jsonschema.Schema
	require.NoError(t, json.Unmarshal(raw, &official))
	check, err := official.Resolve(nil)
	require.NoError(t, err)
	var document any
	require.NoError(t, json.Unmarshal(openapi.Document(), &document))
	require.NoError(t, check.Validate(document))

	// What it refers to is there, its ids are unique, and nothing is said in a way that generators of clients refuse.
	ids := map[any]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(one)
			}
		case fields:
			_, bare := v["items"].(bool)
			require.False(t, bare, "%v: items are any JSON, as a bare true", v)
			members, _ := v["properties"].(fields)
			for name, member := range members {
				require.IsType(t, fields{}, member, "%s is any JSON without a word about it, as a bare true", name)
				if of := member.(fields); of["type"] == "object" && of["properties"] == nil {
					require.Contains(t, of, "additionalProperties", "%s: clients in TypeScript can put nothing into it", name)
				}
			}
			if kinds, ok := v["type"].([]any); ok {
				require.Contains(t, kinds, "null", "a list of two types; say anyOf or oneOf")
			}
			if ref, ok := v["$ref"].(string); ok {
				name, ours := strings.CutPrefix(ref, componentsPath)
				require.True(t, ours, ref)
				require.Contains(t, document.(fields)["components"].(fields)["schemas"], name)
			}
			if id, ok := v["operationId"]; ok {
				require.False(t, ids[id], id)
				ids[id] = true
			}
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(document)
	require.NotEmpty(t, ids)
}
