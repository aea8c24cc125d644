package sanitize

import (
	"slices"
	"strconv"

	"mneme/proxy/wire"
)

// request is the mutable model that the rules work on. It remembers the original positions and
// renders only what changed.
type request struct {
	Input
	p             *Profile
	root          object
	thinkingCache object // cache of thinking
	settled       Mode   // cache of mode: what asked says
	messages      []*editedMessage
	moved         bool // messages were added, removed or reordered
	littered      bool // some messages are marked as gone
	out           Output

	// unthinking: thinking was turned off by removing the parameter, after which the model's
	// behaviour is unknown.
	unthinking bool
	// betweenTools: a rule has made thinking manual, and it shall go on between tools.
	betweenTools bool
}

// editedMessage is one of the request's messages with pending changes.
type editedMessage struct {
	object
	index int // its original index; -1 for an inserted one
	role  string
	// blocks are the elements of content, if that is an array.
	blocks  []*block
	listed  bool          // content is an array
	source  int           // how many blocks it had originally
	calls   []*editedCall // of an assistant in the chat dialect
	moved   bool          // blocks were added, removed or reordered
	removed bool

	fromSystem bool // its end was a system message
}

// block is an element of a message's content.
type block struct {
	object
	index   int // its original index in its message; -1 for an inserted one
	kind    string
	claimed bool // it is a tool_result that answers a call
}

// editedCall is an element of a chat message's tool_calls.
type editedCall struct {
	object
	index int
}

// read makes the model. Blocks and messages are allocated in two slabs, since there are many and
// most are never changed.
func read(in Input) *request {
	o := in.Outline
	start, end := 0, len(o.Body)
	for o.Body[start] != '{' {
		start++
	}
	for o.Body[end-1] != '}' {
		end--
	}
	r := &request{Input: in, root: object{body: o.Body, span: wire.Span{Start: start, End: end}, members: o.Members}}
	r.p = &r.Profile
	n := 0
	for i := range o.Messages {
		n += len(o.Messages[i].Blocks)
	}
	messages, blocks, pointers := make([]editedMessage, len(o.Messages)), make([]block, n), make([]*block, n)
	r.messages = make([]*editedMessage, len(o.Messages))
	for i := range o.Messages {
		src := &o.Messages[i]
		m := &messages[i]
		r.messages[i] = m
		*m = editedMessage{object: object{body: o.Body, span: src.Span, members: src.Members}, index: i, role: src.Role}
		// With a duplicate member "content" the blocks may belong to the other one.
		if m.listed = src.Blocks != nil && o.Raw(src.Content).Kind() == '['; !m.listed {
			continue
		}
		m.source = len(src.Blocks)
		for j := range src.Blocks {
			b := &src.Blocks[j]
			blocks[j] = block{object: object{body: o.Body, span: b.Span, members: b.Members}, index: j, kind: b.Type}
			pointers[j] = &blocks[j]
		}
		k := len(src.Blocks)
		m.blocks = pointers[:k:k]
		blocks, pointers = blocks[k:], pointers[k:]
	}
	return r
}

// note records a change of a message, or of one of its blocks if b is not nil.
func (r *request) note(kind Kind, m *editedMessage, b *block) {
	path := "messages"
	if m != nil && m.index >= 0 {
		path += "." + strconv.Itoa(m.index)
	}
	if b != nil && b.index >= 0 {
		path += ".content." + strconv.Itoa(b.index)
	}
	r.changed(kind, path)
}

func (r *request) changed(kind Kind, path string) {
	r.out.Changes = append(r.out.Changes, Change{kind, path})
}

// set changes a member of the request.
func (r *request) set(kind Kind, name string, value []byte) {
	r.root.set(name, value)
	r.changed(kind, name)
}

// setIn changes a member of an object that is a member of the request. An object that becomes empty
// is removed.
func (r *request) setIn(kind Kind, name, inner string, value []byte) {
	o := objectOf(r.root.get(name))
	if o.members == nil {
		o = objectOf([]byte("{}"))
	}
	o.set(inner, value)
	raw := o.raw()
	if value == nil && len(objectOf(raw).members) == 0 {
		raw = nil
	}
	r.root.set(name, raw)
	r.changed(kind, name+"."+inner)
}

// remove removes blocks from a message. An assistant message that becomes empty is left out; others
// get a placeholder.
func (r *request) remove(kind Kind, m *editedMessage, unwanted func(*block) bool) {
	if !slices.ContainsFunc(m.blocks, unwanted) {
		return
	}
	m.blocks = slices.DeleteFunc(slices.Clone(m.blocks), func(b *block) bool {
		if !unwanted(b) {
			return false
		}
		r.note(kind, m, b)
		return true
	})
	m.moved = true
	if len(m.blocks) == 0 {
		r.emptied(m)
	}
}

