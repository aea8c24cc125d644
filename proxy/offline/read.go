package offline

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"

	"mneme/proxy/wire"
)

// kind is what a sentence does.
type kind int

const (
	other    kind = iota // a joke, an order, small talk, nonsense: nothing that the model does
	greets               // a greeting and nothing else
	note                 // a statement to be kept
	ask                  // a question
	dropping             // an order to forget
	recalls              // what did I just say?
	lists                // what do you know about me?
	sum                  // arithmetic
	calling              // use NAME {json}
)

// step is one thing that a message says.
type step struct {
	kind     kind
	text     string // in the user's words, without what leads to it
	quote    string // the user's own sentence
	explicit bool   // it is said to a subagent
	to       string // the subagent's name, "" for one without a name
	nobody   string // a name that is used as if there were such a subagent
	at       string // when it was said, where it was recalled
	day      string // that of a note, which says it
	long     bool   // it is a long text, which is quoted from only
}

// speech reads the messages of one dialogue, in order.
type speech struct {
	agents []wire.Tool // the subagents that there are; none for a subagent itself
	last   string      // the subagent that was spoken of last
	told   string      // what was told to a subagent last
	verbs  *regexp.Regexp
}

func (s *speech) read(text string) (out []step) {
	list := sentences(text)
	if calls := s.calls(text); calls != nil {
		return calls
	} else if len(list) > 10 || strings.Contains(text, "```") {
		return []step{{kind: note, text: text, long: true}}
	}
	for _, sentence := range list {
		out = append(out, s.sentence(sentence)...)
	}
	return out
}

// calls reads "use NAME {json}", one or one in each line, each perhaps behind words that name a subagent; nil if there
// is anything else.
func (s *speech) calls(text string) (out []step) {
	if !strings.Contains(text, "{") {
		return nil
	}
	for _, part := range [][]string{{text}, strings.Split(strings.TrimSpace(text), "\n")} {
		out = nil
		for _, line := range part {
			m := using.FindStringSubmatch(line)
			if m == nil || !json.Valid([]byte(m[3])) {
				break
			}
			st := step{kind: calling, text: "use " + m[2] + " " + m[3]}
			for _, w := range words(m[1]) {
				st.to = cmp.Or(st.to, s.agent(w))
			}
			if st.explicit = st.to != ""; !st.explicit && strings.TrimSpace(m[1]) != "" {
				break
			}
			out = append(out, st)
		}
		if len(out) == len(part) {
			return out
		}
	}
	return nil
}

// sentence reads one sentence; "tell X …, then ask it …" has two steps.
func (s *speech) sentence(text string) (out []step) {
	if s.verbs == nil {
		names := "\x00"
		for _, a := range s.agents {
			names += "|" + regexp.QuoteMeta(a.Name) + "|" + cyrillic.Replace(a.Name) + `\pL{0,3}`
		}
		s.verbs = regexp.MustCompile(strings.ReplaceAll(telling.String(), "NAMES", names))
	}
	var open step
	start := 0
	said := func(part string) string { return bare(polite.ReplaceAllString(stripped(part), "")) }
	flush := func(end int) {
		if part := text[start:end]; open.explicit {
			out = append(out, s.addressed(open, part))
		} else if end == len(text) || said(part) != "" {
			out = append(out, told(part)...)
		}
	}
	for _, m := range s.verbs.FindAllStringSubmatchIndex(text, 20) {
		group := func(i int) string { return text[max(0, m[2*i]):max(0, m[2*i+1])] }
		first := !open.explicit && said(text[start:max(start, m[0])]) == ""
		joined := open.explicit || m[4] < m[5] || strings.ContainsAny(group(1), ",;.")
		next := step{kind: note, explicit: true, to: s.agent(group(5) + group(7)), nobody: group(6) + group(8) + group(9)}
		if asking.MatchString(group(3)) {
			next.kind = ask
		}
		rest := m[20]
		switch unnamed := m[7] == rest; {
		case next.to != "":
			next.nobody = ""
		case group(4) != "":
			next.to = s.last
		case unnamed || group(9) != "" && (len(s.agents) == 0 || mine.MatchString(group(9)) || yours.MatchString(group(9)) ||
			indirect.MatchString(group(9))):
			rest = m[7]
			if left := strings.TrimLeft(text[rest:], " ,:"); next.kind != ask || !indirect.MatchString(left) &&
				!strings.Contains(left, " ли ") {
				continue
			}
			next.to, next.nobody = s.last, ""
		}
		if !first && !joined {
			continue
		}
		if !first {
			flush(m[0])
		}
		start, s.last, open = rest, next.to, next
	}
	flush(len(text))
	return out
}

// told returns the steps of a sentence that addresses no subagent: two if it states something and asks about it.
func told(text string) []step {
	if m := both.FindStringSubmatch(text); m != nil && asks(text) {
		if head, tail := classify(m[1]), classify(m[2]); head.kind == note && tail.kind == ask {
			return []step{head, tail}
		}
	}
	return []step{classify(text)}
}

// agent is the name of the subagent that a word means, also in Cyrillic and with an ending.
func (s *speech) agent(word string) string {
	for _, a := range s.agents {
		if strings.EqualFold(word, a.Name) || strings.HasPrefix(strings.ToLower(word), cyrillic.Replace(a.Name)) {
			return a.Name
		}
	}
	return ""
}

