package chatwire

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// responseFormat is the form that a chat client wants the answer to have.
type responseFormat struct {
	Type       string `json:"type"` // text, json_object, json_schema
	JSONSchema struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitzero"`
		Schema      jsontext.Value `json:"schema"`
		Strict      bool           `json:"strict,omitzero"`
	} `json:"json_schema,omitzero"`
}

// SchemaOf is the schema that a messages client wants the answer to keep; nil for none. What it reads is taken out of
// the members that have no counterpart, and output_config if it has nothing but the named members. The error is a
// wire.Failure with status 400.
func SchemaOf(members map[string]jsontext.Value, allowed ...string) (jsontext.Value, error) {
	config := gjson.ParseBytes(members["output_config"])
	name, format := "output_config.format", config.Get("format")
	if !format.IsObject() {
		name, format = "output_format", gjson.ParseBytes(members["output_format"])
	}
	allowed = slices.DeleteFunc(append(allowed, "format"), func(name string) bool { return !config.Get(name).Exists() })
	if len(config.Map()) == len(allowed) {
		delete(members, "output_config")
	}
	if !format.IsObject() {
		return nil, nil
	}
	delete(members, "output_format")
	schema := format.Get("schema")
	if format.Get("type").Str != "json_schema" || schema.Get("type").Str != "object" {
		return nil, wire.Refuse(`%s must be of "type": "json_schema", with a schema of "type": "object"`, name)
	}
	return jsontext.Value(schema.Raw), nil
}

// chatFormat is the form that a messages client wants the answer to have; nil for none. A schema that leaves nothing
// open is held to strictly, as such a client's own vendor does with any.
func chatFormat(members map[string]jsontext.Value) (*responseFormat, error) {
	schema, err := SchemaOf(members)
	if schema == nil {
		return nil, err
	}
	f := &responseFormat{Type: "json_schema"}
	f.JSONSchema.Name, f.JSONSchema.Schema = wire.AnswerTool, schema
	f.JSONSchema.Strict = Strict(f.JSONSchema.Schema)
	return f, nil
}

var anyObject = jsontext.Value(`{"type":"object","properties":{},"additionalProperties":true}`)

// format holds the answer to the wanted form.
func format(out *wire.Request, f *responseFormat, o Options) (tool string, err error) {
	if f == nil {
		return "", nil
	}
	return AnswerForm{Type: f.Type, Schema: f.JSONSchema.Schema, Description: f.JSONSchema.Description,
		Member: "response_format"}.Hold(out, o)
}

// AnswerForm is the form that a client of OpenAI's dialects wants the answer to have.
type AnswerForm struct {
	Type        string // text, json_object, json_schema; empty for text
	Schema      jsontext.Value
	Description string
	Member      string // of the request, for errors
}

// Hold holds the answer to the form: by the vendor's own format where the model has one that takes the
// schema, else by a tool that must be called; it returns the tool's name. A call of another tool that is forced is no
// answer yet and needs no form. Errors are a wire.Failure with status 400.
func (f AnswerForm) Hold(out *wire.Request, o Options) (tool string, err error) {
	schema := anyObject
	switch {
	case f.Type == "" || f.Type == "text":
		return "", nil
	case f.Type == "json_schema" && f.Schema.Kind() == '{':
		schema = f.Schema
	case f.Type != "json_object" && f.Type != "json_schema":
		return "", wire.Refuse("%s %q is none of text, json_object, json_schema", f.Member, f.Type)
	}
	if gjson.GetBytes(schema, "type").Str != "object" {
		return "", wire.Refuse(`%s: the schema must be of "type": "object"`, f.Member)
	}
	if o.Intermediate || o.Schemas && Closed(schema) {
		out.Other = map[string]jsontext.Value{
			"output_config": slices.Concat([]byte(`{"format":{"type":"json_schema","schema":`), schema, []byte("}}")),
		}
		return "", nil
	}
	choice := out.ToolChoice
	if choice != nil && (choice.Type == "any" || choice.Type == "tool") {
		return "", nil
	}
	tool = wire.AnswerTool
	for slices.ContainsFunc(out.Tools, func(t wire.Tool) bool { return t.Name == tool }) {
		tool += "_"
	}
	out.ToolChoice = &wire.ToolChoice{Type: "tool", Name: tool}
	if len(out.Tools) > 0 && (choice == nil || choice.Type != "none") {
		out.ToolChoice = &wire.ToolChoice{Type: "any", DisableParallel: true}
	}
	description := wire.AnswerToolSays
	if f.Description != "" {
		description += "\n\n" + f.Description
	}
	out.Tools = append(out.Tools, wire.Tool{Name: tool, Description: description, InputSchema: schema})
	return tool, nil
}

