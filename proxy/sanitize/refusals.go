package sanitize

import (
	"slices"
	"strconv"
	"strings"

	"mneme/proxy/wire"
)

// whileThinking in Rule.ConflictsWith stands for what the model does, not for the member.
const whileThinking = "thinking"

// PlainSchemas are the Keys of the tools whose schemas go in the plain form; nil for none.
func PlainSchemas(rules []Rule) (keys []string) {
	for i := range rules {
		keys = append(keys, rules[i].Schemas...)
	}
	return keys
}

// BetaHeader is the name of a Rule about values of the header anthropic-beta.
const BetaHeader = "anthropic-beta"

// wholeAnswer is the value of Rule.ConflictsWith for requests without a stream.
const wholeAnswer = "stream.false"

// WithoutTools is the value of Rule.ConflictsWith for requests with calls and without tools.
const WithoutTools = "tools.none"

// NoTool returns tools for requests to vendors that require them beside calls in the history.
func NoTool(d wire.Dialect) string {
	if d == wire.Chat {
		return `[{"type":"function","function":{"name":"no_tool","description":"Do not call this.","parameters":` +
			`{"type":"object","properties":{}}}}]`
	}
	return `[{"name":"no_tool","description":"Do not call this.","input_schema":{"type":"object","properties":{}}}]`
}

// ToolList is the name of a Rule about tools of a type, which is the Rule's Value.
const ToolList = "tools[]"

// withoutTools removes the tools of a refused type from a request in the vendor's dialect, unless it has no others.
func (f *Rule) withoutTools(o *object) bool {
	tools, removed := removeElements(o.get("tools"), func(raw []byte) bool {
		tool := objectOf(raw)
		return string(tool.get("type")) == f.Value
	})
	if removed = removed && tools != nil; removed {
		o.set("tools", tools)
	}
	return removed
}

// leaveOut applies the rules that are about members.
func (r *request) leaveOut() {
	for i := range r.Rules {
		if f := &r.Rules[i]; f.Name != "" && f.Name != BetaHeader && f.Name != ToolList && r.holds(f) {
			r.leave(f)
		}
	}
}

// holds reports whether the request meets the rule's condition in Beside.
func (r *request) holds(f *Rule) bool {
	switch f.ConflictsWith {
	case "":
		return true
	case whileThinking:
		return !r.off()
	case wholeAnswer:
		return !r.Outline.Stream
	case "tools":
		return r.tools()
	case WithoutTools:
		return !r.tools() && r.usesTools()
	}
	return r.root.has(f.ConflictsWith)
}

// leave applies a rule.
func (r *request) leave(f *Rule) {
	if f.Set != "" {
		if string(r.root.get(f.Name)) != f.Set {
			r.set(KindRefused, f.Name, []byte(f.Set))
		}
		return
	}
	if f.Name == FormatType {
		form := objectOf(r.root.get("response_format"))
		if string(form.get("type")) == f.Value {
			r.tellSchema()
		}
		return
	}
	value := r.root.get(f.Name)
	if !r.edit(f) {
		return
	}
	kind := KindRefused
	if f.Max > 0 && strings.HasPrefix(f.Name, "max_") {
		kind = KindShorter
	}
	r.changed(kind, f.Name)
	if f.Replacement != "" && !r.root.has(f.Replacement) {
		r.root.set(f.Replacement, value)
	}
	if f.Name == "thinking" {
		r.unthinking = true
	}
}

// edit applies a rule to all members at its path, and reports whether it changed any.
func (r *request) edit(f *Rule) (changed bool) {
	steps := strings.Split(f.Name, ".")
	switch steps[0] {
	case "*":
		changed = f.editIn(&r.root, steps[1:])
		for _, list := range []string{"system[]", "tools[]"} {
			changed = f.editIn(&r.root, slices.Concat([]string{list}, steps[1:])) || changed
		}
		for _, m := range r.messages {
			changed = f.editIn(&m.object, steps[1:]) || changed
		}
		// Not the input of a call, which is data.
		changed = r.editBlocks(f, slices.Concat([]string{"content[]"}, steps[1:])) || changed
		return r.editBlocks(f, steps[1:]) || changed
	case "messages[]":
		if steps[1] == "content[]" {
			return r.editBlocks(f, steps[2:])
		}
		for _, m := range r.messages {
			if steps[1] != "tool_calls[]" || m.calls == nil {
				changed = f.editIn(&m.object, steps[1:]) || changed
				continue
			}
			for _, c := range m.calls {
				changed = f.editIn(&c.object, steps[2:]) || changed
			}
		}
		return changed
	}
	return f.editIn(&r.root, steps)
}

func (r *request) editBlocks(f *Rule, steps []string) (changed bool) {
	for _, m := range r.messages {
		for _, b := range m.blocks {
			changed = f.editIn(&b.object, steps) || changed
		}
	}
	return changed
}

// editIn changes the member at a path of steps in an object. A step that ends in [] continues in each array element.
func (f *Rule) editIn(o *object, steps []string) bool {
	name, list := strings.CutSuffix(steps[0], "[]")
	value := o.get(name)
	if value == nil {
		return false
	}
	if !list {
		value, changed := f.editValue(value, steps[1:])
		if changed {
			o.set(name, value)
		}
		return changed
	}
	items, changed := elements(value), false
	for i := range items {
		if raw, done := f.editValue(items[i].raw, steps[1:]); done && raw != nil {
			items[i].raw, changed = raw, true
		}
	}
	if changed {
		o.set(name, array(value, wire.Span{Start: 0, End: len(value)}, len(items), items))
	}
	return changed
}

