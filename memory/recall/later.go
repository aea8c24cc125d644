package recall

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/textindex"
)

// What changed is often told without a word of the question: "I live in Hamburg" has one of "Where do I live?", and "I
// moved from Hamburg to Vienna" has none. So the names in the best hits are searched for in what was said behind them.
// The values were chosen as those of search.go: around each the results are flat.
const (
	laterSeeds  = 3   // best hits whose names are looked for
	laterPlace  = 5   // hits that stand before what is found by names
	laterTokens = 200 // of the budget that it may have, and at most the part in laterPart
	laterPart   = 4
	laterNames  = 8   // of one hit that are looked for
	laterPool   = 64  // passages with the names that are looked at
	laterLeast  = 0.5 // score, as a share of the best of those
	// A name tells something apart if no more passages have it than rareCount or the share rareShare, and mostNames in
	// any case: of more the best are hardly told from the others, and looking at all takes long.
	rareCount = 8
	rareShare = 0.02
	mostNames = 1000
)

// withLater marks of the candidates, which are sorted, those that are newer on what the best ones name, and moves them
// forward with others of that kind, as far as they have room.
func withLater(candidates []*candidate, q Query) []*candidate {
	place := min(laterPlace, len(candidates))
	remaining := 4 * min(laterTokens, q.Budget/laterPart)
	var moved []*candidate
	for _, seed := range candidates[:min(laterSeeds, len(candidates))] {
		for _, c := range laterThan(seed, q) {
			same := func(o *candidate) bool { return o.entry == c.entry }
			i := slices.IndexFunc(candidates, same)
			if i >= 0 {
				c = candidates[i]
			}
			c.newer = true
			n := q.Overhead + min(c.length(), mostShown)
			if i >= 0 && i < place || n > remaining || slices.ContainsFunc(moved, same) || q.hides(c) {
				continue
			}
			remaining -= n
			c.score = candidates[place-1].score
			moved = append(moved, c)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(c *candidate) bool { return slices.Contains(moved, c) })
	return slices.Insert(candidates, place, moved...)
}

// laterThan are the messages behind one that have its names, the best first.
func laterThan(seed *candidate, q Query) (matches []*candidate) {
	ix := seed.ix
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	words := ix.words.Snapshot()
	start, end := seed.piece(seed.passage)
	names := namesIn(seed.text[start:end], words, textindex.Terms(q.Text))
	if names == "" {
		return nil
	}
	s := scoringOf(ix, q)
	best := 0.0
	rare := textindex.Query{Text: names, Limit: laterPool, MaxFrequency: mostNames, Duplicates: true}
	for _, h := range words.Search(rare).Hits {
		position := positionOf(h.Document)
		e := ix.entry(position)
		if e != nil && e.ts > seed.ts && s.inside(e) && h.Passage <= len(e.passages) && h.Score >= laterLeast*best {
			best = max(best, h.Score)
			matches = append(matches, &candidate{entry: e, ix: ix, position: position, passage: h.Passage})
		}
	}
	return matches
}

// namesIn are the names in a text that are rare, said more than once and not asked for: words with a capital within a
// sentence and such with digits. In a text without a capital any word can be one.
func namesIn(text string, index *textindex.Snapshot, queryTerms []string) string {
	_, passages := index.Len()
	rare := min(max(rareCount, int(rareShare*float64(passages))), mostNames)
	isDistinctive := func(term string) bool {
		n := textindex.Frequency(index, term)
		return n > 1 && n <= rare && !slices.Contains(queryTerms, term)
	}
	plain := !strings.ContainsFunc(text, unicode.IsUpper)
	var names []string
	sentenceStart := true
	for word := range strings.FieldsSeq(text) {
		if len(names) == laterNames {
			break
		}
		first, _ := utf8.DecodeRuneInString(strings.TrimLeft(word, `"'«“„(`))
		isName := unicode.IsUpper(first) || strings.ContainsFunc(word, unicode.IsDigit)
		if (plain || isName && !sentenceStart) && slices.ContainsFunc(textindex.Terms(word), isDistinctive) {
			names = append(names, word)
		}
		title := unicode.IsUpper(first) && len(word) <= len("Prof.") // "Dr. Novak" is one sentence
		sentenceStart = strings.ContainsAny(word[len(word)-1:], ".!?") && !title
	}
	return strings.Join(names, " ")
}
