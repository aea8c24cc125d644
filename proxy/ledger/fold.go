package ledger

import (
	"bytes"

	"mneme/proxy/wire"
)

// pieces are texts that follow one another, in the memory of what they were read
// from. Clients join them in more than one way, so that they have more than one
// reading.
type pieces [][]byte

// joined are all of them as they are. It must not be written into.
func (p pieces) joined() []byte {
	if len(p) == 1 {
		return p[0]
	}
	return bytes.Join(p, nil)
}

// readings are the joined texts, folded: as they are, and each trimmed before.
// Mostly these are one.
func (p pieces) readings() [][]byte {
	joined := wire.Fold(p.joined())
	if len(p) == 1 {
		return [][]byte{joined}
	}
	trimmed := make(pieces, len(p))
	for i, s := range p {
		trimmed[i] = wire.Fold(s)
	}
	if other := trimmed.joined(); !bytes.Equal(other, joined) {
		return [][]byte{joined, other}
	}
	return [][]byte{joined}
}

var (
	thinkStart = []byte("<think>")
	thinkEnd   = []byte("</think>")
)

// withoutThink takes <think> sections out of texts: what clients make of
// reasoning that they have no other place for. It gives what is left and the
// sections, folded; ok is false if there is none.
func (p pieces) withoutThink() (left pieces, thoughts [][]byte, ok bool) {
	rest := p.joined()
	if !bytes.Contains(rest, thinkStart) {
		return nil, nil, false
	}
	for {
		before, after, found := bytes.Cut(rest, thinkStart)
		thought, behind, closed := bytes.Cut(after, thinkEnd)
		if !found || !closed {
			return append(left, rest), thoughts, ok
		}
		ok = true
		if len(before) > 0 {
			left = append(left, before)
		}
		if t := wire.Fold(thought); len(t) > 0 {
			thoughts = append(thoughts, t)
		}
		rest = behind
	}
}
