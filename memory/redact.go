package memory

import (
	"bytes"
	"encoding/json"
	"slices"
)

// RedactedText stands where a text was taken away.
const RedactedText = "(redacted)"

// Redacted is a stored message without what it says: its content, the arguments of its tool calls, its metadata,
// images and citations, the name of its source, the record of its run, and the speaker's name. What orders it stays: the
// role, the time, its id, which is given, and what ties tool calls and their results together, so that a model takes the
// history as before. A message that is redacted stays as it is, byte for byte.
func Redacted(raw json.RawMessage, id string) (json.RawMessage, error) {
	messages, err := Decode([]json.RawMessage{raw})
	if err != nil {
		return nil, err
	}
	m := messages[0]
	if m.Content != "" {
		m.Content = RedactedText
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].Function.Arguments = "{}"
	}
	if m.Role != RoleTool {
		m.Name = ""
	}
	m.Source, m.Pasted, m.Metadata, m.Images, m.Citations, m.Run, m.ID = "", nil, nil, nil, nil, nil, id
	return m.Encode(), nil
}

// RedactIn gives stored messages that follow one another, of which those with such ids say nothing. If there are
// some all carry their ids; else they come back as they are, and found is false.
func RedactIn(raw []json.RawMessage, has func(id string) bool) (out []json.RawMessage, matched bool, err error) {
	ids := IDs(raw)
	if !slices.ContainsFunc(ids, has) {
		return raw, false, nil
	}
	out = make([]json.RawMessage, len(raw))
	for i, m := range raw {
		out[i] = WithID(m, ids[i])
		if !has(ids[i]) {
			continue
		}
		if out[i], err = Redacted(m, ids[i]); err != nil {
			return nil, true, err
		}
	}
	return out, true, nil
}

// Redacted is the history with messages that say nothing, by their ids; the history itself if they are so already.
// It is the copy that it was, of the same turn.
func (h *History) Redacted(has func(id string) bool) (*History, error) {
	out, matched, err := RedactIn(h.Raw(0), has)
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	if err != nil || !matched || slices.EqualFunc(out, h.Raw(0), same) {
		return h, err
	}
	fresh := Empty(h.key).With(out...)
	fresh.stand(func(s *standing) { *s = h.standing() })
	return fresh, nil
}
