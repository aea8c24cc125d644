package sanitize

import (
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// VendorTools selects the tools with Anthropic's types that a vendor takes besides functions.
type VendorTools string

// The selections.
const (
	VendorToolsAll    VendorTools = "all"    // tools of the vendor and of the client
	VendorToolsClient VendorTools = "client" // only tools of the client
	VendorToolsNone   VendorTools = "none"
)

// fitTools changes tools to types and names that the vendor takes. It removes an empty list of tools.
func (r *request) fitTools() {
	r.renameCalls()
	raw := r.root.get("tools")
	if len(raw) > 0 && raw[0] != '[' || len(raw) == 0 && r.Dialect == wire.Messages {
		return
	}
	if !filled(raw) { // vendors refuse a choice without tools: https://github.com/openai/swarm/issues/30
		for _, name := range []string{"tools", "tool_choice", "parallel_tool_calls"} {
			if r.root.has(name) {
				r.set(KindEmpty, name, nil)
			}
		}
		return
	}
	r.chooseByWord()
	raw = r.root.get("tools")
	print := printOf(raw, SchemaForm(string(r.p.VendorTools)+strconv.Itoa(r.p.ToolNames)), false, r.Dialect)
	if isFine(print) {
		return
	}
	items := elements(raw)
	tools, dirty := r.vendorTools(uniqueTools(r, items))
	if !r.renameTools(tools) && !dirty && len(tools) == len(items) {
		if !r.forcesTool() { // the result depends on the forced tool
			fine.Set(print, struct{}{})
		}
		return
	}
	r.root.set("tools", array(raw, wire.Span{Start: 0, End: len(raw)}, len(items), tools))
}

// uniqueTools removes tools with the name of an earlier one, which vendors refuse
// (https://github.com/anthropics/claude-code/issues/14139).
func uniqueTools(r *request, items []item) []item {
	nameSet := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool {
		_, holder, _ := schemaIn(it.raw, r.Dialect)
		name := holder.text("name")
		duplicate := name != "" && nameSet[name]
		if nameSet[name] = true; duplicate {
			r.changed(KindDoubled, "tools."+strconv.Itoa(it.index))
		}
		return duplicate
	})
}

// chooseByWord forces a tool by offering only this tool, at a vendor that takes tool_choice as a word. Of allowed tools
// only they are offered.
func (r *request) chooseByWord() {
	raw := r.root.get("tool_choice")
	if !r.p.ChoiceWords || r.Dialect != wire.Chat || len(raw) == 0 || raw[0] != '{' {
		return
	}
	choice, word := objectOf(raw), "required"
	allowed := []item{{raw: raw}}
	if choice.text("type") == "allowed_tools" {
		list := objectOf(choice.get("allowed_tools"))
		word, allowed = list.text("mode"), elements(list.get("tools"))
	}
	var names []string
	for _, a := range allowed {
		names = append(names, chatName(a.raw))
	}
	tools, _ := removeElements(r.root.get("tools"), func(tool []byte) bool {
		return !slices.Contains(names,
			chatName(tool))
	})
	if tools == nil || word != "required" && word != "auto" {
		return
	}
	r.set(KindToolChoice, "tool_choice", wire.Quote(word))
	r.root.set("tools", tools)
}

// chatName is the name in a tool or in a choice of one, in the chat dialect.
func chatName(raw []byte) string {
	_, holder, _ := chatHolder(raw)
	return holder.text("name")
}

// chatHolder is a tool, a choice of one or a call, in the chat dialect, and its member with the name.
func chatHolder(raw []byte) (outer, holder object, member string) {
	outer, member = objectOf(raw), "function"
	if outer.has("custom") {
		member = "custom"
	}
	return outer, objectOf(outer.get(member)), member
}

// forcesTool reports whether the request must call one tool.
func (r *request) forcesTool() bool {
	choice := objectOf(r.root.get("tool_choice"))
	return choice.text("type") == "tool"
}

