package offline

import (
	"slices"
	"strings"
	"unicode"
)

// fact is a statement of the user, with what it may be compared by.
type fact struct {
	text  string
	order int // later facts are newer
	terms []term
	keys  map[string]bool
}

func newFact(text string, order int) fact {
	terms := termsOf(text)
	return fact{text: text, order: order, terms: terms, keys: keysOf(terms)}
}

// factsOf reads the statements of one text of the user.
func factsOf(text string, order int) []fact {
	var out []fact
	previous := ""
	for _, st := range (speech{}).split(text) {
		if st.kind != statement {
			continue
		}
		for _, s := range sentences(st.sentence()) {
			if isChitChat(s) {
				continue
			}
			if previous != "" && refersBack(s) {
				s = terminated(previous, ".") + " " + s
			}
			previous = s
			for _, part := range coordinate(s) {
				out = append(out, newFact(part, order+len(out)))
			}
		}
	}
	return out
}

// refersBack says whether s opens with a pronoun for somebody or something named before.
func refersBack(s string) bool {
	toks := tokenize(s)
	for _, t := range toks[:min(2, len(toks))] {
		if selfWords[t.low] {
			return false
		}
		if thirdWords[t.low] || t.low == "it" || t.low == "it's" {
			return true
		}
	}
	return false
}

// coordinate cuts "my name is … and I live in …" in two; each half speaks for itself.
func coordinate(s string) []string {
	toks := tokenize(s)
	inQuote := quoted(s)
	var out []string
	from, first := 0, 0 // byte and token where the current part begins
	verb := false
	for i := 1; i < len(toks); i++ {
		verb = verb || isClauseMark(toks[i-1].low) || strings.ContainsAny(gapBefore(s, toks, i), "—–") || i-first >= 5
		begin, comma := i, strings.ContainsAny(gapBefore(s, toks, i), ",;")
		if n := longestPhrase(toks[i:], thatAgain); n > 0 && i+n < len(toks) {
			out = append(out, trimPunct(s[from:toks[i-1].end]))
			from, first, verb = toks[i+n].start, i+n, false
			continue
		}
		if longestPhrase(toks[i:], coordinators) > 0 {
			begin = i + 1
		} else if !comma {
			continue
		}
		if !verb && (!comma || begin == i) || inQuote(toks[i].start) || len(toks)-begin < 2 || !startsClause(toks[begin:]) {
			continue
		}
		out = append(out, trimPunct(s[from:toks[i-1].end]))
		from, first, verb = toks[begin].start, begin, false
	}
	return append(out, strings.TrimSpace(s[from:]))
}

// startsClause says whether toks open with the speaker: "I …", "my …", «у меня …».
func startsClause(toks []token) bool {
	return clauseStarters[toks[0].low] || ruPrepositions[toks[0].low] && clauseStarters[toks[1].low]
}

func isClauseMark(low string) bool { return auxiliaries[low] || clauseMarks[low] }

var (
	thatAgain      = phrases("and that|и что|и то что|а также что")
	coordinators   = phrases("and|but|и|а|но")
	clauseStarters = words("i my i'm i've we our я мой моя мое мои мне меня мы наш наша наше наши")
	clauseMarks    = words("i i'm i've we я меня мне мы нас зовут это")
)

// query is a question as facts are searched by it.
type query struct {
	terms   []queryTerm
	self    bool // about the speaker
	second  bool // about the listener
	yesNo   bool
	listing bool // wants everything on a subject
	negated bool
	expects expectation
}

type queryTerm struct {
	key      string
	weight   float64
	required bool // a holder or a name that no fact about somebody else may lack
	category bool // "which colour …": the kind of the answer, which a fact seldom repeats
}

type expectation int

const (
	anything expectation = iota
	place
	moment
	amount
)

var listings = phrases(`tell me about|what do you know about|what do you remember about|what did i tell you about|what did i say about|what have i told you about|everything about|
	расскажи о|расскажи об|расскажи про|расскажи мне о|что ты знаешь о|что ты знаешь об|что ты знаешь про|что ты помнишь о|что я говорил о|что я говорила о|что я рассказывал о|что вы знаете о|что ты знаешь обо|что ты помнишь обо`)

