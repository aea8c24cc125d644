package offline

import (
	"slices"
	"strings"
)

// kind is what a clause does.
type kind int

const (
	statement kind = iota
	question
	command
)

// whom tells how a clause names the agent that it is for.
type whom int

const (
	nobody    whom = iota
	named          // by name: mention.agents
	generic        // "the subagent": the one spoken of, else any
	earlier        // "it", "the same one"
	another        // "the other one"
	everyone       // "both", "all subagents"
	described      // "the document agent": mention.words
	speaker        // "me": whoever listens is asked
)

type mention struct {
	whom   whom
	agents []int // indexes into the agents offered
	words  string
}

// clause is one thing to do, said in direct speech.
type clause struct {
	text     string
	kind     kind
	to       mention
	directed bool // a verb of telling or asking introduced it
}

// speech reads clauses of a text; it knows the agents that may be named.
type speech struct {
	agents []agent
	depth  int // of directives inside directives
}

// maxDepth bounds "ask it to tell it to …": the work doubles with every level.
const maxDepth = 4

// cursor walks the tokens of one clause.
type cursor struct {
	src  string
	toks []token
	i    int
}

func newCursor(s string) *cursor { return &cursor{src: s, toks: tokenize(s)} }

func (c *cursor) rest() []token { return c.toks[c.i:] }

func (c *cursor) done() bool { return c.i >= len(c.toks) }

// word is the folded word n places ahead, "" past the end.
func (c *cursor) word(n int) string {
	if c.i+n < len(c.toks) {
		return c.toks[c.i+n].low
	}
	return ""
}

func (c *cursor) accept(list [][]string) bool {
	n := longestPhrase(c.rest(), list)
	c.i += n
	return n > 0
}

// gap is the text between the last word passed and the next one.
func (c *cursor) gap() string { return gapBefore(c.src, c.toks, c.i) }

func gapBefore(src string, toks []token, i int) string {
	from, to := 0, len(src)
	if i > 0 {
		from = toks[i-1].end
	}
	if i < len(toks) {
		to = toks[i].start
	}
	return src[from:to]
}

// remainder is the source text after the last word passed, with quotes around it removed.
func (c *cursor) remainder() string {
	from := 0
	if c.i > 0 {
		from = c.toks[c.i-1].end
	}
	s := trimPunct(c.src[from:])
	if c.i > 0 && strings.Count(s, `"`)%2 == 1 {
		s = strings.TrimLeft(s, `"`) // the other half went with the words before
	}
	return unquote(s)
}

// form is the grammar of a directive verb.
type form int

const (
	tells     form = iota // tell ADDRESSEE [that] …
	says                  // say to ADDRESSEE [that] …
	remembers             // remember [that] …
	asks                  // ask [ADDRESSEE] [about|whether|to] …
	gets                  // find out from ADDRESSEE …
	lets                  // let ADDRESSEE know [that] …
	uses                  // have ADDRESSEE do …
)

var directives = map[form][][]string{
	tells: phrases(`tell|inform|notify|remind|brief|teach|advise|скажи|скажите|сказать|сообщи|сообщите|сообщить|передай|передайте|передать|
		расскажи|расскажите|рассказать|напомни|напомните|напомнить|объясни|доложи|поведай|скажем|извести|уведоми`),
	says: phrases("say to|mention to|report to|explain to|write to|pass on to|pass to|send to|tell to|say|mention|pass|pass on|give|delegate to|hand to|forward to"),
	remembers: phrases(`remember|note|note down|memorize|memorise|save|store|record|write down|keep in mind|don't forget|do not forget|please note|make a note|take note|take a note|
		запомни|запомните|запомнить|запиши|запишите|записать|сохрани|сохраните|сохранить|отметь|отметьте|заметь|учти|учтите|имей в виду|имейте в виду|не забудь|не забывай|знай|знайте`),
	asks: phrases(`ask|query|consult|question|check with|inquire with|enquire with|ask of|inquire|enquire|
		спроси|спросите|спросить|спрашивай|уточни|уточните|уточнить|узнай|узнайте|узнать|выясни|выясните|выяснить|поинтересуйся|попроси|попросите|попросить|поручи|поручить|задай вопрос|обратись к|обратись`),
	gets: phrases("find out|find out from|get|learn|fetch|request|obtain"),
	uses: phrases("have|use|make|get|let|using|with|пусть|через|используй|с помощью"),
	lets: phrases("let|make sure|ensure|make sure that|пусть|дай знать|дайте знать|дай|поставь в известность"),
}

