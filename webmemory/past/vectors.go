package past

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mneme/apiserver/api"
	"mneme/memory/recall"
)

// This file is about finding what says the same in other words: the newest messages of
// histories that are searched get vectors by the embedding model that the apiserver has.
// Without vectors, or without an answer in time, a search goes by words alone.

const (
	vectorWait  = time.Second      // for that of a query
	vectorPause = 30 * time.Second // after a failure, in which the apiserver is not asked
)

// placing is the work on vectors. The zero value is ready.
type placing struct {
	muted   atomic.Int64 // until when the apiserver is not asked, in Unix milliseconds
	working sync.Map     // the indexes that are being placed
	turn    sync.Mutex   // held while messages are placed, so that searches' requests find room
}

// vectors places texts, or says why not, once for a while.
func (s *Searcher) vectors(ctx context.Context, texts ...string) [][]float32 {
	if time.Now().UnixMilli() < s.placing.muted.Load() {
		return nil
	}
	short := make([]string, len(texts))
	for i, text := range texts {
		short[i] = recall.Placed(text)
	}
	vectors, err := s.Runs.Embed(ctx, short...)
	if err == nil {
		return vectors
	}
	if s.Life.Err() == nil {
		s.placing.muted.Store(time.Now().Add(vectorPause).UnixMilli())
		s.Telemetry.Often.Warn().Err(err).Msg("what was said is searched by words alone")
	}
	return nil
}

// vectorOf places a query; nil if that takes too long.
func (s *Searcher) vectorOf(ctx context.Context, query string) []float32 {
	ctx, cancel := context.WithTimeout(ctx, vectorWait)
	defer cancel()
	if vectors := s.vectors(ctx, query); vectors != nil {
		return vectors[0]
	}
	return nil
}

// place gives vectors to the newest messages of indexes that have none, in the background, for
// as long as the indexes are in use.
func (s *Searcher) place(indexes ...*recall.Index) {
	for _, ix := range indexes {
		if _, busy := s.placing.working.LoadOrStore(ix, true); busy {
			continue
		}
		s.Workers.Go(func() {
			defer s.placing.working.Delete(ix)
			for s.Life.Err() == nil && s.Indexes.holds(ix) && s.placeSome(ix) {
			}
		})
	}
}

// placeSome gives vectors to some messages; false if none is left, or if that failed.
func (s *Searcher) placeSome(ix *recall.Index) bool {
	s.placing.turn.Lock()
	defer s.placing.turn.Unlock()
	bare := ix.Unplaced(s.Cfg.RecallVectors, api.MaxEmbedTexts/2)
	if len(bare) == 0 {
		return false
	}
	texts := make([]string, len(bare))
	for i, m := range bare {
		texts[i] = m.Text
	}
	ctx, cancel := context.WithTimeout(s.Life, time.Minute)
	defer cancel()
	vectors := s.vectors(ctx, texts...)
	if vectors == nil {
		return false
	}
	placed := make(map[string][]float32, len(bare))
	for i, m := range bare {
		placed[m.ID] = vectors[i]
	}
	ix.Place(placed)
	return true
}
