package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Outline is a request's body and where its parts lie in it. It fits both
// dialects: what they call messages, content and blocks (content parts, in chat
// completions) has the same shape.
//
// Only members of messages[*].content[*] are blocks. A tool's input may hold an
// object that looks like one and is data.
type Outline struct {
	Body     []byte
	Model    string
	Stream   bool
	Members  Object
	Messages []MessageOutline
}

// Object is a JSON object's members in their order.
type Object []Member

// Member is one of them.
type Member struct {
	Name  string
	Key   Span // the name with its quotes
	Value Span
}

// Get is the value of the first member of that name; the zero Span if there is none.
func (o Object) Get(name string) Span {
	if i := o.Index(name); i >= 0 {
		return o[i].Value
	}
	return Span{}
}

// Index is the place of the first member of that name, or -1.
func (o Object) Index(name string) int {
	return slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
}

// Twice says whether more than one member has that name.
func (o Object) Twice(name string) bool {
	i := o.Index(name)
	return i >= 0 && o[i+1:].Index(name) >= 0
}

// MessageOutline is a message.
type MessageOutline struct {
	Span
	Role    string // "" if it is no string
	Members Object
	Content Span // zero if there is none
	// Blocks are the elements of a content that is an array; nil for any other.
	Blocks []BlockOutline
}

// BlockOutline is a block. One that is no object has neither type nor members.
type BlockOutline struct {
	Span
	Type    string
	Members Object
}

