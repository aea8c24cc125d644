package textindex

import (
	"math"
	"slices"
)

// vector has the length 1.
type vector []float32

// unit gives v at length 1, nil if it has no direction.
func unit(v []float32) vector {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil
	}
	length := math.Sqrt(sum)
	u := make(vector, len(v))
	for i, x := range v {
		u[i] = float32(float64(x) / length)
	}
	return u
}

// dot is the inner product of two vectors of one length.
func (v vector) dot(w vector) float64 {
	w = w[:len(v)]
	var a, b, c, d float32 // four sums that do not wait for each other
	i := 0
	for ; i+4 <= len(v); i += 4 {
		a += v[i] * w[i]
		b += v[i+1] * w[i+1]
		c += v[i+2] * w[i+2]
		d += v[i+3] * w[i+3]
	}
	for ; i < len(v); i++ {
		a += v[i] * w[i]
	}
	return float64(a+b) + float64(c+d)
}

// Nearest gives the at most limit passages with vectors that point most in the direction
// of v, by the cosine, best first and of equal texts one; filter is as in Query. Every
// vector is looked at. Passages without a vector, or with one of another length than v's,
// are passed over.
func (s *Snapshot) Nearest(v []float32, limit int, filter *Filter) []Hit {
	target := unit(v)
	if target == nil {
		return nil
	}
	refused := s.refused(filter)
	r := scoring{Snapshot: s, tally: &tally{scores: make([]float64, s.size)}}
	for i, p := range s.parts {
		for passage := range p.lengths {
			if w := p.vector(passage); len(w) == len(target) && !refused[i].has(passage) {
				number := s.bases[i] + passage
				r.scores[number] = target.dot(w)
				r.scored = append(r.scored, int32(number))
			}
		}
	}
	return r.best(limit, false)
}

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
	var fused []Fused
	for n, r := range rankings {
		if r.Weight == 0 {
			continue
		}
		for i, h := range r.Hits {
			key := passage{h.Document, h.Passage}
			pos, ok := places[key]
			if !ok {
				pos = len(fused)
				places[key] = pos
				fused = append(fused, Fused{Hit: Hit{h.Document, h.Passage, 0, h.text}, Ranks: make([]int, len(rankings))})
			}
			fused[pos].Score += r.Weight * score(r.Hits, i)
			fused[pos].Ranks[n] = i + 1
		}
	}
	slices.SortFunc(fused, func(a, b Fused) int { return a.compare(b.Hit) })
	fused = distinct(fused)
	return fused[:max(min(limit, len(fused)), 0)]
}
