package textindex

import (
	"cmp"
	"slices"

	"mneme/memory"
)

// Query is what to look for.
type Query struct {
	// Text is the question: the last turn of the conversation.
	Text string
	// History is the conversation before it, oldest first. Only what the user and the
	// assistant said says something of what is looked for.
	History []memory.Message
	// Filter says which documents may be found, before anything is ranked; nil for all.
	// The statistics stay those of the whole collection.
	Filter *Filter
	// Limit is how many hits are wanted at most.
	Limit int
	// Duplicates lets passages of equal text follow the best of them; without it
	// they are left out.
	Duplicates bool
	// Feedback adds words of the best passages to the query; nil for none.
	Feedback *Feedback
}

// What the words of a conversation weigh in its last question, whose own weigh 1.
// A question that follows others leans on them, less on those longer ago.
const (
	weightUser  = 0.3 // of the user's turn before; each before that has the half
	weightReply = 0.1 // of the last reply
	weightLeast = 0.01
)

// earlier is what was said before a question, and what its words weigh in it.
type earlier struct {
	text   string
	weight float64
	reply  bool
}

// earlierOf are those of a conversation that can weigh something, the latest first.
func earlierOf(history []memory.Message) []earlier {
	var list []earlier
	weight, replied := weightUser, false
	for _, m := range slices.Backward(history) {
		switch {
		case m.Role == memory.RoleUser && weight >= weightLeast:
			list = append(list, earlier{text: m.Content, weight: weight})
			weight /= 2
		case m.Role == memory.RoleAssistant && !replied:
			list = append(list, earlier{text: m.Content, weight: weightReply, reply: true})
			replied = true
		}
	}
	return list
}

// k3 is the parameter of BM25 that says how soon repetitions of a term in a
// question stop to count.
const k3 = 8

// maxTerms bounds the different terms of a query; the lightest are left out.
const maxTerms = 256

// term is a term of a query.
type term struct {
	text    string
	weight  float64
	word    string // the word it was found for
	history bool   // the question itself does not have it
}

// query gives the terms of a question after some turns, the weightiest first.
// A turn adds its weight to a term once; only the question's own repetitions count.
func (a *analyzer) query(question string, past []earlier) []term {
	var terms []term
	places := map[string]int{}
	add := func(text string, weight float64, past bool) {
		counts := map[string]float64{}
		for t, word := range a.in(text) {
			counts[t]++
			if _, known := places[t]; !known {
				places[t] = len(terms)
				terms = append(terms, term{text: t, word: word, history: past})
			}
		}
		for t, n := range counts {
			if past {
				n = 1
			}
			terms[places[t]].weight += weight * (k3 + 1) * n / (k3 + n)
		}
	}
	add(question, 1, false)
	for _, t := range past {
		add(t.text, t.weight, true)
	}
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(b.weight, a.weight) })
	return terms[:min(len(terms), maxTerms)]
}
