package offline

import "strings"

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

func (c *cursor) accept(list phraseSet) bool {
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

var directives = map[form]phraseSet{
	tells: phrases(`передай это|скажи это|сообщи это|передай следующее|tell|inform|notify|remind|brief|teach|advise|скажи|скажите|сказать|сообщи|сообщите|сообщить|передай|передайте|передать|
		расскажи|расскажите|рассказать|напомни|напомните|напомнить|объясни|доложи|поведай|скажем|извести|уведоми`),
	says: phrases("pass this on to|pass this to|pass that on to|say this to|send this to|forward this to|give this to|say to|mention to|report to|explain to|write to|pass on to|pass to|send to|tell to|say|mention|pass|pass on|give|delegate to|hand to|forward to"),
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
	// mustKnow follows an agent that is to be told something.
	mustKnow = phrases("should know|must know|needs to know|should remember|must remember|needs to remember|should be told|должен знать|должен запомнить|должен помнить")
	// that introduces what is told; about, what is asked for.
	that      = phrases("that|the following facts|these facts|the fact that|of the fact that|about the fact that|about|of|as follows|the following|что|о том что|про то что|о|об|про|следующее|насчет|так")
	toward    = phrases("у|к|with|of|from|to")
	fromWhom  = phrases("у|к")
	callers   = phrases("hey|hi|dear|hello|эй|привет|у|from")
	inOrderTo = phrases("to|and|чтобы|и")
	courtesy  = phrases("please|kindly|пожалуйста")
	thatOnly  = phrases("that|что")
	about     = phrases("about|for|regarding|concerning|on|of|про|о|об|обо|насчет|за")
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
		c.accept(toward)
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
	c.accept(callers)
	for determiners[c.word(0)] || genericNouns[c.word(0)] {
		c.i++
	}
	i, n := sp.matchAgent(c.rest(), true)
	if n == 0 {
		if called := c.i > save && genericNouns[c.toks[c.i-1].low] && !c.done() && strings.ContainsAny(c.gap(), ",:!"); called {
			return mention{whom: generic}, true
		}
		c.i = save
		return mention{}, false
	}
	c.i += n
	if genericNouns[c.word(0)] {
		c.i++
	}
	if c.accept(mustKnow) && !c.done() {
		c.accept(that)
		return mention{whom: named, agents: []int{i}}, !c.done()
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
	if cl, ok := sp.inverted(c); ok {
		cl.directed = true
		return cl, true
	}
	c.i = start
	return clause{}, false
}

// inverted reads a Russian directive with the addressee first: «аналитику передай, что …», «у него спроси, …».
func (sp speech) inverted(c *cursor) (clause, bool) {
	asked := c.accept(fromWhom)
	to, ok := sp.addressee(c)
	if !ok || to.whom == speaker || to.whom == described || !isCyrillic(c.word(0)) {
		return clause{}, false
	}
	switch {
	case !asked && c.accept(directives[tells]), c.accept(directives[remembers]):
		return sp.told(c, to), !c.done()
	case c.accept(directives[asks]):
		return sp.asked(c, to), !c.done()
	}
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
		c.accept(toward)
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
	save := c.i
	c.accept(toward)
	to, ok := sp.addressee(c)
	if !ok {
		c.i = save
		to, ok = sp.trailing(c)
	}
	if !ok {
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
	c.accept(inOrderTo)
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
	if !isThatQuestion(c.rest()) && asksAt(c.rest()) {
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