var (
	knows = phrases("know|knows|know about|remember|remembers|note|is aware|знать|знает|запомнит|помнит|знать о|понять")
	// that introduces what is told; about, what is asked for.
	that     = phrases("that|the fact that|of the fact that|about the fact that|about|of|as follows|the following|что|о том что|про то что|о|об|про|следующее|насчет|так")
	courtesy = phrases("please|kindly|пожалуйста")
	thatOnly = phrases("that|что")
	about    = phrases("about|for|regarding|concerning|on|of|про|о|об|обо|насчет|за")
	// whether introduces an indirect question that is answered by yes or no.
	whether = words("if whether")
)

// parse reads one clause: whom it addresses, what is said, and does it tell, ask or command.
func (sp speech) parse(s string) clause {
	s = dropParting(trimPunct(s))
	if sp.depth++; sp.depth > maxDepth {
		return clause{text: s, kind: statement}
	}
	c := newCursor(s)
	if to, ok := sp.vocative(c); ok {
		inner := sp.parse(c.remainder())
		if inner.to.whom == nobody || inner.to.whom == speaker {
			inner.to = to
		}
		inner.directed = true
		return inner
	}
	sp.skipFillers(c)
	if cl, ok := sp.directive(c); ok && cl.text != "" {
		return cl
	}
	if n := longestPhrase(c.rest(), askMe); n > 0 && asksAt(c.toks[c.i+n:]) {
		c.i += n
		return clause{text: directQuestion(c.remainder()), kind: question}
	}
	text, to := sp.inlineAgent(unquote(s))
	text = stripGreeting(text)
	return clause{text: text, kind: kindOf(text), to: to}
}

// unfinished says whether head is no more than a directive with its addressee, or an agent called by name: what
// follows belongs to it.
func (sp speech) unfinished(head string) bool {
	c := newCursor(head)
	for !c.done() && c.accept(fillers) {
	}
	if c.done() {
		return true
	}
	start := c.i
	for f := tells; f <= uses; f++ {
		c.i = start
		if !c.accept(directives[f]) {
			continue
		}
		c.accept(courtesy)
		c.accept(phrases("у|к|with|of|from|to"))
		sp.addressee(c)
		c.accept(knows)
		c.accept(that)
		if c.done() {
			return true
		}
	}
	c.i = start
	_, n := sp.matchAgent(c.rest(), true)
	c.i += n
	if n > 0 && genericNouns[c.word(0)] {
		c.i++
	}
	return n > 0 && c.done()
}

// vocative reads an agent called at the start: "analytic, …", "@analytic …".
func (sp speech) vocative(c *cursor) (mention, bool) {
	save := c.i
	at := strings.HasPrefix(strings.TrimSpace(c.src), "@")
	c.accept(phrases("hey|hi|dear|hello|эй|привет|у|from"))
	i, n := sp.matchAgent(c.rest(), true)
	if n == 0 {
		c.i = save
		return mention{}, false
	}
	c.i += n
	if genericNouns[c.word(0)] {
		c.i++
	}
	called := strings.ContainsAny(c.gap(), ",:—–!") || interrogatives[c.word(0)] || longestPhrase(c.rest(), thatOnly) > 0
	if !c.done() && (at || called) {
		c.accept(thatOnly)
		return mention{whom: named, agents: []int{i}}, true
	}
	c.i = save
	return mention{}, false
}

// skipFillers passes politeness and modal openings when a directive, a question or a command follows them.
func (sp speech) skipFillers(c *cursor) {
	save := c.i
	for !c.done() && (c.accept(fillers) || c.accept(sequencers)) {
	}
	if c.i == save || sp.startsStep(c) {
		return
	}
	c.i = save
}

// startsStep says whether a directive, question or command begins at c.
func (sp speech) startsStep(c *cursor) bool {
	probe := *c
	if _, ok := sp.directive(&probe); ok {
		return true
	}
	return commands[c.word(0)] || asksAt(c.rest())
}

