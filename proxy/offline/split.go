package offline

import "strings"

// step is one clause of a request with its place among the others.
type step struct {
	clause
	after bool // it may depend on the step before; otherwise the two are independent
	cont  bool // it continues the question of the step before, for the same agent
}

// maxSteps bounds the plan of one request; what is left over joins the last step.
const maxSteps = 10

// split cuts a request into steps.
func (sp speech) split(request string) []step {
	var steps []step
	parallel := false
	called := mention{}
	for _, sentence := range sentences(request) {
		if isChitChat(sentence) {
			continue
		}
		if to, ok := sp.onlyCalls(sentence); ok {
			called = to
			continue
		}
		sentence, marked := dropParallelMark(sentence)
		parallel = parallel || marked
		for i, p := range sp.cut(sentence) {
			cl := sp.parse(p.text)
			if cl.text == "" || !hasWord(cl.text) {
				continue
			}
			st := step{clause: cl, after: p.after || i == 0, cont: p.cont && !cl.directed && cl.kind == question}
			if st.to.whom == nobody {
				st.to = called
			}
			called = mention{}
			if st.cont {
				st.text = directQuestion(st.text)
			}
			steps = appendStep(steps, st)
		}
	}
	for i := range steps {
		steps[i].after = steps[i].after && !parallel
	}
	return steps
}

// onlyCalls says whether a sentence is no more than the name of an agent, for which the next sentence is then meant:
// "Hey, analytic!"
func (sp speech) onlyCalls(sentence string) (mention, bool) {
	c := newCursor(sentence)
	for c.accept(callers) || genericNouns[c.word(0)] {
		if genericNouns[c.word(0)] {
			c.i++
		}
	}
	i, n := sp.matchAgent(c.rest(), true)
	if n == 0 || c.i+n < len(c.toks) || strings.HasSuffix(sentence, "?") {
		return mention{}, false
	}
	return mention{whom: named, agents: []int{i}}, true
}

func hasWord(s string) bool { return strings.IndexFunc(s, isWordRune) >= 0 }

// appendStep adds st; a bare statement after a statement belongs to it, and steps over the limit join the last.
func appendStep(steps []step, st step) []step {
	if len(steps) > 0 {
		last := &steps[len(steps)-1]
		more := st.kind == statement && last.kind == statement && !st.directed && st.to.whom == nobody
		if more || len(steps) == maxSteps {
			last.text = last.sentence() + " " + st.sentence()
			return steps
		}
	}
	return append(steps, st)
}

// sentence is the clause as a task of its own.
func (cl clause) sentence() string {
	switch cl.kind {
	case question:
		return terminated(cl.text, "?")
	case statement:
		return terminated(strings.TrimRight(cl.text, "? "), ".") // the mark was that of "could you remember …?"
	}
	return terminated(cl.text, ".")
}

// dropParallelMark removes "in parallel" and the like from the ends of s.
func dropParallelMark(s string) (string, bool) {
	toks := tokenize(s)
	if n := longestPhrase(toks, parallelMarks); n > 0 && n < len(toks) {
		return trimPunct(s[toks[n-1].end:]), true
	}
	for n := max(1, len(toks)-3); n < len(toks); n++ {
		if n+longestPhrase(toks[n:], parallelMarks) == len(toks) {
			return trimPunct(s[:toks[n-1].end]) + strings.TrimSpace(s[toks[len(toks)-1].end:]), true
		}
	}
	return s, false
}

// part is a piece of a sentence between two joints.
type part struct {
	text  string
	after bool
	cont  bool
}

// joint is how a step is tied to what stands before it.
type joint int

const (
	none   joint = iota // nothing between them
	comma               // punctuation only
	joiner              // "and"
	seq                 // "then"
)

// cut finds the joints of one sentence: places where a connecting word, punctuation or nothing at all is followed by
// what can only be a new directive, question or command.
func (sp speech) cut(s string) []part {
	toks := tokenize(s)
	inQuote := quoted(s)
	var parts []part
	from, open := 0, part{}
	for i := 1; i < min(len(toks), maxJointed); i++ {
		if inQuote(toks[i].start) || toks[i].start < from {
			continue
		}
		j, n := jointAt(s, toks, i)
		if i+n >= len(toks) {
			break
		}
		head := s[from:toks[i-1].end]
		begin := i + n
		bodyFrom := toks[begin-1].end
		end := min(len(toks), begin+lookahead)
		src := s
		if end < len(toks) {
			src = s[:toks[end].start]
		}
		if sp.unfinished(head) || !sp.splits(head, j, &cursor{src: src, toks: toks[:end], i: begin}) {
			continue
		}
		open.text = head
		parts = append(parts, open)
		cur := sp.parse(head)
		open = part{after: j == seq || j == comma && cur.kind != question, cont: cur.directed && cur.kind == question && j != seq}
		from = bodyFrom
		i = begin
	}
	open.text = s[from:]
	return append(parts, open)
}

