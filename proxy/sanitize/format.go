package sanitize

import (
	"slices"

	"mneme/proxy/wire"
)

// formless are the vendors that are known to hold no answer to a schema by themselves in the messages dialect.
var formless = []string{"deepseek", "glm", "kimi", "minimax", "qwen"}

// answerByTool makes a model that is known to have no format of its own give its answer by calling a tool with
// the wanted schema. A call that is forced already is no answer yet and needs no form.
func (r *request) answerByTool() {
	if r.p.Schemas || r.p.Model == "" && !slices.Contains(formless, r.p.Vendor) || r.Count {
		return
	}
	config := objectOf(r.root.get("output_config"))
	form := objectOf(config.get("format"))
	if form.members == nil {
		form = objectOf(r.root.get("output_format"))
	}
	schema := objectOf(form.get("schema"))
	if form.text("type") != "json_schema" || schema.text("type") != "object" {
		return
	}
	if config.has("format") {
		r.setIn(KindFormat, "output_config", "format", nil)
	}
	if r.root.has("output_format") {
		r.set(KindFormat, "output_format", nil)
	}
	chosen := objectOf(r.root.get("tool_choice"))
	choice := chosen.text("type")
	if choice == "any" || choice == "tool" {
		return
	}
	raw, name := r.root.get("tools"), wire.AnswerTool
	tools := elements(raw)
	for slices.ContainsFunc(tools, func(it item) bool {
		o := objectOf(it.raw)
		return o.text("name") == name
	}) {
		name += "_"
	}
	forced := slices.Concat([]byte(`{"type":"tool","name":`), wire.Quote(name), []byte("}"))
	if len(tools) > 0 && choice != "none" {
		forced = []byte(`{"type":"any","disable_parallel_tool_use":true}`)
	}
	tool := slices.Concat([]byte(`{"name":`), wire.Quote(name), []byte(`,"description":`),
		wire.Quote(wire.AnswerToolSays), []byte(`,"input_schema":`), schema.raw(), []byte("}"))
	if len(tools) == 0 {
		raw = []byte("[]")
	}
	items := append(tools, item{-1, wire.Span{}, tool})
	r.set(KindFormat, "tools", array(raw, wire.Span{Start: 0, End: len(raw)}, len(tools), items))
	r.set(KindFormat, "tool_choice", forced)
	r.out.AnswerTool = name
}
