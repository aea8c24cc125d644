package upstreamtest

import (
	"crypto/sha256"
	"hash"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// contextHashes returns, for each message, the hash of everything before it: system, tools and earlier messages. The
// last hash covers the whole conversation. Thinking and cache_control are left out. A string equals one text block,
// consecutive messages of one role equal one message, and a message of only thinking is skipped.
func contextHashes(system, tools []members, turns []turn) []contextHash {
	h := sha256.New()
	for _, b := range slices.Concat(system, tools) {
		writeBlock(h, b)
	}
	hashes := []contextHash{sum(h)}
	role := ""
	for _, t := range turns {
		for _, b := range withoutThinking(t.blocks) {
			if t.role != role {
				role = t.role
				writeString(h, role)
			}
			writeBlock(h, b)
		}
		hashes = append(hashes, sum(h))
	}
	return hashes
}

// place returns the hash of an answer's blocks before a block of it.
func place(blocks []members) contextHash {
	h := sha256.New()
	for _, b := range withoutThinking(blocks) {
		writeBlock(h, b)
	}
	return sum(h)
}

// withoutThinking returns the blocks other than thinking.
func withoutThinking(blocks []members) []members {
	return slices.DeleteFunc(slices.Clone(blocks), thinks)
}

func sum(h hash.Hash) contextHash { return contextHash(h.Sum(nil)) }

// writeBlock writes the content of a block. The order of a block's own members does not count. The order within a
// tool's input or schema does.
func writeBlock(h hash.Hash, b members) {
	for _, name := range slices.Sorted(maps.Keys(b)) {
		v := b[name]
		switch {
		case name == "cache_control", v.Kind() == 'n', name == "is_error" && v.Kind() == 'f':
			continue
		case name == "content" && b.kind() == resultBlock:
			writeString(h, name)
			writeContent(h, b)
			continue
		}
		writeString(h, name)
		writeValue(h, v)
	}
	writeString(h, "")
}

// writeContent writes the content of a result.
func writeContent(h hash.Hash, b members) {
	blocks, ok := b.list("content")
	if !ok {
		blocks = []members{{"type": jsontext.Value(`"text"`), "text": b["content"]}}
	}
	for _, inner := range blocks {
		writeBlock(h, inner)
	}
}

func writeValue(h hash.Hash, v jsontext.Value) {
	v = v.Clone()
	// The whole body is valid JSON, so this cannot fail.
	_ = v.Format(jsontext.AllowDuplicateNames(true))
	writeString(h, string(v))
}

// writeString ends s with a byte that JSON does not contain, so that parts cannot run into each other.
func writeString(h hash.Hash, s string) {
	h.Write([]byte(s))
	h.Write([]byte{0})
}
