package responseswire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// Native is a request of this dialect that passes through the messages dialect on its way to a backend of this one.
type Native struct {
	Body  []byte              // the client's
	Made  []byte              // its translation
	Items [][]jsontext.Value  // see Translated
	Names map[string]ToolName // see Asked
}

// changeable are the members of a request that the gateway may change on the way, by their names in the messages
// dialect, with those of this one.
var changeable = []struct{ messages, own string }{
	{"max_tokens", "max_output_tokens"}, {"temperature", "temperature"}, {"top_p", "top_p"},
	{"thinking", "reasoning"}, {"output_config", "reasoning"}, {"tool_choice", "tool_choice"},
	{"system", "instructions"}, {"tools", "tools"},
}

// Request is the request to send, where sent is what became of Made: the client's own bytes if nothing did, else its
// own members and items where those are unchanged. The model's name is the client's. Errors are those of
// MessagesRequest.
func (n Native) Request(sent []byte) ([]byte, error) {
	if bytes.Equal(sent, n.Made) {
		return n.Body, nil
	}
	made, err := wire.ReadOutline(n.Made)
	if err != nil {
		return nil, err
	}
	now, err := wire.ReadOutline(sent)
	if err != nil {
		return nil, err
	}
	own, err := wire.ReadOutline(n.Body)
	if err != nil {
		return nil, err
	}
	var e wire.Edits
	inputs, err := n.inputs(made, now)
	if err != nil {
		return nil, err
	}
	stored := gjson.GetBytes(n.Body, "store").Type != gjson.False
	e.Replace(own.Members.Get("input"), list(mend(inputs, stored)))
	var anew *wire.Outline
	var without []string
	for _, m := range changeable {
		was, is := made.Of(made.Members.Get(m.messages)), now.Of(now.Members.Get(m.messages))
		if bytes.Equal(was, is) || m.own == "tools" && len(n.Names) > 0 {
			continue
		}
		if anew == nil {
			out, _, _, err := parameters(sent)
			if err != nil {
				return nil, err
			}
			body, err := wire.Marshal(out)
			if err != nil {
				return nil, err
			}
			if anew, err = wire.ReadOutline(body); err != nil {
				return nil, err
			}
		}
		value, at := anew.Of(anew.Members.Get(m.own)), own.Members.Get(m.own)
		switch {
		case value != nil && at.Found():
			e.Replace(at, value)
		case value == nil && at.Found():
			without = append(without, m.own)
		}
	}
	e.Without(own.Members, without...)
	return e.Apply(n.Body), nil
}

// inputs are the items of a request, the client's own where a message is as translation made it.
func (n Native) inputs(made, now *wire.Outline) ([]jsontext.Value, error) {
	known := map[string][]jsontext.Value{}
	for i, m := range made.Messages {
		if i < len(n.Items) && len(n.Items[i]) > 0 && len(n.Items[i][0]) > 0 {
			known[string(made.Of(m.Span))] = n.Items[i]
		}
	}
	t := items{names: n.Names}
	var out []jsontext.Value
	for _, m := range now.Messages {
		raw := now.Of(m.Span)
		own, same := known[string(raw)]
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
