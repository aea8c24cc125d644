package offline

import (
	"slices"
	"strings"
)

// kindOf tells a question, a command and a statement apart.
func kindOf(s string) kind {
	c := newCursor(s)
	for !c.done() && c.accept(fillers) {
	}
	if c.done() {
		c.i = 0
	}
	closed := strings.TrimRight(s, "\"”»') ")
	if strings.HasSuffix(closed, "?") {
		return question
	}
	if asksMe(c.rest()) || c.i > 0 && asksMe(c.toks) {
		return question
	}
	if longestPhrase(c.rest(), imperatives) > 0 {
		return command
	}
	if commands[c.word(0)] && len(c.rest()) > 1 && !copulas[c.word(1)] {
		return command
	}
	if isCalculation(s) || isDateFragment(s) {
		return question
	}
	toks := c.rest()
	if !asksAt(toks) {
		if isBareNoun(s, toks) {
			return question
		}
		return statement
	}
	// "What I love is tea." and «Когда я родился, шёл снег.» open like questions.
	first := 0
	if ruPrepositions[toks[0].low] {
		first = 1
	}
	inverted := len(toks) > first+1 && (auxiliaries[toks[first+1].low] || auxiliaries[toks[first].low])
	if !inverted && (strings.HasSuffix(closed, ".") && !isCyrillic(toks[0].low) || strings.Contains(s, ",")) {
		return statement
	}
	return question
}

// asksMe says whether toks open with "tell me", "do you know" and the like. To forget is to ask only with a question
// behind it.
func asksMe(toks []token) bool {
	n := longestPhrase(toks, askMe)
	if n == 0 {
		return false
	}
	rest := toks[n:]
	return longestPhrase(toks, forgets) == 0 || asksAt(rest) || len(rest) > 0 && selfWords[rest[0].low]
}

// imperatives are orders that nothing here can carry out; they state nothing.
var imperatives = phrases(`write me|write a|write an|sing me|sing a|draw me|draw a|compose a|generate a|make me a|play me|
	напиши мне|напиши|спой|нарисуй|придумай|сочини|сыграй`)

var forgets = phrases("i forgot|i don't remember|я забыл|я забыла")

// asksAt says whether toks open like a question: by a question word, an inverted auxiliary, or a Russian ли.
func asksAt(toks []token) bool {
	if len(toks) == 0 {
		return false
	}
	w := toks[0].low
	next := ""
	if len(toks) > 1 {
		next = toks[1].low
	}
	if interrogatives[w] || ruPrepositions[w] && interrogatives[next] || strings.HasSuffix(w, "'s") && interrogatives[strings.TrimSuffix(w, "'s")] {
		return true
	}
	if i := slices.IndexFunc(toks[:min(3, len(toks))], func(t token) bool { return t.low == "ли" }); i > 0 {
		return true
	}
	if !auxiliaries[w] || next == "" {
		return false
	}
	switch w {
	case "do", "have", "had", "will", "may":
		return pronouns[next]
	}
	return subjects[next] || isCapitalized(toks[1].raw)
}

// isBareNoun says whether s is no more than "my name": an elliptic question.
func isBareNoun(s string, toks []token) bool {
	if len(toks) < 2 || len(toks) > 3 || strings.ContainsAny(s, "—–-:0123456789.!") {
		return false
	}
	switch toks[0].low {
	case "my", "our", "мой", "моя", "мое", "мои":
	default:
		return false
	}
	for _, t := range toks[1:] {
		if copulas[t.low] || isCapitalized(t.raw) && !isShouted(s) {
			return false
		}
	}
	last := toks[len(toks)-1].low
	_, concept := conceptOf[stemOf(last)]
	_, holder := relationOf[stemOf(last)]
	return concept && !holder
}

// directQuestion turns an indirect question into a direct one: "what my name is" becomes "What is my name?", "my
// name" becomes "What is my name?". A Russian question keeps its words.
func directQuestion(s string) string {
	s = strings.TrimRight(trimPunct(s), "?.! ")
	toks := tokenize(s)
	if len(toks) == 0 {
		return s
	}
	if langOf(s) == ru {
		return terminated(s, "?")
	}
	if !asksAt(toks) {
		if determinersOfNoun[toks[0].low] && !hasVerb(toks) {
			return terminated("what is "+s, "?")
		}
		return terminated(s, "?")
	}
	if len(toks) < 3 || !interrogatives[toks[0].low] || strings.HasSuffix(toks[0].low, "'s") || auxiliaries[toks[1].low] {
		return terminated(s, "?")
	}
	subject := slices.IndexFunc(toks[1:], func(t token) bool { return subjects[t.low] }) + 1
	if subject == 0 || subject > 4 {
		return terminated(s, "?")
	}
	wh := strings.TrimSpace(s[:toks[subject].start])
	return terminated(invert(wh, s, toks[subject:]), "?")
}

