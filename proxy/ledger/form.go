package ledger

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Form is what the ledger knows of an assistant message or of a turn, reduced to hashes. It depends
// on the content alone and is immutable.
type Form struct {
	parts []part // one for each block; exactly one in chat completions
	// exact is a hash of the whole content without cache_control and tool ids.
	exact sum
	// visible are hashes of the visible part in each of its readings: the text, then the tools and
	// other blocks in any order. They do not depend on the dialect.
	visible        []sum
	visibleNoTools []sum // like visible but without the tools; only if there are tools
	tools          []tool
	// thoughts are hashes of the thinking texts: of each one, and of all of them joined.
	thoughts []sum
	// If the text has <think> sections: unthought are hashes of what is visible without them, and
	// sections are hashes of the sections.
	unthought []sum
	sections  []sum

	keys         []key // of the parts, then of the tools and sections, then of the visible part
	visibleStart int   // index of the first key of the visible part
}

// part is a block of a message, or the reasoning of a chat message.
type part struct {
	key        string // in the form of BlockKey; empty if the part is not thinking
	start, end int    // its keys in form.keys, the most specific ones first
}

// tool is a tool use.
type tool struct {
	id  string
	sum sum // of name and input
}

// keysOf are the keys of one part.
func (f *Form) keysOf(p part) []key { return f.keys[p.start:p.end] }

// size is the estimated memory of a form, in bytes.
func (f *Form) size() int {
	n := 256 + 24*len(f.keys) + 96*len(f.parts) +
		16*(len(f.visible)+len(f.visibleNoTools)+len(f.thoughts)+len(f.unthought)+len(f.sections))
	for _, t := range f.tools {
		n += 32 + len(t.id)
	}
	return n
}

// thinks reports whether any part is thinking.
func (f *Form) thinks() bool {
	return slices.ContainsFunc(f.parts, func(p part) bool { return p.key != "" })
}

// Shows reports whether the message with the form m shows the turn with the form f: their visible
// parts are equal, be it that m shows thinking of f inside <think> tags.
func (f *Form) Shows(m *Form) bool {
	if overlap(f.visible, m.visible) {
		return true
	}
	return overlap(f.visible, m.unthought) &&
		!slices.ContainsFunc(m.sections, func(s sum) bool { return !slices.Contains(f.thoughts, s) })
}

// overlap reports whether two lists have an element in common.
func overlap(a, b []sum) bool {
	return slices.ContainsFunc(a, func(s sum) bool { return slices.Contains(b, s) })
}

// formOf makes the form of a message.
func formOf(o *wire.Outline, m *wire.MessageOutline, d wire.Dialect) *Form {
	r := reader{o: o, form: &Form{parts: make([]part, 0, len(m.Blocks))}, exact: newDigest()}
	r.form.keys = make([]key, 0, 3*len(m.Blocks)+1) // capacity that is enough for most messages
	if d == wire.Chat {
		r.chat(m)
	} else {
		r.messages(m)
	}
	return r.finish()
}

// reader collects what a form is made of.
type reader struct {
	o        *wire.Outline
	form     *Form
	texts    pieces
	thoughts pieces
	others   []sum // hashes of visible parts that are neither text nor tool uses
	toolSet  map[tool]struct{}
	exact    *digest
}

// messages reads a message of the messages dialect: its content is a string or a list of blocks.
func (r *reader) messages(m *wire.MessageOutline) {
	if m.Blocks == nil {
		if text, ok := r.o.Unquoted(m.Content); ok && len(text) > 0 {
			r.texts = append(r.texts, text)
			// The string is hashed as the text block that it stands for.
			r.exact.add(wire.TextBlock).add("text").addBytes(plain(r.o.Raw(m.Content))).add("type").addBytes(
				[]byte(`"` + wire.TextBlock + `"`),
			)
		}
		return
	}
	for _, b := range m.Blocks {
		r.block(b)
	}
}

// block reads one block.
func (r *reader) block(b wire.BlockOutline) {
	p := part{start: len(r.form.keys)}
	r.exact.add(b.Type)
	if wire.IsThinking(b.Type) {
		p.key = thinkingKey(r.o, b)
		r.exact.add(p.key).addBytes(emptySignature(r.o, b))
	} else {
		r.exact.members(r.o, b.Members, func(name string, _ jsontext.Value) bool {
			return name == "id" && b.Type == wire.ToolUseBlock
		})
	}
	switch b.Type {
	case wire.ThinkingBlock, wire.RedactedBlock:
		signature, data := vouchers(r.o, b)
		r.seal(bySignature, signature)
		r.seal(byData, data)
		r.thought(r.text(b.Members, "thinking"))
	case wire.TextBlock:
		r.texts = append(r.texts, r.text(b.Members, "text"))
	case wire.ToolUseBlock:
		r.tool(r.string(b.Members, "id"), r.string(b.Members, "name"), r.o.Raw(b.Members.Get("input")))
	default:
		d := newDigest()
		if b.Members == nil {
			d.addBytes(r.o.Raw(b.Span))
		}
		r.others = append(r.others, d.members(r.o, b.Members, nothing).sum())
	}
	p.end = len(r.form.keys)
	r.form.parts = append(r.form.parts, p)
}

