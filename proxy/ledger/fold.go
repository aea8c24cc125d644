package ledger

import (
	"bytes"

	"mneme/proxy/wire"
)

// pieces are texts that follow one another, as slices of the memory that they were read from.
// Clients join such texts in more than one way, so they have more than one reading.
type pieces [][]byte

// joined is their concatenation. It may share memory with the pieces and must not be written to.
func (p pieces) joined() []byte {
	if len(p) == 1 {
		return p[0]
	}
	return bytes.Join(p, nil)
}

// readings are the normalised concatenations: of the texts as they are, and of each text trimmed.
// Mostly these are equal and returned once.
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

// withoutThink separates <think> sections from the rest: clients put reasoning there for which they
// have no other place. It returns the remaining text and the sections, normalised; ok is false if
// there are no sections.
func (p pieces) withoutThink() (remaining pieces, thoughts [][]byte, ok bool) {
	rest := p.joined()
	if !bytes.Contains(rest, thinkStart) {
		return nil, nil, false
	}
	for {
		head, tail, opened := bytes.Cut(rest, thinkStart)
		thought, suffix, closed := bytes.Cut(tail, thinkEnd)
		if !opened || !closed {
			return append(remaining, rest), thoughts, ok
		}
		ok = true
		if len(head) > 0 {
			remaining = append(remaining, head)
		}
		if t := wire.Fold(thought); len(t) > 0 {
			thoughts = append(thoughts, t)
		}
		rest = suffix
	}
}