var determinersOfNoun = words("my our his her their the")

func hasVerb(toks []token) bool {
	return slices.ContainsFunc(toks, func(t token) bool { return auxiliaries[t.low] })
}

// invert puts the verb of the embedded clause toks before its subject, after the question words wh.
func invert(wh, s string, toks []token) string {
	verb := slices.IndexFunc(toks[1:], func(t token) bool { return auxiliaries[t.low] }) + 1
	if verb > 0 && !isMainVerb(toks[verb:]) {
		before := s[toks[0].start:toks[verb-1].end]
		return wh + " " + toks[verb].low + " " + before + s[toks[verb].end:]
	}
	switch toks[0].low {
	case "i", "you", "we", "they":
		if len(toks) > 1 {
			if isPast(toks[1].low) {
				return wh + " " + s[toks[0].start:] // "what I said": the base form of the verb is not known
			}
			return wh + " do " + s[toks[0].start:]
		}
	}
	return wh + " " + s[toks[0].start:]
}

// isMainVerb says whether "do" or "have" at toks[0] is the verb itself, not the auxiliary of a participle after it.
func isMainVerb(toks []token) bool {
	return doVerbs[toks[0].low] && (len(toks) == 1 || !strings.HasSuffix(toks[1].low, "ed") && !strings.HasSuffix(toks[1].low, "en"))
}

var doVerbs = words("do does have has had did")

func isPast(w string) bool {
	return strings.HasSuffix(w, "ed") && len(w) > 4 || pastVerbs[w]
}

var pastVerbs = words("said told had went got bought wrote put left gave took made saw met came chose kept")

// yesNoQuestion turns the clause after "whether" into a question.
func yesNoQuestion(s string) string {
	s = strings.TrimRight(trimPunct(s), "?.! ")
	toks := tokenize(s)
	if len(toks) > 1 && subjects[toks[0].low] && langOf(s) == en {
		s = strings.TrimSpace(invert("", s, toks))
	}
	return terminated(s, "?")
}

// stripGreeting removes greetings from the front of a clause.
func stripGreeting(s string) string {
	for {
		toks := tokenize(s)
		n := longestPhrase(toks, greetings)
		if n == 0 || n == len(toks) {
			break
		}
		rest := s[toks[n-1].end:]
		if strings.TrimLeft(rest, ",.!—–- ") == rest {
			break
		}
		s = strings.TrimLeft(rest, ",.!—– ")
	}
	return s
}

// dropParting removes politeness and interjections from the end of a clause.
func dropParting(s string) string {
	for {
		toks := tokenize(s)
		n := len(toks)
		for k := min(4, n-2); ; k-- {
			if k <= 0 {
				return s
			}
			if longestPhrase(toks[n-k:], partings) == k {
				tail := strings.TrimLeft(s[toks[n-1].end:], " ")
				s = strings.TrimRight(s[:toks[n-k].start], ", ") + tail
				break
			}
		}
	}
}

var (
	greetings = phrases("hi|hello|hey|hi there|hello there|hey there|good morning|good evening|good afternoon|please|pls|ok|okay|привет|здравствуй|здравствуйте|добрый день|добрый вечер|доброе утро|пожалуйста")
	partings  = phrases(`please|pls|plz|thanks|thank you|thx|btw|by the way|lol|haha|ok|okay|fyi|if you don't mind|if you can|for me please|
		пожалуйста|плиз|спасибо|кстати|вот|ага|ладно|ок|если можно|если не трудно|если не сложно|хорошо`)
)

// isChitChat says whether s is a greeting, thanks or the like, with nothing to do in it.
func isChitChat(s string) bool {
	toks := tokenize(s)
	if len(toks) == 0 {
		return true
	}
	if n := longestPhrase(toks, whoAreYou); n > 0 && n == len(toks) {
		return true
	}
	core := false
	for _, t := range toks {
		if !chitChat[t.low] {
			return false
		}
		core = core || chitChatCore[t.low]
	}
	return core
}
