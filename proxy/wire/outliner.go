package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// outliner parses a body and notes the spans of its parts.
type outliner struct {
	scanner
	// The parts that were read so far. They are stacks: each level takes its own part off the end.
	members  []Member
	messages []MessageOutline
	blocks   []BlockOutline
}

// outliners pools the buffers. What an outliner returns is a copy.
var outliners = sync.Pool{New: func() any { return new(outliner) }}

// outline returns an outliner that starts at an offset of body.
func outline(body []byte, offset int) *outliner {
	r := outliners.Get().(*outliner)
	r.reset(body, offset)
	return r
}

func (r *outliner) done() {
	r.reset(nil, 0)
	clear(r.members)
	clear(r.messages)
	clear(r.blocks)
	r.members, r.messages, r.blocks = r.members[:0], r.messages[:0], r.blocks[:0]
	outliners.Put(r)
}

// kindNames names the kinds of bodies in errors.
var kindNames = map[jsontext.Kind]string{'{': "object", '[': "array"}

// read parses a body that must be one object or one array; parts reads its parts.
func read(body []byte, kind jsontext.Kind, parts func(*outliner) error) error {
	r := outline(body, 0)
	defer r.done()
	if !r.is(kind) {
		if err := r.json.SkipValue(); err != nil {
			return badJSON(err)
		}
		return fmt.Errorf("%w: it must be a JSON %s", ErrBadJSON, kindNames[kind])
	}
	if err := parts(r); err != nil {
		if errors.Is(err, ErrBadJSON) {
			return err
		}
		return badJSON(err)
	}
	if _, err := r.json.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the JSON %s at byte %d", ErrBadJSON, kindNames[kind], r.offset())
	}
	return nil
}

// drain removes what was collected from an index on, and returns a copy of it.
func drain[T any](collected *[]T, start int) []T {
	out := append(make([]T, 0, len(*collected)-start), (*collected)[start:]...)
	clear((*collected)[start:])
	*collected = (*collected)[:start]
	return out
}

// object reads the next value, an object, and returns its span. value, if not nil, reads each member's value.
func (r *outliner) object(value func(Member) (Span, error)) (members Object, span Span, err error) {
	if span.Start, err = r.enter(); err != nil {
		return nil, span, err
	}
	for start := len(r.members); ; {
		hasMore, err := r.next('}')
		if err != nil {
			return nil, span, err
		}
		if !hasMore {
			span.End = r.offset()
			return drain(&r.members, start), span, nil
		}
		var m Member
		if m.Key, err = r.value(); err != nil {
			return nil, span, err
		}
		m.Name = nameOf(r.body[m.Key.Start:m.Key.End])
		if value == nil {
			m.Value, err = r.value()
		} else {
			m.Value, err = value(m)
		}
		if err != nil {
			return nil, span, err
		}
		r.members = append(r.members, m)
	}
}

// find reads the object that begins here and notes the values of the named members; of several of one name the first.
func (r *outliner) find(names []string, values [][]byte) error {
	clear(values)
	if _, err := r.enter(); err != nil {
		return err
	}
	for {
		hasMore, err := r.next('}')
		if err != nil || !hasMore {
			return err
		}
		key, err := r.value()
		if err != nil {
			return err
		}
		span, err := r.value()
		if err != nil {
			return err
		}
		name := r.body[key.Start+1 : key.End-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(nameOf(r.body[key.Start:key.End]))
		}
		i := slices.IndexFunc(names, func(s string) bool { return s == string(name) })
		if i >= 0 && values[i] == nil {
			values[i] = r.body[span.Start:span.End]
		}
	}
}

// findIn is find for a value that was read before; false for one that is no object.
func findIn(v []byte, names []string, values [][]byte) bool {
	if len(v) == 0 || v[0] != '{' {
		return false
	}
	r := outline(v, 0)
	defer r.done()
	return r.find(names, values) == nil
}

