package secrets

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
)

// vendors are the words that vendors' keys begin with, before a hyphen or an underscore.
var vendors = []string{"sk", "pk", "rk", "gsk", "hf", "r8", "xai", "glpat", "ghp", "gho", "github_pat"}

// keyLike is what has the form of a key: one of ours, mn_<id>_<secret>, or a vendor's.
var keyLike = regexp.MustCompile(
	`\b(mn_[a-z0-9-]{1,32}_|(?:` + strings.Join(vendors, "|") + `)[-_]|AIza)[A-Za-z0-9_-]{20,}`)

// heads are what a hyphen or an underscore follows where something begins that keyLike finds, but for AIza.
var heads = append([]string{"mn"}, vendors...)

// hasKey says whether a line has what has the form of a key. It looks for the beginnings of keys first, where a hyphen
// or an underscore stands: most lines have none, which is found much sooner than that keyLike does not match.
func hasKey(line []byte) bool {
	candidate := bytes.Contains(line, []byte("AIza"))
	for i := 0; i < len(line) && !candidate; i++ {
		if line[i] == '-' || line[i] == '_' {
			candidate = slices.ContainsFunc(heads, func(head string) bool { return endsIn(line[:i], head) })
		}
	}
	return candidate && keyLike.Match(line)
}

func endsIn(line []byte, word string) bool {
	return len(line) >= len(word) && string(line[len(line)-len(word):]) == word
}

// Keyless is a text without what has the form of a key. People paste keys where none belongs, as into an address, which
// logs and errors repeat.
func Keyless(text string) string { return keyLike.ReplaceAllString(text, "${1}"+struck) }

// Log is a writer of a log, line by line, that writes lines without what has the form of a key.
type Log struct{ io.Writer }

func (l Log) Write(line []byte) (int, error) {
	if !hasKey(line) {
		return l.Writer.Write(line)
	}
	if _, err := io.WriteString(l.Writer, Keyless(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
