package responseswire

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Native is a request of this dialect that passes through the messages dialect on its way to a backend of this one.
type Native struct {
	Body        []byte              // the client's
	Translation []byte              // its translation
	Items       [][]jsontext.Value  // see Translated
	Lead        []jsontext.Value    // see Translated
	Names       map[string]ToolName // see Asked
}

// strange reports whether an id is one of reasoning that ResponsesAnswer made of a model's of another dialect: it has
// that of a response (NewID) in it.
func strange(id string) bool {
	rest, reasoning := strings.CutPrefix(id, thinkingShape.prefix)
	response, index, _ := strings.Cut(rest, "_")
	return reasoning && len(response) == 26 && index != "" &&
		strings.Trim(response, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" && strings.Trim(index, "0123456789") == ""
}

// Replayable is a client's request without what its vendor refuses of it although the client only sends back what it
// got: members in which OpenAI's SDKs keep what they have parsed of an item or a part, and reasoning of vendors of other
// dialects, which this one cannot read and does not find under its id.
func Replayable(o *wire.Outline) []byte {
	if !bytes.Contains(o.Body, []byte(`"parsed`)) && !bytes.Contains(o.Body, []byte(`"rs_`)) {
		return o.Body
	}
	var e wire.Edits
	spans := o.Elements(o.Members.Get("input"))
	e.Keep(spans, func(i int) bool {
		it := o.Object(spans[i])
		id, _ := o.Text(it.Get("id"))
		if encrypted, _ := o.Text(it.Get("encrypted_content")); encrypted == "" && strange(id) {
			return false
		}
		e.RemoveMembers(it, "parsed_arguments")
		for _, part := range o.Elements(it.Get("content")) {
			e.RemoveMembers(o.Object(part), "parsed")
		}
		return true
	})
	return e.Apply(o.Body)
}

// WithoutIDs is a request of this dialect in which items of the model, other than reasoning, have no ids, in all
// turns or in those that have no reasoning. A vendor that remembers what an item was thought for refuses its id
// without that reasoning; an item that has none is taken as it is.
func WithoutIDs(o *wire.Outline, everyTurn bool) []byte {
	var e, turn wire.Edits
	thought := false
	end := func() {
		if everyTurn || !thought {
			e.Join(turn)
		}
		turn, thought = wire.Edits{}, false
	}
	for _, s := range o.Elements(o.Members.Get("input")) {
		switch {
		case !answered(o.Raw(s)):
			end()
		case kindOf(o.Raw(s)) == reasoningItem:
			thought = true
		case prefixes[kindOf(o.Raw(s))] != "":
			turn.RemoveMembers(o.Object(s), "id")
		}
	}
	end()
	return e.Apply(o.Body)
}

// lostThought is what DeepSeek takes in place of reasoning that is not known.
const lostThought = `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"` +
	wire.LostThinking + `"}]},`

// WithReasoning is a request of this dialect in which reasoning stands before all that the model said, for vendors that
// want it back once tools were called.
func WithReasoning(o *wire.Outline) []byte {
	var e wire.Edits
	called, thought := false, false
	for _, s := range o.Elements(o.Members.Get("input")) {
		switch v := o.Raw(s); {
		case !answered(v):
			thought = false
			continue
		case kindOf(v) != reasoningItem && !thought:
			e.Replace(wire.Span{Start: s.Start, End: s.Start}, []byte(lostThought))
		}
		thought, called = true, called || kindOf(o.Raw(s)) == callItem
	}
	if !called {
		return o.Body
	}
	return e.Apply(o.Body)
}

// changeable are the members of a request that the gateway may change on the way, by their names in the messages
// dialect, with those of this one.
var changeable = []struct{ messages, own string }{
	{"max_tokens", "max_output_tokens"}, {"temperature", "temperature"}, {"top_p", "top_p"},
	{"thinking", "reasoning"}, {"output_config", "reasoning"}, {"tool_choice", "tool_choice"},
	{"system", "instructions"},
}

// Request returns the request to send. sent is Made after all changes. Without changes Request returns the client's own
// bytes, otherwise the client's own members and items where they are unchanged. The model's name is the client's.
// renamed maps the tool names that the vendor gets to the client's names. Request fails like MessagesRequest.
func (n Native) Request(payload []byte, renamed map[string]string) ([]byte, error) {
	if bytes.Equal(payload, n.Translation) {
		return n.Body, nil
	}
	base, err := wire.ReadOutline(n.Translation)
	if err != nil {
		return nil, err
	}
	now, err := wire.ReadOutline(payload)
	if err != nil {
		return nil, err
	}
	own, err := wire.ReadOutline(n.Body)
	if err != nil {
		return nil, err
	}
	var e wire.Edits
	n, shorts := n.rename(renamed)
	changed := func(name string) bool {
		return !bytes.Equal(base.Raw(base.Members.Get(name)), now.Raw(now.Members.Get(name)))
	}
	if span := own.Members.Get("input"); own.Raw(span).Kind() != '"' || changed("messages") { // a text stays one
		inputs, err := n.inputs(base, now)
		if err != nil {
			return nil, err
		}
		if !changed("system") { // else instructions have all of it
			inputs = slices.Concat(n.Lead, inputs)
		}
		stored := gjson.GetBytes(n.Body, "store").Type != gjson.False
		e.Replace(span, wire.Array(mend(inputs, stored)))
	}
	if changed("tools") {
		refit(&e, own, own.Members.Get("tools"), "", schemas(base), schemas(now), shorts)
	}
	var anew *wire.Outline
	var removed []string
	for _, m := range changeable {
		if !changed(m.messages) {
			continue
		}
		if anew == nil {
			if anew, _, _, err = parameters(payload); err != nil {
				return nil, err
			}
		}
		value, span := anew.Raw(anew.Members.Get(m.own)), own.Members.Get(m.own)
		if m.own == "reasoning" && value != nil {
			value = asks(own.Raw(span), value)
		}
		switch {
		case value != nil && (span.Exists() || m.own == "max_output_tokens"):
			e.Set(own.Members, m.own, value)
		case value == nil && span.Exists():
			removed = append(removed, m.own)
		}
	}
	e.RemoveMembers(own.Members, removed...)
	return e.Apply(n.Body), nil
}

// rename returns n with the names of renamed, and the names that the vendor gets by the client's.
func (n Native) rename(renamed map[string]string) (_ Native, shorts map[string]string) {
	if len(renamed) == 0 {
		return n, nil
	}
	n.Names, shorts = maps.Clone(n.Names), map[string]string{}
	for short, name := range renamed {
		shorts[name] = short
		if toolName, ok := n.Names[name]; ok {
			toolName.Name = short
			n.Names[short] = toolName
		}
	}
	return n, shorts
}

// asks is how a client asks its model to think, with the effort that the last hop has left, and in its own words about
// what is shown of that, unless none of it may be shown.
func asks(own, fit jsontext.Value) jsontext.Value {
	if own.Kind() != '{' {
		own = jsontext.Value("{}")
	}
	names := []string{"effort"}
	if !gjson.GetBytes(fit, "summary").Exists() {
		names = append(names, "summary", "generate_summary")
	}
	return wire.Merged(wire.Without(fit, "summary"), wire.Without(own, names...))
}

// schemas are those of a request's tools, by their names for the model.
func schemas(o *wire.Outline) map[string]jsontext.Value {
	out := map[string]jsontext.Value{}
	for _, s := range o.Elements(o.Members.Get("tools")) {
		t := o.Object(s)
		name, _ := o.Text(t.Get("name"))
		out[name] = o.Raw(t.Get("input_schema"))
	}
	return out
}

// refit copies changed schemas and names of the last hop to the client's functions. All else of its tools is its
// own.
func refit(e *wire.Edits, own *wire.Outline, tools wire.Span, space string, was, is map[string]jsontext.Value,
	shorts map[string]string,
) {
	for _, s := range own.Elements(tools) {
		t := own.Object(s)
		name, _ := own.Text(t.Get("name"))
		if inner := t.Get("tools"); inner.Exists() {
			refit(e, own, inner, name, was, is, shorts)
			continue
		}
		name = flat(space, name)
		if short := shorts[name]; short != "" && space == "" {
			e.Replace(t.Get("name"), wire.Quote(short))
			was[short], name = was[name], short
		}
		if span := t.Get("parameters"); span.Exists() && is[name] != nil && !bytes.Equal(was[name], is[name]) {
			e.Replace(span, is[name])
		}
	}
}

// inputs are the items of a request, the client's own where a message is as translation made it.
func (n Native) inputs(base, now *wire.Outline) ([]jsontext.Value, error) {
	originals := map[string][]jsontext.Value{}
	for i, m := range base.Messages {
		if i < len(n.Items) && len(n.Items[i]) > 0 && len(n.Items[i][0]) > 0 {
			originals[string(base.Raw(m.Span))] = n.Items[i]
		}
	}
	t := items{names: n.Names}
	var out []jsontext.Value
	for _, m := range now.Messages {
		raw := now.Raw(m.Span)
		own, same := originals[string(raw)]
		if same {
			out = append(out, own...)
		}
		var message wire.Message
		if err := wire.Unmarshal(raw, &message); err != nil {
			return nil, err
		}
		added, err := t.message(message) // of a known one, too: it tells which calls are of custom tools
		if err != nil && !same {
			return nil, err
		}
		if !same {
			out = append(out, added...)
		}
	}
	return out, nil
}
