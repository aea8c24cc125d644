package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// recollection is a message of a chat that was recalled for the request.
type recollection struct {
	at   string // date and time, in UTC
	day  string // of a note, which has no time
	user bool   // the user said it
	text string
}

// takeRecalled takes what was recalled off the text of a message of the user, in front of which it stands.
func takeRecalled(text string) (rest string, before []recollection) {
	_, found, ok := strings.Cut(text, `<recalled nonce="`)
	nonce, found, whole := strings.Cut(found, "\">\n")
	found, rest, closed := strings.Cut(found, "\n</recalled nonce=\""+nonce+`">`)
	if !ok || !whole || !closed || nonce == "" {
		return text, nil
	}
	at, fresh := "", false
	for line := range strings.Lines(found) {
		line = strings.TrimRight(line, "\n")
		if m := saidAt.FindStringSubmatch(line); m != nil {
			at, fresh = m[1], true
		} else if m := speaker.FindStringSubmatch(line); m != nil && (fresh || m[2] != "" || roles[m[1]]) {
			fresh = false
			role := m[2]
			if roles[m[1]] {
				role = m[1]
			}
			before = append(before, recollection{at: at, user: role == "" || role == "user", text: m[3]})
		} else if len(before) > 0 {
			before[len(before)-1].text += "\n" + line
		}
	}
	return rest, before
}

var roles = map[string]bool{"user": true, "assistant": true, "tool": true}

// month is that in which a question asks what was said, as two digits, and the question without it; empty for none.
func (f fact) month() (digits string, without fact) {
	m := inMonth.FindStringSubmatch(f.text)
	if m == nil || !reported.MatchString(f.text) {
		return "", f
	}
	word := strings.ToLower(m[1])
	without = f
	without.keys = maps.Clone(f.keys)
	delete(without.keys, stem(word))
	at := slices.IndexFunc(months, func(starts string) bool {
		return slices.ContainsFunc(strings.Split(starts, "_"), func(s string) bool { return strings.HasPrefix(word, s) })
	})
	return fmt.Sprintf("%02d", at+1), without
}
