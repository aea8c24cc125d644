package rag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// Limits of a search.
const (
	DefaultK      = 10      // passages of a search by itself
	MaxK          = 100     // the most that one search gives
	MaxSearchText = 4 << 10 // bytes of a query
	maxHistory    = 64      // turns of a conversation that are looked at
)

// Request is what to look for, and where.
type Request struct {
	// Collections must name at least one; each must be there.
	Collections []docstore.Collection
	// Query is the last turn of the conversation, History what was said before it,
	// oldest first.
	Query   string
	History []memory.Message
	Where   Where // which documents may be found, by their metadata; nil for all
	K       int   // how many passages at most, 1 to MaxK; 0 for DefaultK
}

// Result is what a search found.
type Result struct {
	Status textindex.Status `json:"status"` // ok, weak or empty
	Query  string           `json:"query"`
	// FromHistory are the words that the query had from the conversation only.
	FromHistory []string `json:"query_terms_from_history"`
	Collection  string   `json:"collection"` // of several the names, with commas
	// IndexVersion is the collection's version, of several their sum: it grows with
	// every change.
	IndexVersion int64 `json:"index_version"`
	// Degraded: the store, or a part of the search, could not be asked; this is from
	// what was known before.
	Degraded bool      `json:"degraded"`
	Passages []Passage `json:"passages"` // best first
	// InjectionSignals counts what in the passages looks like an attempt to give
	// orders; only where they are for a model.
	InjectionSignals int    `json:"injection_signals,omitempty"`
	Rule             string `json:"rule,omitempty"` // behind passages for a model
}

// Passage is a passage that was found. Start and End are its place in the
// document's text, in bytes.
type Passage struct {
	ID       string  `json:"id"` // document#ordinal
	N        int     `json:"n"`  // what it is cited by
	DocID    string  `json:"doc_id"`
	Title    string  `json:"title"`
	Source   string  `json:"source"`
	Section  string  `json:"section"`
	Page     int     `json:"page,omitempty"` // it is on, from 1
	Start    int     `json:"start"`
	End      int     `json:"end"`
	Score    float64 `json:"score"`
	BM25Rank int     `json:"bm25_rank,omitempty"` // in its collection, from 1; 0 if no word of the query is in it
	VecRank  int     `json:"vec_rank,omitempty"`  // the same by vectors
	Text     string  `json:"text"`
	// RerankScore is the reranker's, if it saw the passage; it, not Score, orders then.
	RerankScore *float64 `json:"rerank_score,omitempty"`
	// OtherVersions have the same text with other figures, in older documents, the newest first.
	OtherVersions []Version `json:"other_versions,omitempty"`

	Collection string `json:"collection"`
	Hash       string `json:"hash"` // of the text, to find it again

	strength float64          // its part of the query, comparable between collections
	doc      *indexedDocument // where its text is; nil when the text is here
	ordinal  int              // in that document
	opening  string           // the document's first passage
	date     string           // in the document's metadata
	version  int64            // of the document
}

// Search gives the passages of the collections that match best. A result that is
// weak or empty is tried once more with the query alone, if there was a
// conversation, and the better one counts. Each collection is ranked by its own
// statistics; among several, what has more of the query goes first.
func (l *Library) Search(ctx context.Context, r Request) (Result, error) {
	if len(r.Collections) == 0 {
		return Result{}, ErrNoScope
	}
	if err := r.check(); err != nil {
		return Result{}, err
	}
	legs, err := l.legs(ctx, r.Collections, false)
	if err != nil {
		return Result{}, err
	}
	for i := range legs {
		legs[i].narrow(r.Where)
	}
	return l.searchLegs(ctx, legs, r)
}

