package offline

import (
	"slices"
	"strings"
)

// gender is a set of what a text speaks of.
type gender int

const (
	masculine gender = 1 << iota
	feminine
)

var (
	masculineHolders = words("brother father husband son grandfather uncle nephew father-in-law")
	feminineHolders  = words("sister mother wife daughter grandmother aunt niece mother-in-law")
	masculineWords   = words("he him his he's он его ему ним нем нему него")
	feminineWords    = words("she her hers she's она ее ей ней нее")
)

// genderOf reads the pronouns and relatives of a text.
func genderOf(terms []term) gender {
	var g gender
	for _, t := range terms {
		if masculineWords[t.low] || t.holder && masculineHolders[t.key] {
			g |= masculine
		}
		if feminineWords[t.low] || t.holder && feminineHolders[t.key] {
			g |= feminine
		}
	}
	return g
}

// clashes says whether a pronoun of gender b cannot stand for what a text of gender a speaks of.
func (a gender) clashes(b gender) bool { return a != 0 && b != 0 && a&b == 0 }

// spokenOf are the terms of a statement or question that a pronoun in the next one stands for: its holder or name, if
// it has only one of them, else what it is about. None means that it is not clear.
func spokenOf(text string) []term {
	terms := termsOf(text)
	if introducesSpeaker(terms) {
		return nil
	}
	var names, rest []term
	for i, t := range terms {
		switch {
		case t.holder, t.capital, i == 0 && isProperName(terms):
			if !slices.ContainsFunc(names, func(n term) bool { return n.key == t.key }) {
				names = append(names, t)
			}
		case t.copula && len(rest) > 0 && len(names) == 0:
			return rest
		case t.content() && !t.concept || t.concept && !personal[t.key]:
			rest = append(rest, t)
		}
	}
	switch {
	case len(names) == 0 && len(rest) <= 3:
		return rest
	case len(names) == 1, len(names) == 2 && names[0].holder && names[1].capital: // "my brother Timur"
		return names[:1]
	}
	return nil
}

// introducesSpeaker says whether the name in terms is the speaker's own, for whom no "he" stands.
func introducesSpeaker(terms []term) bool {
	named := slices.ContainsFunc(terms, func(t term) bool { return t.concept && (t.key == "name" || t.key == "surname") })
	return named && slices.ContainsFunc(terms, func(t term) bool { return t.self }) && !slices.ContainsFunc(terms, func(t term) bool { return t.holder })
}

// isProperName says whether the first of terms is a name by what follows it, since every first word has a capital.
func isProperName(terms []term) bool {
	first := terms[0]
	return len(terms) > 1 && !first.stop && !first.concept && !first.holder && isCapitalized(first.raw) && !terms[1].self &&
		(terms[1].copula || terms[1].concept || strings.HasSuffix(first.low, "'s"))
}

// about fills in what the pronoun of q stands for, by the text said before it.
func (q *query) about(question, before string) {
	named := slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.required })
	if !q.third || named || before == "" || namesBefore(question) || genderOf(termsOf(before)).clashes(genderOf(termsOf(question))) {
		return
	}
	for _, t := range spokenOf(before) {
		if !q.asksFor(t.key) {
			q.terms = append(q.terms, queryTerm{key: t.key, weight: 0.5, required: true})
			q.third = false
		}
	}
}

// namesBefore says whether what the pronoun of a question stands for is in the clause before it: "What about a boat,
// how much does it cost?"
func namesBefore(question string) bool {
	for _, t := range tokenize(question) {
		if thirdWords[t.low] || t.low == "it" {
			comma := strings.LastIndexAny(question[:t.start], ",;:")
			return comma > 0 && slices.ContainsFunc(termsOf(question[:comma]), term.content)
		}
	}
	return false
}

// carryNoun puts the noun of the step before in the place of "it" or «она» in a question, so that the question can be
// asked of anybody. A question is left as it is where the noun or its place is not certain.
func carryNoun(before, st clause) clause {
	if st.kind != question || before.text == "" || langOf(before.text) != langOf(st.text) {
		return st
	}
	toks := tokenize(st.text)
	at := -1
	for i, t := range toks {
		if thirdWords[t.low] || t.low == "it" {
			if at >= 0 {
				return st
			}
			at = i
		}
	}
	if at < 1 || !replaceable[toks[at].low] || at+1 < len(toks) && !auxiliaries[toks[at-1].low] && !interrogatives[toks[at-1].low] && !isCyrillic(toks[at].low) {
		return st
	}
	noun := nounOf(before)
	if noun == "" || genderOf(termsOf(noun)).clashes(genderOf(termsOf(toks[at].raw))) || isPerson(noun) != personWords[toks[at].low] && !isCyrillic(noun) {
		return st
	}
	st.text = st.text[:toks[at].start] + noun + st.text[toks[at].end:]
	return st
}

var (
	replaceable = words("it he she they он она оно они")
	personWords = words("he she")
)

func isPerson(noun string) bool { return genderOf(termsOf(noun)) != 0 }

// nounOf is the short noun phrase that a clause is about: "the meeting" of "When is the meeting?" and of "The meeting
// is on Thursday.", "" where it cannot be cut out safely.
func nounOf(cl clause) string {
	toks := tokenize(cl.text)
	from, to := 0, len(toks)
	switch {
	case len(toks) < 2:
		return ""
	case cl.kind == question && interrogatives[toks[0].low] && (isCyrillic(toks[0].low) || auxiliaries[toks[1].low]):
		from = 1
		if auxiliaries[toks[1].low] {
			from = 2
		}
	case cl.kind == statement:
		if to = slices.IndexFunc(toks, func(t token) bool { return copulas[t.low] || ruPrepositions[t.low] && isCyrillic(t.low) }); to < 0 {
			return ""
		}
	default:
		return ""
	}
	if to-from < 1 || to-from > 4 || !isNounPhrase(toks[from:to]) {
		return ""
	}
	return lowerFirst(cl.text[toks[from].start:toks[to-1].end], toks[from])
}

// isNounPhrase says whether toks, found where a subject stands, are "the meeting", "my sister" or «встреча».
func isNounPhrase(toks []token) bool {
	if !isCyrillic(toks[0].low) && !determinersOfNoun[toks[0].low] || isCyrillic(toks[0].low) && len(toks) > 2 {
		return false
	}
	for i, t := range toks {
		bad := auxiliaries[t.low] || interrogatives[t.low] || thirdWords[t.low] || negations[t.low] || isDigits(t.low) ||
			placeWords[t.low] || isPast(t.low) || t.low == "and" || t.low == "и" || i > 0 && stopWords[t.low]
		if bad || selfWords[t.low] && (!determinersOfNoun[t.low] && t.low != "мой" && t.low != "моя" && t.low != "мое" && t.low != "мои") {
			return false
		}
	}
	return len(toks) > 1 || isCyrillic(toks[0].low) && !stopWords[toks[0].low] && !hasAnySuffix(toks[0].low, "ть", "ет", "ит", "ут", "ют", "ят", "ал", "ла", "ли")
}

func lowerFirst(s string, first token) string {
	if determinersOfNoun[first.low] || isCyrillic(first.low) && !isShouted(first.raw) && selfWords[first.low] {
		return first.low + s[len(first.raw):]
	}
	return s
}
