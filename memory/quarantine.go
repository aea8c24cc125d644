package memory

import (
	"encoding/json"
	"slices"
	"strings"
)

// Quarantine is what a chat's models are not shown until it is released: entries are the ids of messages and runs, and
// the names of sources, see Origin. After ForgetEntry, an id is that of a message with words that the user asked to
// forget, or of the run in which the user asked. Such an entry proposes to a person to redact it.
type Quarantine []string

// ForgetEntry begins the entries that a user asked for.
const ForgetEntry = "forget:"

// MaxQuarantine bounds the entries of one chat.
const MaxQuarantine = 1000

// MaxQuarantined bounds an entry, in bytes.
const MaxQuarantined = 256

// Has reports whether a message is in quarantine: by its id, its run, or its source, whichever page of a document or
// whichever one of several that is.
func (q Quarantine) Has(id string, o Origin) bool {
	return slices.ContainsFunc(q, func(entry string) bool {
		hidden := strings.TrimPrefix(entry, ForgetEntry)
		return hidden == id || hidden == RunOf(id) || o.Source == entry ||
			slices.ContainsFunc(strings.Split(o.Source, ", "),
				func(source string) bool { return source == entry || strings.HasPrefix(source, entry+" p. ") })
	})
}

// Without is stored messages without those in quarantine. What cannot be read stays, as no model is shown it.
func (q Quarantine) Without(raw []json.RawMessage) []json.RawMessage {
	if len(q) == 0 {
		return raw
	}
	ids := IDs(raw)
	kept := make([]json.RawMessage, 0, len(raw))
	for i, one := range raw {
		var m Message
		if json.Unmarshal(one, &m) != nil || !q.Has(ids[i], m.Origin) {
			kept = append(kept, one)
		}
	}
	return kept
}
