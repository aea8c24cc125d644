package ledger

import (
	"strings"
)

// fold takes out of a text what clients change without meaning to: the way lines
// end, spaces at the ends of lines, and what surrounds the whole.
func fold(s string) string {
	if strings.Contains(s, "\r") {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	}
	if strings.Contains(s, " \n") || strings.Contains(s, "\t\n") {
		lines := strings.Split(s, "\n")
		for i, line := range lines {
			lines[i] = strings.TrimRight(line, " \t")
		}
		s = strings.Join(lines, "\n")
	}
	return strings.TrimSpace(s)
}

// pieces are texts that follow one another. Clients join them in more than one
// way, so that they have more than one reading.
type pieces []string

// readings are the joined texts, folded: as they are, and each trimmed before.
// Mostly these are one.
func (p pieces) readings() []string {
	if len(p) == 1 {
		return []string{fold(p[0])}
	}
	joined := fold(strings.Join(p, ""))
	trimmed := make([]string, len(p))
	for i, s := range p {
		trimmed[i] = fold(s)
	}
	if other := strings.Join(trimmed, ""); other != joined {
		return []string{joined, other}
	}
	return []string{joined}
}

const (
	thinkStart = "<think>"
	thinkEnd   = "</think>"
)

// withoutThink takes <think> sections out of texts: what clients make of
// reasoning that they have no other place for. It gives what is left and the
// sections, folded; ok is false if there is none.
func (p pieces) withoutThink() (left pieces, thoughts []string, ok bool) {
	rest := strings.Join(p, "")
	if !strings.Contains(rest, thinkStart) {
		return nil, nil, false
	}
	for {
		before, after, found := strings.Cut(rest, thinkStart)
		thought, behind, closed := strings.Cut(after, thinkEnd)
		if !found || !closed {
			return append(left, rest), thoughts, ok
		}
		ok = true
		if before != "" {
			left = append(left, before)
		}
		if t := fold(thought); t != "" {
			thoughts = append(thoughts, t)
		}
		rest = behind
	}
}
