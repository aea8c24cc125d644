package rag

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/index"
)

// Embedder places texts in the space of a model, where texts of like meaning are
// near each other.
type Embedder interface {
	// Embed gives a vector for each text, in their order.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Space names the model and its dimensions: vectors of different spaces do not
	// compare, and those that are kept are made anew when it changes. It has no spaces.
	Space() string
}

// vectorHits is how many passages each leg of a hybrid search gives to the fusion.
const vectorHits = 100

// embedBatch is how many passages are embedded in one call.
const embedBatch = 64

// embedPause is the time between attempts after a failure, and between looks for
// passages without a vector when nothing said that there are some.
const embedPause = time.Second

// RunEmbedding gives vectors to the passages that have none, from the store or from
// the Embedder, until ctx ends. Without an Embedder it returns at once. Searches go
// on meanwhile, by words alone where vectors are missing.
func (l *Library) RunEmbedding(ctx context.Context) {
	if l.o.Embedder == nil {
		return
	}
	for ctx.Err() == nil {
		more := false
		for _, r := range l.loaded() {
			again, err := l.embedSome(ctx, r)
			if err != nil && ctx.Err() == nil {
				l.o.Log.Warn().Err(err).Stringer("collection", r.collection).Msg("passages wait for their vectors")
			}
			more = more || again && err == nil
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(embedPause):
		}
	}
}

// loaded are the replicas in use.
func (l *Library) loaded() []*replica {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*replica
	for _, r := range l.replicas {
		if r.known.Load() != nil {
			list = append(list, r)
		}
	}
	return list
}

// embedSome gives vectors to some documents of a collection; more says whether
// others are waiting.
func (l *Library) embedSome(ctx context.Context, r *replica) (more bool, err error) {
	k := r.known.Load()
	if k == nil {
		return false, nil
	}
	batch, more := k.withoutVectors(embedBatch)
	if len(batch) == 0 {
		if r.tidied.Swap(k) == k {
			return false, nil
		}
		return false, l.store.KeepVectors(ctx, r.collection, l.o.Embedder.Space(), k.hashes())
	}
	vectors, err := l.vectors(ctx, r.collection, batch)
	if errors.Is(err, docstore.ErrNoCollection) {
		return false, nil
	}
	if err != nil {
		return more, err
	}
	if err := r.lock(ctx); err != nil {
		return more, err
	}
	defer r.unlock()
	k.enrich(batch, vectors)
	return more, nil
}

// vectors are those of the passages of some documents, by the hash of their text.
func (l *Library) vectors(ctx context.Context, c docstore.Collection, documents []*held) (map[string][]float32, error) {
	texts := map[string]string{}
	var hashes []string
	for _, h := range documents {
		for i := range h.Passages {
			p := h.passage(i)
			if _, known := texts[p.Hash]; !known {
				texts[p.Hash] = p.Text
				hashes = append(hashes, p.Hash)
			}
		}
	}
	space := l.o.Embedder.Space()
	vectors := map[string][]float32{}
	for page := range pages(hashes, embedBatch) {
		found, err := l.store.Vectors(ctx, c, space, page...)
		if err != nil {
			return nil, err
		}
		var missing, wanted []string
		for _, hash := range page {
			if found[hash] == nil {
				missing, wanted = append(missing, hash), append(wanted, texts[hash])
			}
			vectors[hash] = found[hash]
		}
		if len(missing) == 0 {
			continue
		}
		made, err := l.embed(ctx, wanted)
		if err != nil {
			return nil, err
		}
		fresh := map[string][]float32{}
		for i, hash := range missing {
			fresh[hash], vectors[hash] = made[i], made[i]
		}
		if err := l.store.PutVectors(ctx, c, space, fresh); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

func (l *Library) embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors, err := l.o.Embedder.Embed(ctx, texts)
	if err == nil && len(vectors) != len(texts) {
		err = fmt.Errorf("%d vectors came for %d texts", len(vectors), len(texts))
	}
	for i := range vectors {
		if err == nil && (len(vectors[i]) == 0 || len(vectors[i]) != len(vectors[0])) {
			err = errors.New("the vectors are not of one length")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("embedding %d texts: %w", len(texts), err)
	}
	return vectors, nil
}

// queryVector is the query's, nil without an Embedder; degraded if it cannot be
// had.
func (l *Library) queryVector(ctx context.Context, query string) (vector []float32, degraded bool) {
	if l.o.Embedder == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Patience)
	defer cancel()
	vectors, err := l.embed(ctx, []string{query})
	if err != nil {
		l.o.Log.Warn().Err(err).Msg("a search goes by words alone")
		return nil, true
	}
	return vectors[0], false
}

// withoutVectors are documents that wait for vectors, of about limit passages; more
// says whether there are others.
func (k *known) withoutVectors(limit int) (batch []*held, more bool) {
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
func (k *known) hashes() func(hash string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	live := map[string]bool{}
	for _, h := range k.byName {
		for i := range h.Passages {
			live[h.passage(i).Hash] = true
		}
	}
	return func(hash string) bool { return live[hash] }
}

// enrich puts documents that are still there into the index with vectors. The
// caller has the gate.
func (k *known) enrich(documents []*held, vectors map[string][]float32) {
	change := index.Change{Version: k.index.Snapshot().Version()}
	k.mu.RLock()
	for _, h := range documents {
		if k.byName[h.name] != h {
			continue
		}
		d := h.indexed()
		for i := range d.Passages {
			d.Passages[i].Vector = vectors[h.passage(i).Hash]
		}
		change.Put = append(change.Put, d)
	}
	k.mu.RUnlock()
	k.index.Apply(change)
	// Only now, or a search could miss vectors and not say so.
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range documents {
		if k.bare[h.name] == h {
			delete(k.bare, h.name)
		}
	}
}

// waiting says whether documents wait for vectors.
func (k *known) waiting() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.bare) > 0
}