// directive reads a verb of telling or asking with its addressee and content.
func (sp speech) directive(c *cursor) (clause, bool) {
	start := c.i
	for f := tells; f <= uses; f++ {
		c.i = start
		if !c.accept(directives[f]) {
			continue
		}
		c.accept(courtesy)
		if cl, ok := sp.read(f, c); ok {
			cl.directed = true
			return cl, true
		}
	}
	c.i = start
	return clause{}, false
}

func (sp speech) read(f form, c *cursor) (clause, bool) {
	switch f {
	case tells:
		to, ok := sp.addressee(c)
		if !ok {
			to, ok = sp.trailing(c)
		}
		if ok && to.whom == speaker {
			return sp.asked(c, to), true
		}
		if ok && !c.done() {
			return sp.told(c, to), true
		}
		return sp.unaddressed(c)
	case says:
		to, ok := sp.addressee(c)
		if !ok {
			to, ok = sp.trailing(c)
		}
		if ok && to.whom != speaker && !c.done() {
			return sp.told(c, to), true
		}
	case remembers:
		save := c.i
		if c.accept(that) || strings.ContainsAny(c.gap(), ":,—–") || selfWords[c.word(0)] || c.i == save && subjects[c.word(0)] || isCyrillic(c.word(0)) {
			if asksAt(c.rest()) && !copulas[c.word(0)] {
				return clause{}, false // "remember what …?" asks
			}
			return clause{text: c.remainder(), kind: statement}, !c.done()
		}
	case asks:
		return sp.readAsk(c)
	case gets:
		c.accept(phrases("from|with"))
		to, ok := sp.addressee(c)
		if !ok {
			to, ok = sp.trailing(c)
		}
		if ok && to.whom != speaker && to.whom != earlier || ok && asksAt(c.rest()) {
			return sp.asked(c, to), !c.done()
		}
	case uses:
		return sp.readUse(c)
	case lets:
		if to, ok := sp.addressee(c); ok && to.whom != speaker {
			if c.accept(knows) || !c.done() && strings.Contains(c.gap(), ",") {
				return sp.told(c, to), !c.done()
			}
		}
	}
	return clause{}, false
}

func (sp speech) readAsk(c *cursor) (clause, bool) {
	c.accept(phrases("у|к|with|of"))
	to, ok := sp.addressee(c)
	if !ok {
		to, ok = sp.trailing(c)
	}
	if !ok {
		save := c.i
		if !c.accept(about) && !whether[c.word(0)] && !asksAt(c.rest()) && !selfWords[c.word(0)] && !subjects[c.word(0)] {
			return clause{}, false
		}
		c.i = save
	}
	if c.done() {
		return clause{}, false
	}
	return sp.asked(c, to), true
}

// readUse reads "have ADDRESSEE compute …" and "use ADDRESSEE to …".
func (sp speech) readUse(c *cursor) (clause, bool) {
	to, ok := sp.addressee(c)
	if !ok || to.whom == speaker || c.done() {
		return clause{}, false
	}
	if to.whom == earlier && !commands[c.word(0)] && longestPhrase(c.rest(), askMe) == 0 && !opensWith(c.rest(), remembers) {
		return clause{}, false
	}
	c.accept(phrases("to|and|чтобы|и"))
	inner := sp.parse(c.remainder())
	inner.to = to
	if inner.kind == statement && !inner.directed {
		inner.kind = command
	}
	return inner, true
}

// told is the content of a telling clause.
func (sp speech) told(c *cursor, to mention) clause {
	if c.word(0) == "to" || c.word(0) == "чтобы" {
		return sp.ordered(c, to)
	}
	if !isThatQuestion(c.rest()) && asksAt(c.rest()) && !c.accept(phrases("что")) {
		return clause{text: directQuestion(c.remainder()), kind: question, to: to}
	}
	c.accept(that)
	return clause{text: c.remainder(), kind: statement, to: to}
}

// isThatQuestion tells the Russian conjunction что ("that") from the question word.
func isThatQuestion(toks []token) bool { return len(toks) > 0 && toks[0].low == "что" }

// ordered is the content of "tell it to …", "ask it to …".
func (sp speech) ordered(c *cursor, to mention) clause {
	c.i++
	inner := sp.parse(c.remainder())
	inner.to = to
	if inner.kind == statement && !inner.directed {
		inner.kind = command
	}
	inner.directed = true
	return inner
}

