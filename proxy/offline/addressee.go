package offline

import (
	"slices"
	"strings"
)

var (
	ofThem   = phrases("of them|of the|of your|the|your|твоим|своим")
	counts   = phrases("two|three")
	calledBy = phrases("called|named|по имени|с именем|под именем|под названием")

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
// in "ask her what …" and «его» in «попроси его назвать …» are persons and in "ask her name" and «спроси его имя» not.
func endsAddressee(c *cursor, n int) bool {
	probe := *c
	probe.i += n
	w := probe.word(0)
	return w == "" || isInfinitive(w) || strings.TrimSpace(probe.gap()) != "" || asksAt(probe.rest()) || whether[w] || selfWords[w] ||
		longestPhrase(probe.rest(), that) > 0 || longestPhrase(probe.rest(), about) > 0 || w == "to"
}

// isInfinitive guesses a Russian verb as it follows «попроси его …».
func isInfinitive(low string) bool {
	return isCyrillic(low) && (commands[low] || longestPhrase([]token{{low: low}}, directives[remembers]) > 0 ||
		hasAnySuffix(low, "ать", "ять", "ить", "еть", "уть", "ыть", "чься", "ться"))
}

func hasAnySuffix(s string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(x string) bool { return strings.HasSuffix(s, x) })
}

func (sp speech) readAll(c *cursor) (mention, bool) {
	c.i++
	c.accept(ofThem)
	if m, ok := sp.readNames(c); ok {
		return m, true
	}
	c.accept(counts)
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
			probe.accept(calledBy)
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
