package offline

import (
	"slices"
	"strings"
)

// fact is a statement that was noted, or a question about such.
type fact struct {
	text string
	name string          // the user's, if that is what it tells
	keys map[string]bool // what it is about
	self bool            // it is about the user
	whom bool            // it is about a person that belongs to the user
	own  bool            // it is about matters of the user's that no document has
	to   string          // the subagent that was told
	at   string          // when it was told, where that was recalled
	day  string          // that of the note that says it
}

func newFact(text, to string) fact {
	f := fact{text: bare(text), name: nameIn(text), keys: keys(text), self: mine.MatchString(text) ||
		bareRU.MatchString(text) && !question.MatchString(text), to: to}
	f.keys["age"] = f.keys["age"] || ageTold.MatchString(f.text)
	f.keys["origin"] = f.keys["origin"] || origin.MatchString(text)
	for k, about := range f.keys {
		if !about {
			delete(f.keys, k)
			continue
		}
		f.whom, f.own = f.whom || relations[k], f.own || f.self && personal[k] && !howTo.MatchString(f.text)
	}
	return f
}

// ofName says whether a question asks for the user's own name.
func (f fact) ofName() bool {
	return f.keys["name"] && !f.whom && (len(f.keys) == 1 || f.self && (yesNo.MatchString(f.text) || f.keys["full"]))
}

// fit is the share of what the question f is about that a note is about, 0 where that is about another person's.
func (f fact) fit(told fact) float64 {
	hit, whole := 0.0, 0.0
	wide := map[string]bool{}
	// the person that is asked about, among others
	ofOne := f.whom && (share(f.keys, told.keys) == 1 || strings.ContainsAny(told.text, ",;"))
	for k := range told.keys {
		if wide[broader[k]] = true; f.self && relations[k] && !f.keys[k] && !f.keys[broader[k]] && !ofOne {
			return 0
		}
	}
	switch {
	case f.ofName() && told.name != "":
		return 1
	case f.ofName() || told.name != "" || f.self && !told.self:
		return 0
	}
	for k := range f.keys {
		weight := 1.0
		if k == "name" && f.whom {
			weight = 0.5
		}
		whole += weight
		if told.keys[k] || wide[k] && len(f.keys) > 1 {
			hit += weight
			if personal[k] && !relations[k] && yesNo.MatchString(f.text) {
				return 1
			}
		} else if relations[k] {
			return 0
		}
	}
	return hit / max(whole, 1)
}

// notes are what was told and not forgotten, oldest first.
type notes []fact

// find is the note that answers a question best, of equals the newest.
func (n notes) find(q fact) *fact {
	best, at := 0.6, -1
	month, q := q.month()
	for i, f := range n {
		if fit := q.fit(f); fit >= best && (month == "" || f.at == "" || f.at[len("2024-"):len("2024-05")] == month) {
			best, at = fit, i
		}
	}
	if at < 0 {
		return nil
	}
	return &n[at]
}

// told answers a question by the best note. Where others of the chat's notes answer it as well by other words, all are
// told with their days, the newest first: which of them holds was not said.
func (n notes) told(q fact, best *fact, l lang) string {
	var all, words []string
	for _, f := range slices.Backward(n) {
		if f.day != "" && best.day != "" && q.fit(f) == q.fit(*best) && !slices.Contains(words, f.said(l)) {
			words, all = append(words, f.said(l)), append(all, notedOn.in(l, f.day, f.said(l)))
		}
	}
	if len(all) < 2 {
		return best.again(l)
	}
	return strings.Join(all, " ")
}

// take notes what a step tells, one fact for each thing that it says about the user, or forgets what it says to.
func (n *notes) take(st step) (taken []fact) {
	var parts []string
	switch {
	case st.kind == dropping:
		n.drop(st.text)
	case st.kind == note && st.long:
		parts = sentences(st.text)
	case st.kind == note:
		parts = strings.Split(clause.ReplaceAllString(st.text, "\x00$1"), "\x00")
	}
	for _, text := range parts {
		f := newFact(text, st.to)
		f.at, f.day = st.at, st.day
		*n = slices.DeleteFunc(*n, func(old fact) bool {
			return f.name != "" && old.name != "" && old.to == f.to && (f.day == "" || old.day == "")
		})
		taken = append(taken, f)
		*n = append(*n, f)
	}
	return taken
}

// drop forgets what an order names, and says so.
func (n *notes) drop(order string) string {
	what := bare(dropLead.ReplaceAllString(order, ""))
	l, q, before := langOf(what), newFact(all.ReplaceAllString(what, " "), ""), len(*n)
	switch {
	case len(q.keys) == 0 && (q.self || all.MatchString(what)):
		*n = nil
		return forgotten.in(l, forgotAll.in(l))
	case len(q.keys) > 0 && (q.self || !yours.MatchString(what)):
		*n = slices.DeleteFunc(*n, func(f fact) bool { return q.fit(f) > 0.99 })
	}
	if len(*n) == before {
		return noSuchNote.in(l)
	}
	return forgotten.in(l, turned(strings.TrimPrefix(restLead.ReplaceAllString(what, ""), "что "), l))
}

// said is a note given back within a sentence.
func (f fact) said(l lang) string {
	if f.name != "" {
		return nameIs.in(l, f.name)
	}
	return turned(f.text, l)
}

// again is a note given back as an answer, with when it was told if that is not before the user's eyes.
func (f fact) again(l lang) string {
	if date, clock, recalled := strings.Cut(f.at, " "); recalled {
		f.at = ""
		return f.again(l) + " " + saidOn.in(l, date, clock)
	}
	if s := f.said(l); s != quoted.in(l, clip(f.text)) {
		return sentence(s)
	}
	return youSaid.in(l, sentence(clip(f.text)))
}
