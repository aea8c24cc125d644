package ledger

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"mneme/proxy/wire"
)

// Fingerprint is what matters when a message of the user, of a tool or of the system is compared, reduced
// to hashes. It depends on the message's bytes alone and is immutable.
type Fingerprint struct {
	exact   sum       // of the whole message without cache_control and tool ids
	texts   []reading // its content in order: texts, images and the like
	results []sum     // tool results
}

// reading is a text's hash in the ways in which blocks are joined: as they are and each one trimmed, as
// clients do, and with a line end between them, as translation into chat completions does.
type reading [3]sum

func (s *Fingerprint) size() int { return 128 + 48*len(s.texts) + 16*len(s.results) }

// Equal reports whether messages differ at most in cache markers and tool ids. None of them may be an
// assistant's.
func Equal(a, b []Message) bool {
	return slices.EqualFunc(a, b, func(a, b Message) bool { return a.Fingerprint.exact == b.Fingerprint.exact })
}

// Shows reports whether the messages that a client shows between two answers say what was said
// there: the same texts in the same order, and no tool result that was not given. Results may be
// missing or repeated.
func Shows(client, stored []Message) bool {
	if Equal(client, stored) {
		return true
	}
	var texts [2][]reading
	var results [2][]sum
	for i, messages := range [2][]Message{client, stored} {
		for _, m := range messages {
			texts[i] = append(texts[i], m.Fingerprint.texts...)
			results[i] = append(results[i], m.Fingerprint.results...)
		}
	}
	return slices.EqualFunc(texts[0], texts[1], reading.like) &&
		!slices.ContainsFunc(results[0], func(s sum) bool { return !slices.Contains(results[1], s) })
}

// Results reports whether messages consist of tool results only.
func Results(messages []Message) bool {
	hasResults := false
	for _, m := range messages {
		if len(m.Fingerprint.texts) > 0 {
			return false
		}
		hasResults = hasResults || len(m.Fingerprint.results) > 0
	}
	return hasResults
}

// CountResults is the number of tool results in messages.
func CountResults(messages []Message) (n int) {
	for _, m := range messages {
		n += len(m.Fingerprint.results)
	}
	return n
}

// like reports whether two texts agree in any reading.
func (r reading) like(other reading) bool {
	return slices.ContainsFunc(r[:], func(s sum) bool { return slices.Contains(other[:], s) })
}

// fingerprintOf parses a message that is not an assistant's.
func fingerprintOf(o *wire.Outline, m *wire.MessageOutline, d wire.Dialect) *Fingerprint {
	s := &Fingerprint{}
	exact := newDigest().members(o, m.Members, func(name string, _ jsontext.Value) bool {
		return name == "content" || name == toolCallID
	})
	tool := d == wire.Chat && m.Role == roleTool
	switch text, ok := o.Unquoted(m.Content); {
	case tool:
		s.result(o, m.Content)
		exact.addBytes(plain(o.Raw(m.Content)))
	case ok:
		s.text(m.Role, pieces{text})
		exact.add(wire.TextBlock).add("text").addBytes(plain(o.Raw(m.Content))).add("type").addBytes(
			[]byte(`"` + wire.TextBlock + `"`),
		)
	}
	if !tool {
		s.blocks(o, m, exact)
	}
	s.exact = exact.sum()
	return s
}

// PartsPrint tells content parts of the user from others, by a hash without their cache markers; empty
// for none.
func PartsPrint(parts []jsontext.Value) string {
	if len(parts) == 0 {
		return ""
	}
	o, err := wire.ReadMessages(slices.Concat([]byte(`[{"role":"user","content":`), wire.Array(parts), []byte("}]")))
	if err != nil {
		return "" // impossible: they were parsed before
	}
	return fingerprintOf(o, &o.Messages[0], wire.Messages).exact.String()
}

const (
	roleTool   = "tool" // the role of a tool's result in chat completions
	toolCallID = "tool_call_id"
	toolUseID  = "tool_use_id"
)

func (s *Fingerprint) blocks(o *wire.Outline, m *wire.MessageOutline, exact *digest) {
	var text pieces // adjacent text blocks, which are compared as one
	for _, b := range m.Blocks {
		exact.add(b.Type).members(o, b.Members, func(name string, _ jsontext.Value) bool { return name == toolUseID })
		if b.Type == wire.TextBlock {
			piece, _ := o.Unquoted(b.Members.Get("text"))
			text = append(text, piece)
			continue
		}
		s.text(m.Role, text)
		text = nil
		if b.Type == wire.ToolResultBlock {
			s.result(o, b.Members.Get("content"))
			continue
		}
		d := newDigest().add(m.Role).add(b.Type)
		if b.Members == nil {
			d.addBytes(plain(o.Raw(b.Span)))
		}
		other := d.members(o, b.Members, nothing).sum()
		s.texts = append(s.texts, reading{other, other, other})
	}
	s.text(m.Role, text)
}

func (s *Fingerprint) text(role string, text pieces) {
	if len(bytes.TrimSpace(text.joined())) == 0 {
		return
	}
	readings := text.readings()
	if len(text) > 1 {
		readings = append(readings, wire.Fold(bytes.Join(text, []byte("\n"))))
	}
	var r reading
	for i := range r {
		r[i] = newDigest().add(role).addBytes(readings[min(i, len(readings)-1)]).sum()
	}
	s.texts = append(s.texts, r)
}

// result adds a tool result, which is a string or a list of blocks.
func (s *Fingerprint) result(o *wire.Outline, content wire.Span) {
	d := newDigest()
	if text, ok := o.Unquoted(content); ok {
		d.add(wire.TextBlock).addBytes(wire.Fold(text))
	}
	for _, element := range o.Elements(content) {
		members := o.Object(element)
		if text, ok := o.Unquoted(members.Get("text")); ok {
			d.add(wire.TextBlock).addBytes(wire.Fold(text))
			continue
		}
		d.members(o, members, nothing)
	}
	s.results = append(s.results, d.sum())
}
