package evaluate

import (
	"context"
	"fmt"
	"strconv"

	"mneme/memory/textindex"
	"mneme/subagent/rag"
)

// The ways to rank that ask endpoints.
const (
	wayVectors  = "vectors"
	wayFused    = "words + vectors" // and the weight of the vectors
	wayReranked = ", reranked"      // behind another way
)

// vectors are those of the documents, made of what searches make them of: the text
// without its title. nil without an Embedder.
func (s *Set) vectors(ctx context.Context, e *embedding) ([][]float32, error) {
	if e.embedder == nil {
		return nil, nil
	}
	texts := make([]string, len(s.documents))
	for i, d := range s.documents {
		texts[i] = d.Text
	}
	return e.documents(ctx, s.Name, texts)
}

// withEndpoints are the ways that ask the endpoints of the options.
func (s *Set) withEndpoints(words way, c *textindex.Collection, o Options, e *embedding) []way {
	var ways []way
	toRerank := []way{words}
	if o.Embedder != nil {
		ways = append(ways, way{name: wayVectors, rank: func(ctx context.Context, q query) (ranked, error) {
			v, err := e.query(ctx, q.text)
			return ranked{ids: idsOf(c.Snapshot().Nearest(v.vector, depth, nil)), took: v.took, failed: v.vector == nil}, err
		}})
		for i, weight := range o.Weights {
			w := fused(c, o.Fusion, weight, e)
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
			ways = append(ways, way{name: w.name + wayReranked, rank: r.behind(w)})
		}
	}
	return ways
}

// fused is the ranking of a hybrid search.
func fused(c *textindex.Collection, by rag.Fusion, weight float64, e *embedding) way {
	fuse := textindex.FuseScores
	if by == rag.ReciprocalRanks {
		fuse = textindex.FuseRanks
	}
	return way{name: wayFused + " " + strconv.FormatFloat(weight, 'g', -1, 64),
		rank: func(ctx context.Context, q query) (ranked, error) {
			v, err := e.query(ctx, q.text)
			if err != nil {
				return ranked{}, err
			}
			words := c.Search(textindex.Query{Text: q.text, History: q.history, Limit: rag.VectorHits})
			found := ranked{took: v.took, failed: v.vector == nil}
			for _, hit := range fuse(depth, textindex.Ranking{Hits: words.Hits, Weight: 1 - weight},
				textindex.Ranking{Hits: c.Snapshot().Nearest(v.vector, rag.VectorHits, nil), Weight: weight}) {
				found.ids = append(found.ids, hit.Document)
			}
			return found, nil
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

func (r *reranking) behind(w way) func(context.Context, query) (ranked, error) {
	return func(ctx context.Context, q query) (ranked, error) {
		found, err := w.rank(ctx, q)
		if err != nil {
			return found, err
		}
		passages := make([]rag.Passage, len(found.ids))
		for i, id := range found.ids {
			d := r.documents[id]
			passages[i] = rag.Passage{DocID: id, Title: d.Title, Text: d.Text}
		}
		err = r.options.Reorder(ctx, rag.RerankQuery(q.text, q.history), passages)
		switch {
		case err != nil && ctx.Err() != nil:
			return found, context.Cause(ctx)
		case err != nil:
			found.failed = true
			if r.failures++; r.failures == giveUp {
				return found, fmt.Errorf("%d queries one after the other: %w", giveUp, err)
			}
			return found, nil
		}
		r.failures = 0
		for i, p := range passages {
			found.ids[i] = p.DocID
		}
		return found, nil
	}
}