// asked is the content of an asking clause, as a direct question.
func (sp speech) asked(c *cursor, to mention) clause {
	c.accept(courtesy)
	if c.word(0) == "to" && !c.done() || c.word(0) == "чтобы" {
		return sp.ordered(c, to)
	}
	if commands[c.word(0)] && isCyrillic(c.word(0)) || startsRemembering(c.rest()) {
		inner := sp.parse(c.remainder())
		inner.to = to
		return inner
	}
	if whether[c.word(0)] {
		c.i++
		return clause{text: yesNoQuestion(c.remainder()), kind: question, to: to}
	}
	if !asksAt(c.rest()) {
		c.accept(about)
		if c.word(0) == "том" {
			c.i++
		}
	}
	return clause{text: directQuestion(c.remainder()), kind: question, to: to}
}

func startsRemembering(toks []token) bool {
	return len(toks) > 0 && isCyrillic(toks[0].low) && longestPhrase(toks, directives[remembers]) > 0
}

// unaddressed reads "tell that …" and «скажи, как …», said to whoever listens.
func (sp speech) unaddressed(c *cursor) (clause, bool) {
	if c.done() || !isCyrillic(c.toks[0].low) && c.word(0) != "that" {
		return clause{}, false
	}
	if isThatQuestion(c.rest()) || c.word(0) == "that" {
		if strings.HasSuffix(c.src, "?") {
			return clause{text: c.remainder(), kind: question}, true
		}
		c.i++
		return clause{text: c.remainder(), kind: statement}, true
	}
	if asksAt(c.rest()) || selfWords[c.word(0)] {
		return clause{text: c.remainder(), kind: question, to: mention{whom: speaker}}, true
	}
	return clause{}, false
}

var (
	genericNouns = words(`subagent sub-agent agent assistant bot helper specialist teammate expert one subagents sub-agents agents assistants
		подагент подагента подагенту подагентом подагенте субагент субагента субагенту агент агента агенту агентом бот бота боту ассистент ассистента ассистенту помощник помощника помощнику
		подагентам подагентов агентам агентов субагентам`)
	determiners = words("the a an your our this that my этого этому этот нашего нашему твоего твоему своего своему same тому того же самому самого")
	itWords     = words("it him them he she they него нее ним нему ней ему ей него")
	itOrIts     = words("her his его ее их")
	meWords     = words("me us мне нам")
	otherWords  = words("other another second different другой другому другого второй второму второго")
	allWords    = words("both all each every everyone everybody оба обоим обоих всем всех каждому каждого")
	sameWords   = words("same same-one тому тот того")
)

// addressee reads the agent spoken to at c.
func (sp speech) addressee(c *cursor) (mention, bool) {
	save := c.i
	m, ok := sp.readAddressee(c)
	if !ok {
		c.i = save
	}
	return m, ok
}

func (sp speech) readAddressee(c *cursor) (mention, bool) {
	w := c.word(0)
	switch {
	case meWords[w]:
		c.i++
		return mention{whom: speaker}, true
	case itWords[w] || itOrIts[w] && endsAddressee(c, 1):
		c.i++
		return mention{whom: earlier}, true
	case allWords[w]:
		return sp.readAll(c)
	}
	same := false
	for determiners[c.word(0)] {
		same = same || sameWords[c.word(0)]
		c.i++
	}
	if m, ok := sp.readNames(c); ok {
		return m, true
	}
	w = c.word(0)
	switch {
	case otherWords[w]:
		c.i++
		if genericNouns[c.word(0)] {
			c.i++
		}
		return mention{whom: another}, true
	case genericNouns[w] && !(w == "one" && !same):
		c.i++
		return sp.afterNoun(c, same)
	case same && strings.TrimSpace(c.gap()) != "" || same && asksAt(c.rest()):
		return mention{whom: earlier}, true
	}
	return sp.readDescribed(c)
}

// endsAddressee says whether the word n places ahead cannot belong to a noun phrase begun before it, so that "her"
// in "ask her what …" is a person and in "ask her name" is not.
func endsAddressee(c *cursor, n int) bool {
	probe := *c
	probe.i += n
	w := probe.word(0)
	return strings.TrimSpace(probe.gap()) != "" || asksAt(probe.rest()) || whether[w] || selfWords[w] ||
		longestPhrase(probe.rest(), that) > 0 || longestPhrase(probe.rest(), about) > 0 || w == "to"
}

