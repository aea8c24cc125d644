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
	pairs [][2]string // keys of holders of whom the first has the second: (sister, husband)
}

func newFact(text string, order int) fact {
	terms := termsOf(dropOpeners(text))
	return fact{text: text, order: order, terms: terms, keys: keysOf(terms), pairs: pairsOf(terms)}
}

// factsOf reads the statements of one text of the user; previous is the statement before them, "" for none.
func factsOf(text, previous string, order int) []fact {
	var out []fact
	for _, st := range (speech{}).split(text) {
		if st.kind != statement {
			continue
		}
		for _, s := range sentences(st.sentence()) {
			if isChitChat(s) {
				continue
			}
			before := previous
			for _, part := range coordinate(s) {
				before = joinBack(before, part)
				out = append(out, newFact(before, order+len(out)))
			}
			previous = joinBack(previous, s)
		}
	}
	return out
}

// joinBack puts s behind the statement that it needs to be understood, if it needs one.
func joinBack(previous, s string) string {
	if previous == "" || len(previous) > maxJoined || !refersBack(s) || genderOf(termsOf(previous)).clashes(genderOf(termsOf(s))) {
		return s
	}
	return terminated(previous, ".") + " " + capitalize(dropOpeners(s))
}

// maxJoined bounds what joinBack puts together, in bytes, so that a chain of pronouns does not grow with its square.
const maxJoined = 400

// corrections open a statement that replaces a value of the one before.
var corrections = phrases("i meant|i mean|i meant to say|make that|make it|should be|it should be|rather|точнее|вернее|то есть|я имел в виду|я имела в виду")

// refersBack says whether s corrects what was said before or opens with a pronoun for somebody or something named there.
func refersBack(s string) bool {
	toks := tokenize(dropOpeners(s))
	if longestPhrase(toks, corrections) > 0 {
		return true
	}
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
	subject := ""       // carried into the current part, which lacks its own
	verb := false
	emit := func(to int) { out = append(out, complete(out, subject, trimPunct(s[from:to]))) }
	for i := 1; i < len(toks); i++ {
		verb = verb || isClauseMark(toks[i-1].low) || strings.ContainsAny(gapBefore(s, toks, i), "—–") || i-first >= 5
		begin, comma := i, strings.ContainsAny(gapBefore(s, toks, i), ",;")
		if n := longestPhrase(toks[i:], thatAgain); n > 0 && i+n < len(toks) {
			emit(toks[i-1].end)
			from, first, verb, subject = toks[i+n].start, i+n, false, ""
			continue
		}
		if longestPhrase(toks[i:], coordinators) > 0 {
			begin = i + 1
		} else if !comma {
			continue
		}
		if !verb && (!comma || begin == i) || inQuote(toks[i].start) || len(toks)-begin < 2 {
			continue
		}
		carried := carriedSubject(subject, toks[first:i], toks[begin:])
		if carried == "" && !startsClause(toks[begin:]) && !contrasts(toks[i:]) {
			continue
		}
		emit(toks[i-1].end)
		from, first, verb, subject = toks[begin].start, begin, carried != "", carried
	}
	return append(out, complete(out, subject, strings.TrimSpace(s[from:])))
}

// complete gives a part of a sentence what it shares with the parts before it: the subject, or what is owned in "my
// wife's birthday is …, mine is …, and my son's is …".
func complete(before []string, subject, part string) string {
	if subject != "" {
		return subject + " " + part
	}
	toks := tokenize(part)
	is := slices.IndexFunc(toks, func(t token) bool { return copulas[t.low] })
	if len(before) == 0 || is < 1 || is > 2 || toks[is-1].low != "mine" && !strings.HasSuffix(toks[is-1].low, "'s") {
		return part
	}
	last := before[len(before)-1]
	owned := tokenize(last)
	to := slices.IndexFunc(owned, func(t token) bool { return copulas[t.low] })
	from := slices.IndexFunc(owned, func(t token) bool { return strings.HasSuffix(t.low, "'s") || t.low == "my" }) + 1
	if from < to && from > 0 && strings.HasSuffix(owned[from].low, "'s") {
		from++
	}
	if from < 1 || from >= to {
		return part
	}
	thing := last[owned[from].start:owned[to-1].end]
	if toks[is-1].low == "mine" {
		return "my " + thing + part[toks[is-1].end:]
	}
	return part[:toks[is-1].end] + " " + thing + part[toks[is-1].end:]
}

// carriedSubject is the word for the speaker that opens one part of a sentence and is left out in the next: "I live
// in … and work as …", «я живу в … и работаю …». It is "" where the next part need not have that subject.
func carriedSubject(carried string, part, next []token) string {
	if carried == "" {
		switch part[0].low {
		case "i", "i'm", "i've":
			carried = "I"
		case "я":
			carried = "Я"
		default:
			return ""
		}
	}
	k := 0
	for k < len(next)-1 && (fillerAdverbs[next[k].low] || negations[next[k].low]) {
		k++
	}
	if bareVerbs[next[k].low] || isCyrillic(next[k].low) && hasAnySuffix(next[k].low, "аю", "яю", "аюсь", "яюсь", "лся", "лась") {
		return carried
	}
	return ""
}

// contrasts says whether toks go on ", а …" to a clause with a verb of its own.
func contrasts(toks []token) bool {
	if toks[0].low != "а" || len(toks) < 4 {
		return false
	}
	return slices.ContainsFunc(toks[2:], func(t token) bool {
		return !isCapitalized(t.raw) && len([]rune(t.low)) > 3 && hasAnySuffix(t.low, "ет", "ит", "ют", "ят", "ут", "ал", "ила", "ала", "ло", "ал", "ил", "тся")
	})
}