// Closed reports whether a schema keeps to what vendors' own formats take, see schemaReader.
func Closed(schema jsontext.Value) bool {
	root := gjson.ParseBytes(schema)
	return (&schemaReader{root: root, budget: maxSchema}).closed(root)
}

// Strict reports whether a schema leaves nothing open, so that OpenAI's strict answers and calls take it.
func Strict(schema jsontext.Value) bool {
	root := gjson.ParseBytes(schema)
	r := &schemaReader{root: root, budget: maxSchema}
	return r.closed(root) && !r.optional
}

// schemaWords are the words of JSON Schema that vendors' own formats take, beside those that closed
// looks into.
var schemaWords = []string{
	"$defs", "$schema", "additionalProperties", "const", "default", "definitions", "description", "enum", "required",
	"title", "type",
}

// maxSchema bounds the schemas in a schema, references followed, so that a circle ends.
const maxSchema = 2000

// schemaReader looks through a schema.
type schemaReader struct {
	root     gjson.Result
	budget   int
	optional bool // a member may be missing, or has a default
}

// closed reports whether a schema keeps to what vendors' own formats take: every object says that it
// has no other members, there are no bounds of numbers, texts and lists, and nothing refers to itself.
func (r *schemaReader) closed(schema gjson.Result) bool {
	if r.budget--; r.budget < 0 || !schema.IsObject() {
		return false
	}
	if ref := schema.Get("$ref"); ref.Exists() {
		path, ok := strings.CutPrefix(ref.Str, "#/")
		node := r.root
		for name := range strings.SplitSeq(path, "/") {
			node = node.Map()[name]
		}
		return ok && r.closed(node)
	}
	r.optional = r.optional || schema.Get("default").Exists() ||
		len(schema.Get("properties").Map()) > len(schema.Get("required").Array())
	ok := schema.Get("additionalProperties").Raw == "false" ||
		!schema.Get("properties").Exists() && !strings.Contains(schema.Get("type").Raw, `"object"`)
	schema.ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "anyOf", "properties":
			value.ForEach(func(_, inner gjson.Result) bool {
				ok = ok && r.closed(inner)
				return ok
			})
		case "items":
			ok = ok && r.closed(value)
		default:
			ok = ok && slices.Contains(schemaWords, name.Str)
		}
		return ok
	})
	return ok
}

// Format makes text of the call by which a model gave its answer, so that a reader of the answer behind it sees what
// the client asked for. Texts beside that call are left out. Nil changes nothing.
type Format struct {
	tool string

	called  bool // the answer has begun
	others  bool // other tools are called too
	pending []wire.Event
	texts   int // blocks in held
	removed int // blocks that were left out
	open    formatBlock
	started bool   // a piece of the answer
	answer  string // the answer as far as it came with the beginning of its block
}

// formatBlock is what becomes of the open block of a stream.
type formatBlock int

const (
	blockPasses formatBlock = iota
	blockAnswers
	blockWaits // until it is known whether the answer comes by a call
	blockGoes
)

// NewFormat is for an answer that comes by a call of the tool; nil without one.
func NewFormat(tool string) *Format {
	if tool == "" {
		return nil
	}
	return &Format{tool: tool}
}

// Event appends to dst the events that stand for one event.
func (f *Format) Event(dst []wire.Event, e wire.Event) []wire.Event {
	if f == nil {
		return append(dst, e)
	}
	switch e.Type {
	case wire.BlockStart:
		return f.start(dst, e)
	case wire.BlockDelta:
		if f.open == blockAnswers {
			return f.piece(dst, e.Index, e.Delta.Inner())
		}
		return f.pass(dst, e)
	case wire.BlockStop:
		if f.open == blockAnswers && !f.started {
			dst = f.piece(dst, e.Index, wire.Inner(cmp.Or(f.answer, "{}")))
		}
		return f.pass(dst, e)
	case wire.MessageDelta:
		dst = f.release(dst)
		if f.endsTurn(string(e.Delta.StopReason)) {
			e.Delta.StopReason = wire.StopEndTurn
			if e.Data != nil {
				e.Data = setEndTurn(e.Data, "delta.stop_reason")
			}
		}
	}
	return append(dst, e)
}