// vendorTools removes the tools that only another vendor runs, unless the request has no others or must call one of
// them. Tools that the client runs become functions.
func (r *request) vendorTools(items []item) (tools []item, dirty bool) {
	if r.Dialect != wire.Messages || r.p.VendorTools == VendorToolsAll || r.p.VendorTools == "" {
		return items, false
	}
	choice := objectOf(r.root.get("tool_choice"))
	var removed, converted []string
	for i, it := range items {
		o := objectOf(it.raw)
		var t wire.Tool
		if kind := o.text("type"); kind == "" || kind == "custom" || wire.Unmarshal(it.raw, &t) != nil {
			tools = append(tools, it)
			continue
		}
		f, ok := t.Function()
		switch {
		case !ok && choice.text("type") == "tool" && choice.text("name") == t.Name:
			return items, false
		case !ok:
			removed = append(removed, t.Type)
			continue
		case r.p.VendorTools == VendorToolsNone:
			raw, _ := wire.Marshal(f) // it was read before
			o = objectOf(raw)
			if mark := t.Other[wire.CacheControl]; mark != nil {
				o.set(wire.CacheControl, mark)
			}
			it.raw, dirty = o.raw(), true
			converted = append(converted, "tools."+strconv.Itoa(i))
		}
		tools = append(tools, it)
	}
	if len(tools) == 0 {
		return items, false
	}
	for _, path := range converted {
		r.changed(KindSchema, path)
	}
	for _, kind := range removed {
		r.changed(KindVendorTool, "tools."+kind)
	}
	return tools, dirty || len(removed) > 0
}

// renameTools shortens the names of tools and of a chosen tool as the vendor requires. It reports whether one changed.
func (r *request) renameTools(items []item) (renamed bool) {
	if r.p.ToolNames == 0 {
		return false
	}
	rename := func(holder *object) bool {
		name := holder.text("name")
		short := wire.ToolName(name, r.p.ToolNames)
		if short == name {
			return false
		}
		if r.out.ToolNames == nil {
			r.out.ToolNames = map[string]string{}
		}
		r.out.ToolNames[short] = name
		holder.set("name", wire.Quote(short))
		return true
	}
	for i := range items {
		if raw, ok := r.renamed(items[i].raw, rename); ok {
			items[i].raw, renamed = raw, true
			r.changed(KindToolName, "tools."+strconv.Itoa(i))
		}
	}
	if choice := r.root.get("tool_choice"); renamed && len(choice) > 0 && choice[0] == '{' {
		o := objectOf(choice)
		list := objectOf(o.get("allowed_tools"))
		allowed := list.get("tools")
		if allowedItems := elements(allowed); len(allowedItems) > 0 {
			for i := range allowedItems {
				allowedItems[i].raw, _ = r.renamed(allowedItems[i].raw, rename)
			}
			list.set("tools", array(allowed, wire.Span{Start: 0, End: len(allowed)}, len(allowedItems), allowedItems))
			o.set("allowed_tools", list.raw())
			r.root.set("tool_choice", o.raw())
		} else if raw, ok := r.renamed(choice, rename); ok {
			r.root.set("tool_choice", raw)
		}
	}
	return renamed
}

// renamed is an object with another name in it: a tool, a choice of one or a call.
func (r *request) renamed(raw []byte, rename func(holder *object) bool) ([]byte, bool) {
	if r.Dialect == wire.Messages {
		o := objectOf(raw)
		ok := rename(&o)
		return o.raw(), ok
	}
	o, holder, member := chatHolder(raw)
	if !rename(&holder) {
		return raw, false
	}
	o.set(member, holder.raw())
	return o.raw(), true
}

// renameCalls renames the calls of earlier messages like their tools, which the request may not have any longer.
func (r *request) renameCalls() {
	if r.p.ToolNames == 0 {
		return
	}
	for _, m := range r.messages {
		for _, b := range m.blocks {
			if b.kind != wire.ToolUseBlock {
				continue
			}
			if name := b.text("name"); wire.ToolName(name, r.p.ToolNames) != name {
				b.set("name", wire.Quote(wire.ToolName(name, r.p.ToolNames)))
				r.note(KindToolName, m, b)
			}
		}
		for _, c := range m.calls {
			if name := gjson.GetBytes(c.raw(), "function.name").Str; name != "" && wire.ToolName(name, r.p.ToolNames) == name {
				continue
			}
			_, holder, member := chatHolder(c.raw())
			if name := holder.text("name"); wire.ToolName(name, r.p.ToolNames) != name {
				holder.set("name", wire.Quote(wire.ToolName(name, r.p.ToolNames)))
				c.set(member, holder.raw())
				r.noteCall(KindToolName, m, c)
			}
		}
	}
}
