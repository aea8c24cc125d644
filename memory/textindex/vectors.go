package textindex

import "math"

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

// Nearest gives the at most limit passages whose vectors point most in the
// direction of v, by the cosine, best first and of equal texts one; filter is as in
// Query. Every vector is looked at. Passages without a vector, or with one of
// another length than v's, are passed over.
func (s *Snapshot) Nearest(v []float32, limit int, filter *Filter) []Hit {
	wanted := unit(v)
	if wanted == nil {
		return nil
	}
	refused := s.refused(filter)
	r := scoring{Snapshot: s, scores: make([]float64, s.size), none: math.Inf(-1)}
	for i, p := range s.parts {
		for passage := range p.lengths {
			score := r.none
			if w := p.vector(passage); len(w) == len(wanted) && !refused[i].has(passage) {
				score = wanted.dot(w)
			}
			r.scores[s.bases[i]+passage] = score
		}
	}
	return r.best(limit, false)
}