func newQuery(s string) query {
	toks := tokenize(s)
	if n := longestPhrase(toks, askMe); n > 0 && n < len(toks) && longestPhrase(toks, listings) == 0 {
		s, toks = s[toks[n-1].end:], toks[n:]
	}
	var q query
	for i := range min(2, len(toks)) {
		q.listing = q.listing || longestPhrase(toks[i:], listings) > 0
	}
	q.yesNo = len(toks) > 0 && (auxiliaries[toks[0].low] || slices.ContainsFunc(toks, func(t token) bool { return t.low == "ли" }))
	seen := map[string]bool{}
	terms := termsOf(s)
	hasContent := slices.ContainsFunc(terms, func(t term) bool { return t.content() && !docWords[t.low] })
	for i, t := range terms {
		q.self = q.self || t.self || t.low == "обо" // обо мне
		q.second = q.second || secondWords[t.low]
		q.negated = q.negated || negations[t.low]
		q.expect(terms, i)
		if !t.content() || hasContent && docWords[t.low] || seen[t.key] {
			continue
		}
		seen[t.key] = true
		qt := queryTerm{key: t.key, weight: 1, required: t.holder || t.capital && !q.yesNo || isIdentifier(t.low)}
		if weakWords[t.low] {
			qt.weight = 0.3
		}
		qt.category = i > 0 && categoryWords[terms[i-1].low] && !t.holder
		q.terms = append(q.terms, qt)
	}
	return q
}

// isIdentifier says whether a word mixes letters and digits, as names of things do.
func isIdentifier(low string) bool {
	return strings.ContainsAny(low, "0123456789") && strings.IndexFunc(low, unicode.IsLetter) >= 0
}

var categoryWords = words("what which какой какая какое какие какую каком каких какого")

// expect reads the question word at terms[i].
func (q *query) expect(terms []term, i int) {
	switch terms[i].low {
	case "where", "where's", "где", "куда":
		q.expects = place
	case "when", "when's", "когда":
		q.expects = moment
	case "many", "much", "сколько":
		q.expects = amount
	}
}

// threshold is the least score by which a fact answers a question.
const threshold = 0.6

// bestFact is the fact that answers q best, -1 when there is none at all. Facts that fit about as well as the best
// are taken for older and newer words on one subject, of which the newest stands.
func bestFact(q query, facts []fact) (int, float64) {
	best, top := -1, 0.0
	scores := make([]float64, len(facts))
	for i, f := range facts {
		if scores[i] = q.score(f); scores[i] > top {
			top = scores[i]
		}
	}
	for i, s := range scores {
		if s > 0 && s >= 0.88*top && (best < 0 || facts[i].order >= facts[best].order) {
			best = i
		}
	}
	return best, top
}

// score is how well f answers q, 0 to 1.
func (q query) score(f fact) float64 {
	if len(q.terms) == 0 {
		if q.self && f.mentionsSelf() {
			return threshold
		}
		return 0
	}
	if !q.admits(f.keys) {
		return 0
	}
	s := q.coverage(f.keys)
	if s == 0 {
		return 0
	}
	s *= q.ownership(f) * q.focus(f)
	if !q.fits(f) {
		s *= 0.8
	}
	if q.negated != slices.ContainsFunc(f.terms, func(t term) bool { return negations[t.low] }) {
		s *= 0.8
	}
	return s
}

// admits says whether keys hold every holder, name and identifier of q.
func (q query) admits(keys map[string]bool) bool {
	return !slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required && !keys[t.key] })
}

func (f fact) mentionsSelf() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool { return t.self })
}

