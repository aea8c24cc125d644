package rag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mneme/memory/textindex"
	"mneme/subagent/rag/docstore"
)

// Embedder places texts in the space of a model, where texts of like meaning are
// near each other.
type Embedder interface {
	// Embed gives a vector for each text, in their order.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Space names the model: vectors of different spaces do not compare, and those
	// that are kept are made anew when it, or their size, changes. It has no white
	// space.
	Space() string
}

// VectorHits is how many passages each leg of a hybrid search gives to the fusion.
const VectorHits = 100

// embedBatch is how many passages are embedded in one call.
const embedBatch = 64

// embedPause is the time between looks for passages without a vector when nothing
// said that there are some. After failures it doubles up to maxEmbedPause.
const (
	embedPause    = time.Second
	maxEmbedPause = 30 * time.Second
)

// embedTimeout bounds one call of the Embedder. mutePause is how long searches do
// not call one that did not answer in time.
const (
	embedTimeout = time.Minute
	mutePause    = 10 * time.Second
)

// RunEmbedding gives vectors to the passages that have none, from the store or from
// the Embedder, until ctx ends. Without an Embedder it returns at once. Searches go
// on meanwhile, by words alone where vectors are missing.
func (l *Library) RunEmbedding(ctx context.Context) {
	if l.o.Embedder == nil {
		return
	}
	for pause := embedPause; ctx.Err() == nil; {
		pending, failed := false, false
		for _, r := range l.loadedReplicas() {
			hasMore, err := l.embedSome(ctx, r)
			if err != nil && ctx.Err() == nil {
				l.o.Log.Warn().Err(err).Stringer("collection", r.collection).Msg("passages wait for their vectors")
			}
			pending, failed = pending || hasMore && err == nil, failed || err != nil
		}
		if !failed {
			pause = embedPause
		}
		if pending {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if failed {
			pause = min(2*pause, maxEmbedPause)
		}
	}
}

// embedSome gives vectors to one batch of a collection's documents; more says whether others are waiting. Only one
// goroutine runs it. The endpoint is asked without the gate, since it may take a minute; what was changed meanwhile is
// recognised under the gate, in enrich. Once nothing is missing, vectors that no passage has any more are removed from
// the store, once for each copy.
func (l *Library) embedSome(ctx context.Context, r *replica) (hasMore bool, err error) {
	k := r.local.Load()
	if k == nil {
		return false, nil
	}
	s := l.space.Load()
	if s == nil {
		if !k.waiting(nil) {
			return false, nil
		}
		return true, l.learn(ctx)
	}
	if k.enter(s) {
		r.tidied.Store(nil)
	}
	batch, hasMore := k.withoutVectors(embedBatch)
	if len(batch) == 0 {
		if r.tidied.Swap(k) == k {
			return false, nil
		}
		return false, l.store.KeepVectors(ctx, r.collection, s.name, k.hashes())
	}
	texts, err := l.wholeTexts(ctx, r.collection, batch)
	if err != nil {
		return hasMore, err
	}
	vectors, err := l.vectors(ctx, r.collection, s, batch, texts)
	if errors.Is(err, docstore.ErrNoCollection) {
		return false, nil
	}
	if err != nil {
		return hasMore, err
	}
	if err := r.lock(ctx); err != nil {
		return hasMore, err
	}
	defer r.unlock()
	k.enrich(batch, texts, vectors)
	return hasMore, nil
}

// vectors are those of the passages of some documents in a space, by the hash of
// their text.
func (l *Library) vectors(ctx context.Context, c docstore.Collection, s *space, documents []*indexedDocument,
	fullTexts []string) (map[string][]float32, error) {
	texts := map[string]string{}
	var hashes []string
	for n, h := range documents {
		for _, p := range h.Passages {
			hash := p.hex()
			if _, exists := texts[hash]; !exists && fullTexts[n] != "" {
				texts[hash] = fullTexts[n][p.Start:p.End]
				hashes = append(hashes, hash)
			}
		}
	}
	vectors := map[string][]float32{}
	for page := range slices.Chunk(hashes, embedBatch) {
		stored, err := l.store.Vectors(ctx, c, s.name, page...)
		if err != nil {
			return nil, err
		}
		var missing, inputs []string
		for _, hash := range page {
			if len(stored[hash]) != s.size {
				missing, inputs = append(missing, hash), append(inputs, texts[hash])
			}
			vectors[hash] = stored[hash]
		}
		if len(missing) == 0 {
			continue
		}
		computed, err := EmbedApart(ctx, inputs, l.embed, func(text string, err error) {
			l.o.Log.Warn().Err(err).Int("bytes", len(text)).
				Msg("a passage is found by its words alone: the endpoint refuses to embed it")
		})
		if err != nil {
			return nil, err
		}
		fresh := map[string][]float32{}
		for i, hash := range missing {
			if vectors[hash] = computed[i]; computed[i] != nil {
				fresh[hash] = computed[i]
			}
		}
		if err := l.store.PutVectors(ctx, c, s.name, fresh); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

// wholeTexts are the texts of documents, from the file or else from the store; "" for
// one that is there in neither, as when it was just replaced.
func (l *Library) wholeTexts(ctx context.Context, c docstore.Collection,
	documents []*indexedDocument) ([]string, error) {
	texts := make([]string, len(documents))
	missing := map[string]int{}
	var ids []string
	for i, h := range documents {
		var ok bool
		if texts[i], ok = h.fullText(); !ok {
			texts[i], missing[h.ID] = "", i
			ids = append(ids, h.ID)
		}
	}
	stored, err := l.store.GetAll(ctx, c, ids...)
	for id, d := range stored {
		if i := missing[id]; documents[i].fits(d.Text) {
			texts[i] = d.Text
		}
	}
	return texts, err
}

// EmbedApart embeds texts of which an endpoint may refuse some, for their length for example: it halves a batch that is
// refused until the texts stand alone. Those that are refused then get no vector, of which refused is told; words find
// them still. An endpoint that refuses even a text without fault refuses everything, which is an error.
func EmbedApart(ctx context.Context, texts []string, embed func(context.Context, []string) ([][]float32, error),
	refused func(text string, err error)) ([][]float32, error) {
	vectors, err := embed(ctx, texts)
	if err == nil || ctx.Err() != nil || !refusal(err) {
		return vectors, err
	}
	if half := len(texts) / 2; half > 0 {
		if vectors, err = EmbedApart(ctx, texts[:half], embed, refused); err != nil {
			return nil, err
		}
		rest, err := EmbedApart(ctx, texts[half:], embed, refused)
		return append(vectors, rest...), err
	}
	if _, other := embed(ctx, []string{probe}); refusal(other) {
		return nil, err
	} else if other != nil {
		return nil, other
	}
	refused(texts[0], err)
	return [][]float32{nil}, nil
}

// refusal reports whether an endpoint refused what it was asked, as opposed to having failed.
func refusal(err error) bool {
	var retryable interface{ Retryable() bool }
	return errors.As(err, &retryable) && !retryable.Retryable()
}

// space is where the Embedder's vectors are.
type space struct {
	name string // of the Embedder's space, with size
	size int    // numbers in every vector
}

// probe is a text that no endpoint refuses.
const probe = "text"

// learn finds out what space the Embedder's vectors are in now.
func (l *Library) learn(ctx context.Context) error {
	vectors, err := l.embed(ctx, []string{probe})
	if err != nil {
		return err
	}
	size := len(vectors[0])
	l.space.Store(&space{l.o.Embedder.Space() + "/" + strconv.Itoa(size), size})
	return nil
}

// embed gives vectors of one size, which is that of the space if it is known. If it is
// another the model was changed behind its name: nothing that is kept compares
// with it, and all is to be made anew.
func (l *Library) embed(ctx context.Context, texts []string) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, embedTimeout)
	defer cancel()
	vectors, err := l.o.Embedder.Embed(ctx, texts)
	if err != nil {
		return nil, fmt.Errorf("embedding %d texts: %w", len(texts), err)
	}
	if len(vectors) != len(texts) {
		return nil, fmt.Errorf("embedding %d texts: %d vectors came", len(texts), len(vectors))
	}
	for _, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return nil, fmt.Errorf("embedding %d texts: the vectors are not of one length", len(texts))
		}
	}
	if s := l.space.Load(); s != nil && len(vectors) > 0 && len(vectors[0]) != s.size {
		l.space.CompareAndSwap(s, nil)
		return nil, fmt.Errorf("the vectors have %d dimensions now, %d before: all are made anew", len(vectors[0]), s.size)
	}
	return vectors, nil
}

