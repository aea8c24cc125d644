package wire

import (
	"bytes"
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
	r := outline(body)
	defer r.done()
	if err := r.expect('{', "object"); err != nil {
		return nil, err
	}
	o := &Outline{Body: body}
	var err error
	o.Members, err = r.object(func(m Member) (Span, error) {
		if slices.Contains(acted, m.Name) && o.Members.Index(m.Name) >= 0 {
			return Span{}, fmt.Errorf("%w: %q comes twice", ErrBadJSON, m.Name)
		}
		o.Members = append(o.Members, m)
		if m.Name != "messages" || r.d.PeekKind() != '[' {
			return r.value()
		}
		return r.array(func() error {
			message, err := r.message()
			o.Messages = append(o.Messages, message)
			return err
		})
	})
	if err == nil {
		err = r.end("object")
	}
	if err != nil {
		return nil, err
	}
	return o, o.readHead()
}

// ReadMessage reads one message, or an answer of the messages dialect, which is
// one: the outline has nothing else. A failure wraps ErrBadJSON.
func ReadMessage(body []byte) (*Outline, error) {
	r := outline(body)
	defer r.done()
	err := r.expect('{', "object")
	if err != nil {
		return nil, err
	}
	o := &Outline{Body: body, Messages: make([]MessageOutline, 1)}
	if o.Messages[0], err = r.message(); err == nil {
		err = r.end("object")
	}
	return o, err
}

// ReadContent reads the content of one message, an array of blocks: the outline
// has nothing else. A failure wraps ErrBadJSON.
func ReadContent(body []byte) (*Outline, error) {
	r := outline(body)
	defer r.done()
	err := r.expect('[', "array")
	if err != nil {
		return nil, err
	}
	o := &Outline{Body: body, Messages: make([]MessageOutline, 1)}
	if err = r.content(&o.Messages[0]); err == nil {
		err = r.end("array")
	}
	return o, err
}

// ReadMessages reads an array of messages: the outline has nothing else. A failure
// wraps ErrBadJSON.
func ReadMessages(body []byte) (*Outline, error) {
	r := outline(body)
	defer r.done()
	err := r.expect('[', "array")
	if err != nil {
		return nil, err
	}
	o := &Outline{Body: body}
	_, err = r.array(func() error {
		message, err := r.message()
		o.Messages = append(o.Messages, message)
		return err
	})
	if err == nil {
		err = r.end("array")
	}
	return o, err
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
	r := outline(o.Of(s))
	defer r.done()
	var spans []Span
	// The body has been read whole, so nothing in it can fail here.
	_, _ = r.array(func() error {
		at, err := r.value()
		spans = append(spans, at.shift(s.Start))
		return err
	})
	return spans
}

// Object finds the members of the object at s, nil for any other value.
func (o *Outline) Object(s Span) Object {
	if o.Of(s).Kind() != '{' {
		return nil
	}
	r := outline(o.Of(s))
	defer r.done()
	members, _ := r.object(func(Member) (Span, error) { return r.value() })
	for i := range members {
		members[i].Key, members[i].Value = members[i].Key.shift(s.Start), members[i].Value.shift(s.Start)
	}
	return members
}

func (s Span) shift(by int) Span { return Span{s.Start + by, s.End + by} }

// isPlain says whether a raw string means the bytes between its quotes.
func isPlain(v []byte) bool { return bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) }

// outliner walks a body and notes where it is.
type outliner struct {
	d    *jsontext.Decoder
	body []byte
	in   *bytes.Buffer
	open []Member // so far, of the objects that are being read
}

// decoders are kept for the next body: making one costs more than reading a small
// object does. Nothing that they give out is kept.
var decoders = sync.Pool{New: func() any { return &outliner{d: new(jsontext.Decoder), in: new(bytes.Buffer)} }}

func outline(body []byte) *outliner {
	r := decoders.Get().(*outliner)
	r.body = body
	*r.in = *bytes.NewBuffer(body)
	r.d.Reset(r.in, lenient)
	return r
}

func (r *outliner) done() {
	r.body = nil
	clear(r.open)
	r.open = r.open[:0]
	*r.in = bytes.Buffer{}
	r.d.Reset(r.in, lenient)
	decoders.Put(r)
}

