package thinking

import (
	"slices"

	"mneme/proxy/wire"
)

// HasThinking reports whether a request has anything that Strip would remove.
func HasThinking(o *wire.Outline, d wire.Dialect) bool {
	h := history{o, d}
	for i := range o.Messages {
		if m := &o.Messages[i]; m.Role == wire.RoleAssistant && h.thinks(m) || slices.ContainsFunc(m.Blocks, strayed) {
			return true
		}
	}
	return false
}

// Strip removes all thinking from a request's messages, including signatures on other blocks, and
// returns the ledger's keys of what it removed. A message that would be empty gets a text, so that
// roles still alternate and tool results keep their calls. The request's parameters are left alone
// even where they no longer fit. If there is nothing to remove the body is the outline's own.
func Strip(o *wire.Outline, d wire.Dialect) (body []byte, removed []string) {
	h := history{o, d}
	var e wire.Edits
	for i := range o.Messages {
		m := &o.Messages[i]
		if m.Role == wire.RoleAssistant {
			removed = append(removed, h.keys(m)...)
			h.drop(&e, m)
		}
		for _, b := range m.Blocks {
			if strayed(b) {
				e.RemoveMembers(b.Members, signatureKey)
			}
		}
	}
	return e.Apply(o.Body), removed
}

// strayed reports whether a block that is not thinking carries a signature.
func strayed(b wire.BlockOutline) bool {
	return !wire.IsThinking(b.Type) && b.Members.Index(signatureKey) >= 0
}

// drop removes a message's thinking.
func (h history) drop(e *wire.Edits, m *wire.MessageOutline) { h.rewrite(e, m, nil) }

// rewrite removes a message's thinking, or replaces a block of it by the text block that says
// returns.
func (h history) rewrite(e *wire.Edits, m *wire.MessageOutline, replacement func(wire.BlockOutline) []byte) {
	if !h.thinks(m) {
		return
	}
	spans := make([]wire.Span, len(m.Blocks))
	stays := make([]bool, len(m.Blocks))
	for i, b := range m.Blocks {
		spans[i], stays[i] = b.Span, !wire.IsThinking(b.Type)
		if !stays[i] && replacement != nil {
			if text := replacement(b); text != nil {
				stays[i] = true
				e.Replace(b.Span, text)
			}
		}
	}
	bare := !slices.Contains(stays, true)
	switch {
	case h.dialect == wire.Chat:
		h.dropFields(e, m)
		if bare && (len(m.Blocks) > 0 || h.null(m.Content)) {
			h.empty(e, m)
			return
		}
	case bare:
		e.Replace(wire.Span{Start: spans[0].Start, End: spans[len(spans)-1].End}, noTextBlock)
		return
	}
	e.Keep(spans, func(i int) bool { return stays[i] })
}

// empty gives content to a chat message that lost all of its own; beside tool calls it needs none.
func (h history) empty(e *wire.Edits, m *wire.MessageOutline) {
	switch {
	case h.null(m.Members.Get("tool_calls")):
		h.setContent(e, m, wire.Quote(noText))
	case len(m.Blocks) > 0:
		h.setContent(e, m, []byte("null"))
	}
}

// dropFields removes the reasoning members of a chat message, and Gemini's signatures.
func (h history) dropFields(e *wire.Edits, m *wire.MessageOutline) {
	names := slices.Clone(reasoning)
	if h.dropSignature(e, m.Members) {
		names = append(names, extraContent)
	}
	e.RemoveMembers(m.Members, names...)
	for _, call := range h.calls(m) {
		if h.dropSignature(e, call) {
			e.RemoveMembers(call, extraContent)
		}
	}
}

// dropSignature removes a thought signature from extra_content. whole is true if extra_content
// holds nothing else, so that the caller has to remove all of it.
func (h history) dropSignature(e *wire.Edits, members wire.Object) (removeAll bool) {
	if !h.signed(members) {
		return false
	}
	extra := h.Object(members.Get(extraContent))
	google := h.Object(extra.Get("google"))
	switch {
	case len(google) > 1:
		e.RemoveMembers(google, "thought_signature")
	case len(extra) > 1:
		e.RemoveMembers(extra, "google")
	default:
		return true
	}
	return false
}

// setContent replaces or adds a message's content.
func (h history) setContent(e *wire.Edits, m *wire.MessageOutline, value []byte) {
	put(e, m.Span, m.Content, "content", value)
}

// put replaces the member at old, or else adds it at the front of the object at s, which must not be empty.
func put(e *wire.Edits, s, old wire.Span, name string, value []byte) {
	if old.Exists() {
		e.Replace(old, value)
		return
	}
	front := wire.Span{Start: s.Start + 1, End: s.Start + 1}
	e.Replace(front, slices.Concat(wire.Quote(name), []byte(":"), value, []byte(",")))
}
