package evaluate

import (
	"cmp"
	"math"
	"slices"

	"mneme/memory/textindex"
)

// plain is BM25 as textbooks have it, over the same terms, to compare with: a title
// is text like any other, a question is its last turn, and a term of the question
// counts as often as it is there. It shares nothing with the index but the terms.
type plain struct {
	ids     []string
	lengths []float64
	average float64
	holders map[string][]holder // by term
}

// holder is a document that has a term.
type holder struct {
	document int
	times    float64
}

func newPlain(documents []document) *plain {
	p := &plain{holders: map[string][]holder{}}
	total := 0
	for i, d := range documents {
		terms := textindex.Terms(d.Title + "\n" + d.Text)
		for _, t := range terms {
			list := p.holders[t]
			if n := len(list); n > 0 && list[n-1].document == i {
				list[n-1].times++
			} else {
				p.holders[t] = append(list, holder{i, 1})
			}
		}
		total += len(terms)
		p.ids = append(p.ids, d.ID)
		p.lengths = append(p.lengths, float64(len(terms)))
	}
	p.average = float64(total) / float64(len(documents))
	return p
}

// rank gives the ids of the best documents.
func (p *plain) rank(question string) []string {
	const k1, b = 1.2, 0.75
	scores := map[int]float64{}
	for _, t := range textindex.Terms(question) {
		holders := float64(len(p.holders[t]))
		idf := math.Log(1 + (float64(len(p.ids))-holders+0.5)/(holders+0.5))
		for _, h := range p.holders[t] {
			length := p.lengths[h.document] / p.average
			scores[h.document] += idf * h.times * (k1 + 1) / (h.times + k1*(1-b+b*length))
		}
	}
	var order []int
	for i := range scores {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(scores[j], scores[i]), cmp.Compare(p.ids[i], p.ids[j]))
	})
	var ids []string
	for _, i := range order[:min(depth, len(order))] {
		ids = append(ids, p.ids[i])
	}
	return ids
}
