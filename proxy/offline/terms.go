package offline

import (
	"slices"
	"strings"
	"unicode"
)

// term is a word, or an expression of several, as sentences are compared by it.
type term struct {
	key      string // the concept, the holder, or the stem
	raw, low string
	self     bool // I, my, …
	third    bool // he, her, …
	holder   bool // sister, cat, …: attributes near it are not the speaker's
	concept  bool // key is a concept
	stop     bool // carries no subject of its own
	capital  bool // a proper name by its spelling
	copula   bool // is, —, …: what stands before it is spoken of
}

// termsOf reads the words of s.
func termsOf(s string) []term {
	toks := tokenize(s)
	shouted := isShouted(s)
	var out []term
	for i := 0; i < len(toks); {
		gap := gapBefore(s, toks, i)
		if i > 0 && (strings.ContainsAny(gap, "—–=:") || strings.Contains(gap, " - ")) {
			out = append(out, term{copula: true, stop: true})
		}
		if key, n := phraseAt(toks[i:]); n > 0 {
			out = append(out, term{key: key, low: toks[i].low, raw: toks[i].raw, concept: true, self: slices.ContainsFunc(toks[i:i+n], isSelf)})
			i += n
			continue
		}
		first := i == 0 || strings.ContainsAny(gap, ".!?…:\"“«")
		out = append(out, newTerm(toks[i], !first && !shouted))
		i++
	}
	return withImplied(s, out)
}

func isSelf(t token) bool { return selfWords[t.low] }

func phraseAt(toks []token) (string, int) {
	for _, p := range phraseKeys[toks[0].low] {
		if startsWith(toks, p.words) {
			return p.key, len(p.words)
		}
	}
	return "", 0
}

func newTerm(t token, mayBeName bool) term {
	w := term{
		key: stemOf(t.low), raw: t.raw, low: t.low,
		self: selfWords[t.low], third: thirdWords[t.low], copula: copulas[t.low],
	}
	w.stop = stopWords[t.low] || interrogatives[t.low] || w.self || w.third || secondWords[t.low] || openerWords[t.low]
	if r, ok := relationOf[w.key]; ok && !w.stop {
		w.key, w.holder = r, true
	} else if c, ok := conceptOf[w.key]; ok && !w.stop {
		w.key, w.concept = c, true
	} else if t.low == "called" {
		w.key, w.concept, w.stop = "name", true, false
	}
	w.capital = mayBeName && isCapitalized(t.raw) && !w.stop && !w.holder && !w.concept
	return w
}

var openerWords = words("actually btw well oh ok okay fyi please note hi hello hey thanks кстати")

// withImplied adds concepts that a construction names without a word of its own: "I'm Dana" a name, "I am 34" and
// «мне 34» an age, "I'm a baker" work, "my dog Rex" a name.
func withImplied(s string, terms []term) []term {
	var out []term
	for i, t := range terms {
		out = append(out, t)
		if i+1 >= len(terms) {
			break
		}
		next := terms[i+1]
		imply := func(key string) { out = append(out, term{key: key, concept: true, self: t.self || t.copula}) }
		switch {
		case t.holder && (next.capital || next.copula && i+2 < len(terms) && !terms[i+2].stop && isCapitalized(terms[i+2].raw) && !isShouted(s)):
			imply("name")
		case opensSelf(terms, i) && (isNumber(next.low) || next.stop && i+2 < len(terms) && isNumber(terms[i+2].low)), t.holder && isNumber(next.low),
			t.holder && next.copula && i+2 < len(terms) && isNumber(terms[i+2].low):
			imply("age")
		case opensSelf(terms, i) && isCapitalized(next.raw) && !isShouted(s) && !next.stop && !next.concept && len(terms)-i <= 4:
			imply("name")
		case opensSelf(terms, i) && (next.low == "a" || next.low == "an") && i+2 < len(terms) && isTrade(terms[i+2].low):
			imply("work")
		}
	}
	return out
}

// opensSelf says whether term i ends "I am", "I'm", «я» or «мне» and what follows it is said of the speaker.
func opensSelf(terms []term, i int) bool {
	switch terms[i].low {
	case "i'm", "я", "мне":
		return true
	case "am":
		return i > 0 && terms[i-1].low == "i"
	case "":
		return terms[i].copula && i > 0 && terms[i-1].low == "я"
	}
	return false
}

func isNumber(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) }) < 0
}

func isTrade(low string) bool {
	for _, end := range []string{"er", "or", "ist", "eer", "cian", "ant", "nurse", "chef", "pilot", "student"} {
		if strings.HasSuffix(low, end) {
			return true
		}
	}
	return false
}

// content says whether t carries a subject of its own.
func (t term) content() bool { return !t.stop && t.key != "" && !negations[t.low] }

// keysOf collects the keys of content terms, with the wider holders and the pieces of compound words.
func keysOf(terms []term) map[string]bool {
	keys := map[string]bool{}
	for _, t := range terms {
		if !t.content() {
			continue
		}
		keys[t.key] = true
		if wider, ok := kindsOf[t.key]; ok {
			keys[wider] = true
		}
		if parts := wordParts(t.low); len(parts) > 1 {
			for _, p := range parts {
				keys[stemOf(p)] = true
			}
		}
	}
	return keys
}