// searchLegs searches collections that are up to date or marked as degraded. The order of its steps matters: the query is
// embedded first, since every leg needs the vector; which vectors are missing is asked before the search, since they
// may come while it runs; only then are the texts read, for the few passages that are left, and reranked, since a
// reranker reads texts.
func (l *Library) searchLegs(ctx context.Context, legs []leg, r Request) (Result, error) {
	k := cmp.Or(r.K, DefaultK)
	q := query{text: r.Query, history: r.History, k: 2 * k, weight: l.o.VectorWeight, fuse: l.o.Fusion.Fuse}
	if l.o.Rerank.Reranker != nil {
		q.k = max(q.k, l.o.Rerank.Top)
	}
	q.vector, q.degraded = l.queryVector(ctx, r.Query)
	waiting := false
	for _, g := range legs {
		waiting = waiting || q.vector != nil && g.local.waiting(l.space.Load())
	}
	for _, g := range legs {
		if g.outside == nil {
			continue
		}
		if err := g.outside.gather(ctx, q); err != nil {
			return Result{}, err
		}
	}
	best := q.find(ctx, legs)
	if best.Status != textindex.StatusOK && len(r.History) > 0 {
		q.history = nil
		if standalone := q.find(ctx, legs); better(standalone, best) {
			best = standalone
		}
	}
	names := make([]string, len(legs))
	for i, g := range legs {
		names[i] = g.collection.String()
		best.Degraded = best.Degraded || g.degraded
	}
	best.Degraded = best.Degraded || q.degraded || waiting
	best.Collection, best.Query = strings.Join(names, ","), r.Query
	l.fill(ctx, legs, &best)
	best.mergeVersions()
	l.rerank(ctx, &best, r.History, k)
	return best, nil
}

func (r Request) check() error {
	switch {
	case strings.TrimSpace(r.Query) == "":
		return fmt.Errorf("%w: the query is empty", ErrBadQuery)
	case len(r.Query) > MaxSearchText:
		return fmt.Errorf("%w: the query has %d bytes, the limit is %d", ErrBadQuery, len(r.Query), MaxSearchText)
	case !utf8.ValidString(r.Query):
		return fmt.Errorf("%w: the query is not UTF-8", ErrBadQuery)
	case r.K < 0 || r.K > MaxK:
		return fmt.Errorf("%w: k is 1 to %d, not %d", ErrBadQuery, MaxK, r.K)
	}
	return nil
}

// leg is the part of a search in one collection (federated search: each is ranked by itself, and the lists are joined).
type leg struct {
	collection docstore.Collection
	local      *localCopy
	filter     *textindex.Filter // nil for all documents
	degraded   bool
	proof      *proof   // of the hits, if what is known is behind the store; nil if not
	outside    *outside // what a search engine finds, in place of what is known; nil without one
}

// narrow leaves the documents that a search may find.
func (g *leg) narrow(w Where) {
	if g.outside != nil {
		g.outside.where = w
		return
	}
	g.filter = g.local.filter(w)
}

// snapshot is what is searched here.
func (g leg) snapshot() *textindex.Snapshot {
	if g.outside != nil {
		return g.outside.snapshot
	}
	return g.local.index.Snapshot()
}

// passage is the passage of a hit, without its text; false if its document was replaced since the search.
func (g leg) passage(hit textindex.Hit) (Passage, bool) {
	if g.outside != nil {
		return g.outside.candidates[hit.Document], true
	}
	h := g.local.get(hit.Document)
	if h == nil {
		return Passage{}, false
	}
	return h.passage(hit.Passage), true
}

// legs brings the collections up to date, at the same time. One that is not there
// is an error, or, if it is optional, left out.
func (l *Library) legs(ctx context.Context, collections []docstore.Collection, optional bool) ([]leg, error) {
	var legs []leg
	for _, c := range collections {
		if !slices.ContainsFunc(legs, func(g leg) bool { return g.collection == c }) {
			legs = append(legs, leg{collection: c})
		}
	}
	errs := make([]error, len(legs))
	var wg sync.WaitGroup
	for i := range legs {
		wg.Go(func() {
			c := legs[i].collection
			legs[i], errs[i] = l.replica(c).leg(ctx)
			switch {
			case ctx.Err() != nil:
				errs[i] = context.Cause(ctx)
			case errors.Is(errs[i], docstore.ErrNoCollection):
				l.forget(c)
			}
		})
	}
	wg.Wait()
	var available []leg
	for i, err := range errs {
		switch {
		case err == nil:
			available = append(available, legs[i])
		case !optional || !errors.Is(err, docstore.ErrNoCollection):
			return nil, err
		}
	}
	return available, nil
}

// rank orders statuses, the better above.
var rank = map[textindex.Status]int{textindex.StatusEmpty: 0, textindex.StatusWeak: 1, textindex.StatusOK: 2}

