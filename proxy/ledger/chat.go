package ledger

import (
	"strconv"

	"mneme/proxy/wire"
)

// chat reads a message of chat completions. Only content, calls and reasoning are read: a vendor
// adds other members to its answers that it does not accept back in a request.
func (r *reader) chat(m *wire.MessageOutline) {
	r.chatContent(m)
	for _, call := range r.o.Elements(m.Members.Get("tool_calls")) {
		members := r.o.Object(call)
		function := r.o.Object(members.Get("function"))
		arguments := r.string(function, "arguments")
		name := r.string(function, "name")
		r.tool(r.string(members, "id"), name, wire.InputObject(arguments))
		r.exact.add("call").add(name).add(arguments)
	}
	thinking := readReasoning(r.o, m.Members)
	r.exact.add(thinking.key)
	p := part{key: thinking.key, start: len(r.form.keys)}
	for _, s := range thinking.signatures {
		r.seal(bySignature, s)
	}
	for _, s := range thinking.data {
		r.seal(byData, s)
	}
	for _, t := range thinking.texts {
		r.thought([]byte(t))
	}
	p.end = len(r.form.keys)
	r.form.parts = []part{p}
}

// chatContent reads a message's content, which is a string or a list of parts.
func (r *reader) chatContent(m *wire.MessageOutline) {
	text := ""
	if m.Blocks == nil {
		text, _ = r.o.Text(m.Content)
	}
	for _, b := range m.Blocks {
		if b.Type == wire.TextBlock {
			text += r.string(b.Members, "text")
			continue
		}
		s := newDigest().members(r.o, b.Members, nothing).sum()
		r.others = append(r.others, s)
		r.exact.add("part").addSum(s)
	}
	if text != "" {
		r.texts = pieces{[]byte(text)}
	}
	r.exact.add(text)
}

// reasoning is the thinking in a chat message.
type reasoning struct {
	key              string // in the form of BlockKey
	signatures, data [][]byte
	texts            []string
}

// readReasoning finds reasoning in every member in which vendors and gateways put it. Empty members
// do not count. Beside a signature of Gemini's a text is no part of the key: it is not sent back there,
// and the message that was sent must be known as the one that was answered.
func readReasoning(o *wire.Outline, members wire.Object) reasoning {
	var r reasoning
	d := newDigest()
	r.extra(o, d, -1, members)
	for i, call := range o.Elements(members.Get("tool_calls")) {
		r.extra(o, d, i, o.Object(call))
	}
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text, ok := o.Text(members.Get(name)); ok && text != "" && text != wire.LostThinking {
			if len(r.signatures) == 0 {
				d.add(name).add(text)
			}
			r.text(text)
		}
	}
	for _, name := range []string{"reasoning_details", "thinking_blocks"} {
		joined := ""
		for _, element := range o.Elements(members.Get(name)) {
			d.add(name).addBytes(plain(o.Raw(element)))
			fields := o.Object(element)
			for _, field := range []string{"text", "summary", "thinking"} {
				text, _ := o.Text(fields.Get(field))
				joined += text
			}
			r.seal(o, fields, "signature", &r.signatures)
			r.seal(o, fields, "data", &r.data)
		}
		r.text(joined)
	}
	if len(d.collected) == 0 {
		d.drop()
		return r
	}
	key := d.sum().String() // before the next use of the digest, which goes back to its pool here
	r.key = bare + key
	if len(r.signatures)+len(r.data) > 0 {
		r.key = sealed + key
	}
	return r
}

func (r *reasoning) text(t string) {
	// Gateways put the same text into two members.
	if t != "" && (len(r.texts) == 0 || r.texts[0] != t) {
		r.texts = append(r.texts, t)
	}
}

// seal appends a signature or encrypted data to a list, unless it is empty.
func (r *reasoning) seal(o *wire.Outline, fields wire.Object, name string, dst *[][]byte) {
	if text, ok := o.Unquoted(fields.Get(name)); ok && len(text) > 0 {
		*dst = append(*dst, text)
	}
}

// extra reads the signature that Gemini puts beside a tool call or, with place -1, beside a text.
func (r *reasoning) extra(o *wire.Outline, d *digest, place int, members wire.Object) {
	extra := members.Get("extra_content")
	fields := o.Object(extra)
	if len(fields) == 0 {
		return
	}
	r.seal(o, o.Object(fields.Get("google")), "thought_signature", &r.signatures)
	d.add("extra_content").add(strconv.Itoa(place)).addBytes(plain(o.Raw(extra)))
}
