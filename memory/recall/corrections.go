package recall

import (
	"regexp"
	"slices"
	"strings"

	"mneme/memory"
)

var (
	// correctionStart begins a message that corrects the speaker's previous one.
	correctionStart = regexp.MustCompile(`(?i)^[^\pL\pN]*(actually|correction|oops|scratch that|wait|sorry|pardon|` +
		`doch|korrektur|moment|entschuldigung|quatsch|ach|vielmehr|` +
		`correction|en fait|pardon|désolée?|attends|oups|plutôt|` +
		`corrección|en realidad|perdón|espera|perdona|lo siento|mejor dicho|` +
		`correzione|anzi|in realtà|scusa|scusate|aspetta|mi correggo|` +
		`поправка|вернее|точнее|ой|на самом деле|извини|извините|погоди|стоп|то есть)(\P{L}|$)`)
	// denialStart begins a correction too, unless it answers a question.
	denialStart = regexp.MustCompile(`(?i)^[^\pL\pN]*(no|nope|nah|nein|nee|non|нет)(\P{L}|$)`)
	// correctionInside matches words of a correction or a change anywhere in a message.
	correctionInside = regexp.MustCompile(`(?i)(^|\P{L})(i meant|i mean|my mistake|i was wrong|i misspoke|rather than|` +
		`instead|no longer|not any ?more|rescheduled|postponed|moved (it |them )?(to|from)|changed (it |them )?(to|from)|now (it is|it's)|` +
		`ich meinte|mein fehler|ich habe mich geirrt|vertan|statt(dessen)?|nicht mehr|verschoben|verlegt|geändert|` +
		`je voulais dire|mon erreur|je me suis trompée?|au lieu|ne plus|plutôt|reportée?s?|décalée?s?|changée?s?|` +
		`quise decir|quería decir|mi error|me equivoqué|en vez|en lugar|ya no|aplazad[oa]s?|cambiad[oa]s?|cambió|se pasó|` +
		`volevo dire|intendevo|errore mio|mi sono sbagliat[oa]|invece|non più|rimandat[oaie]|spostat[oaie]|cambiat[oaie]|` +
		`я имела? в виду|моя ошибка|ошиб(ся|лась)|перепутала?|вместо|больше не|уже не|перенес(ли|ла|ён|ена|ено|ены)|` +
		`перенёс|измени(л|ла|ли|лся|лась|лось|лись)|поменя(л|ла|ли|лся|лась|лось|лись))(\P{L}|$)`)
)

const (
	correctionSeeds = 5  // best hits that are looked at for corrections
	correctionChain = 4  // corrections of one another
	correctionReach = 16 // messages between two of one speaker
	// A correction has at least and at most so many words: "No." corrects nothing, and a long text has other subjects.
	leastCorrection, mostCorrection = 2, 40
)

// withCorrections shows a message and its correction together, the newer one first, if one of them is among the best
// candidates. The candidates are sorted.
func withCorrections(candidates []*candidate, q Query) []*candidate {
	for _, seed := range candidates[:min(correctionSeeds, len(candidates))] {
		seed.ix.mu.RLock()
		chain := corrections(seed, q)
		seed.ix.mu.RUnlock()
		if len(chain) < 2 {
			continue
		}
		place := len(candidates)
		for i, c := range chain {
			if j := slices.IndexFunc(candidates, func(o *candidate) bool { return o.entry == c.entry }); j >= 0 {
				chain[i], place = candidates[j], min(place, j)
			}
			chain[i].newer = chain[i].newer || i < len(chain)-1
			chain[i].score = max(chain[i].score, seed.score)
		}
		rest := slices.DeleteFunc(slices.Clone(candidates), func(c *candidate) bool { return slices.Contains(chain, c) })
		candidates = slices.Insert(rest, place, chain...)
	}
	return candidates
}

// corrections returns the messages that correct one another, around a candidate, the newest first. Callers hold mu.
func corrections(c *candidate, q Query) (chain []*candidate) {
	s := scoringOf(c.ix, q)
	newest := c.position
	for range correctionChain {
		next := c.ix.sameSpeaker(newest, 1)
		if next == newest || !c.ix.corrects(next) {
			break
		}
		newest = next
	}
	position := newest
	for range 2 * correctionChain {
		e := c.ix.entry(position)
		if e == c.entry {
			chain = append(chain, c)
		} else if s.inside(e) {
			chain = append(chain, &candidate{entry: e, ix: c.ix, position: position})
		}
		prev := c.ix.sameSpeaker(position, -1)
		if prev == position || !c.ix.corrects(position) {
			break
		}
		position = prev
	}
	return chain
}

// corrects reports whether the message at a position corrects its speaker's previous one. Callers hold mu.
func (ix *Index) corrects(position int) bool {
	e := ix.entry(position)
	words := len(strings.Fields(e.text))
	switch {
	case e.role != memory.RoleUser && e.name == "", words < leastCorrection, words > mostCorrection:
		return false
	case correctionStart.MatchString(e.text), correctionInside.MatchString(e.text):
		return true
	}
	prev, _ := ix.neighbour(position, -1)
	return denialStart.MatchString(e.text) && (prev == nil || !strings.ContainsAny(lastOf(prev.text), "?？؟"))
}

// lastOf returns the last bytes of a text, where a question has its mark.
func lastOf(text string) string { return text[max(0, len(text)-8):] }

// sameSpeaker returns the position of the next message of the same speaker, in the direction of step; the same position
// if there is none near. Callers hold mu.
func (ix *Index) sameSpeaker(position, step int) int {
	e := ix.entry(position)
	for n := 1; n <= correctionReach; n++ {
		pos := position + n*step
		if o := ix.entry(pos); o != nil && o.text != "" && o.role == e.role && o.name == e.name {
			return pos
		}
	}
	return position
}