// queryVector is the query's vector, nil without an Embedder; degraded if it cannot be had. A circuit breaker stands
// before the endpoint: one that did not answer in time is not asked for mutePause, so that not every search waits.
func (l *Library) queryVector(ctx context.Context, query string) (vector []float32, degraded bool) {
	if l.o.Embedder == nil {
		return nil, false
	}
	if time.Now().UnixNano() < l.mute.Load() {
		return nil, true
	}
	bounded, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	vectors, err := l.embed(bounded, []string{query})
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			l.mute.Store(time.Now().Add(mutePause).UnixNano())
		}
		l.o.Log.Warn().Err(err).Msg("a search goes by words alone")
		return nil, true
	}
	return vectors[0], false
}

// withoutVectors are documents that wait for vectors, of about limit passages; more
// says whether there are others.
func (k *localCopy) withoutVectors(limit int) (batch []*indexedDocument, hasMore bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	count := 0
	for _, h := range k.bare {
		if count >= limit {
			return batch, true
		}
		batch = append(batch, h)
		count += len(h.Passages)
	}
	return batch, false
}

// hashes says which texts are those of passages.
func (k *localCopy) hashes() func(hash string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	live := map[string]bool{}
	for _, h := range k.byID {
		for _, p := range h.Passages {
			live[p.hex()] = true
		}
	}
	return func(hash string) bool { return live[hash] }
}

