package evaluate

import (
	"math"
	"slices"
)

// Measures are means over the queries, each from 0 to 1.
type Measures struct {
	NDCG10    float64 `json:"ndcg_at_10"` // with the grade itself as gain
	Recall100 float64 `json:"recall_at_100"`
	Recall5   float64 `json:"recall_at_5"`
	MAP       float64 `json:"map"` // of the first 1,000
	MRR10     float64 `json:"mrr_at_10"`
}

// depth is how many documents are ranked for a query.
const depth = 1000

// relevant counts the relevant documents.
func relevant(grades map[string]int) int {
	n := 0
	for _, grade := range grades {
		if grade > 0 {
			n++
		}
	}
	return n
}

// measure judges a ranking of documents by their grades, of which one at least is
// relevant. The definitions are those of trec_eval.
func measure(ranking []string, grades map[string]int) Measures {
	var m Measures
	all := float64(relevant(grades))
	found := 0.0
	for i, id := range ranking {
		grade := grades[id]
		if grade <= 0 {
			continue
		}
		rank := float64(i + 1)
		found++
		m.MAP += found / rank / all
		if i < 5 {
			m.Recall5 += 1 / all
		}
		if i < 10 {
			m.NDCG10 += gain(grade, i)
		}
		if i < 10 && found == 1 {
			m.MRR10 = 1 / rank
		}
		if i < 100 {
			m.Recall100 += 1 / all
		}
	}
	m.NDCG10 /= ideal(grades)
	return m
}

// gain is what a document at a place, from 0, adds to the discounted gain.
func gain(grade, place int) float64 { return float64(grade) / math.Log2(float64(place+2)) }

// ideal is the gain of the first ten in the best order.
func ideal(grades map[string]int) float64 {
	var all []int
	for _, grade := range grades {
		all = append(all, max(grade, 0))
	}
	slices.Sort(all)
	slices.Reverse(all)
	sum := 0.0
	for place, grade := range all[:min(10, len(all))] {
		sum += gain(grade, place)
	}
	return sum
}

func (m *Measures) add(other Measures, weight float64) {
	m.NDCG10 += other.NDCG10 * weight
	m.Recall100 += other.Recall100 * weight
	m.Recall5 += other.Recall5 * weight
	m.MAP += other.MAP * weight
	m.MRR10 += other.MRR10 * weight
}
