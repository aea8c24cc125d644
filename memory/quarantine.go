package memory

import (
	"encoding/json"
	"slices"
	"strings"
)

// Quarantine lists the messages of a chat that are hidden from models until a person releases them. An entry is the id
// of a message, the name of a source (see Origin), or ForgetEntry with an id, which asks a person to redact the message.
type Quarantine []string

// ForgetEntry begins an entry that names a message to be forgotten, or the run that requested it.
const ForgetEntry = "forget:"

// MaxQuarantine bounds the entries of one chat.
const MaxQuarantine = 1000

// MaxQuarantined bounds an entry, in bytes.
const MaxQuarantined = 256

// Has reports whether a message is in quarantine, by its id, its run or its source. A document stands for all of its
// pages. If a message has several sources, one is enough.
func (q Quarantine) Has(id string, o Origin) bool {
	run, sources := RunOf(id), strings.Split(o.Source, ", ")
	return slices.ContainsFunc(q, func(entry string) bool {
		forgotten, _ := strings.CutPrefix(entry, ForgetEntry)
		return forgotten == id || run != "" && entry == ForgetEntry+run || o.Source == entry ||
			slices.ContainsFunc(sources,
				func(source string) bool { return source == entry || strings.HasPrefix(source, entry+" p. ") })
	})
}

// Filter is stored messages without those in quarantine. What cannot be read stays, as no model is shown it.
func (q Quarantine) Filter(raw []json.RawMessage) []json.RawMessage {
	if len(q) == 0 {
		return raw
	}
	ids := IDs(raw)
	out := make([]json.RawMessage, 0, len(raw))
	for i, one := range raw {
		var m Message
		if json.Unmarshal(one, &m) != nil || !q.Has(ids[i], m.Origin) {
			out = append(out, one)
		}
	}
	return out
}
