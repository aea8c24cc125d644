package offline

import (
	"encoding/json"
	"slices"
	"strings"

	"mneme/proxy/wire"
)

// notesIn are the notes of the chat, which stand at the end of a system prompt: a line each, an id, a day and a JSON
// string, the newest first. They were said before all messages.
func notesIn(system wire.Content) (before []recollection) {
	for _, b := range system {
		_, found, ok := strings.Cut(b.Text, "\n<notes>\n")
		found, closed := strings.CutSuffix(found, "\n</notes>")
		if !ok || !closed {
			continue
		}
		for line := range strings.Lines(found) {
			id, quoted, _ := strings.Cut(line, ` "`)
			var text string
			if json.Unmarshal([]byte(`"`+quoted), &text) == nil {
				before = append(before, recollection{user: true, text: text, day: id[strings.LastIndexByte(id, ' ')+1:]})
			}
		}
	}
	slices.Reverse(before)
	return before
}
