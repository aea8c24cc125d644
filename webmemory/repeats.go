package webmemory

import (
	"encoding/json"
	"hash/maphash"
	"slices"
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
// some consecutive words. It is told of all messages three times: first those of the text are learnt, then all
// others are counted, then looked at. What it holds is bounded by the text, not by the chat.
type repeats struct {
	seed    maphash.Seed
	words   map[string]*clue
	phrases map[uint64]*clue
	best    []repeat // by rank and then as they came; one more than are named
}

// clue is a word or a phrase of the text.
type clue struct {
	count int  // of the other messages that have it
	last  int  // the last of them, by its number
	plain bool // a word without a digit, which is a clue only if few messages have it
}

// repeat is a message that repeats the text, and by how rare a clue: in how many messages that is.
type repeat struct {
	webapi.MessageRef
	rank int
}

func newRepeats() *repeats {
	return &repeats{seed: maphash.MakeSeed(), words: map[string]*clue{}, phrases: map[uint64]*clue{}}
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
			r.words[strings.Clone(w)] = &clue{plain: !strings.ContainsFunc(w, unicode.IsDigit)}
		}
	}, func(p uint64) { r.phrases[p] = &clue{} })
}

// clues calls see for each clue of what was learnt that a message has, as often as it stands there.
func (r *repeats) clues(raw json.RawMessage, see func(*clue)) error {
	if len(r.words) == 0 {
		return nil
	}
	found := func(at *clue) {
		if at != nil {
			see(at)
		}
	}
	return r.read(raw, func(w string) { found(r.words[w]) }, func(p uint64) { found(r.phrases[p]) })
}

// count takes a message that may repeat what was learnt; number is another one for each message, from 1.
func (r *repeats) count(raw json.RawMessage, number int) error {
	return r.clues(raw, func(at *clue) {
		if at.last != number {
			at.last, at.count = number, at.count+1
		}
	})
}

// look takes a message that was counted.
func (r *repeats) look(raw json.RawMessage, ref webapi.MessageRef) error {
	rank := 0
	err := r.clues(raw, func(at *clue) {
		if (!at.plain || at.count <= rareWord) && (rank == 0 || at.count < rank) {
			rank = at.count
		}
	})
	if err != nil || rank == 0 || len(r.best) > maxRepeats && rank >= r.best[maxRepeats].rank {
		return err
	}
	at, _ := slices.BinarySearchFunc(r.best, rank, func(of repeat, rank int) int {
		if of.rank <= rank {
			return -1
		}
		return 1
	})
	r.best = slices.Insert(r.best, at, repeat{ref, rank})
	r.best = r.best[:min(len(r.best), maxRepeats+1)]
	return nil
}

// found are the messages that repeat what was learnt, those with the rarest clue first; cut: there are more.
func (r *repeats) found() (refs []webapi.MessageRef, cut bool) {
	refs = []webapi.MessageRef{}
	for _, of := range r.best[:min(len(r.best), maxRepeats)] {
		refs = append(refs, of.MessageRef)
	}
	return refs, len(r.best) > maxRepeats
}
