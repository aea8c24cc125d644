package textindex

import (
	"slices"
)

// Ranking is a list of hits, best first, to be fused with others.
type Ranking struct {
	Hits   []Hit
	Weight float64 // against the other rankings; with 0 it says nothing
}

// Fused is a hit of several rankings. Its score is that of the fusion.
type Fused struct {
	Hit
	Ranks []int // in each ranking, from 1; 0 where it is not
}

// FuseScores joins rankings by the weighted sum of their scores, which are
// stretched to 0 for the last hit and 1 for the first of each ranking, and all 1
// if they are equal. It gives the limit best, of passages with equal texts one.
func FuseScores(limit int, rankings ...Ranking) []Fused {
	return fuse(limit, rankings, func(hits []Hit, i int) float64 {
		least, most := hits[len(hits)-1].Score, hits[0].Score
		if least == most {
			return 1
		}
		return (hits[i].Score - least) / (most - least)
	})
}

// rrf is how little the first ranks stand out in FuseRanks.
const rrf = 60

// FuseRanks joins rankings by reciprocal ranks: a hit scores weight/(60+rank) in
// each. It gives the limit best, of passages with equal texts one.
func FuseRanks(limit int, rankings ...Ranking) []Fused {
	return fuse(limit, rankings, func(_ []Hit, i int) float64 { return 1 / float64(rrf+i+1) })
}

// fuse joins rankings by the weighted sum of what score says of each hit.
func fuse(limit int, rankings []Ranking, score func(hits []Hit, i int) float64) []Fused {
	type passage struct {
		document string
		number   int
	}
	places := map[passage]int{}
	var all []Fused
	for n, r := range rankings {
		if r.Weight == 0 {
			continue
		}
		for i, h := range r.Hits {
			key := passage{h.Document, h.Passage}
			at, known := places[key]
			if !known {
				at = len(all)
				places[key] = at
				all = append(all, Fused{Hit: Hit{h.Document, h.Passage, 0, h.text}, Ranks: make([]int, len(rankings))})
			}
			all[at].Score += r.Weight * score(r.Hits, i)
			all[at].Ranks[n] = i + 1
		}
	}
	slices.SortFunc(all, func(a, b Fused) int { return a.compare(b.Hit) })
	all = distinct(all)
	return all[:max(min(limit, len(all)), 0)]
}
