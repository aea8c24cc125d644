package wire

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Outline is a request's body and the spans of its parts. It fits both dialects, in which messages,
// content and blocks (content parts, in chat completions) have the same shape.
//
// Only elements of messages[*].content are blocks. A tool's input may contain an object that looks
// like a block; that is data.
type Outline struct {
	Body     []byte
	Model    string
	Stream   bool
	Members  Object
	Messages []MessageOutline
}

// Object is the members of a JSON object, in their order.
type Object []Member

// Member is one member of an object.
type Member struct {
	Name  string
	Key   Span // of the name with its quotes
	Value Span
}

// Get is the value of the first member of that name; the zero Span if there is none.
func (o Object) Get(name string) Span {
	if i := o.Index(name); i >= 0 {
		return o[i].Value
	}
	return Span{}
}

// Index is the position of the first member with that name, or -1.
func (o Object) Index(name string) int {
	return slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
}

// Twice reports whether several members have that name.
func (o Object) Twice(name string) bool {
	i := o.Index(name)
	return i >= 0 && o[i+1:].Index(name) >= 0
}

// MessageOutline is the outline of one message.
type MessageOutline struct {
	Span
	Role    string // "" if it is not a string
	Members Object
	Content Span // zero if the message has none
	// Blocks are the elements of a content that is an array; nil for any other.
	Blocks []BlockOutline
}

// BlockOutline is the outline of one block. A block that is not an object has neither type nor
// members.
type BlockOutline struct {
	Span
	Type    string
	Members Object
}

// ReadOutline parses a request once: it checks that body is one JSON object with a model, and finds
// its parts. Errors wrap ErrBadJSON.
//
// A duplicate member of the request is refused if the gateway acts on it, because two parsers could
// disagree about it.
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

// ReadMessage parses one message, or an answer of the messages dialect, which has the same shape.
// The outline has nothing else. Errors wrap ErrBadJSON.
func ReadMessage(body []byte) (*Outline, error) {
	o := single(body)
	return o, read(body, '{', func(r *outliner) error { return r.message(&o.Messages[0]) })
}

// ReadContent parses the content of one message, an array of blocks. The outline has nothing else.
// Errors wrap ErrBadJSON.
func ReadContent(body []byte) (*Outline, error) {
	o := single(body)
	return o, read(body, '[', func(r *outliner) error { return r.content(&o.Messages[0]) })
}

// readObject parses a body that is one JSON object. The outline has its members and nothing else. Errors wrap ErrBadJSON.
func readObject(body []byte) (*Outline, error) {
	o := &Outline{Body: body}
	return o, read(body, '{', func(r *outliner) (err error) {
		o.Members, _, err = r.object(nil)
		return err
	})
}

// single is an outline of one message, in one piece of memory.
func single(body []byte) *Outline {
	o := &struct {
		Outline
		message [1]MessageOutline
	}{Outline: Outline{Body: body}}
	o.Messages = o.message[:]
	return &o.Outline
}

// ReadMessages parses an array of messages. The outline has nothing else. Errors wrap ErrBadJSON.
func ReadMessages(body []byte) (*Outline, error) {
	o := &Outline{Body: body}
	return o, read(body, '[', func(r *outliner) (err error) {
		o.Messages, _, err = r.list()
		return err
	})
}

// acted are the members of a request on which the gateway acts.
var acted = []string{"model", "stream", "messages", "system", "tools", "tool_choice", "thinking", "max_tokens",
	"max_completion_tokens", "max_output_tokens", "n"}

// readHead reads the model's name and the stream flag.
func (o *Outline) readHead() error {
	model := o.Members.Get("model")
	if !model.Exists() {
		return fmt.Errorf("%w: \"model\" is missing", ErrBadJSON)
	}
	if o.Model, _ = o.Text(model); o.Model == "" {
		return fmt.Errorf("%w: \"model\" must be a non-empty string", ErrBadJSON)
	}
	switch stream := o.Raw(o.Members.Get("stream")); stream.Kind() {
	case 'n', 'f', jsontext.KindInvalid: // also without one
	case 't':
		o.Stream = true
	default:
		return fmt.Errorf("%w: \"stream\" must be true or false", ErrBadJSON)
	}
	return nil
}