// jointAt tells what ties the word i to the one before and how many words the tie itself has.
func jointAt(s string, toks []token, i int) (joint, int) {
	if n := longestPhrase(toks[i:], sequencers); n > 0 {
		return seq, n
	}
	if n := longestPhrase(toks[i:], joiners); n > 0 {
		return joiner, n
	}
	if strings.ContainsAny(gapBefore(s, toks, i), ",;:—–") {
		return comma, 0
	}
	return none, 0
}

const (
	maxJointed = 150 // words of a sentence among which joints are looked for; what is longer is pasted text
	lookahead  = 40  // words after a joint that are read to tell what begins there
)

// splits says whether a new step begins at c, tied by j to the clause head.
func (sp speech) splits(head string, j joint, c *cursor) bool {
	probe := *c
	for !probe.done() && probe.accept(fillers) {
	}
	if probe.done() {
		return false
	}
	if longestPhrase(probe.rest(), askMe) > 0 && j >= comma && asksAt(probe.rest()[longestPhrase(probe.rest(), askMe):]) {
		return true
	}
	at := probe.i
	dir, directed := sp.directive(&probe)
	probe.i = at
	toks := probe.rest()
	explicit := directed && dir.to.whom != nobody && dir.to.whom != speaker
	if j == joiner || j == comma {
		probe.i = at
		if _, called := sp.vocative(&probe); called && sp.parse(head).directed {
			return true
		}
	}
	switch j {
	case seq:
		return directed || asksAt(toks) || commands[probe.word(0)]
	case joiner, comma:
		if explicit || directed && (opensWith(toks, remembers) || opensWith(toks, asks)) {
			return len(tokenize(head)) > 1 || sp.parse(head).directed
		}
		return sp.joinsQuestion(head, j, toks)
	}
	return explicit && dir.to.whom != generic && !governs[lastWord(head)] && len(tokenize(head)) > 2 ||
		sp.asksAfterStatement(head, toks)
}

func opensWith(toks []token, f form) bool { return longestPhrase(toks, directives[f]) > 0 }

// joinsQuestion says whether the question or command at toks stands beside the clause head, not inside it.
func (sp speech) joinsQuestion(head string, j joint, toks []token) bool {
	cur := sp.parse(head)
	if commands[toks[0].low] {
		return cur.kind != statement || calcCommands[toks[0].low]
	}
	if !asksAt(toks) {
		return false
	}
	if cur.kind != statement {
		return j == joiner || len(toks) > 2 && auxiliaries[toks[1].low]
	}
	return whInverted(toks) || isCyrillic(toks[0].low) && j == joiner && cur.directed
}

// asksAfterStatement finds "… what is my name" right after a statement written without punctuation.
func (sp speech) asksAfterStatement(head string, toks []token) bool {
	if !whInverted(toks) || governs[lastWord(head)] || len(tokenize(head)) < 3 {
		return false
	}
	cur := sp.parse(head)
	return cur.kind == statement && len(tokenize(cur.text)) >= 3
}

// whInverted says whether toks open with a question word, an auxiliary or Russian possessive, and a subject.
func whInverted(toks []token) bool {
	if len(toks) < 3 || !interrogatives[toks[0].low] {
		return strings.HasPrefix(firstLow(toks), "what's") && len(toks) > 1
	}
	if isCyrillic(toks[0].low) {
		return toks[0].low != "что" && (selfWords[toks[1].low] || ruPrepositions[toks[1].low] && selfWords[toks[2].low])
	}
	return auxiliaries[toks[1].low] && subjects[toks[2].low]
}

func firstLow(toks []token) string {
	if len(toks) == 0 {
		return ""
	}
	return toks[0].low
}

// governs are words that take a following directive or question as their own.
var governs = words(`to you please and not don't never can could will would should must i we they who that know tell ask is was are remember
	wonder about of say see check learn understand show find out чтобы не и или я мы он она они знаю знает знать спроси узнай скажи понять о об про помню ли`)
