package textindex

import (
	"cmp"
	"slices"
)

// Feedback is pseudo-relevance feedback in the manner of RM3: words that are
// frequent in the passages that a query finds first are added to it. It finds more
// where questions and passages differ in their words, and blurs questions that
// were precise.
type Feedback struct {
	// Text gives a passage's text, which the index does not keep; "" if it cannot be
	// had, the passage then adds nothing.
	Text     func(document string, passage int) string
	Passages int     // that words are taken from; 0 or less for 5
	Terms    int     // that are added at most; 0 or less for 10
	Weight   float64 // of the added words together, those of the query having the rest of 1; 0 for 0.3
}

func (f Feedback) withDefaults() Feedback {
	return Feedback{
		Text:     f.Text,
		Passages: cmp.Or(max(f.Passages, 0), 5),
		Terms:    cmp.Or(max(f.Terms, 0), 10),
		Weight:   cmp.Or(f.Weight, 0.3),
	}
}

// widen gives a query with the added terms.
func (f Feedback) widen(a *analyzer, query []term, found []Hit) []term {
	frequent := f.frequent(a, found)
	if len(frequent) == 0 {
		return query
	}
	places := map[string]int{}
	var wider []term
	for _, t := range share(query, 1-f.Weight) {
		places[t.text] = len(wider)
		wider = append(wider, t)
	}
	for _, t := range share(frequent, f.Weight) {
		if i, known := places[t.text]; known {
			wider[i].weight += t.weight
		} else {
			wider = append(wider, t)
		}
	}
	return wider
}

// frequent are the terms that passages consist of most, a passage counting by its
// score.
func (f Feedback) frequent(a *analyzer, found []Hit) []term {
	weights := map[string]float64{}
	for _, h := range found {
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
	return terms[:min(f.Terms, len(terms))]
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