func (sp speech) readAll(c *cursor) (mention, bool) {
	c.i++
	c.accept(phrases("of them|of the|of your|the|your|твоим|своим"))
	if m, ok := sp.readNames(c); ok {
		return m, true
	}
	c.accept(phrases("two|three"))
	if genericNouns[c.word(0)] {
		c.i++
	}
	return mention{whom: everyone}, true
}

// readNames reads one or more names of agents: "analytic", "the agents analytic and knowledge".
func (sp speech) readNames(c *cursor) (mention, bool) {
	m := mention{whom: named}
	for {
		probe := *c
		for len(m.agents) > 0 && (determiners[probe.word(0)] || probe.word(0) == "and" || probe.word(0) == "и") {
			probe.i++
		}
		if genericNouns[probe.word(0)] {
			probe.i++
			probe.accept(phrases("called|named|по имени|с именем|под именем|под названием"))
		}
		i, n := sp.matchAgent(probe.rest(), false)
		if n == 0 || len(m.agents) > 0 && slices.Contains(m.agents, i) {
			return m, len(m.agents) > 0
		}
		probe.i += n
		if genericNouns[probe.word(0)] && probe.word(0) != "one" {
			probe.i++
		}
		m.agents = append(m.agents, i)
		c.i = probe.i
	}
}

// afterNoun reads what may follow "the subagent": «по документам» describes it.
func (sp speech) afterNoun(c *cursor, same bool) (mention, bool) {
	if same {
		return mention{whom: earlier}, true
	}
	if c.word(0) == "по" && c.word(1) != "" {
		m := mention{whom: described, words: c.word(1)}
		c.i += 2
		return m, true
	}
	if c.word(0) == "for" && c.word(1) != "" && !selfWords[c.word(1)] {
		m := mention{whom: described, words: c.word(1)}
		c.i += 2
		return m, true
	}
	return mention{whom: generic}, true
}

// readDescribed reads up to three words before "agent".
func (sp speech) readDescribed(c *cursor) (mention, bool) {
	for n := 1; n <= 3; n++ {
		w := c.word(n - 1)
		if w == "" || n > 1 && c.i+n-1 < len(c.toks) && strings.ContainsAny(gapBefore(c.src, c.toks, c.i+n-1), ",:;.") ||
			stopWords[w] || selfWords[w] || interrogatives[w] {
			return mention{}, false
		}
		if genericNouns[c.word(n)] && c.word(n) != "one" {
			m := mention{whom: described, words: c.src[c.toks[c.i].start:c.toks[c.i+n-1].end]}
			c.i += n + 1
			return m, true
		}
	}
	return mention{}, false
}

// trailing reads an addressee at the end of the clause, "… to analytic", «… у него», and cuts it off.
func (sp speech) trailing(c *cursor) (mention, bool) {
	for i := len(c.toks) - 1; i > c.i && i >= len(c.toks)-4; i-- {
		switch c.toks[i].low {
		case "to", "from", "with", "у", "к":
			probe := *c
			probe.i = i + 1
			m, ok := sp.addressee(&probe)
			if ok && probe.done() && m.whom != speaker {
				c.src = c.src[:c.toks[i].start]
				c.toks = c.toks[:i]
				return m, true
			}
		}
	}
	return mention{}, false
}

// inlineAgent finds an agent that a clause without a directive names in passing, "… according to analytic", and
// cuts the phrase off.
func (sp speech) inlineAgent(s string) (string, mention) {
	c := newCursor(s)
	for i := 1; i < len(c.toks); i++ {
		if !inlinePrepositions[c.toks[i].low] {
			continue
		}
		c.i = i + 1
		m, ok := sp.addressee(c)
		if !ok || m.whom != named || !c.done() {
			continue
		}
		from := c.toks[i].start
		if c.toks[i].low == "to" && c.toks[i-1].low == "according" {
			from = c.toks[i-1].start
		}
		tail := s[c.toks[len(c.toks)-1].end:]
		return trimPunct(s[:from]) + tail, m
	}
	return s, mention{}
}

var inlinePrepositions = words("to from via using with through by у через")