// ReadOutline reads a request once: it checks that body is one JSON object with
// a model and finds its parts. A failure wraps ErrBadJSON.
//
// A member of the request that comes twice is refused if it is one that the
// gateway acts on, since two readers could disagree on it.
func ReadOutline(body []byte) (*Outline, error) {
	o := &Outline{Body: body}
	err := read(body, '{', func(r *outliner) (err error) {
		o.Members, o.Messages, err = r.request()
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, o.readHead()
}

// ReadMessage reads one message, or an answer of the messages dialect, which is
// one: the outline has nothing else. A failure wraps ErrBadJSON.
func ReadMessage(body []byte) (*Outline, error) {
	o := &Outline{Body: body, Messages: make([]MessageOutline, 1)}
	return o, read(body, '{', func(r *outliner) error { return r.message(&o.Messages[0]) })
}

// ReadContent reads the content of one message, an array of blocks: the outline
// has nothing else. A failure wraps ErrBadJSON.
func ReadContent(body []byte) (*Outline, error) {
	o := &Outline{Body: body, Messages: make([]MessageOutline, 1)}
	return o, read(body, '[', func(r *outliner) error { return r.content(&o.Messages[0]) })
}

// ReadMessages reads an array of messages: the outline has nothing else. A failure
// wraps ErrBadJSON.
func ReadMessages(body []byte) (*Outline, error) {
	o := &Outline{Body: body}
	return o, read(body, '[', func(r *outliner) (err error) {
		o.Messages, err = r.list()
		return err
	})
}

// acted are the members of a request that decide what the gateway does.
var acted = []string{"model", "stream", "messages", "system", "tools", "tool_choice", "thinking", "max_tokens"}

func (o *Outline) readHead() error {
	model := o.Members.Get("model")
	if !model.Found() {
		return fmt.Errorf("%w: \"model\" is missing", ErrBadJSON)
	}
	if json.Unmarshal(o.Of(model), &o.Model, lenient) != nil || o.Model == "" {
		return fmt.Errorf("%w: \"model\" must be a non-empty string", ErrBadJSON)
	}
	if s := o.Members.Get("stream"); s.Found() && json.Unmarshal(o.Of(s), &o.Stream, lenient) != nil {
		return fmt.Errorf("%w: \"stream\" must be true or false", ErrBadJSON)
	}
	return nil
}

// WithBody is the outline of what o's body was changed to: o itself if it was not.
func (o *Outline) WithBody(body []byte) (*Outline, error) {
	if len(body) == len(o.Body) && len(body) > 0 && &body[0] == &o.Body[0] {
		return o, nil
	}
	return ReadOutline(body)
}

// WithModel is o with another model's name and every other byte kept; o itself
// stays as it is.
func (o *Outline) WithModel(model string) *Outline {
	if model == o.Model {
		return o
	}
	at, quoted := o.Members.Get("model"), Quote(model)
	by := len(quoted) - (at.End - at.Start)
	moved := func(s Span) Span {
		if s.Start > at.Start {
			s.Start += by
		}
		if s.End > at.Start {
			s.End += by
		}
		return s
	}
	object := func(of Object) Object {
		out := slices.Clone(of)
		for i, m := range out {
			out[i].Key, out[i].Value = moved(m.Key), moved(m.Value)
		}
		return out
	}
	out := &Outline{Body: Splice(o.Body, at, quoted), Model: model, Stream: o.Stream, Members: object(o.Members)}
	out.Messages = slices.Clone(o.Messages)
	for i := range out.Messages {
		m := &out.Messages[i]
		m.Span, m.Content, m.Members = moved(m.Span), moved(m.Content), object(m.Members)
		m.Blocks = slices.Clone(m.Blocks)
		for j := range m.Blocks {
			b := &m.Blocks[j]
			b.Span, b.Members = moved(b.Span), object(b.Members)
		}
	}
	return out
}

// Detach gives the content of o's first message, an array of blocks, what
// ReadContent would of a copy of its bytes. It takes o apart.
func (o *Outline) Detach() *Outline {
	m := &o.Messages[0]
	by := m.Content.Start
	moved := func(s Span) Span { return Span{s.Start - by, s.End - by} }
	for i := range m.Blocks {
		b := &m.Blocks[i]
		b.Span = moved(b.Span)
		for j := range b.Members {
			b.Members[j].Key, b.Members[j].Value = moved(b.Members[j].Key), moved(b.Members[j].Value)
		}
	}
	body := bytes.Clone(o.Of(m.Content))
	return &Outline{Body: body, Messages: []MessageOutline{{Content: moved(m.Content), Blocks: m.Blocks}}}
}

// Of is the raw value at s; nil for the zero Span.
func (o *Outline) Of(s Span) jsontext.Value {
	if !s.Found() {
		return nil
	}
	return o.Body[s.Start:s.End]
}

// Text is the string at s; ok is false if it is none.
func (o *Outline) Text(s Span) (text string, ok bool) {
	b, ok := o.Unquoted(s)
	return string(b), ok
}

// Unquoted is Text without a copy, where nothing is escaped: it must not be
// written into.
func (o *Outline) Unquoted(s Span) (text []byte, ok bool) {
	v := o.Of(s)
	if v.Kind() != '"' {
		return nil, false
	}
	if isPlain(v) {
		return v[1 : len(v)-1], true
	}
	// The error only reports that broken UTF-8 was replaced.
	text, _ = jsontext.AppendUnquote(nil, v)
	return text, true
}

// Elements finds the elements of the array at s, nil for any other value.
func (o *Outline) Elements(s Span) []Span {
	if o.Of(s).Kind() != '[' {
		return nil
	}
	r := outline(o.Body)
	defer r.done()
	r.at = s.Start
	r.peek() // a value of ours may have spaces in front
	var spans []Span
	// The body has been read whole, so nothing in it can fail here.
	_ = r.enter()
	for {
		if more, err := r.next(len(spans) == 0, ']'); err != nil || !more {
			return spans
		}
		at, err := r.value()
		if err != nil {
			return spans
		}
		spans = append(spans, at)
	}
}

// Object finds the members of the object at s, nil for any other value.
func (o *Outline) Object(s Span) Object {
	if o.Of(s).Kind() != '{' {
		return nil
	}
	r := outline(o.Body)
	defer r.done()
	r.at = s.Start
	r.peek()
	members, _ := r.object(nil)
	return members
}

// isPlain says whether a raw string means the bytes between its quotes.
func isPlain(v []byte) bool { return bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) }

// outliner walks a body and notes where its parts are.
type outliner struct {
	scanner
	// What is being read, as far as it came.
	members  []Member
	messages []MessageOutline
	blocks   []BlockOutline
}

// outliners are kept for the next body. Nothing that they give out is kept.
var outliners = sync.Pool{New: func() any { return new(outliner) }}

func outline(body []byte) *outliner {
	r := outliners.Get().(*outliner)
	r.scanner = scanner{body: body}
	return r
}

func (r *outliner) done() {
	r.scanner = scanner{}
	clear(r.members)
	clear(r.messages)
	clear(r.blocks)
	r.members, r.messages, r.blocks = r.members[:0], r.messages[:0], r.blocks[:0]
	outliners.Put(r)
}

// what names the kinds of bodies.
var what = map[byte]string{'{': "object", '[': "array"}

// read reads a body that is one object or one array, of which parts finds the
// parts.
func read(body []byte, kind byte, parts func(*outliner) error) error {
	r := outline(body)
	defer r.done()
	if r.peek() != kind {
		if err := syntaxError(body); err != nil {
			return err
		}
		return fmt.Errorf("%w: it must be a JSON %s", ErrBadJSON, what[kind])
	}
	err := parts(r)
	if err == errSyntax {
		return cmp.Or(syntaxError(body), ErrBadJSON)
	}
	if err != nil {
		return err
	}
	if r.peek(); r.at < len(body) {
		return fmt.Errorf("%w: something follows the JSON %s at byte %d", ErrBadJSON, what[kind], r.at)
	}
	return nil
}

// taken gives what was collected from an index on, and forgets it.
func taken[T any](collected *[]T, from int) []T {
	out := append(make([]T, 0, len(*collected)-from), (*collected)[from:]...)
	clear((*collected)[from:])
	*collected = (*collected)[:from]
	return out
}

// object reads the object that begins here; value, if not nil, reads each member's
// value and says where it is.
func (r *outliner) object(value func(Member) (Span, error)) (Object, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	from := len(r.members)
	for {
		more, err := r.next(len(r.members) == from, '}')
		if err != nil {
			return nil, err
		}
		if !more {
			return taken(&r.members, from), nil
		}
		m, err := r.member()
		if err != nil {
			return nil, err
		}
		if value == nil {
			m.Value, err = r.value()
		} else {
			m.Value, err = value(m)
		}
		if err != nil {
			return nil, err
		}
		r.members = append(r.members, m)
	}
}

// member reads the name of a member.
func (r *outliner) member() (m Member, err error) {
	if m.Key, err = r.name(); err == nil {
		m.Name = nameOf(r.body[m.Key.Start:m.Key.End])
	}
	return m, err
}

// request reads the members of a request and its messages.
func (r *outliner) request() (members Object, messages []MessageOutline, err error) {
	members, err = r.object(func(m Member) (Span, error) {
		if slices.Contains(acted, m.Name) && Object(r.members).Index(m.Name) >= 0 {
			return Span{}, fmt.Errorf("%w: %q comes twice", ErrBadJSON, m.Name)
		}
		if m.Name != "messages" || r.peek() != '[' {
			return r.value()
		}
		at := Span{Start: r.at}
		messages, err = r.list()
		at.End = r.at
		return at, err
	})
	return members, messages, err
}

// list reads an array of messages.
func (r *outliner) list() ([]MessageOutline, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	for {
		more, err := r.next(len(r.messages) == 0, ']')
		if err != nil {
			return nil, err
		}
		if !more {
			return taken(&r.messages, 0), nil
		}
		var m MessageOutline
		if err := r.message(&m); err != nil {
			return nil, err
		}
		r.messages = append(r.messages, m)
	}
}

// message reads what should be a message.
func (r *outliner) message(m *MessageOutline) (err error) {
	if r.peek() != '{' {
		m.Span, err = r.value()
		return err
	}
	m.Start = r.at
	first := true // content: of one that comes twice the first counts, as for Get
	m.Members, err = r.object(func(member Member) (Span, error) {
		content := member.Name == "content" && first
		first = first && !content
		if content && r.peek() == '[' {
			err := r.content(m)
			return m.Content, err
		}
		at, err := r.value()
		if member.Name == "role" && err == nil && m.Role == "" {
			m.Role = stringOf(r.body[at.Start:at.End])
		}
		return at, err
	})
	m.End = r.at
	m.Content = m.Members.Get("content")
	return err
}

// content reads a message's content, an array.
func (r *outliner) content(m *MessageOutline) error {
	m.Content.Start = r.at
	if err := r.enter(); err != nil {
		return err
	}
	from := len(r.blocks)
	for {
		more, err := r.next(len(r.blocks) == from, ']')
		if err != nil {
			return err
		}
		if !more {
			m.Content.End, m.Blocks = r.at, taken(&r.blocks, from)
			return nil
		}
		b, err := r.block()
		if err != nil {
			return err
		}
		r.blocks = append(r.blocks, b)
	}
}

func (r *outliner) block() (b BlockOutline, err error) {
	if r.peek() != '{' {
		b.Span, err = r.value()
		return b, err
	}
	b.Start = r.at
	b.Members, err = r.object(nil)
	b.End = r.at
	for _, m := range b.Members {
		if m.Name == "type" && b.Type == "" {
			b.Type = stringOf(r.body[m.Value.Start:m.Value.End])
		}
	}
	return b, err
}

// names are those of which there are many in a request; they cost no memory.
var names = func() map[string]string {
	m := map[string]string{}
	for _, n := range []string{
		"type", "text", "role", "content", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error",
		"cache_control", "source", "tool_calls", "tool_call_id", "reasoning_content", "reasoning_details", "reasoning",
		"function", "arguments", "index", "extra_content", "user", "assistant", "system", "tool", "tool_use", "tool_result",
		"redacted_thinking", "image", "citations", "model", "messages", "max_tokens", "stream", "tools", "usage", "choices", "message",
		"finish_reason", "stop_reason", "stop_sequence",
	} {
		m[n] = n
	}
	return m
}()

func nameOf(quoted []byte) string {
	if s, ok := names[string(quoted[1:len(quoted)-1])]; ok {
		return s
	}
	return stringOf(quoted)
}

// stringOf is the string that a raw value is; empty for any other value.
func stringOf(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if s, ok := names[string(v[1:len(v)-1])]; ok {
		return s
	}
	if isPlain(v) {
		return string(v[1 : len(v)-1])
	}
	var s string
	_ = json.Unmarshal(v, &s, lenient)
	return s
}
