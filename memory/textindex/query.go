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
	// Terms bounds the different terms that are looked for, to those that tell passages
	// apart best, for texts that are longer than questions. Terms of very many passages
	// are then left out beside rare ones. 0 for all terms.
	Terms int
	// MaxFrequency leaves terms out that more passages have; 0 for none.
	MaxFrequency int
	// Duplicates lets passages of equal text follow the best of them; without it
	// they are left out.
	Duplicates bool
	// Feedback adds words of the best passages to the query; nil for none.
	Feedback *Feedback
}

// What the words of a conversation weigh in its last question; the question's own weigh
// 1. A question that follows others leans on them, less on those longer ago.
const (
	weightUser  = 0.3 // of the user's turn before; each before that has the half
	weightReply = 0.1 // of the last reply
	weightLeast = 0.01
)

// priorTurn is what was said before a question, and what its words weigh in it.
type priorTurn struct {
	text   string
	weight float64
	reply  bool
}

// priorTurns are those of a conversation that can weigh something, the latest first.
func priorTurns(history []memory.Message) []priorTurn {
	var list []priorTurn
	weight, replied := weightUser, false
	for _, m := range slices.Backward(history) {
		switch {
		case m.Role == memory.RoleUser && weight >= weightLeast:
			list = append(list, priorTurn{text: m.Content, weight: weight})
			weight /= 2
		case m.Role == memory.RoleAssistant && !replied:
			list = append(list, priorTurn{text: m.Content, weight: weightReply, reply: true})
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
	word    word // that it was found for
	history bool // the question itself does not have it
}

// otherWeight is that of another spelling of a word.
const otherWeight = 0.5

// faint words count in a question only if it has no others, as in "Что мне нельзя есть?".
var faint = WordSet("no not nor нельзя есть")

// query gives the terms of a question after some turns, the weightiest first.
// A turn adds its weight to a term once; only the question's own repetitions count.
func (a *analyzer) query(question string, past []priorTurn, lang language) []term {
	var terms []term
	places := map[string]int{}
	add := func(text string, weight float64, past bool) {
		counts := map[string]float64{}
		for n, word := range a.in(text, lang) {
			if past && word.other {
				continue
			}
			t := a.terms[n]
			counts[t]++
			if _, ok := places[t]; !ok {
				places[t] = len(terms)
				terms = append(terms, term{text: t, word: word, history: past})
			}
		}
		for t, n := range counts {
			if past {
				n = 1
			}
			if terms[places[t]].word.other {
				n *= otherWeight
			}
			terms[places[t]].weight += weight * (k3 + 1) * n / (k3 + n)
		}
	}
	add(question, 1, false)
	for _, t := range past {
		add(t.text, t.weight, true)
	}
	if slices.ContainsFunc(terms, func(t term) bool { return !faint[t.word.text] }) {
		terms = slices.DeleteFunc(terms, func(t term) bool { return faint[t.word.text] })
	}
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(b.weight, a.weight) })
	return terms[:min(len(terms), maxTerms)]
}

// QueryTerms are the different terms of a question, and those of each turn before it that may count, the weightiest first.
func QueryTerms(q Query) [][]string {
	a := anAnalyzer()
	defer analyzers.Put(a)
	lists := [][]string{textsOf(a.query(q.Text, nil, anyLanguage))}
	for _, t := range priorTurns(q.History) {
		terms := a.query(t.text, nil, anyLanguage)
		lists = append(lists, textsOf(terms[:min(len(terms), maxTurnTerms)]))
	}
	return lists
}

func textsOf(terms []term) []string {
	list := make([]string, len(terms))
	for i, t := range terms {
		list[i] = t.text
	}
	return list
}

// Which earlier turns count: a chat goes from topic to topic, and the words of one that is over lead a question astray
// that stands by itself. Two texts are on one topic if some passage answers both: the passage's share of the best score
// that the one reaches, times its share of the best that the other reaches, is at least a bound. The more terms a question
// has the better it stands alone, and the higher the bound is. The values are measured (scripts/eval retrieval --topics):
// with them conversations that keep to their topic lose nothing that all of their turns would find among the first twenty.
const (
	relatedShare = 0.3   // of a question of a single term
	relatedTerm  = 0.025 // for each further one
	relatedMost  = 0.5
)