// better says whether a result is more likely to answer than another.
func better(a, b Result) bool {
	return cmp.Or(cmp.Compare(rank[a.Status], rank[b.Status]), cmp.Compare(a.strength(), b.strength())) > 0
}

// strength is the share of the query that the best passage has.
func (r Result) strength() float64 {
	if len(r.Passages) == 0 {
		return 0
	}
	return r.Passages[0].strength
}

// query is one form of what is looked for.
type query struct {
	text     string
	history  []memory.Message
	k        int
	vector   []float32 // nil to go by words alone
	weight   float64   // of the vectors
	fuse     func(limit int, words, vectors []textindex.Hit, weight float64) []textindex.Fused
	degraded bool // there should be a vector
}

// find searches each leg and merges the lists by strength, which compares between collections as scores do not. Of
// passages with equal texts the best one stays.
func (q query) find(ctx context.Context, legs []leg) Result {
	f := Result{Status: textindex.StatusEmpty, FromHistory: []string{}, Passages: []Passage{}}
	for _, g := range legs {
		result, passages := g.find(ctx, q)
		f.IndexVersion += int64(result.Version)
		f.Passages = append(f.Passages, passages...)
		if rank[result.Status] > rank[f.Status] {
			f.Status = result.Status
		}
		for _, word := range result.FromHistory {
			if !slices.Contains(f.FromHistory, word) {
				f.FromHistory = append(f.FromHistory, word)
			}
		}
	}
	slices.SortStableFunc(f.Passages, func(a, b Passage) int { return cmp.Compare(b.strength, a.strength) })
	texts := map[string]bool{}
	f.Passages = slices.DeleteFunc(f.Passages, func(p Passage) bool {
		duplicate := texts[p.Hash]
		texts[p.Hash] = true
		return duplicate
	})
	f.Passages = f.Passages[:min(q.k, len(f.Passages))]
	return f
}

// find searches one leg. If the copy lacks changes, more hits than are wanted are looked for, since the store may
// disprove some; the number grows until enough are proven.
func (g leg) find(ctx context.Context, q query) (textindex.Result, []Passage) {
	if g.proof == nil {
		result, passages, _ := g.look(q, q.k)
		return result, passages
	}
	for limit := 2 * q.k; ; limit *= 4 { // so that enough are left
		result, passages, hasMore := g.look(q, limit)
		passages = g.proof.proven(ctx, passages)
		if len(passages) >= q.k || !hasMore || limit > maxProven {
			if len(passages) == 0 {
				result.Status = textindex.StatusEmpty
			}
			return result, passages[:min(len(passages), q.k)]
		}
	}
}

// look searches one leg for at most so many passages; more says whether there may be others. It reads without a lock
// (optimistic concurrency): a document that is replaced between the search and the look at it makes it search again, on
// the newer index.
func (g leg) look(q query, limit int) (textResult textindex.Result, passages []Passage, hasMore bool) {
	words := textindex.Query{Text: q.text, History: q.history[max(0, len(q.history)-maxHistory):], Filter: g.filter,
		Limit: limit}
	for {
		snapshot := g.snapshot()
		var result textindex.Result
		var hits []textindex.Fused
		if q.vector == nil {
			result = snapshot.Search(words)
			for i, h := range result.Hits {
				hits = append(hits, textindex.Fused{Hit: h, Ranks: []int{i + 1}})
			}
		} else {
			words.Limit = max(VectorHits, limit)
			result = snapshot.Search(words)
			hits = q.fuse(limit, result.Hits, snapshot.Nearest(q.vector, words.Limit, g.filter), q.weight)
			if result.Status == textindex.StatusEmpty && len(hits) > 0 {
				result.Status = textindex.StatusWeak // nearest is not near
			}
		}
		if passages, complete := g.passages(result, hits); complete {
			return result, passages, len(hits) >= limit
		}
	}
}

// passages are the passages of hits; whole is false if a document among them was replaced since the search.
func (g leg) passages(result textindex.Result, hits []textindex.Fused) (passages []Passage, complete bool) {
	for _, hit := range hits {
		p, ok := g.passage(hit.Hit)
		if !ok {
			return nil, false
		}
		p.Score, p.BM25Rank = math.Round(hit.Score*1000)/1000, hit.Ranks[0]
		p.strength = hit.Score
		if len(hit.Ranks) > 1 {
			p.VecRank = hit.Ranks[1]
		} else {
			p.strength *= result.Strength / result.Hits[0].Score
		}
		p.Collection = g.collection.String()
		passages = append(passages, p)
	}
	return passages, true
}