// addressed returns st with the sentence for its subagent. A question without an object asks for what the user told the
// subagent last.
func (s *speech) addressed(st step, part string) step {
	rest := bare(restLead.ReplaceAllString(strings.TrimLeft(part, " \t,:;"), ""))
	if st.kind == ask && len(keys(rest)) == 0 {
		if st.text = whatTold.in(langOf(s.told + rest)); nameIn(s.told) != "" {
			st.text = whatName.in(langOf(s.told + rest))
		}
		return st
	}
	if st.kind == note {
		rest = strings.TrimPrefix(rest, "что ")
	}
	switch said := classify(rest).kind; {
	case said == sum || said == dropping || said == lists || said == recalls || said == note && noteLead.MatchString(rest):
		st.kind = said
	case st.kind == ask && !imperative.MatchString(rest):
		rest = inverted.ReplaceAllString(rest, "$1 $3 $2") + "?"
	case said == ask:
		st.kind = ask
	case st.kind == ask || imperative.MatchString(rest) || asks(rest):
		st.kind = other
	default:
		if s.told = rest; said == other && len(words(rest)) > 1 {
			rest = remember.in(langOf(rest), rest)
		}
	}
	st.text = sentence(rest)
	return st
}

// stripped is a sentence without what leads to it: greetings, "well", "no,".
func stripped(s string) string {
	for before := ""; s != before; {
		before, s = s, filler.ReplaceAllString(strings.TrimLeft(s, " \t,.:;!—-"), "")
	}
	return s
}

// asks reports whether a sentence asks something, with or without a question mark.
func asks(s string) bool {
	return strings.HasSuffix(strings.TrimRight(s, " \"»”).!"), "?") || question.MatchString(s) ||
		asked.MatchString(bare(s))
}

// classify returns what a sentence does. A statement must have the form of one: what may be a question is not kept.
func classify(text string) step {
	whole, s := strings.TrimSpace(text), corrected.ReplaceAllString(trailer.ReplaceAllString(stripped(text), "$1"), " ")
	order, l := polite.ReplaceAllString(s, ""), langOf(s)
	if order != s {
		order = strings.TrimRight(order, " ?")
	}
	toNote, toKnow, toDrop := noteLead.ReplaceAllString(order, ""), askLead.ReplaceAllString(order, ""),
		dropLead.ReplaceAllString(order, "")
	is := func(ok bool, k kind, text string) step {
		if !ok {
			k, text = other, s
		}
		return step{kind: k, text: text, quote: whole}
	}
	switch {
	case greeting.MatchString(text):
		return step{kind: greets}
	case recap.MatchString(order):
		return is(true, recalls, s)
	case listing.MatchString(s):
		return is(true, lists, s)
	case toNote != order:
		// it says what to note about, and not what
		empty := len(keys(toNote)) == 0 || matter.MatchString(bare(toNote)) && nameIn(toNote) == ""
		return is(!empty && !reminder.MatchString(toNote) && !imperative.MatchString(toNote) && !asks(toNote), note, toNote)
	case toDrop != order:
		return is(mine.MatchString(toDrop) || yours.MatchString(toDrop) || all.MatchString(toDrop) ||
			!erasing.MatchString(order), dropping, order)
	case expression(s) != "":
		return is(true, sum, s)
	case toKnow != order:
		known := indirect.MatchString(toKnow) || strings.HasSuffix(toKnow, "?") && !imperative.MatchString(order)
		return is(known && len(newFact(toKnow, "").keys) > 0 && !yours.MatchString(toKnow), ask, bare(toKnow)+"?")
	case whoAmI.MatchString(s):
		return is(true, ask, whatName.in(l))
	case smallTalk.MatchString(s), order != s && imperative.MatchString(order):
		return is(false, other, s)
	case asks(s):
		return is(len(newFact(s, "").keys) > 0 && (!yours.MatchString(s) || mine.MatchString(s) != howTo.MatchString(s)), ask,
			s)
	case nameIn(s) != "":
		return is(true, note, s)
	case matter.MatchString(bare(s)) && len(keys(s)) == 1: // "my name", without a verb
		return is(true, ask, s)
	case wish.MatchString(s) && !ambition.MatchString(s), imperative.MatchString(order), yours.MatchString(s),
		len(words(s)) < 2:
		return is(false, other, s)
	case l == ru:
		return is(mine.MatchString(s) || bareRU.MatchString(s) || len(words(s)) > 2 && tellsRU.MatchString(s), note, s)
	}
	return is(tellsEN.MatchString(s+" "), note, s)
}

// nameIn is the user's name, if that is what a statement tells.
func nameIn(s string) string {
	if m := name.FindStringSubmatch(bare(s)); m != nil && !noName.MatchString(m[1]+m[2]+m[3]) {
		return m[1] + m[2] + m[3]
	}
	return ""
}

// expression is what a sentence asks to calculate, "" if it is not arithmetic from its beginning to its end.
func expression(s string) string {
	whole := bare(stripped(s))
	plain := strings.TrimSpace(operators.Replace(root.ReplaceAllString(sums.ReplaceAllString(whole, ""), "sqrt($1)")))
	if !formula.MatchString(plain) || !worked.MatchString(plain) || plain == whole && digits.MatchString(plain) {
		return ""
	}
	return plain
}
