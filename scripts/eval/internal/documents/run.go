package documents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mneme/memory/textindex"
	"mneme/scripts/eval/internal/embedding"
	"mneme/scripts/eval/internal/judged"
	"mneme/subagent/rag"
)

// Options say what to measure.
type Options struct {
	Feedback bool // measure the index with pseudo-relevance feedback too
	Topics   bool // measure each wording behind conversations on other topics too
	// Endpoint makes it measure vectors too: alone, and joined with words by Fusion, at each
	// of the Weights; nil for none.
	Endpoint *embedding.Endpoint
	Weights  []float64
	Fusion   rag.Fusion
	// Rerank makes it measure a reranker too: behind the words and, if there are vectors,
	// behind the fusion at the middle one of the Weights.
	Rerank rag.RerankOptions
	Limit  int // documents of a set at most, see Set.limit; 0 for all
	// Progress is told what is being done; nil for no report.
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
	// Doubted is the part of the queries with a result that was called weak or empty though
	// a relevant document is there; nil where nothing is called so.
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
	for _, folder := range folders {
		o.Progress("reading " + folder)
		s, err := load(folder)
		if err != nil {
			return nil, err
		}
		s.limit(o.Limit)
		rows, err := s.measure(ctx, o)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	if o.Endpoint != nil {
		report.Embedded = &o.Endpoint.Report
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

func (s *Set) measure(ctx context.Context, o Options) ([]Row, error) {
	o.Progress(fmt.Sprintf("%s: indexing %d documents", s.Name, len(s.documents)))
	vectors, err := s.vectors(ctx, o.Endpoint)
	if err != nil {
		return nil, err
	}
	c := s.collection(vectors)
	textbook := s.textbook()
	words := way{wayMneme, func(_ context.Context, q query) (ranked, error) { return find(c, q, nil), nil }, true}
	ways := []way{
		words, {wayPlain, func(_ context.Context, q query) (ranked, error) { return ranked{ids: textbook(q.text)}, nil },
			false},
	}
	if o.Feedback {
		feedback := &textindex.Feedback{Text: s.texts(), Weight: 0.3}
		ways = append(ways, way{wayFeedback, func(_ context.Context, q query) (ranked, error) {
			return find(c, q, feedback), nil
		}, true})
	}
	ways = append(ways, s.withEndpoints(words, c, o)...)
	timed := o.Endpoint != nil || o.Rerank.Reranker != nil
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
		result, err := w.rank(ctx, q)
		if err != nil {
			return Row{}, fmt.Errorf("%s, query %s: %w", s.Name, q.id, err)
		}
		times = append(times, float64(time.Since(began)+result.took)/float64(time.Millisecond))
		row.add(measure(result.ids, s.grades[q.id]), 1/float64(len(f.queries)))
		if result.doubted {
			doubted++
		}
		if result.failed {
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

// textbook ranks by BM25 as textbooks have it over the same terms, to compare with: a title is
// text like any other, a question is its last turn. It shares nothing with the index but the terms.
func (s *Set) textbook() func(question string) (ids []string) {
	text, texts := s.texts(), make([]string, len(s.documents))
	for i, d := range s.documents {
		texts[i] = text(d.ID, 0)
	}
	bm25 := judged.NewBM25(texts, textindex.Terms)
	byID := func(i, j int) int { return cmp.Compare(s.documents[i].ID, s.documents[j].ID) }
	return func(question string) (ids []string) {
		order := bm25.Rank(question, byID)
		for _, i := range order[:min(depth, len(order))] {
			ids = append(ids, s.documents[i].ID)
		}
		return ids
	}
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

// The ways to rank that ask endpoints.
const (
	wayVectors  = "vectors"
	wayFused    = "words + vectors" // and the weight of the vectors
	wayReranked = ", reranked"      // behind another way
)

// vectors are those of the documents, made of what searches make them of: the text
// without its title. nil without an endpoint.
func (s *Set) vectors(ctx context.Context, e *embedding.Endpoint) ([][]float32, error) {
	if e == nil {
		return nil, nil
	}
	texts := make([]string, len(s.documents))
	for i, d := range s.documents {
		texts[i] = d.Text
	}
	return e.Texts(ctx, s.Name, texts)
}

// withEndpoints are the ways that ask the endpoints of the options.
func (s *Set) withEndpoints(words way, c *textindex.Collection, o Options) []way {
	var ways []way
	toRerank := []way{words}
	if o.Endpoint != nil {
		ways = append(ways, way{name: wayVectors, rank: func(ctx context.Context, q query) (ranked, error) {
			v, err := o.Endpoint.Query(ctx, q.text)
			return ranked{ids: idsOf(c.Snapshot().Nearest(v.Vector, depth, nil)), took: v.Took, failed: v.Vector == nil}, err
		}})
		for i, weight := range o.Weights {
			w := fused(c, o.Fusion, weight, o.Endpoint)
			ways = append(ways, w)
			if i == len(o.Weights)/2 {
				toRerank = append(toRerank, w)
			}
		}
	}
	if o.Rerank.Reranker != nil {
		r := reranking{options: o.Rerank, documents: map[string]document{}}
		for _, d := range s.documents {
			r.documents[d.ID] = d
		}
		for _, w := range toRerank {
			ways = append(ways, way{name: w.name + wayReranked, rank: r.wrap(w)})
		}
	}
	return ways
}

// fused is the ranking of a hybrid search.
func fused(c *textindex.Collection, fusion rag.Fusion, weight float64, e *embedding.Endpoint) way {
	return way{name: wayFused + " " + strconv.FormatFloat(weight, 'g', -1, 64),
		rank: func(ctx context.Context, q query) (ranked, error) {
			v, err := e.Query(ctx, q.text)
			if err != nil {
				return ranked{}, err
			}
			words := c.Search(textindex.Query{Text: q.text, History: q.history, Limit: rag.VectorHits})
			result := ranked{took: v.Took, failed: v.Vector == nil}
			nearest := c.Snapshot().Nearest(v.Vector, rag.VectorHits, nil)
			for _, hit := range fusion.Fuse(depth, words.Hits, nearest, weight) {
				result.ids = append(result.ids, hit.Document)
			}
			return result, nil
		}}
}

// reranking orders what another way found by a reranker.
type reranking struct {
	options   rag.RerankOptions
	documents map[string]document
	failures  int // one after the other
}

// giveUp is after how many failures, one after the other, nothing more is asked.
const giveUp = 3

func (r *reranking) wrap(w way) func(context.Context, query) (ranked, error) {
	return func(ctx context.Context, q query) (ranked, error) {
		result, err := w.rank(ctx, q)
		if err != nil {
			return result, err
		}
		passages := make([]rag.Passage, len(result.ids))
		for i, id := range result.ids {
			d := r.documents[id]
			passages[i] = rag.Passage{DocID: id, Title: d.Title, Text: d.Text}
		}
		err = r.options.Reorder(ctx, rag.RerankQuery(q.text, q.history), passages)
		switch {
		case err != nil && ctx.Err() != nil:
			return result, context.Cause(ctx)
		case err != nil:
			result.failed = true
			if r.failures++; r.failures == giveUp {
				return result, fmt.Errorf("%d queries one after the other: %w", giveUp, err)
			}
			return result, nil
		}
		r.failures = 0
		for i, p := range passages {
			result.ids[i] = p.DocID
		}
		return result, nil
	}
}