// proof checks hits of a replica that is behind against the store. It belongs to one search and
// asks about each document once.
type proof struct {
	replica     *replica
	hashes      map[string]contentHash // by id; the zero value for a deleted document
	unavailable bool                   // the store does not answer; if it never did, the copy counts
}

// maxProven bounds the passages that one search checks in order to have enough proven ones.
const maxProven = 1000

// proven are the passages of documents that still have their content. What is compared is the
// content's hash, so a proven passage is in the collection at this instant, even if that was made
// anew meanwhile.
func (p *proof) proven(ctx context.Context, passages []Passage) []Passage {
	ids := map[string]bool{}
	for _, hit := range passages {
		if _, ok := p.hashes[hit.DocID]; !ok {
			ids[hit.DocID] = true
		}
	}
	if len(ids) > 0 && !p.unavailable {
		p.ask(ctx, slices.Collect(maps.Keys(ids)))
	}
	if p.unavailable && p.hashes == nil {
		return passages
	}
	var proven []Passage
	for _, hit := range passages {
		if sum := p.hashes[hit.DocID]; sum == hit.doc.Sum && sum != (contentHash{}) {
			proven = append(proven, hit)
		}
	}
	return proven
}

func (p *proof) ask(ctx context.Context, ids []string) {
	bounded, cancel := context.WithTimeout(ctx, p.replica.library.o.Patience)
	defer cancel()
	heads, err := p.replica.library.store.Heads(bounded, p.replica.collection, ids...)
	if errors.Is(err, docstore.ErrUnavailable) {
		p.unavailable = true
		return
	}
	if err != nil { // what cannot be read proves nothing
		p.replica.library.o.Log.Error().Err(err).Stringer("collection", p.replica.collection).Msg("a search cannot be proven")
	}
	if p.hashes == nil {
		p.hashes = map[string]contentHash{}
	}
	for _, id := range ids {
		p.hashes[id] = contentHash{}
	}
	for _, h := range heads {
		p.hashes[h.ID] = contentHashOf(h.Hash)
	}
}

// fill reads the texts of the passages that were found: from this process's file, or else from the store, for
// Options.Patience at most. The hash of a passage proves either. Passages with a text that neither has are left out,
// and the result is degraded.
func (l *Library) fill(ctx context.Context, legs []leg, r *Result) {
	for _, g := range legs {
		var missing []string
		for i := range r.Passages {
			p := &r.Passages[i]
			if p.Collection != g.collection.String() {
				continue
			}
			if text, ok := p.doc.text(p.ordinal); ok {
				p.opening, _ = p.doc.text(0)
				p.Text, p.date, p.version, p.doc = text, p.doc.Metadata["date"], p.doc.Version, nil
			} else if !slices.Contains(missing, p.DocID) {
				missing = append(missing, p.DocID)
			}
		}
		if len(missing) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, l.o.Patience)
		documents, err := l.store.GetAll(bounded, g.collection, missing...)
		cancel()
		if err != nil {
			l.o.Log.Warn().Err(err).Stringer("collection", g.collection).
				Msg("passages are left out of an answer: their texts are neither on disk nor can they be read from the store")
		}
		for i := range r.Passages {
			p := &r.Passages[i]
			if p.doc == nil || p.Collection != g.collection.String() {
				continue
			}
			d := documents[p.DocID]
			if p.date, p.version = d.Metadata["date"], d.Version; len(d.Passages) > 0 {
				p.opening = d.Text[d.Passages[0].Start:d.Passages[0].End]
			}
			if g.outside != nil {
				p.complete(d)
				continue
			}
			pos, text := p.doc.Passages[p.ordinal], d.Text
			if int(pos.End) <= len(text) && sumOf(text[pos.Start:pos.End]) == pos.Hash {
				p.Text, p.doc = text[pos.Start:pos.End], nil
			}
		}
	}
	r.Passages = slices.DeleteFunc(r.Passages, func(p Passage) bool {
		r.Degraded = r.Degraded || p.doc != nil
		return p.doc != nil
	})
}