// WithBody is the outline of an edited body: o itself if the body was not changed.
func (o *Outline) WithBody(body []byte) (*Outline, error) {
	if len(body) == len(o.Body) && len(body) > 0 && &body[0] == &o.Body[0] {
		return o, nil
	}
	return ReadOutline(body)
}

// WithModel is o with another model's name and all other bytes unchanged. o itself is not modified.
func (o *Outline) WithModel(model string) *Outline {
	if model == o.Model {
		return o
	}
	span, quoted := o.Members.Get("model"), Quote(model)
	delta := len(quoted) - (span.End - span.Start)
	moved := func(s Span) Span {
		if s.Start > span.Start {
			s.Start += delta
		}
		if s.End > span.Start {
			s.End += delta
		}
		return s
	}
	out := &Outline{Body: Splice(o.Body, span, quoted), Model: model, Stream: o.Stream, Members: o.Members.moved(moved)}
	out.Messages = slices.Clone(o.Messages)
	for i := range out.Messages {
		m := &out.Messages[i]
		m.Span, m.Content, m.Members = moved(m.Span), moved(m.Content), m.Members.moved(moved)
		m.Blocks = movedBlocks(m.Blocks, moved)
	}
	return out
}

// moved is a copy of o with translated spans.
func (o Object) moved(shift func(Span) Span) Object {
	out := slices.Clone(o)
	for i, m := range out {
		out[i].Key, out[i].Value = shift(m.Key), shift(m.Value)
	}
	return out
}

func movedBlocks(blocks []BlockOutline, shift func(Span) Span) []BlockOutline {
	out := slices.Clone(blocks)
	for i, b := range out {
		out[i].Span, out[i].Members = shift(b.Span), b.Members.moved(shift)
	}
	return out
}

// Raw is the raw value at s; nil for the zero Span.
func (o *Outline) Raw(s Span) jsontext.Value {
	if !s.Exists() {
		return nil
	}
	return o.Body[s.Start:s.End]
}

// Text is the string at s; ok is false for a value of another kind.
func (o *Outline) Text(s Span) (text string, ok bool) {
	b, ok := o.Unquoted(s)
	return string(b), ok
}

// Unquoted is Text without a copy, where nothing is escaped. The result must not be modified.
func (o *Outline) Unquoted(s Span) (text []byte, ok bool) {
	v := o.Raw(s)
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

// Unquoted is the string that v is; nil for a value of another kind. The result must not be modified.
func Unquoted(v []byte) []byte {
	o := Outline{Body: v}
	text, _ := o.Unquoted(Span{End: len(v)})
	return text
}

// Elements are the spans of the elements of the array at s; nil for any other value.
func (o *Outline) Elements(s Span) []Span {
	if o.Raw(s).Kind() != '[' {
		return nil
	}
	r := outline(o.Body, s.Start)
	defer r.done()
	var spans []Span
	// The body was parsed before, so nothing in it can fail here.
	_, _ = r.enter()
	for {
		if hasMore, err := r.next(']'); err != nil || !hasMore {
			return spans
		}
		span, err := r.value()
		if err != nil {
			return spans
		}
		spans = append(spans, span)
	}
}

// Object is the members of the object at s; nil for any other value.
func (o *Outline) Object(s Span) Object {
	if o.Raw(s).Kind() != '{' {
		return nil
	}
	r := outline(o.Body, s.Start)
	defer r.done()
	members, _, _ := r.object(nil)
	return members
}

// isPlain reports whether a raw string has no escapes and is valid UTF-8.
func isPlain(v []byte) bool { return bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) }
