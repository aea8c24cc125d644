package rag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"mneme/memory"
)

// Reranker is a model that reads a query and a passage together.
type Reranker interface {
	// Rerank gives a score for each text, in their order; more is better.
	Rerank(ctx context.Context, query string, texts []string) ([]float64, error)
}

// The usual values of RerankOptions.
const (
	DefaultRerankTop     = 50
	DefaultRerankTimeout = 2 * time.Second
)

// RerankOptions say how the best passages of a search get their order from a Reranker.
type RerankOptions struct {
	Reranker Reranker      // nil for none
	Top      int           // passages that it sees; 0 for DefaultRerankTop
	Timeout  time.Duration // of one search; 0 for DefaultRerankTimeout
}

func (o RerankOptions) orDefault() RerankOptions {
	o.Top = cmp.Or(max(o.Top, 0), DefaultRerankTop)
	o.Timeout = cmp.Or(max(o.Timeout, 0), DefaultRerankTimeout)
	return o
}

// Reorder puts the first Top passages into the order of their scores by the Reranker,
// of equal ones the earlier first; the others stay behind them. On an error they stay as
// they were.
func (o RerankOptions) Reorder(ctx context.Context, query string, passages []Passage) error {
	o = o.orDefault()
	first := passages[:min(o.Top, len(passages))]
	if o.Reranker == nil || len(first) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	texts := make([]string, len(first))
	for i, p := range first {
		texts[i] = p.forReranker()
	}
	scores, err := o.Reranker.Rerank(ctx, query, texts)
	if err != nil {
		return fmt.Errorf("reranking %d passages: %w", len(texts), err)
	}
	if len(scores) != len(texts) {
		return fmt.Errorf("reranking %d passages: %d scores came", len(texts), len(scores))
	}
	if slices.ContainsFunc(scores, func(score float64) bool { return math.IsNaN(score) || math.IsInf(score, 0) }) {
		return fmt.Errorf("reranking %d passages: a score is not finite", len(texts))
	}
	for i := range first {
		first[i].RerankScore = &scores[i]
	}
	slices.SortStableFunc(first, func(a, b Passage) int { return cmp.Compare(*b.RerankScore, *a.RerankScore) })
	return nil
}

// forReranker is a passage with the headings that it stands under.
func (p Passage) forReranker() string {
	text := p.Text
	for _, heading := range []string{p.Section, p.Title} {
		if heading != "" {
			text = heading + "\n" + text
		}
	}
	return text
}

// rerank gives the passages of a result their final order and number, of which it keeps
// k. After a failure the order stays, the result is degraded, and an endpoint that was
// slow or away is left alone for a while.
func (l *Library) rerank(ctx context.Context, r *Result, history []memory.Message, k int) {
	if l.o.Rerank.Reranker != nil && len(r.Passages) > 1 {
		if err := l.reorder(ctx, r, history); err != nil {
			r.Degraded = true
			if !errors.Is(err, errMuted) {
				l.o.Log.Warn().Err(err).Msg("the passages of a search keep their order")
			}
		}
	}
	r.Passages = r.Passages[:min(k, len(r.Passages))]
	for i := range r.Passages {
		r.Passages[i].N = i + 1
	}
}

// errMuted says that the reranker failed a moment ago.
var errMuted = errors.New("the reranker is left alone for a while")

func (l *Library) reorder(ctx context.Context, r *Result, history []memory.Message) error {
	if time.Now().UnixNano() < l.rerankMute.Load() {
		return errMuted
	}
	if len(r.FromHistory) == 0 {
		history = nil // it did not lead to this result
	}
	err := l.o.Rerank.Reorder(ctx, RerankQuery(r.Query, history), r.Passages)
	if err != nil && ctx.Err() == nil && !refusal(err) {
		l.rerankMute.Store(time.Now().Add(mutePause).UnixNano())
	}
	return err
}

// RerankQuery is what a reranker is asked: the query, behind the user's question before
// it if there is one. A reranker that saw "and the last one?" alone would order by that.
func RerankQuery(query string, history []memory.Message) string {
	for _, m := range slices.Backward(history) {
		if m.Role == memory.RoleUser {
			return memory.Shorten(m.Content, MaxSearchText) + "\n" + query
		}
	}
	return query
}