func (f *Format) start(dst []wire.Event, e wire.Event) []wire.Event {
	var block wire.Block
	if e.Block != nil {
		block = *e.Block
	}
	switch f.open = f.judge(block.Type, block.Name); f.open {
	case blockAnswers:
		f.removed, f.pending, f.texts = f.removed+f.texts, nil, 0
		f.answer = string(block.Input)
		return append(dst, wire.Event{Type: wire.BlockStart, Index: e.Index - f.removed,
			Block: &wire.Block{Type: wire.TextBlock}})
	case blockWaits:
		f.texts++
	case blockGoes:
		f.removed++
	case blockPasses:
		dst = f.release(dst)
	}
	return f.pass(dst, e)
}

// judge says what becomes of the next block.
func (f *Format) judge(kind, name string) formatBlock {
	switch {
	case kind == wire.ToolUseBlock && name == f.tool && !f.called:
		f.called = true
		return blockAnswers
	case kind == wire.ToolUseBlock && name == f.tool, kind == wire.TextBlock && f.called:
		return blockGoes
	case kind == wire.TextBlock:
		return blockWaits
	case kind == wire.ToolUseBlock:
		f.others = true
	}
	return blockPasses
}

// piece adds a piece of the answer. The arguments of the call are the text.
func (f *Format) piece(dst []wire.Event, index int, raw []byte) []wire.Event {
	if len(raw) == 0 {
		return dst
	}
	f.started = true
	return append(dst, wire.Event{Type: wire.BlockDelta, Index: index - f.removed,
		Delta: wire.Delta{Type: wire.TextDelta, Raw: raw}})
}

// pass hands on an event of the open block, if that is shown by now.
func (f *Format) pass(dst []wire.Event, e wire.Event) []wire.Event {
	switch f.open {
	case blockGoes:
		return dst
	case blockWaits:
		f.pending = append(f.pending, e.Clone())
		return dst
	}
	e.Shift(-f.removed)
	return append(dst, e)
}

// release hands on the texts that waited.
func (f *Format) release(dst []wire.Event) []wire.Event {
	dst = append(dst, f.pending...)
	f.pending, f.texts = nil, 0
	return dst
}

// endsTurn reports whether the model, which stopped for a reason, has ended its turn by giving the answer.
func (f *Format) endsTurn(stop string) bool { return f.called && !f.others && stop == wire.StopToolUse }

// setEndTurn puts the end of a turn in the place of a reason.
func setEndTurn(data []byte, path string) []byte {
	reason := gjson.GetBytes(data, path)
	return wire.Splice(data, wire.Span{Start: reason.Index, End: reason.Index + len(reason.Raw)},
		wire.Quote(wire.StopEndTurn))
}

// Body is Event for an answer that came whole.
func (f *Format) Body(body []byte) []byte {
	content := gjson.GetBytes(body, "content")
	if f == nil || !content.IsArray() || content.Index <= 0 {
		return body
	}
	var blocks, waiting [][]byte
	content.ForEach(func(_, block gjson.Result) bool {
		switch f.judge(block.Get("type").Str, block.Get("name").Str) {
		case blockAnswers:
			text := slices.Concat([]byte(`{"type":"text","text":`), wire.Quote(block.Get("input").Raw), []byte("}"))
			blocks, waiting = append(blocks, text), nil
		case blockWaits:
			waiting = append(waiting, []byte(block.Raw))
		case blockPasses:
			blocks, waiting = append(append(blocks, waiting...), []byte(block.Raw)), nil
		case blockGoes:
		}
		return true
	})
	if !f.called {
		return body
	}
	replacement := slices.Concat([]byte("["), bytes.Join(append(blocks, waiting...), []byte(",")), []byte("]"))
	body = wire.Splice(body, wire.Span{Start: content.Index, End: content.Index + len(content.Raw)}, replacement)
	if f.endsTurn(gjson.GetBytes(body, "stop_reason").Str) {
		body = setEndTurn(body, "stop_reason")
	}
	return body
}