// enrich puts documents into the index again, with vectors, if they are still there in the version that was embedded.
// The caller has the gate. A document counts as waiting until the index has its vectors, and not the other way round:
// a search between the two must say that it is degraded.
func (k *localCopy) enrich(documents []*indexedDocument, texts []string, vectors map[string][]float32) {
	change := textindex.Change{Version: k.index.Snapshot().Version()}
	k.mu.RLock()
	for n, h := range documents {
		if now := k.byID[h.ID]; now == nil || now.name != h.name || texts[n] == "" {
			continue
		}
		d := h.indexed(texts[n])
		for i := range d.Passages {
			d.Passages[i].Vector = vectors[h.Passages[i].hex()]
		}
		change.Put = append(change.Put, d)
	}
	k.mu.RUnlock()
	k.index.Apply(change)
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, h := range documents {
		if now := k.byID[h.ID]; texts[n] != "" || now == nil || now.name != h.name {
			delete(k.bare, h.name)
		}
	}
}

// waiting reports whether a search by vectors of a space could miss documents: some have none yet, or theirs are of
// another space. The space is nil as long as it is not known.
func (k *localCopy) waiting(s *space) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.bare) > 0 || k.space != nil && k.space != s
}

// enter settles the space of the vectors in the index. If they were of another one before, which it reports, all
// documents wait for vectors again, since those of two spaces do not compare.
func (k *localCopy) enter(s *space) (moved bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	moved = k.space != nil && k.space != s
	k.space = s
	if moved {
		for _, h := range k.byID {
			if len(h.Passages) > 0 {
				k.bare[h.name] = h
			}
		}
	}
	return moved
}
