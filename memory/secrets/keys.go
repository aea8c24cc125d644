package secrets

import (
	"io"
	"regexp"
)

// keyLike is what has the form of a key: one of ours, mn_<id>_<secret>, or a vendor's.
var keyLike = regexp.MustCompile(
	`\b(mn_[a-z0-9-]{1,32}_|(?:sk|pk|rk|gsk|hf|r8|xai|glpat|ghp|gho|github_pat)[-_]|AIza)[A-Za-z0-9_-]{20,}`)

// Keyless is a text without what has the form of a key. People paste keys where none belongs, as into an address, which
// logs and errors repeat.
func Keyless(text string) string { return keyLike.ReplaceAllString(text, "${1}"+struck) }

// Log is a writer of a log, line by line, that writes lines without what has the form of a key.
type Log struct{ io.Writer }

func (l Log) Write(line []byte) (int, error) {
	if !keyLike.Match(line) {
		return l.Writer.Write(line)
	}
	if _, err := io.WriteString(l.Writer, Keyless(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