// expect checks how the body begins: what names the kind.
func (r *outliner) expect(kind jsontext.Kind, what string) error {
	if r.d.PeekKind() == kind {
		return nil
	}
	if _, err := r.d.ReadToken(); err != nil {
		return badJSON(err)
	}
	return fmt.Errorf("%w: it must be a JSON %s", ErrBadJSON, what)
}

// end checks that nothing follows the value that was read.
func (r *outliner) end(what string) error {
	if rest := bytes.TrimLeft(r.body[r.d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("%w: something follows the JSON %s at byte %d", ErrBadJSON, what, r.d.InputOffset())
	}
	return nil
}

func (r *outliner) value() (Span, error) {
	v, err := r.d.ReadValue()
	if err != nil {
		return Span{}, badJSON(err)
	}
	end := int(r.d.InputOffset())
	return Span{end - len(v), end}, nil
}

// object reads an object; value reads each member's value and says where it is.
func (r *outliner) object(value func(Member) (Span, error)) (Object, error) {
	from := len(r.open)
	err := r.members(func(m Member) (err error) {
		m.Value, err = value(m)
		r.open = append(r.open, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	members := append(make(Object, 0, len(r.open)-from), r.open[from:]...)
	clear(r.open[from:])
	r.open = r.open[:from]
	return members, nil
}

// members reads an object; value reads the value of each member.
func (r *outliner) members(value func(Member) error) error {
	if _, err := r.d.ReadToken(); err != nil {
		return badJSON(err)
	}
	for r.d.PeekKind() != '}' {
		key, err := r.value()
		if err != nil {
			return err
		}
		if err = value(Member{Name: nameOf(r.body[key.Start:key.End]), Key: key}); err != nil {
			return err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return badJSON(err)
	}
	return nil
}

// array reads an array; element reads each element.
func (r *outliner) array(element func() error) (Span, error) {
	if _, err := r.d.ReadToken(); err != nil {
		return Span{}, badJSON(err)
	}
	start := int(r.d.InputOffset()) - 1
	for r.d.PeekKind() != ']' {
		if err := element(); err != nil {
			return Span{}, err
		}
	}
	if _, err := r.d.ReadToken(); err != nil {
		return Span{}, badJSON(err)
	}
	return Span{start, int(r.d.InputOffset())}, nil
}

func (r *outliner) message() (MessageOutline, error) {
	var m MessageOutline
	var err error
	if r.d.PeekKind() != '{' {
		m.Span, err = r.value()
		return m, err
	}
	first := true // content: of one that comes twice the first counts, as for Get
	m.Members, err = r.object(func(member Member) (Span, error) {
		content := member.Name == "content" && first
		first = first && !content
		if !content || r.d.PeekKind() != '[' {
			at, err := r.value()
			if member.Name == "role" && err == nil && m.Role == "" {
				m.Role = stringOf(r.body[at.Start:at.End])
			}
			return at, err
		}
		err := r.content(&m)
		return m.Content, err
	})
	m.Span = r.ended(m.Members)
	m.Content = m.Members.Get("content")
	return m, err
}

// content reads a message's content, an array.
func (r *outliner) content(m *MessageOutline) (err error) {
	m.Blocks = []BlockOutline{}
	m.Content, err = r.array(func() error {
		b, err := r.block()
		m.Blocks = append(m.Blocks, b)
		return err
	})
	return err
}

func (r *outliner) block() (BlockOutline, error) {
	var b BlockOutline
	var err error
	if r.d.PeekKind() != '{' {
		b.Span, err = r.value()
		return b, err
	}
	b.Members, err = r.object(func(member Member) (Span, error) {
		at, err := r.value()
		if member.Name == "type" && err == nil && b.Type == "" {
			b.Type = stringOf(r.body[at.Start:at.End])
		}
		return at, err
	})
	b.Span = r.ended(b.Members)
	return b, err
}

// ended is the place of the object that was just read.
func (r *outliner) ended(members Object) Span {
	end := int(r.d.InputOffset())
	before := end - 1
	if len(members) > 0 {
		before = members[0].Key.Start
	}
	return Span{bytes.LastIndexByte(r.body[:before], '{'), end}
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