// startsClause says whether toks open with the speaker: "I …", "my …", «у меня …».
func startsClause(toks []token) bool {
	return clauseStarters[toks[0].low] || ruPrepositions[toks[0].low] && clauseStarters[toks[1].low] ||
		toks[0].low == "mine" && copulas[toks[1].low]
}

func isClauseMark(low string) bool { return auxiliaries[low] || clauseMarks[low] }

var (
	thatAgain      = phrases("and that|и что|и то что|а также что")
	coordinators   = phrases("and|but|и|а|но")
	clauseStarters = words("i my i'm i've we our я мой моя мое мои мне меня мы наш наша наше наши")
	fillerAdverbs  = words("now currently also then still сейчас теперь также тоже еще пока")
	bareVerbs      = words(`вырос выросла live work study speak hate love like have own drive play teach collect drink eat was grew moved
		живу люблю учусь говорю хожу езжу вожу пью ем сплю пишу ищу вешу боюсь хочу лечу еду ненавижу преподаю коплю собираю`)
	clauseMarks = words("i i'm i've we я меня мне мы нас зовут это")
)

// query is a question as facts are searched by it.
type query struct {
	terms   []queryTerm
	self    bool // about the speaker
	second  bool // about the listener
	former  bool // about how things were before
	single  bool // about the speaker alone, not "our"
	third   bool // about somebody or something that only a pronoun names
	who     bool
	doer    bool // who does or is something to whom the question names
	side    side // which part the speaker has in it
	yesNo   bool
	listing bool // wants everything on a subject
	negated bool
	expects expectation
	pairs   [][2]string
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
	colour
	person
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
	terms := termsOf(s)
	q.doer = asksForDoer(terms)
	seen := map[string]bool{}
	hasContent := slices.ContainsFunc(terms, func(t term) bool { return t.content() && !docWords[t.low] })
	q.side = sideOf(terms)
	q.single = !slices.ContainsFunc(terms, func(t term) bool { return pluralSelf[t.low] })
	q.pairs = pairsOf(terms)
	for i, t := range terms {
		q.third = q.third || t.third || t.low == "it"
		q.former = q.former || formerWords[t.low]
		q.who = q.who || t.low == "who" || t.low == "кто"
		q.self = q.self || t.self || t.low == "обо" // обо мне
		q.second = q.second || secondWords[t.low]
		q.negated = q.negated || negations[t.low]
		q.expect(terms, i)
		implied := t.low == ""
		if implied || !t.content() || hasContent && docWords[t.low] || seen[t.key] || isKindOf(terms, i) {
			continue
		}
		seen[t.key] = true
		qt := queryTerm{key: t.key, weight: 1, required: t.holder || t.capital && !q.yesNo || isIdentifier(t.low)}
		if weakWords[t.low] {
			qt.weight = 0.3
		}
		if next := afterImplied(terms, i); t.holder && (next.capital || bodies[t.key] && next.content() && !next.concept) {
			qt.weight, qt.required = 0.2, false // "project Falcon" is Falcon
		}
		qt.category = i > 0 && (categoryWords[terms[i-1].low] || i > 1 && isKindOf(terms, i-2)) && !t.holder && !objectOfSpeaker(terms[i+1:])
		if hasContent && timeKinds[t.low] && i > 0 && categoryWords[terms[i-1].low] {
			q.expects, qt.weight, qt.category = moment, 0.1, true
		}
		q.terms = append(q.terms, qt)
	}
	return q
}

// asksForDoer says whether a question is "who owes Bob money?" and not "who is Bob?" or "who does Bob like?".
func asksForDoer(terms []term) bool {
	if len(terms) < 3 || terms[0].low != "who" && terms[0].low != "кто" {
		return false
	}
	for _, t := range terms[1:] {
		if t.content() {
			return !t.holder && !t.capital
		}
		if auxiliaries[t.low] && !t.copula {
			return false
		}
	}
	return false
}

// objectOfSpeaker says whether rest, behind the X of "which X", goes on "do I …" or «я …»: then X is a thing of which
// the answer has to speak, not the kind of a property of something else.
func objectOfSpeaker(rest []term) bool {
	for _, t := range rest[:min(2, len(rest))] {
		switch t.low {
		case "i", "we", "я", "мы":
			return true
		}
	}
	return false
}

// afterImplied is the next word after terms[i].
func afterImplied(terms []term, i int) term {
	for _, t := range terms[i+1:] {
		if t.low != "" {
			return t
		}
	}
	return term{}
}

// isKindOf says whether terms[i] is the "kind" of "what kind of …".
func isKindOf(terms []term, i int) bool {
	return kindWords[terms[i].low] && i+1 < len(terms) && terms[i+1].low == "of"
}

var kindWords = words("kind sort type")

// bodies are holders that a name written small may follow too.
var bodies = words("project company team client")

// isIdentifier says whether a word mixes letters and digits, as names of things do.
func isIdentifier(low string) bool {
	return strings.ContainsAny(low, "0123456789") && strings.IndexFunc(low, unicode.IsLetter) >= 0
}

var timeKinds = words("year month day date time год году месяц месяце день число дата время")

var formerWords = words("before previously formerly раньше прежде ранее")

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
	if terms[i].holder && i > 0 && terms[0].low == "who" && !slices.ContainsFunc(terms[:i], term.content) {
		q.expects = person // "who is my dentist?" is not answered by being there on Friday
	}
	if terms[i].key == "colour" && i > 0 && categoryWords[terms[i-1].low] {
		q.expects = colour
	}
}