// maxTurnTerms bounds the terms of a turn by which it is compared.
const maxTurnTerms = 64

// related leaves of the turns before a question those that are on its topic: the user's turns back to the first that has
// neither the question's topic nor that of the turn after it, and the last reply if it has the question's. A question of
// which no passage has a word leans on all of them; one of a single term, as "And the price?", on the user's last turn in
// any case.
func (s *Snapshot) related(a *analyzer, question string, past []priorTurn, refused []bitset) []priorTurn {
	if len(past) == 0 {
		return nil
	}
	own := a.query(question, nil, s.language())
	count := 0
	for _, t := range own {
		if !t.word.other {
			count++
		}
	}
	share := min(relatedMost, relatedShare+relatedTerm*float64(count-1))
	base := s.score(s.look(own), refused, 0, 0)
	defer base.release()
	var on []priorTurn
	next := base // the user's turn after t, or the question
	for _, t := range past {
		terms := a.query(t.text, nil, s.language())
		turn := s.score(s.look(terms[:min(len(terms), maxTurnTerms)]), refused, 0, 0)
		defer turn.release()
		switch {
		case base.meets(turn, share) || !t.reply && (next.meets(turn, share) || count == 1 && t.weight == weightUser):
			on = append(on, t)
		case !t.reply:
			return on
		}
		if !t.reply {
			next = turn
		}
	}
	return on
}

// meets says whether a passage's shares of the best scores of both make at least this, or none scores in r at all.
func (r *scoring) meets(other *scoring, share float64) bool {
	var one, two, both float64
	for _, i := range r.scored {
		one = max(one, r.scores[i])
		both = max(both, r.scores[i]*other.scores[i])
	}
	for _, i := range other.scored {
		two = max(two, other.scores[i])
	}
	return one == 0 || two > 0 && both >= share*one*two
}

// Feedback is pseudo-relevance feedback in the manner of RM3: words that are
// frequent in the passages that a query finds first are added to it. It finds more
// where questions and passages differ in their words, and blurs questions that
// were precise.
type Feedback struct {
	// Text gives a passage's text, which the index does not keep; "" if it cannot be
	// had, the passage then adds nothing.
	Text        func(document string, passage int) string
	Weight      float64 // of the added words together, those of the query having the rest of 1; below 1
	MaxStrength float64 // nothing is added to a query of at least this Strength; 0 for no limit
}

// How many passages words are taken from, and how many are added at most.
const feedbackPassages, feedbackTerms = 5, 10

// widen adds the terms of feedback to what a query scored, and gives the factor that makes the
// weights of all terms 1 together. Those of the query stay as they are, so that its terms need
// not be looked up again.
func (r *scoring) widen(a *analyzer, query []sought, f *Feedback) (scale float64) {
	frequent := f.frequent(a, r.best(feedbackPassages, false))
	if len(frequent) == 0 {
		return 1
	}
	own := 0.0
	for _, t := range query {
		own += t.weight
	}
	best := r.gain
	for _, t := range r.look(share(frequent, own*f.Weight/(1-f.Weight))) {
		if t.frequency <= common || t.gain*commonGain >= best {
			r.add(t)
		}
	}
	return (1 - f.Weight) / own
}

// frequent are the terms that passages consist of most, a passage counting by its
// score.
func (f *Feedback) frequent(a *analyzer, hits []Hit) []term {
	weights := map[string]float64{}
	for _, h := range hits {
		words := a.list(f.Text(h.Document, h.Passage))
		for _, t := range words {
			weights[t] += h.Score / float64(len(words))
		}
	}
	var terms []term
	for t, weight := range weights {
		terms = append(terms, term{text: t, weight: weight})
	}
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.text, b.text))
	})
	return terms[:min(feedbackTerms, len(terms))]
}

// share scales the weights of terms to a sum.
func share(terms []term, sum float64) []term {
	total := 0.0
	for _, t := range terms {
		total += t.weight
	}
	scaled := slices.Clone(terms)
	for i := range scaled {
		scaled[i].weight *= sum / total
	}
	return scaled
}
