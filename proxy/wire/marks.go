package wire

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// CacheControl is the member by which a client marks a block as the end of a prefix that the vendor
// shall cache. Clients move it with each request, so it is not part of what was said.
const CacheControl = "cache_control"

// Marks are the cache markers of blocks, nil for a block without one.
func (o *Outline) Marks(blocks []BlockOutline) []jsontext.Value {
	marks := make([]jsontext.Value, len(blocks))
	for i, b := range blocks {
		marks[i] = o.Raw(b.Members.Get(CacheControl))
	}
	return marks
}

// Mark adds a cache marker at the end of the object at s, which must not be empty.
func (e *Edits) Mark(s Span, mark jsontext.Value) {
	e.Replace(Span{s.End - 1, s.End - 1}, slices.Concat([]byte(`,"`+CacheControl+`":`), mark))
}

// MarkedText is a content of one text block with a cache marker.
func MarkedText(text string, mark jsontext.Value) []byte {
	return slices.Concat([]byte(`[{"type":"text","text":`), Quote(text), []byte(`,"`+CacheControl+`":`), mark,
		[]byte("}]"))
}

// Unmark removes the cache markers of a message, including those inside tool results.
func (e *Edits) Unmark(o *Outline, m *MessageOutline) {
	if !bytes.Contains(o.Body[m.Start:m.End], []byte(CacheControl)) {
		return
	}
	e.RemoveMembers(m.Members, CacheControl)
	for _, b := range m.Blocks {
		e.RemoveMembers(b.Members, CacheControl)
		if b.Type != ToolResultBlock {
			continue
		}
		for _, s := range o.Elements(b.Members.Get("content")) {
			e.RemoveMembers(o.Object(s), CacheControl)
		}
	}
}
