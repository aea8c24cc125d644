package offline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxFacts bounds the statements searched, newest kept.
const maxFacts = 2000

// responder answers one turn as a subagent.
type responder struct {
	turn   turn
	tools  toolkit
	usable []tool // those of the tools that may be called in this answer
	facts  []fact
	before string      // what the user said before the step
	asked  []queryTerm // what the question before the step asks for, with what it has from those before it
	used   int         // tool calls of the turn already accounted for
}

// respond answers the last request of t: statements are acknowledged, questions answered by a tool or from memory.
func respond(t turn, req *request, usable []tool) reply {
	choice := req.ToolChoice
	steps := (speech{}).split(t.request)
	forced := choice != nil && (choice.Type == "any" || choice.Type == "tool") && len(t.uses) == 0
	if len(steps) == 0 {
		if c, ok := forcedCall(forced, usable, t.request); ok {
			return reply{calls: []call{c}}
		}
		return reply{text: introduce(t.request)}
	}
	r := &responder{turn: t, tools: newToolkit(req.Tools), usable: usable}
	for i, text := range t.earlier {
		r.learn(text, i*maxFacts)
		r.query(text)
		r.before = text
	}
	var out []string
	for i, st := range steps {
		text, pending := r.step(st, (len(t.earlier)+1+i)*maxFacts)
		r.before = st.text
		if pending != nil {
			return reply{calls: []call{*pending}}
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if c, ok := forcedCall(forced, usable, t.request); ok {
		return reply{calls: []call{c}}
	}
	return reply{text: strings.Join(out, " ")}
}

// forcedCall gives a caller that insists on a tool the only one that can be filled in without understanding it.
func forcedCall(forced bool, usable []tool, request string) (call, bool) {
	if !forced {
		return call{}, false
	}
	for _, t := range usable {
		if p := t.onlyString(); p != "" {
			return call{tool: t.Name, input: arguments{}.text(p, request)}, true
		}
	}
	return call{}, false
}

func (r *responder) learn(text string, order int) {
	previous := ""
	if n := len(r.facts); n > 0 {
		previous = r.facts[n-1].text
	}
	r.facts = append(r.facts, factsOf(text, previous, order)...)
	if extra := len(r.facts) - maxFacts; extra > 0 {
		r.facts = r.facts[extra:]
	}
}

// step answers one step, or says which tool call it still needs.
func (r *responder) step(st step, order int) (string, *call) {
	l := langOf(st.text)
	if !hasLetters(st.text) {
		l = langOf(r.turn.request)
	}
	if st.kind == statement {
		r.learn(st.sentence(), order)
		return acknowledge(st.text, l), nil
	}
	job := r.tools.jobFor(st)
	if job == nil {
		return r.recall(st, l, nil, false), nil
	}
	var done []use
	for {
		c, ok := job.next(done)
		if !ok {
			break
		}
		if r.used >= len(r.turn.uses) {
			if !slices.ContainsFunc(r.usable, func(t tool) bool { return t.Name == c.tool }) {
				return r.recall(st, l, nil, false), nil
			}
			return "", &c
		}
		u := r.turn.uses[r.used]
		r.used++
		if u.failed || !u.answered {
			reason := cmp.Or(shorten(u.result, 300), l.pick("it returned nothing", "он ничего не вернул"))
			return fmt.Sprintf(l.pick("I could not do that: the tool %s failed: %s", "Не получилось: инструмент %s вернул ошибку: %s"),
				u.tool, strings.TrimRight(reason, ". ")+"."), nil
		}
		done = append(done, u)
	}
	if job.searches() {
		return r.recall(st, l, readPassages(done[0].result), true), nil
	}
	return job.conclude(done, l), nil
}

func hasLetters(s string) bool {
	return slices.ContainsFunc(tokenize(s), func(t token) bool { return !isNumber(t.low) })
}

// recall answers a question from what the user said, or from passages where they fit better.
func (r *responder) recall(st step, l lang, found []passage, searched bool) string {
	q, whole := r.query(st.text)
	if q.second && !q.self && isAboutListener(q) {
		return introduce(st.text)
	}
	if q.listing || q.former || len(q.terms) == 0 && q.self {
		if text := r.list(q, l); text != "" {
			return text
		}
	}
	i, score := bestFact(q, r.facts)
	cited, fit := cite(whole, found)
	if score >= q.need() && score >= fit {
		return giveBack(r.facts[i].text, l)
	}
	if fit >= passageThreshold {
		return cited
	}
	if searched {
		return l.pick("I don't know: neither what I was told here nor the passages found answer this.",
			"Я не знаю: на это не отвечает ни сказанное мне здесь, ни найденные фрагменты.")
	}
	return l.pick("I don't know: nothing that I was told here answers this.",
		"Я не знаю: ничто из сказанного мне здесь на это не отвечает.")
}

// query reads a question in the light of what was said before it. whole has what an elliptical one leaves out, too;
// it is for documents, of which one is asked after the other.
func (r *responder) query(text string) (q, whole query) {
	q = newQuery(text)
	q.about(text, r.before)
	whole = q.complete(text, r.asked)
	if kindOf(text) == question {
		r.asked = whole.terms
	}
	return q, whole
}

// need is the score that answers q. A question by yes or no about a personal attribute is answered by the attribute,
// whatever its value.
func (q query) need() float64 {
	if q.yesNo && q.self && slices.ContainsFunc(q.terms, func(t queryTerm) bool { return personal[t.key] }) {
		return 0.35
	}
	return threshold
}

// isAboutListener says whether q asks for the model's own name, age and the like.
func isAboutListener(q query) bool {
	return !slices.ContainsFunc(q.terms, func(t queryTerm) bool { return !personal[t.key] })
}

// list gives back up to five facts on the subject of q, in the order of telling.
func (r *responder) list(q query, l lang) string {
	var fit []fact
	for _, f := range r.facts {
		if len(q.terms) == 0 && q.fits(f) || q.score(f) >= threshold {
			fit = append(fit, f)
		}
	}
	var out []string
	for _, f := range fit[max(0, len(fit)-5):] {
		if s := giveBack(f.text, l); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// passage is one result of a search.
type passage struct {
	N       int    `json:"n"`
	Title   string `json:"title"`
	Section string `json:"section"`
	Source  string `json:"source"`
	Text    string `json:"text"`
}

// readPassages reads the result of a search tool: {"passages": […]}, or plain text.
func readPassages(result string) []passage {
	var list struct {
		Passages []passage `json:"passages"`
	}
	if json.Unmarshal([]byte(result), &list) == nil {
		return list.Passages
	}
	return []passage{{Text: result}}
}

// passageThreshold is the least share of a question's words that a passage's sentence must hold.
const passageThreshold = 0.55

// cite quotes the one or two sentences that answer q best, with their passages' numbers and sources. What a sentence
// does not say itself but its title, its heading or the sentences before it under that do counts half, or more if it refers to
// them. Headings and code say little by themselves.
func cite(q query, found []passage) (string, float64) {
	type quote struct {
		text  string
		from  passage
		keys  map[string]bool // of the sentence and what stands before it
		score float64
	}
	var all []quote
	for _, p := range found {
		above := union(keysOf(termsOf(p.Title)), keysOf(termsOf(p.Section)))
		context := above
		for _, s := range piecesOf(p.Text) {
			keys := keysOf(termsOf(s.text))
			if s.heading {
				context = above
			}
			score := q.coverage(keys)
			if score > 0 {
				share := 0.5
				if pointsBack(s.text) {
					share = 0.9 // "It sleeps two guests." is about what was named before
				}
				score += share * (q.coverage(union(keys, context)) - score)
			}
			context = union(context, keys)
			switch {
			case !q.admits(context):
				score = 0
			case s.aside():
				score /= 2
			}
			all = append(all, quote{s.text, p, context, score})
		}
	}
	slices.SortStableFunc(all, func(a, b quote) int { return cmp.Compare(b.score, a.score) })
	if len(all) == 0 || all[0].score == 0 {
		return "", 0
	}
	text := all[0].from.mark(all[0].text)
	for _, c := range all[1:] {
		adds := slices.ContainsFunc(q.terms, func(t queryTerm) bool { return t.weight >= 1 && c.keys[t.key] && !all[0].keys[t.key] })
		if adds && c.score >= 0.5*all[0].score {
			text += " " + c.from.mark(c.text)
			break
		}
	}
	return text, all[0].score
}

func union(a, b map[string]bool) map[string]bool {
	m := map[string]bool{}
	for k := range a {
		m[k] = true
	}
	for k := range b {
		m[k] = true
	}
	return m
}

// mark ends a quoted sentence with its passage's number and source: "… [2] (guide.md)".
func (p passage) mark(s string) string {
	s = shorten(s, 500)
	if p.N > 0 {
		s += fmt.Sprintf(" [%d]", p.N)
	}
	if source := cmp.Or(p.Source, p.Title); source != "" {
		s += " (" + source + ")"
	}
	return s
}
