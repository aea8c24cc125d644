package documents

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"mneme/scripts/eval/internal/embedding"
)

// Report is what a run measured. Without endpoints it is the same on every run.
type Report struct {
	Rows     []Row             `json:"rows"`
	Embedded *embedding.Report `json:"embedded,omitempty"` // what the endpoint of embeddings was asked
	Limit    int               `json:"limit,omitempty"`    // documents of a set; the figures are then of that part
	Reaches  []Reach           `json:"reaches"`            // of the sets measured
}

// Reach is one aim and whether this run met it.
type Reach struct {
	Set      string  `json:"set"`
	Way      string  `json:"ranking"`
	Measure  string  `json:"measure"`
	Measured float64 `json:"measured"`
	AtLeast  float64 `json:"reach"`
	Met      bool    `json:"met"`
}

// aim is what is to be reached on a set, known by its folder's name, with the
// wording of the queries that counts.
type aim struct {
	set, way, measure string
	metric            func(Measures) float64
	atLeast           float64
}

var aims = []aim{
	{"cranfield", wayMneme, "nDCG@10", Measures.ndcg10, 0.368},
	{"cranfield", wayMneme, "Recall@100", Measures.recall100, 0.745},
	{"cacm", wayMneme, "MAP", Measures.meanPrecision, 0.32},
	{"cacm", wayFeedback, "MAP", Measures.meanPrecision, 0.36},
	{"xquad-ru", wayMneme, "MRR@10", Measures.mrr10, 0.94},
	{"mtrag-mini", wayMneme, "nDCG@10", Measures.ndcg10, 0.61},
	{"mtrag-mini", wayMneme, "Recall@5", Measures.recall5, 0.62},
}

func (m Measures) ndcg10() float64        { return m.NDCG10 }
func (m Measures) recall100() float64     { return m.Recall100 }
func (m Measures) recall5() float64       { return m.Recall5 }
func (m Measures) meanPrecision() float64 { return m.MAP }
func (m Measures) mrr10() float64         { return m.MRR10 }

func (r *Report) judge() {
	r.Reaches = []Reach{}
	for _, a := range aims {
		for _, row := range r.Rows {
			if row.Set != a.set || row.Way != a.way {
				continue
			}
			value := a.metric(row.Measures)
			r.Reaches = append(r.Reaches, Reach{a.set, a.way, a.measure, value, a.atLeast, value >= a.atLeast})
			break // the first wording counts
		}
	}
}

// WriteText prints the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "SET\tDOCUMENTS\tQUERIES\tWORDING\tRANKING\tnDCG@10\tRecall@100\tRecall@5\tMAP\tMRR@10\tDOUBTED")
	timed := len(r.Rows) > 0 && r.Rows[0].MedianMS != nil
	if timed {
		fmt.Fprint(t, "\tMS/QUERY\tFAILED")
	}
	fmt.Fprintln(t)
	for _, row := range r.Rows {
		doubted := "–"
		if row.Doubted != nil {
			doubted = fmt.Sprintf("%.1f %%", *row.Doubted*100)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%s", row.Set, row.Documents, row.Queries,
			row.Form, row.Way, row.NDCG10, row.Recall100, row.Recall5, row.MAP, row.MRR10, doubted)
		if timed {
			fmt.Fprintf(t, "\t%.1f\t%d", *row.MedianMS, *row.Failed)
		}
		fmt.Fprintln(t)
	}
	t.Flush() // into memory
	fmt.Fprintf(&b, `
%s: the index with its defaults; conversations weigh their earlier turns in, equal texts stay.
%s: BM25 as textbooks have it over the same terms; titles are text like any other, of a conversation only the last turn counts.
DOUBTED: queries whose result was called weak or empty though a relevant document is there.
`, wayMneme, wayPlain)
	if timed {
		r.writeEndpoints(&b)
	}
	if len(r.Reaches) > 0 {
		fmt.Fprintln(&b, "\nWhat is to be reached, and whether this run did")
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, reach := range r.Reaches {
			met := "no"
			if reach.Met {
				met = "yes"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.4f\t≥ %.3f\n", met, reach.Set, reach.Way, reach.Measure, reach.Measured,
				reach.AtLeast)
		}
		t.Flush()
	}
	_, err := b.WriteTo(out)
	return err
}

// writeEndpoints explains the rows of endpoints, and says what these were asked.
func (r *Report) writeEndpoints(b *bytes.Buffer) {
	fmt.Fprintf(b, `%s: the nearest vectors alone, of a conversation those of the last turn.
%s W: words and vectors joined as searches do it, W being the vectors' part (retrieval.vector_weight); of equal texts one.
MS/QUERY: median, with the time of the endpoints. FAILED: queries that an endpoint did not serve; they keep the ranking without it.
`, wayVectors, wayFused)
	if r.Embedded != nil {
		fmt.Fprint(b, r.Embedded)
	}
	if r.Limit > 0 {
		fmt.Fprintf(b,
			"Measured on at most %d documents of each set: the rankings compare with each other, not with those of the whole "+
				"set.\n", r.Limit)
	}
}

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
	total := float64(relevant(grades))
	hits := 0.0
	for i, id := range ranking {
		grade := grades[id]
		if grade <= 0 {
			continue
		}
		rank := float64(i + 1)
		hits++
		m.MAP += hits / rank / total
		if i < 5 {
			m.Recall5 += 1 / total
		}
		if i < 10 {
			m.NDCG10 += gain(grade, i)
		}
		if i < 10 && hits == 1 {
			m.MRR10 = 1 / rank
		}
		if i < 100 {
			m.Recall100 += 1 / total
		}
	}
	m.NDCG10 /= ideal(grades)
	return m
}

// gain is what a document at a place, from 0, adds to the discounted gain.
func gain(grade, place int) float64 { return float64(grade) / math.Log2(float64(place+2)) }

// ideal is the gain of the first ten in the best order.
func ideal(grades map[string]int) float64 {
	var sorted []int
	for _, grade := range grades {
		sorted = append(sorted, max(grade, 0))
	}
	slices.Sort(sorted)
	slices.Reverse(sorted)
	sum := 0.0
	for place, grade := range sorted[:min(10, len(sorted))] {
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
