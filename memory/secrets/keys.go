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

// marks are what keyLike may begin with. Most texts have none of them, which is found much sooner than that keyLike
// does not match.
var marks = func() [][]byte {
	all := [][]byte{[]byte("mn_"), []byte("AIza")}
	for _, word := range vendors {
		all = append(all, []byte(word+"-"), []byte(word+"_"))
	}
	return all
}()

// hasKey says whether a line has what has the form of a key.
func hasKey(line []byte) bool {
	return slices.ContainsFunc(marks, func(mark []byte) bool { return bytes.Contains(line, mark) }) && keyLike.Match(line)
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