// coverage is the share of the question's words that keys hold.
func (q query) coverage(keys map[string]bool) float64 {
	hit, all := 0.0, 0.0
	for _, t := range q.terms {
		switch {
		case keys[t.key]:
			hit += t.weight
			all += t.weight
		case t.category && len(q.terms) > 1:
			all += 0.35 * t.weight
		default:
			all += t.weight
		}
	}
	if all == 0 {
		return 0
	}
	return hit / all
}

// ownership lowers a fact whose attribute belongs to somebody else than the one asked about.
func (q query) ownership(f fact) float64 {
	if slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required }) {
		return 1
	}
	personalOnly := true
	owner := nobodys
	for i, t := range f.terms {
		if !q.asksFor(t.key) || !t.content() {
			continue
		}
		personalOnly = personalOnly && personal[t.key]
		if o := ownerAt(f.terms, i); owner == nobodys || o == selfs {
			owner = o
		}
	}
	switch {
	case !q.self && owner == others && personalOnly:
		return 0.9
	case !q.self:
		return 1
	case owner == others:
		return 0.3
	case owner == nobodys && personalOnly:
		return 0.5
	case owner == nobodys:
		return 0.95
	}
	return 1
}

func (q query) asksFor(key string) bool {
	return slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.key == key })
}

type owner int

const (
	nobodys owner = iota
	selfs
	others
)

// ownerAt tells whose the attribute at terms[i] is, by the nearest holder around it: to the left in "my sister's
// name", to the right in "the name of my sister" and «имя моей сестры».
func ownerAt(terms []term, i int) owner {
	if terms[i].self {
		return selfs
	}
	for j := i - 1; j >= 0 && j >= i-4; j-- {
		t := terms[j]
		switch {
		case (t.holder || t.third) && (terms[0].low == "we" || terms[0].low == "мы"):
			return selfs
		case t.holder || t.third:
			return others
		case t.capital && j == i-1:
			return others
		case t.self:
			return selfs
		}
	}
	for j := i + 1; j < len(terms) && j <= i+3 && !terms[j].copula; j++ {
		if terms[j].holder {
			return others
		}
	}
	for j := i + 1; j < len(terms) && j <= i+2; j++ {
		if terms[j].self {
			return selfs
		}
	}
	switch {
	case i == 0 && terms[i].concept:
		return selfs // "Live in …", «Работаю …», "Name: …"
	case i > 0 && isCapitalized(terms[0].raw) && !terms[0].stop && !terms[0].concept && i <= 2:
		return others // "Dana lives in …"
	}
	return nobodys
}

// focus lowers a fact for every word that its subject has and the question lacks: the words up to the copula after
// the first one asked for, or, with no copula, the words before that one, which count less unless they are about
// another attribute.
func (q query) focus(f fact) float64 {
	asked := func(t term) bool {
		return t.content() && (q.asksFor(t.key) || q.asksFor(kindsOf[t.key]))
	}
	first := slices.IndexFunc(f.terms, asked)
	from, to, mild := 0, first, 0.91
	if copula := slices.IndexFunc(f.terms, func(t term) bool { return t.copula }); copula > first {
		to, mild = copula, 0.8
	} else if copula >= 0 {
		from = copula
	}
	s, extra := 1.0, 0
	for _, t := range f.terms[from:max(from, to)] {
		if t.content() && !asked(t) && !timeWords[t.low] && t.raw != "" && extra < 3 {
			extra++
			if personal[t.key] {
				s *= 0.8
			} else {
				s *= mild
			}
		}
	}
	return s
}

// fits says whether f holds the kind of thing that q expects.
func (q query) fits(f fact) bool {
	if q.expects == anything {
		return true
	}
	return slices.ContainsFunc(f.terms, func(t term) bool {
		switch q.expects {
		case place:
			return placeWords[t.low] || t.key == "live" && t.low == "address" || t.low == "адрес"
		case moment:
			return isMoment(t.low)
		default:
			return strings.ContainsAny(t.low, "0123456789") || numberWords[t.low]
		}
	})
}

func isMoment(low string) bool {
	_, month := monthOf(low)
	return month || whenWords[low] || strings.ContainsAny(low, "0123456789")
}