// request reads the members of a request and its messages.
func (r *outliner) request() (members Object, messages []MessageOutline, err error) {
	members, _, err = r.object(func(m Member) (span Span, err error) {
		if slices.Contains(acted, m.Name) && Object(r.members).Index(m.Name) >= 0 {
			return Span{}, fmt.Errorf("%w: %q comes twice", ErrBadJSON, m.Name)
		}
		if m.Name != "messages" || !r.is('[') {
			return r.value()
		}
		messages, span, err = r.list()
		return span, err
	})
	return members, messages, err
}

// list reads an array of messages and returns its span.
func (r *outliner) list() (messages []MessageOutline, span Span, err error) {
	if span.Start, err = r.enter(); err != nil {
		return nil, span, err
	}
	for {
		hasMore, err := r.next(']')
		if err != nil {
			return nil, span, err
		}
		if !hasMore {
			span.End = r.offset()
			return drain(&r.messages, 0), span, nil
		}
		var m MessageOutline
		if err := r.message(&m); err != nil {
			return nil, span, err
		}
		r.messages = append(r.messages, m)
	}
}

// message reads one message; a value of another kind has a span only.
func (r *outliner) message(m *MessageOutline) (err error) {
	if !r.is('{') {
		m.Span, err = r.value()
		return err
	}
	first := true // for the first member "content": Get returns that one if there are several
	m.Members, m.Span, err = r.object(func(member Member) (Span, error) {
		content := member.Name == "content" && first
		first = first && !content
		if content && r.is('[') {
			err := r.content(m)
			return m.Content, err
		}
		span, err := r.value()
		if member.Name == "role" && err == nil && m.Role == "" {
			m.Role = stringOf(r.body[span.Start:span.End])
		}
		return span, err
	})
	m.Content = m.Members.Get("content")
	return err
}

// content reads a message's content, which is an array.
func (r *outliner) content(m *MessageOutline) (err error) {
	if m.Content.Start, err = r.enter(); err != nil {
		return err
	}
	start := len(r.blocks)
	for {
		hasMore, err := r.next(']')
		if err != nil {
			return err
		}
		if !hasMore {
			m.Content.End, m.Blocks = r.offset(), drain(&r.blocks, start)
			return nil
		}
		b, err := r.block()
		if err != nil {
			return err
		}
		r.blocks = append(r.blocks, b)
	}
}

// block reads one block; a value of another kind has a span only.
func (r *outliner) block() (b BlockOutline, err error) {
	if !r.is('{') {
		b.Span, err = r.value()
		return b, err
	}
	b.Members, b.Span, err = r.object(nil)
	for _, m := range b.Members {
		if m.Name == "type" && b.Type == "" {
			b.Type = stringOf(r.body[m.Value.Start:m.Value.End])
		}
	}
	return b, err
}

// names interns the strings that are frequent in requests and answers, which saves an allocation for each.
var names = func() map[string]string {
	m := map[string]string{}
	for _, n := range []string{
		"type", "text", "role", "content", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error",
		"cache_control", "source", "tool_calls", "tool_call_id", "reasoning_content", "reasoning_details", "reasoning",
		"function", "arguments", "index", "extra_content", "user", "assistant", "system", "tool", "tool_use", "tool_result",
		"redacted_thinking", "image", "citations", "model", "messages", "max_tokens", "stream", "tools", "usage", "choices",
		"message",
		"finish_reason", "stop_reason", "stop_sequence", "budget_tokens", "tool_choice", "temperature", "metadata",
		"input_text", "output_text", "function_call", "output", "call_id", "delta",
		"ping", MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, ErrorEvent,
		TextDelta, ThinkingDelta, SignatureDelta, InputDelta, StopEndTurn, StopToolUse,
		// Of Responses those events that a stream has many of, and those that the gateway acts on.
		"response.created", "response.in_progress", "response.queued", "response.output_item.added",
		"response.output_item.done", "response.content_part.added", "response.content_part.done",
		"response.output_text.delta", "response.output_text.done", "response.reasoning_summary_part.added",
		"response.reasoning_summary_part.done", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.function_call_arguments.delta",
		"response.function_call_arguments.done", "response.completed", "response.incomplete",
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

// stringOf is the string that a raw value stands for; empty for a value of another kind.
func stringOf(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if s, ok := names[string(v[1:len(v)-1])]; ok {
		return s
	}
	return string(Unquoted(v))
}
