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
			if n > 1 && toks[i+n-1].low == "number" {
				out = append(out, term{key: "number", concept: true})
			}
			i += n
			continue
		}
		if toks[i].low == "called" && callsSomebody(toks, i) {
			out = append(out, term{key: "call", low: "called", raw: toks[i].raw})
			i++
			continue
		}
		first := i == 0 || strings.ContainsAny(gap, ".!?…:\"“«")
		out = append(out, newTerm(toks[i], !first && !shouted))
		i++
	}
	markPredicates(out)
	return withImplied(s, out)
}

// trades are the holders that are somebody's work as well: «я врач», "as a teacher", «работаю учителем».
var trades = words("doctor teacher boss")

// markPredicates takes from being holders the words that say what somebody is: "I am a teacher" is not about the
// speaker's teacher.
func markPredicates(terms []term) {
	for i := range terms {
		if t := &terms[i]; t.holder && isPredicate(terms, i) {
			t.holder, t.key = false, "a "+t.key
		}
	}
}

// isPredicate says whether the holder at terms[i] follows "am a", "as a", «я», «работает» or the like.
func isPredicate(terms []term, i int) bool {
	at := i - 1
	for at > 0 && at >= i-2 && terms[at].content() && !terms[at].holder && !terms[at].concept && !terms[at].capital {
		at-- // an adjective
	}
	if at < 0 {
		return false
	}
	if t := terms[at]; t.low != "a" && t.low != "an" {
		return at == i-1 && (opensSelf(terms, at) && t.low != "мне" || t.key == "work" && isCyrillic(t.low) && trades[terms[i].key])
	}
	if at == 0 {
		return false
	}
	switch before := terms[at-1]; before.low {
	case "i'm", "am":
		return true
	case "i":
		return at > 1 && terms[at-2].low == "am"
	case "as", "is":
		return trades[terms[i].key]
	}
	return false
}

// callsSomebody says whether "called" at toks[i] is what somebody did, not what somebody is named.
func callsSomebody(toks []token, i int) bool {
	return i > 0 && (pronouns[toks[i-1].low] || toks[i-1].low == "who") && !(i > 1 && auxiliaries[toks[i-2].low])
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
		imply := func(key string) { out = append(out, term{key: key, concept: true, self: t.self || t.copula}) }
		if t.holder && isNamed(terms, i) {
			imply("name")
		}
		if i+1 >= len(terms) {
			break
		}
		next := terms[i+1]
		switch {
		case t.holder && (next.capital || next.copula && i+2 < len(terms) && !terms[i+2].stop && isCapitalized(terms[i+2].raw) && !isShouted(s)):
			imply("name")
		case opensSelf(terms, i) && (isAge(terms, i+1) || next.stop && isAge(terms, i+2)), namesPerson(t, i) && (next.copula && isAge(terms, i+2) || (t.holder || isCyrillic(t.low)) && isAge(terms, i+1)):
			imply("age")
		case opensSelf(terms, i) && isCapitalized(next.raw) && !isShouted(s) && !next.stop && !next.concept && len(terms)-i <= 4 && !strings.HasSuffix(next.low, "'s"):
			imply("name")
		case opensSelf(terms, i) && t.low != "мне" && namesTrade(terms[i+1:]):
			imply("work")
			if comesFrom(terms[i+1:]) {
				imply("origin")
			}
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

// namesPerson says whether t, at place i of its sentence, is a holder, a name or a pronoun for one.
func namesPerson(t term, i int) bool {
	return t.holder || t.capital || t.third || i == 0 && isCapitalized(t.raw) && !t.stop && !t.concept
}

// isAge says whether terms[i], said of a person, is a number of years and not of something else.
func isAge(terms []term, i int) bool {
	if i >= len(terms) || len(terms[i].low) > 3 && isNumber(terms[i].low) || !isNumber(terms[i].low) && !numberWords[terms[i].low] {
		return false
	}
	if _, month := monthOf(terms[i-1].low); month {
		return false
	}
	for i+1 < len(terms) && numberWords[terms[i+1].low] {
		i++
	}
	if i+1 == len(terms) {
		return true
	}
	next := terms[i+1]
	return (next.stop || timeWords[next.low] || next.key == "age" || ageUnits[next.low]) && next.low != "of" && next.low != "on" && next.low != "at"
}

var ageUnits = words("years yrs yo лет год года годика годиков")

// isNamed says whether the holder at terms[i] is told a name before it: "Zoe is my best friend", «Асель — моя невеста».
func isNamed(terms []term, i int) bool {
	return i >= 3 && i <= 4 && namesPerson(terms[0], 0) && !terms[0].holder && terms[1].copula && terms[2].self
}

// comesFrom says whether terms, said of somebody, go on to "from …" with the name of a place.
func comesFrom(terms []term) bool {
	for i, t := range terms[:min(5, len(terms))] {
		if t.low == "from" || t.low == "из" {
			return i+1 < len(terms) && isCapitalized(terms[i+1].raw)
		}
	}
	return false
}

// namesTrade says whether terms, said of somebody, open with the word for their work: "a senior engineer", «инженер».
func namesTrade(terms []term) bool {
	if terms[0].low == "a" || terms[0].low == "an" {
		terms = terms[1:]
	} else if !isCyrillic(terms[0].low) {
		return false
	}
	for _, t := range terms[:min(3, len(terms))] {
		if t.stop {
			return false
		}
		if isTrade(t.low) || trades[strings.TrimPrefix(t.key, "a ")] {
			return true
		}
	}
	return false
}

func isTrade(low string) bool {
	if isCyrillic(low) {
		return hasAnySuffix(low, "ист", "истка", "ер", "ор", "арь", "тель", "ница", "лог", "граф", "вар", "вод", "студент", "механик")
	}
	return hasAnySuffix(low, "er", "or", "ist", "eer", "ian", "ant", "nurse", "chef", "pilot", "student", "mechanic")
}

// content says whether t carries a subject of its own.
func (t term) content() bool { return !t.stop && t.key != "" && (t.concept || !negations[t.low]) }

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
				if _, holder := relationOf[stemOf(p)]; !holder { // an ex-wife is no wife
					keys[stemOf(p)] = true
				}
			}
		}
	}
	return keys
}