// vouchers are the members that only the vendor can have produced: the signature and the encrypted
// data of a thinking block. An item of Responses is known by its encrypted content.
func vouchers(o *wire.Outline, b wire.BlockOutline) (signature, data []byte) {
	span := b.Members.Get("signature")
	if signature = wire.EncryptedContent(o.Raw(span)); signature == nil { // clients omit the id of an item
		signature, _ = o.Unquoted(span)
	}
	data, _ = o.Unquoted(b.Members.Get("data"))
	return signature, data
}

// text is a string member. It shares the content's memory if nothing in it is escaped.
func (r *reader) text(members wire.Object, name string) []byte {
	text, _ := r.o.Unquoted(members.Get(name))
	return text
}

// string is text as a copy.
func (r *reader) string(members wire.Object, name string) string {
	return string(r.text(members, name))
}

func (r *reader) add(k kind, s sum) { r.form.keys = append(r.form.keys, key{k, s}) }

// seal adds the key of a signature or of encrypted data.
func (r *reader) seal(k kind, text []byte) {
	if len(text) > 0 {
		r.add(k, sumOf(text))
	}
}

// thought adds a thinking text, normalised.
func (r *reader) thought(text []byte) {
	if text = wire.Fold(text); len(text) > 0 {
		s := sumOf(text)
		r.add(byThought, s)
		r.thoughts, r.form.thoughts = append(r.thoughts, text), append(r.form.thoughts, s)
	}
}

// tool adds a tool use. A second one with the same id, name and input is the same.
func (r *reader) tool(id, name string, input jsontext.Value) {
	t := tool{id, newDigest().add(name).addBytes(canonical(input)).sum()}
	if _, dup := r.toolSet[t]; dup && id != "" {
		return
	}
	if r.toolSet == nil {
		r.toolSet = map[tool]struct{}{}
	}
	r.toolSet[t] = struct{}{}
	r.form.tools = append(r.form.tools, t)
}

// finish makes the form from what was collected.
func (r *reader) finish() *Form {
	f := r.form
	f.exact = r.exact.sum()
	for _, t := range f.tools {
		if t.id != "" {
			f.keys = append(f.keys, toolKey(t.id))
		}
	}
	for _, s := range r.texts.readings() {
		f.visible = append(f.visible, r.visible(s, f.tools))
		if len(f.tools) > 0 {
			f.visibleNoTools = append(f.visibleNoTools, r.visible(s, nil))
		}
	}
	if len(r.thoughts) > 1 { // clients join them in these ways
		for _, between := range [][]byte{nil, []byte("\n"), []byte("\n\n")} {
			f.thoughts = append(f.thoughts, sumOf(wire.Fold(bytes.Join(r.thoughts, between))))
		}
	}
	if remaining, sections, ok := r.texts.withoutThink(); ok {
		for _, s := range remaining.readings() {
			f.unthought = append(f.unthought, r.visible(s, f.tools))
		}
		for _, text := range sections {
			s := sumOf(text)
			r.add(byThought, s)
			f.sections = append(f.sections, s)
		}
	}
	f.visibleStart = len(f.keys)
	if len(r.others)+len(f.tools) > 0 || len(bytes.TrimSpace(r.texts.joined())) > 0 {
		for _, v := range f.visible {
			r.add(byVisible, v)
		}
		for _, v := range f.unthought {
			r.add(byVisible, v)
		}
	}
	return f
}

// visible hashes the visible part with one reading of its text. The order of text and tools does
// not count, because a client that has separate fields for them cannot keep it.
func (r *reader) visible(text []byte, tools []tool) sum {
	parts := make([]sum, 0, len(tools)+len(r.others))
	for _, t := range tools {
		parts = append(parts, t.sum)
	}
	parts = append(parts, r.others...)
	slices.SortFunc(parts, func(a, b sum) int { return bytes.Compare(a[:], b[:]) })
	d := newDigest().addBytes(text)
	for _, p := range parts {
		d.addSum(p)
	}
	return d.sum()
}