// emptied completes or leaves out a message that became empty, and reports whether it could.
func (r *request) emptied(m *editedMessage) bool {
	switch {
	case m.role == wire.RoleUser:
		m.setContent(wire.Quote(noContent))
	case m.role == wire.RoleTool:
		m.setContent(wire.Quote(noOutput))
	case m.role == wire.RoleAssistant && m.calling():
		m.setContent(wire.Quote(""))
	case m.role == wire.RoleAssistant, m.role == wire.RoleSystem, m.role == wire.RoleDeveloper:
		r.omit(m)
	default:
		return false
	}
	return true
}

// omit marks a message as gone until the next sweep.
func (r *request) omit(m *editedMessage) { m.removed, r.moved, r.littered = true, true, true }

// sweep removes the messages that are marked as gone.
func (r *request) sweep() {
	if !r.littered {
		return
	}
	r.littered = false
	r.messages = slices.DeleteFunc(r.messages, func(m *editedMessage) bool { return m.removed })
}

// raw is the rendered request; the body itself if nothing was changed.
func (r *request) raw() []byte {
	body := r.Outline.Body
	dirty := r.moved
	for _, m := range r.messages {
		m.settle()
		dirty = dirty || m.changed()
	}
	if dirty {
		items := make([]item, 0, len(r.messages))
		for _, m := range r.messages {
			items = append(items, item{m.index, m.span, m.object.raw()})
		}
		r.root.set("messages", array(body, r.root.members.Get("messages"), len(r.Outline.Messages), items))
	}
	if !r.root.changed() {
		return body
	}
	return slices.Concat(body[:r.root.span.Start], r.root.raw(), body[r.root.span.End:])
}

// written is an inserted message.
func written(role, content string) *editedMessage {
	raw := slices.Concat([]byte(`{"role":`), wire.Quote(role), []byte(`,"content":`), wire.Quote(content), []byte("}"))
	return &editedMessage{object: objectOf(raw), index: -1, role: role}
}

// textBlock is an inserted text block; the text is JSON already.
func textBlock(quoted []byte) *block {
	return &block{object: objectOf(slices.Concat([]byte(`{"type":"text","text":`), quoted, []byte("}"))), index: -1,
		kind: wire.TextBlock}
}

// setContent gives a message another content.
func (m *editedMessage) setContent(raw []byte) {
	m.object.set("content", raw)
	m.blocks, m.listed, m.moved = nil, false, false
}

// list turns a content that is a string into blocks.
func (m *editedMessage) list() {
	if m.listed {
		return
	}
	m.listed, m.moved = true, true
	if raw := m.get("content"); len(raw) > 0 && raw[0] == '"' {
		m.blocks = []*block{textBlock(raw)}
	}
}

// settle turns changes of blocks and calls into a change of the message.
func (m *editedMessage) settle() {
	dirty := m.moved
	for _, b := range m.blocks {
		dirty = dirty || b.changed()
	}
	if m.listed && dirty {
		items := make([]item, len(m.blocks))
		for i, b := range m.blocks {
			items[i] = item{b.index, b.span, b.raw()}
		}
		m.object.set("content", array(m.body, m.members.Get("content"), m.source, items))
	}
	if slices.ContainsFunc(m.calls, func(c *editedCall) bool { return c.changed() }) {
		items := make([]item, len(m.calls))
		for i, c := range m.calls {
			items[i] = item{c.index, c.span, c.raw()}
		}
		m.object.set("tool_calls", array(m.body, m.members.Get("tool_calls"), len(items), items))
	}
}

// askUsage asks the vendor to count the tokens of a stream, unless it is known to refuse that.
func (r *request) askUsage() {
	if !r.Outline.Stream || r.Count || LeavesOut(r.Rules, streamOptions) || AsksUsage(r.Outline) {
		return
	}
	r.setIn(KindUsage, streamOptions, includeUsage, []byte("true"))
}

// splitReasoning asks for reasoning apart from the text, unless the client has chosen.
func splitReasoning(r *request) {
	if r.p.Replay.Split && !r.Count && !r.root.has(reasoningSplit) {
		r.set(KindSplit, reasoningSplit, []byte("true"))
	}
}

const (
	reasoningSplit = "reasoning_split"

	streamOptions = "stream_options"
	includeUsage  = "include_usage"
)

// AsksUsage reports whether a chat request wants a stream to end with its counts of tokens.
func AsksUsage(o *wire.Outline) bool {
	options := o.Object(o.Members.Get(streamOptions))
	return string(o.Raw(options.Get(includeUsage))) == "true"
}
