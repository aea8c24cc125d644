package webmemory

import (
	"encoding/json"
	"hash/maphash"
	"strings"
	"unicode"

	"mneme/memory"
	"mneme/memory/textindex"
	webapi "mneme/webmemory/api"
)

// Bounds of what counts as repeating a text, and of how much of it is named.
const (
	rareWord   = 5    // messages of the chat that a word stands in beside the redacted ones
	phrase     = 4    // consecutive words
	maxRepeats = 1000 // messages that are named
)

// repeats finds messages that repeat a text: they share a word with a digit, a word that few messages have, or
// some consecutive words. What it holds is bounded by the text, not by the chat.
type repeats struct {
	seed    maphash.Seed
	words   map[string]*sightings
	phrases map[uint64]bool
	refs    []webapi.MessageRef // messages that may be named, in the order in which they were looked at
	sure    []bool              // of each: it is
	certain int                 // how many are
}

// sightings are the messages that a word of the text was found in.
type sightings struct {
	digit bool
	count int
	refs  []int // the first ones
}

func newRepeats() *repeats {
	return &repeats{seed: maphash.MakeSeed(), words: map[string]*sightings{}, phrases: map[uint64]bool{}}
}

// read calls word for each word of a message, and phrases for each of its phrases.
func (r *repeats) read(raw json.RawMessage, word func(string), phrases func(uint64)) error {
	messages, err := memory.Decode([]json.RawMessage{raw})
	if err != nil {
		return err
	}
	for _, text := range append(messages[0].Texts(), messages[0].Name) {
		if text == memory.RedactedText {
			continue
		}
		var last [phrase]string
		n := 0
		for w := range textindex.Words(text) {
			word(w)
			copy(last[:], last[1:])
			last[phrase-1] = w
			if n++; n >= phrase {
				phrases(maphash.String(r.seed, strings.Join(last[:], " ")))
			}
		}
	}
	return nil
}

// learn takes a message of which repetitions are looked for.
func (r *repeats) learn(raw json.RawMessage) error {
	return r.read(raw, func(w string) {
		if r.words[w] == nil {
			r.words[strings.Clone(w)] = &sightings{digit: strings.ContainsFunc(w, unicode.IsDigit)}
		}
	}, func(p uint64) { r.phrases[p] = true })
}

// look takes a message that may repeat what was learnt.
func (r *repeats) look(raw json.RawMessage, ref webapi.MessageRef) error {
	if len(r.words) == 0 {
		return nil
	}
	sure := false
	var shared []*sightings
	seen := map[*sightings]bool{}
	err := r.read(raw, func(w string) {
		at := r.words[w]
		if at == nil || seen[at] {
			return
		}
		seen[at] = true
		sure = sure || at.digit
		if at.count++; at.count <= rareWord {
			shared = append(shared, at)
		}
	}, func(p uint64) { sure = sure || r.phrases[p] })
	if sure {
		r.certain++
	}
	if err != nil || !sure && len(shared) == 0 || sure && r.certain > maxRepeats {
		return err
	}
	for _, at := range shared {
		at.refs = append(at.refs, len(r.refs))
	}
	r.refs, r.sure = append(r.refs, ref), append(r.sure, sure)
	return nil
}

// found are the messages that repeat what was learnt, in the order in which they were looked at; cut: there are
// more.
func (r *repeats) found() (refs []webapi.MessageRef, cut bool) {
	for _, at := range r.words {
		if at.count > rareWord {
			continue
		}
		for _, i := range at.refs {
			r.sure[i] = true
		}
	}
	refs = []webapi.MessageRef{}
	for i, ref := range r.refs {
		if r.sure[i] && len(refs) == maxRepeats {
			return refs, true
		}
		if r.sure[i] {
			refs = append(refs, ref)
		}
	}
	return refs, r.certain > maxRepeats
}
