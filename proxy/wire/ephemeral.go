package wire

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Ephemeral content parts belong to one request: they stand at the front of the newest message of
// the user, behind results of tools, and no later request has them.

// NewestUser is the index of the newest message of the user that is not made of tool results; -1 if
// there is none. results is how many tool results begin its content.
func (o *Outline) NewestUser() (index, results int) {
	for i, m := range slices.Backward(o.Messages) {
		if m.Role != RoleUser {
			continue
		}
		isOther := func(b BlockOutline) bool { return b.Type != ToolResultBlock }
		if n := slices.IndexFunc(m.Blocks, isOther); n >= 0 || len(m.Blocks) == 0 {
			return i, max(n, 0)
		}
	}
	return -1, 0
}

// TakeEphemeral is the request without the first n content parts of its newest user message, and
// those parts. A single text that is left becomes a string. The error says what is wrong with n.
func (o *Outline) TakeEphemeral(n int) (rest *Outline, parts []jsontext.Value, err error) {
	index, results := o.NewestUser()
	if index < 0 {
		return nil, nil, fmt.Errorf("the request has no user message")
	}
	m := &o.Messages[index]
	if len(m.Blocks) < results+n {
		return nil, nil, fmt.Errorf("content parts of the newest user message: %d", max(0, len(m.Blocks)-results))
	}
	for i, b := range m.Blocks[results : results+n] {
		if b.Members == nil || b.Type == ToolResultBlock {
			return nil, nil, fmt.Errorf("part %d of the newest user message is none that can be left out", i+1)
		}
		parts = append(parts, bytes.Clone(o.Raw(b.Span)))
	}
	blocks := slices.Delete(slices.Clone(m.Blocks), results, results+n)
	if !slices.ContainsFunc(blocks[results:], o.hasContent) {
		return nil, nil, fmt.Errorf("nothing is left of the newest user message")
	}
	var e Edits
	if text := blocks[0].Members.Get("text"); len(blocks) == 1 && blocks[0].Type == TextBlock &&
		len(blocks[0].Members) == 2 && o.Raw(text).Kind() == '"' {
		e.Replace(m.Content, o.Raw(text))
	} else {
		spans := make([]Span, len(m.Blocks))
		for i, b := range m.Blocks {
			spans[i] = b.Span
		}
		e.Keep(spans, func(i int) bool { return i < results || i >= results+n })
	}
	rest, err = o.WithBody(e.Apply(o.Body))
	return rest, parts, err
}

// hasContent reports whether a block is more than blank text.
func (o *Outline) hasContent(b BlockOutline) bool {
	text, ok := o.Unquoted(b.Members.Get("text"))
	return b.Type != TextBlock || ok && len(bytes.TrimSpace(text)) > 0
}

// PutEphemeral is the request with content parts at the front of its newest user message.
func (o *Outline) PutEphemeral(parts []jsontext.Value) (*Outline, error) {
	index, _ := o.NewestUser()
	if index < 0 || len(parts) == 0 {
		return o, nil
	}
	return o.PutParts(map[int][]jsontext.Value{index: parts})
}

// PutParts is the request with content parts at the front of messages, by their index, behind results of tools. A
// message of nothing but results stays as it is.
func (o *Outline) PutParts(byMessage map[int][]jsontext.Value) (*Outline, error) {
	var e Edits
	for i := range o.Messages {
		m, parts := &o.Messages[i], byMessage[i]
		if len(parts) == 0 {
			continue
		}
		results := slices.IndexFunc(m.Blocks, func(b BlockOutline) bool { return b.Type != ToolResultBlock })
		front := bytes.TrimPrefix(Array(parts), []byte("["))
		front[len(front)-1] = ','
		switch content := o.Raw(m.Content); {
		case results >= 0:
			first := m.Blocks[results].Start
			e.Replace(Span{Start: first, End: first}, front)
		case content.Kind() == '"':
			e.Replace(m.Content, slices.Concat([]byte("["), front, []byte(`{"type":"text","text":`), content, []byte("}]")))
		}
	}
	return o.WithBody(e.Apply(o.Body))
}