// editValue is editIn for a value. It returns nil to remove the value, such as an object that becomes empty.
func (f *Rule) editValue(raw []byte, steps []string) (_ []byte, changed bool) {
	if len(steps) == 0 {
		return f.fit(raw)
	}
	o := objectOf(raw)
	if !f.editIn(&o, steps) {
		return raw, false
	}
	if raw = o.raw(); len(objectOf(raw).members) == 0 {
		return nil, true
	}
	return raw, true
}

// fit returns the value that replaces a member's value; nil removes the member.
func (f *Rule) fit(value []byte) (_ []byte, changed bool) {
	switch {
	case f.Value != "" && string(value) != f.Value:
		return value, false
	case len(f.Accepted) > 0:
		requested := textOf(value)
		if requested == "" || slices.Contains(f.Accepted, requested) {
			return value, false
		}
		if fit := nearest(f.Accepted, requested); fit != "" {
			return wire.Quote(fit), true
		}
	case f.Max > 0 && value[0] == '[':
		items := elements(value)
		if int64(len(items)) <= f.Max {
			return value, false
		}
		return array(value, wire.Span{Start: 0, End: len(value)}, len(items), items[:f.Max]), true
	case f.Max > 0 && value[0] == '"':
		text := textOf(value)
		cut := strings.ToValidUTF8(text[:min(int64(len(text)), f.Max)], "")
		return wire.Quote(cut), len(cut) < len(text)
	case f.Max > 0:
		n, ok := integer(value)
		return strconv.AppendInt(nil, f.Max, 10), ok && n > f.Max
	}
	return nil, true
}

// nearest returns the accepted value that replaces another one: the only accepted value, or the next level. It returns
// "" if the values have no order.
func nearest(accepted []string, requested string) string {
	if len(accepted) == 1 {
		return accepted[0]
	}
	if sorted := Levels(accepted); len(sorted) == len(accepted) && slices.Contains(levels, requested) {
		return levelOf(sorted, requested)
	}
	return ""
}

// Find returns the path, in the form of Rule.Name, and the value of the member that a refusal names. It skips steps
// that the request lacks, because vendors insert types into names, such as tools.0.custom.strict. The value is nil
// if the request lacks the member.
func Find(body []byte, name string) (path string, value []byte) {
	steps := strings.Split(name, ".")
	places := []string{"", "tools", "system", "messages", "messages.content", "messages.content.content"}
	if len(steps) == 1 && name != wire.CacheControl {
		places = places[:2] // blocks have members of the same names as requests
	}
	for _, place := range places {
		candidate := slices.Concat(strings.Split(place, "."), steps)
		if place == "" {
			candidate = steps
		}
		match, value := find(body, candidate)
		if value == nil {
			continue
		}
		if i := slices.Index(match, wire.CacheControl); i >= 0 && (i < len(match)-1 || len(steps) == 1 && place != "") {
			match = slices.Concat([]string{"*"}, match[i:])
		}
		return strings.Join(match, "."), value
	}
	return "", nil
}

func find(raw []byte, steps []string) (path []string, value []byte) {
	step := strings.TrimSuffix(steps[0], "[]")
	o := objectOf(raw)
	member := o.get(step)
	if len(steps) == 1 {
		return []string{step}, member
	}
	var inside []item
	switch {
	case member == nil:
	case member[0] == '[':
		step, inside = step+"[]", elements(member)
	default:
		inside = []item{{raw: member}}
	}
	for _, it := range inside {
		if path, value = find(it.raw, steps[1:]); value != nil {
			return slices.Concat([]string{step}, path), value
		}
	}
	return find(raw, steps[1:])
}

// LeaveOut applies the rules about members to a request that was translated into the vendor's dialect. Rules with a
// condition are applied before, in the backend's dialect.
func LeaveOut(body []byte, rules []Rule) (_ []byte, changes []Change) {
	if len(rules) == 0 {
		return body, nil
	}
	o := objectOf(body)
	for i := range rules {
		f := &rules[i]
		switch f.Name {
		case "", BetaHeader, FormatType, "include": // only one value of it is refused
			continue
		case ToolList:
			if f.withoutTools(&o) {
				changes = append(changes, Change{KindVendorTool, "tools." + textOf([]byte(f.Value))})
			}
			continue
		}
		if f.ConflictsWith == "" && f.Set == "" && f.editIn(&o, strings.Split(f.Name, ".")) {
			changes = append(changes, Change{KindRefused, f.Name})
		}
	}
	return o.raw(), changes
}

// FormatType is the name of a Rule about a form of the answer that the vendor does not hold to by itself.
const FormatType = "response_format.type"

// tellSchema asks for any JSON object, and tells the model in words which one it should be.
func (r *request) tellSchema() {
	form := objectOf(r.root.get("response_format"))
	schema := objectOf(form.get("json_schema"))
	r.set(KindRefused, "response_format", []byte(`{"type":"json_object"}`))
	prompt := "Answer with one JSON object that matches this JSON Schema, and with nothing else:\n" +
		string(schema.get("schema"))
	r.messages, r.moved = slices.Insert(r.messages, 0, written(wire.RoleSystem, prompt)), true
}
