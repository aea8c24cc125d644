// Package index finds the passages whose words match a query best. It knows
// neither files nor models: texts go in, ranks come out.
//
// The unit is the Segment, the index of the texts that come and go together (one
// file's passages). A search runs over any set of segments with the statistics of
// exactly that set, so that replacing one file costs only that file, and texts
// outside of the set leave no trace in a score.
package index

import (
	"cmp"
	"math"
	"slices"
)

// The parameters of BM25: how soon repetitions of a term stop to count, and how
// much a long text is discounted.
const (
	k1 = 1.2
	b  = 0.75
)

// Segment is an immutable index of some texts; the zero value has none.
type Segment struct {
	postings map[string][]posting
	lengths  []int // terms of each text
	total    int   // terms of all texts
}

// posting says how often a term stands in a text.
type posting struct {
	text  int32
	count int32
}

// Build indexes the texts; their positions identify them in hits.
func Build(texts []string) *Segment {
	s := &Segment{postings: map[string][]posting{}, lengths: make([]int, len(texts))}
	stems := map[string]string{}
	for i, text := range texts {
		for _, term := range terms(text, stems) {
			list := s.postings[term]
			if n := len(list); n > 0 && list[n-1].text == int32(i) {
				list[n-1].count++
			} else {
				s.postings[term] = append(list, posting{text: int32(i), count: 1})
			}
			s.lengths[i]++
		}
		s.total += s.lengths[i]
	}
	return s
}

// Hit is a text that matches a query.
type Hit struct {
	Segment int // position among the segments searched
	Text    int // position among the segment's texts
	Score   float64
}

// Search gives the at most limit best hits for a query by BM25, best first and,
// among equals, in the order of segments and texts. Texts that share no term with
// the query are no hits; a repeated term of the query counts once.
func Search(segments []*Segment, query string, limit int) []Hit {
	texts, length := 0, 0
	for _, s := range segments {
		texts += len(s.lengths)
		length += s.total
	}
	average := float64(length) / float64(max(texts, 1))
	type place struct{ segment, text int }
	scores := map[place]float64{}
	wanted := Terms(query)
	slices.Sort(wanted)
	for _, term := range slices.Compact(wanted) {
		frequency := 0
		for _, s := range segments {
			frequency += len(s.postings[term])
		}
		weight := math.Log(1 + (float64(texts-frequency)+0.5)/(float64(frequency)+0.5))
		for i, s := range segments {
			for _, p := range s.postings[term] {
				n := float64(p.count)
				norm := k1 * (1 - b + b*float64(s.lengths[p.text])/average)
				scores[place{i, int(p.text)}] += weight * n * (k1 + 1) / (n + norm)
			}
		}
	}
	hits := make([]Hit, 0, len(scores))
	for at, score := range scores {
		hits = append(hits, Hit{at.segment, at.text, score})
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Text, b.Text))
	})
	return hits[:min(limit, len(hits))]
}
