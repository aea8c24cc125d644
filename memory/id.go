package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// ClosingSuffix ends the run's name in the ids of what closed a lost run.
const ClosingSuffix = "-end"

// maxID bounds a message's id, in characters of A-Z a-z 0-9 . _ : -.
const maxID = 128

// MessageID is the id of the message that event seq of a run made: "<run>.<seq>".
func MessageID(run string, seq int64) string { return run + "." + strconv.FormatInt(seq, 10) }

// SplitID reads what MessageID writes; ok is false for the id of a message that no
// run made.
func SplitID(id string) (run string, seq int64, ok bool) {
	dot := strings.LastIndexByte(id, '.')
	if dot < 1 || computedRun(id[:dot]) || dot+1 == len(id) || id[dot+1] == '0' || !only(id[dot+1:], decimal) {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(id[dot+1:], 10, 64)
	return id[:dot], seq, err == nil
}

// RunOf is the run that made a message, or in whose place it was closed; "" for none.
func RunOf(id string) string {
	run, _, _ := SplitID(id)
	return strings.TrimSuffix(run, ClosingSuffix)
}

func decimal(c byte) bool { return c >= '0' && c <= '9' }

// computedRun tells "x" and 16 hex digits, with which computed ids begin.
func computedRun(s string) bool {
	return len(s) == 17 && s[0] == 'x' && only(s[1:], func(c byte) bool { return decimal(c) || c >= 'a' && c <= 'f' })
}

func idByte(c byte) bool {
	return agentByte(c) || c >= 'A' && c <= 'Z' || c == '.' || c == ':'
}

// readID is the id that a member says; "" for a value that is none.
func readID(raw json.RawMessage) string {
	var id string
	if json.Unmarshal(raw, &id) != nil || len(id) > maxID || !only(id, idByte) {
		return ""
	}
	return id
}

// idMember begins the last member of a message that has an id.
var idMember = []byte(`,"id":"`)

// storedID is the id that a stored message carries, "" for none; other is true if
// it has a member of that name which holds no id.
func storedID(raw json.RawMessage) (id string, other bool) {
	end := raw[max(len(raw)-maxID-len(idMember)-len(`"}`), 0):]
	if i := bytes.LastIndex(end, idMember); i >= 0 && bytes.HasSuffix(end, []byte(`"}`)) {
		// A comma, a whole member and the end of the object: it is the object's own.
		id = string(bytes.TrimSuffix(end[i+len(idMember):], []byte(`"}`)))
		if id != "" && only(id, idByte) {
			return id, false
		}
	}
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(raw, &m) != nil || m.ID == nil {
		return "", false
	}
	id = readID(m.ID)
	return id, id == ""
}

// IDs are the ids of stored messages that follow one another, each another one: the
// one that a message carries as its last member, "<run>.<seq>" if a run made it.
// One without, or with one that a message before it has, gets "x", 16 hex digits of
// the SHA-256 of its bytes, a dot, and how many such came before.
func IDs(raw []json.RawMessage) []string {
	ids := make([]string, len(raw))
	used := make(map[string]bool, len(raw))
	missing := 0
	for i, m := range raw {
		if id, _ := storedID(m); id != "" && !used[id] {
			ids[i], used[id] = id, true
		} else {
			missing++
		}
	}
	if missing == 0 {
		return ids
	}
	occurrences := map[string]int{}
	for i, m := range raw {
		if ids[i] != "" {
			continue
		}
		sum := sha256.Sum256(m)
		base := "x" + hex.EncodeToString(sum[:8]) + "."
		for ids[i] == "" || used[ids[i]] {
			ids[i] = base + strconv.Itoa(occurrences[base])
			occurrences[base]++
		}
		used[ids[i]] = true
	}
	return ids
}

// WithID is a stored message that carries its id, which IDs found. One that has a
// member of that name already stays as it is.
func WithID(raw json.RawMessage, id string) json.RawMessage {
	carried, other := storedID(raw)
	end := bytes.LastIndexByte(raw, '}')
	if carried != "" || other || end < 0 {
		return raw
	}
	return slices.Concat(raw[:end], idMember, []byte(id), []byte(`"}`))
}

// IDs are the ids of the history's messages; see the function of this name.
func (h *History) IDs() []string { return IDs(h.Raw(0)) }

// Identified is a history of its own in which every message carries its id.
func (h *History) Identified() *History {
	return Empty(h.key).With(identified(h.Raw(0))...)
}

// identified are messages, each with its id.
func identified(raw []json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, len(raw))
	for i, id := range IDs(raw) {
		out[i] = WithID(raw[i], id)
	}
	return out
}
