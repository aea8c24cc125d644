package evaluate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"mneme/memory/textindex"
	"mneme/subagent/rag"
)

// Options say what to measure.
type Options struct {
	Feedback bool // measure the index with pseudo-relevance feedback too
	Topics   bool // measure each wording behind conversations on other topics too
	// Embedder makes it measure vectors too: alone, and joined with words by Fusion, at
	// each of the Weights. Vectors keeps those of the documents; nil for nowhere.
	Embedder Embedder
	Weights  []float64
	Fusion   rag.Fusion
	Vectors  *VectorFile
	// Rerank makes it measure a reranker too: behind the words and, if there are vectors,
	// behind the fusion at the middle one of the Weights.
	Rerank rag.RerankOptions
	Limit  int // documents of a set at most, see Set.limit; 0 for all
	// Progress is told what is being done; nil if nobody wants to know.
	Progress func(string)
}

// The ways to rank.
const (
	wayMneme    = "mneme"
	wayFeedback = "mneme --prf"
	wayPlain    = "plain BM25"
)

// Row is what one way to rank reached with one wording of the queries of a set.
type Row struct {
	Set       string `json:"set"`
	Documents int    `json:"documents"`
	Form      string `json:"form"` // the wording: conversations, queries, queries_…
	Queries   int    `json:"queries"`
	Way       string `json:"ranking"`
	Measures
	// Doubted is the part of the queries whose result was called weak or empty
	// though a relevant document is there; nil where nothing is called so.
	Doubted *float64 `json:"doubted,omitempty"`
	// MedianMS is how long a query takes, the endpoints' part included, and Failed the
	// queries that an endpoint did not serve; nil where none is measured.
	MedianMS *float64 `json:"median_ms,omitempty"`
	Failed   *int     `json:"failed,omitempty"`
}

// Run measures the sets in these folders, one after the other.
func Run(ctx context.Context, folders []string, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	report := &Report{}
	e := &embedding{embedder: o.Embedder, file: o.Vectors, progress: o.Progress, queries: map[string]timed{}}
	for _, folder := range folders {
		o.Progress("reading " + folder)
		s, err := Load(folder)
		if err != nil {
			return nil, err
		}
		s.limit(o.Limit)
		rows, err := s.measure(ctx, o, e)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	if o.Embedder != nil {
		report.Embedded = &e.report
	}
	report.Limit = o.Limit
	if o.Limit == 0 {
		report.judge()
	}
	return report, nil
}

// ranked is what a way found for a query.
type ranked struct {
	ids     []string
	doubted bool          // the result was called weak or empty
	took    time.Duration // of what was asked of an endpoint before, and belongs to this
	failed  bool          // an endpoint did not serve the query
}

// way ranks documents for a query.
type way struct {
	name   string
	rank   func(ctx context.Context, q query) (ranked, error)
	doubts bool // whether it can tell what is doubted
}

func (s *Set) measure(ctx context.Context, o Options, e *embedding) ([]Row, error) {
	o.Progress(fmt.Sprintf("%s: indexing %d documents", s.Name, len(s.documents)))
	vectors, err := s.vectors(ctx, e)
	if err != nil {
		return nil, err
	}
	c := s.collection(vectors)
	textbook := newPlain(s.documents)
	words := way{wayMneme, func(_ context.Context, q query) (ranked, error) { return find(c, q, nil), nil }, true}
	ways := []way{
		words, {wayPlain, func(_ context.Context, q query) (ranked, error) { return ranked{ids: textbook.rank(q.text)}, nil },
			false},
	}
	if o.Feedback {
		feedback := &textindex.Feedback{Text: s.texts()}
		ways = append(ways, way{wayFeedback, func(_ context.Context, q query) (ranked, error) {
			return find(c, q, feedback), nil
		}, true})
	}
	ways = append(ways, s.withEndpoints(words, c, o, e)...)
	timed := o.Embedder != nil || o.Rerank.Reranker != nil
	forms := s.forms
	if o.Topics {
		forms = nil
		for _, f := range s.forms {
			forms = append(forms, f, s.afterOthers(f))
		}
	}
	var rows []Row
	for _, f := range forms {
		for _, w := range ways {
			o.Progress(fmt.Sprintf("%s: %d %s, %s", s.Name, len(f.queries), f.name, w.name))
			row, err := s.row(ctx, f, w, timed)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *Set) row(ctx context.Context, f form, w way, timed bool) (Row, error) {
	row := Row{Set: s.Name, Documents: len(s.documents), Form: f.name, Queries: len(f.queries), Way: w.name}
	doubted, failed := 0, 0
	var times []float64
	for _, q := range f.queries {
		if ctx.Err() != nil {
			return Row{}, context.Cause(ctx)
		}
		began := time.Now()
		found, err := w.rank(ctx, q)
		if err != nil {
			return Row{}, fmt.Errorf("%s, query %s: %w", s.Name, q.id, err)
		}
		times = append(times, float64(time.Since(began)+found.took)/float64(time.Millisecond))
		row.add(measure(found.ids, s.grades[q.id]), 1/float64(len(f.queries)))
		if found.doubted {
			doubted++
		}
		if found.failed {
			failed++
		}
	}
	if w.doubts {
		share := float64(doubted) / float64(len(f.queries))
		row.Doubted = &share
	}
	if timed && len(times) > 0 {
		slices.Sort(times)
		row.MedianMS, row.Failed = &times[len(times)/2], &failed
	}
	return row, nil
}

// collection indexes each document as one passage, which is what was judged, with its
// vector if there is one.
func (s *Set) collection(vectors [][]float32) *textindex.Collection {
	documents := make([]textindex.Document, len(s.documents))
	for i, d := range s.documents {
		documents[i] = textindex.Document{ID: d.ID, Title: d.Title, Passages: []textindex.Passage{{Text: d.Text}}}
		if vectors != nil {
			documents[i].Passages[0].Vector = vectors[i]
		}
	}
	c := textindex.NewCollection()
	c.Put(documents...)
	return c
}

// texts gives the documents' texts.
func (s *Set) texts() func(id string, passage int) string {
	texts := map[string]string{}
	for _, d := range s.documents {
		texts[d.ID] = d.Title + "\n" + d.Text
	}
	return func(id string, _ int) string { return texts[id] }
}

// find ranks by the index. Documents of equal text stay, since the judges saw them.
func find(c *textindex.Collection, q query, feedback *textindex.Feedback) ranked {
	result := c.Search(textindex.Query{Text: q.text, History: q.history, Limit: depth, Duplicates: true,
		Feedback: feedback})
	return ranked{ids: idsOf(result.Hits), doubted: result.Status != textindex.StatusOK}
}

func idsOf(hits []textindex.Hit) (ids []string) {
	for _, h := range hits {
		ids = append(ids, h.Document)
	}
	return ids
}
