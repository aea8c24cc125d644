package past

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/recall"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// Searcher searches the histories of chats. Each searched history has an index in the memory of this process, filled
// from the history. A search first updates the index, so it finds every message acknowledged before the search began,
// from any process. An erasure drops the indexes of its chat.
type Searcher struct {
	*node.Core
	Histories *Histories

	Indexes indexes
	placing placing
}

// Limits of a search.
const (
	RecallBudget    = 800    // default number of tokens of a response
	MaxRecallBudget = 32_000 // tokens
	MaxRecallQuery  = 4 << 10
	// AutomaticFloor is the score below which hits stay out of prompts. No hit reaches it for 1 in 100 judged questions
	// and for 1 in 8 ordinary turns with a question. Messages that seem to need memory have no floor.
	AutomaticFloor = 0.2
	recallBytes    = 256 << 20 // default size of all indexes, in bytes
	fillAtOnce     = 16        // archive segments read per batch
	fillFirst      = 64        // newest archive segments read before the first response
)

// GetRecall handles GET …/recall.
func (s *Searcher) GetRecall(c *gin.Context, chat memory.Chat) error {
	q, err := queryOf(c, c.Query("time_zone"))
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	keys, err := s.Store.Chats.Keys(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	if name := c.Query("subagent"); name != "" {
		agent, err := memory.ParseAgent(name)
		if err != nil {
			return err
		}
		keys = []memory.Key{memory.SubagentKey(agent, chat)}
	}
	return s.AnswerRecall(c, q, keys...)
}

// queryOf reads the query and the budget of a request.
func queryOf(c *gin.Context, zone string) (q recall.Query, err error) {
	q, err = RecallQuery(c.Query("query"), c.Query("from"), c.Query("to"), c.Query("asked_at"), zone)
	if err == nil && len(q.Text) > MaxRecallQuery {
		err = problem.BadRequest("query has %d bytes, at most %d are taken.", len(q.Text), MaxRecallQuery)
	}
	if err == nil {
		q.Budget, err = problem.Number(c, "budget", RecallBudget, 1, MaxRecallBudget)
	}
	return q, err
}

// AnswerRecall searches histories of one chat and writes the response.
func (s *Searcher) AnswerRecall(c *gin.Context, q recall.Query, keys ...memory.Key) error {
	out, err := s.Search(c.Request.Context(), q, keys...)
	return api.Answer(c.Writer, http.StatusOK, out, err)
}

// Search returns the hits of q in histories of one chat. If some histories are damaged, the result is partial. If all
// are damaged, Search returns a *memory.DamagedError.
func (s *Searcher) Search(ctx context.Context, q recall.Query, keys ...memory.Key) (memory.Recalled, error) {
	result, unread, err := s.recall(ctx, q, nil, keys...)
	if err == nil && len(unread) > 0 && len(unread) == len(keys) {
		err = &memory.DamagedError{Key: unread[0].String(), Cause: errors.New("it cannot be searched")}
	}
	if err != nil {
		return memory.Recalled{}, err
	}
	out := memory.Recalled{Hits: []memory.RecallHit{}, Partial: result.Partial || len(unread) > 0}
	for _, h := range result.Hits {
		out.Hits = append(out.Hits, hitOf(h))
	}
	return out, nil
}

func hitOf(h recall.Hit) memory.RecallHit {
	return memory.RecallHit{ID: h.ID, TS: h.TS, Role: h.Role, Name: h.Name, Subagent: h.Key.Agent(), Score: h.Score,
		Text: h.Text, Messages: h.Exchange, Origin: h.Origin, Newer: h.Newer}
}

// RecallQuery returns the query of a request's parameters. An empty from or to sets no limit. An empty askedAt is now,
// and an empty zone is UTC.
func RecallQuery(text, from, to, askedAt, zone string) (q recall.Query, err error) {
	q = recall.Query{Text: strings.TrimSpace(text), AskedAt: time.Now().UTC()}
	if q.Text == "" {
		return q, problem.BadRequest("query is missing: say what to look for.")
	}
	location, err := api.ReadZone(zone)
	if err != nil {
		return q, err
	}
	for _, t := range []struct {
		name, text string
		into       *time.Time
	}{{"from", from, &q.From}, {"to", to, &q.To}, {"asked_at", askedAt, &q.AskedAt}} {
		if t.text == "" {
			continue
		}
		if *t.into, err = readTime(t.text, cmp.Or(location, time.UTC)); err != nil {
			return q, problem.BadRequest("%s is a time such as 2024-03-05, 2024-03-05T10:00:00Z or Unix seconds, not %.40q.",
				t.name, t.text)
		}
	}
	q.AskedAt = q.AskedAt.In(cmp.Or(location, q.AskedAt.Location())) // without a zone, the offset of asked_at applies
	return q, nil
}

// readTime parses Unix seconds, a date or an RFC 3339 time. A date means midnight in zone.
func readTime(text string, zone *time.Location) (time.Time, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMilli(int64(seconds * 1000)).In(zone), nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	return t, err
}

// recall searches the histories of keys, which are sorted by name. If q has no quarantine, all keys belong to one chat
// and its quarantine applies. The chats in asleep are searched in their frozen form. unread holds the damaged
// histories.
func (s *Searcher) recall(ctx context.Context, q recall.Query, asleep map[memory.Chat]redisstore.Frozen,
	keys ...memory.Key) (result recall.Result, unread []memory.Key, err error) {
	span, _ := s.Cfg.Traces.Start(telemetry.FromContext(ctx), tracing.Begin{Operation: tracing.SearchMemory,
		Subject: tracing.History})
	span.SetInput(q.Text)
	defer func() { node.EndMemory(span, len(result.Hits), err) }()
	if s.Cfg.RecallVectors > 0 {
		q.Vector, q.VectorWeight = s.vectorOf(ctx, q.Text), s.Cfg.VectorWeight
	}
	if len(keys) > 0 && q.Quarantine == nil {
		if q.Quarantine, err = s.Store.Chats.Quarantined(ctx, keys[0].Chat()); err != nil {
			return recall.Result{}, nil, err
		}
	}
	leave, err := s.Searches.Enter(ctx, access.FromContext(ctx).Tenant)
	if err != nil {
		return recall.Result{}, nil, err
	}
	defer leave()
	indexes, unread, err := s.upToDate(ctx, asleep, keys)
	if err != nil {
		return recall.Result{}, nil, err
	}
	s.Indexes.bound(cmp.Or(s.Cfg.RecallBytes, recallBytes))
	if s.Cfg.RecallVectors > 0 {
		s.place(indexes...)
	}
	return recall.Search(indexes, q), unread, nil
}

// upToDate returns the indexes of histories, updated to the stored messages. Only the oldest part of an archive may
// still be missing. keys are sorted, so that two searches cannot deadlock. unread holds the damaged histories.
func (s *Searcher) upToDate(ctx context.Context, asleep map[memory.Chat]redisstore.Frozen, keys []memory.Key) (
	out []*recall.Index, unread []memory.Key, err error) {
	entries := make([]*indexed, len(keys))
	var awake []memory.Key
	for i, key := range keys {
		entries[i] = s.Indexes.get(key)
		entries[i].mu.Lock()
		defer entries[i].mu.Unlock()
		if _, sleeps := asleep[key.Chat()]; !sleeps {
			awake = append(awake, key)
		}
	}
	current, err := s.LoadEach(ctx, awake...)
	if err != nil {
		return nil, nil, err
	}
	// The histories are loaded first, so messages that a trim moves in between are in both results and never missing.
	archived, err := s.Store.Archives.Archived(ctx, awake...)
	if err != nil {
		return nil, nil, err
	}
	for i, key := range keys {
		if f, sleeps := asleep[key.Chat()]; sleeps {
			entries[i].indexFrozen(f)
			out = append(out, entries[i].index)
			continue
		}
		h, moved := current[0], archived[0]
		current, archived = current[1:], archived[1:]
		switch {
		case h == nil:
			unread = append(unread, key)
		case h.Len() == 0 && moved == 0:
			s.Indexes.drop(key)
		default:
			if err := s.bringUpToDate(ctx, entries[i], h, moved); err != nil {
				return nil, nil, err
			}
			out = append(out, entries[i].index)
		}
	}
	return out, unread, nil
}

// indexFrozen updates the index to a sleeping chat. The caller holds x.mu.
func (x *indexed) indexFrozen(f redisstore.Frozen) {
	if x.index == nil || x.cut != f.Cut() || x.archived != f.Archived || x.sum != f.Sum() || len(x.older) > 0 {
		x.index = recall.New(f.Key())
		x.index.Append(f.Archive...)
		x.index.Append(f.Raw(0)...)
		x.older, x.sum, x.cut, x.archived, x.gaps = nil, f.Sum(), f.Cut(), f.Archived, !f.Complete
		x.generation++
		x.bytes.Store(int64(x.index.Size()))
		if f.Complete {
			x.index.MarkComplete()
		}
	}
}

// bringUpToDate updates the index to h and its archive. archived is the number of messages that trims have moved. The
// caller holds x.mu.
func (s *Searcher) bringUpToDate(ctx context.Context, x *indexed, h *memory.History, archived int) error {
	if x.index == nil || x.cut != h.Cut() || x.archived > archived {
		if err := s.indexAnew(ctx, x, h, archived); err != nil {
			return err
		}
	} else if x.archived < archived { // trims moved messages that the index may lack
		if err := s.fill(ctx, x, archived); err != nil {
			return err
		}
	}
	if x.sum != h.Sum() {
		x.index.Append(h.Raw(0)...)
		x.sum = h.Sum()
	}
	x.bytes.Store(int64(x.index.Size()))
	return nil
}

// indexAnew rebuilds the index. It adds h and the newest segments at once, and the others in the background, newest
// first.
func (s *Searcher) indexAnew(ctx context.Context, x *indexed, h *memory.History, archived int) error {
	segments, err := s.Store.Archives.Segments(ctx, h.Key())
	if err != nil {
		return err
	}
	index := recall.New(h.Key())
	index.Append(h.Raw(0)...)
	x.index, x.older, x.sum, x.cut = index, segments, h.Sum(), h.Cut()
	x.archived, x.gaps = archived, false
	x.generation++
	if len(segments) == 0 {
		index.MarkComplete()
	}
	for read := 0; read < fillFirst && len(x.older) > 0; read += fillAtOnce {
		if err := s.fillOlder(ctx, x); err != nil {
			return err
		}
	}
	if generation := x.generation; len(x.older) > 0 {
		s.Workers.Go(func() { s.fillRest(x, generation) })
	}
	return nil
}

// fillOlder adds the next older segments at the front of the index. The caller holds x.mu.
func (s *Searcher) fillOlder(ctx context.Context, x *indexed) error {
	start := max(len(x.older)-fillAtOnce, 0)
	read, complete, err := s.readSegments(ctx, x.index.Key(), x.older[start:])
	if err != nil {
		return err
	}
	x.index.Prepend(read...)
	x.gaps = x.gaps || !complete
	if x.older = x.older[:start]; start == 0 && !x.gaps {
		x.index.MarkComplete()
	}
	x.bytes.Store(int64(x.index.Size()))
	return nil
}

// readSegments returns the messages of segments, without damaged and missing ones. complete reports whether all
// segments were read.
func (s *Searcher) readSegments(ctx context.Context, key memory.Key, segments []redisstore.Segment) (
	raw []json.RawMessage, complete bool, err error) {
	read, err := s.Histories.readEach(ctx, key, segments)
	complete = err == nil
	for _, seg := range read {
		raw, complete = append(raw, seg.raw...), complete && seg.absent == nil
	}
	return raw, complete, err
}

// fillRest adds the remaining segments of an archive. It stops if the index is rebuilt meanwhile.
func (s *Searcher) fillRest(x *indexed, generation int) {
	for s.Life.Err() == nil {
		x.mu.Lock()
		done := x.generation != generation || len(x.older) == 0
		var err error
		if !done {
			err = s.fillOlder(s.Life, x)
		}
		key := x.index.Key()
		x.mu.Unlock()
		if done {
			return
		}
		if err != nil {
			s.Log.Warn().Err(err).Str("key", key.String()).Msg("an archive could not be read for searches; it is tried again")
			_ = node.Pause(s.Life, node.RetryEvery)
		}
	}
}

// fill adds the segments that trims have made after the last update of the index, in this or another process. The
// caller holds x.mu.
func (s *Searcher) fill(ctx context.Context, x *indexed, archived int) error {
	segments, err := s.Store.Archives.Segments(ctx, x.index.Key())
	if err != nil {
		return err
	}
	segments = slices.DeleteFunc(segments, func(seg redisstore.Segment) bool { return seg.Position < x.archived })
	for chunk := range slices.Chunk(segments, fillAtOnce) {
		read, _, err := s.readSegments(ctx, x.index.Key(), chunk)
		if err != nil {
			return err
		}
		x.index.Append(read...)
	}
	x.archived = archived
	return nil
}

// indexes holds the indexes of recently searched histories.
type indexes struct {
	mu      sync.Mutex
	entries map[memory.Key]*indexed // guarded by mu
}

// indexed is the index of one history and the state that it covers.
type indexed struct {
	used  time.Time    // guarded by indexes.mu
	bytes atomic.Int64 // size of the index

	mu         sync.Mutex // held while the index is updated
	index      *recall.Index
	generation int                  // incremented when the index is rebuilt
	older      []redisstore.Segment // segments not yet in the index, oldest first
	gaps       bool                 // a segment is damaged or missing; the index never becomes complete
	sum        memory.Sum           // History.Sum of the indexed history
	cut        int64                // turn of the last deliberate change that the index covers
	archived   int                  // number of messages that trims had moved
}

// get returns the entry of a history. Its index is nil until the first update.
func (x *indexes) get(key memory.Key) *indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.entries == nil {
		x.entries = map[memory.Key]*indexed{}
	}
	entry := x.entries[key]
	if entry == nil {
		entry = &indexed{}
		x.entries[key] = entry
	}
	entry.used = time.Now()
	return entry
}

// holds reports whether ix is the current index of its history.
func (x *indexes) holds(ix *recall.Index) bool {
	x.mu.Lock()
	entry := x.entries[ix.Key()]
	x.mu.Unlock()
	if entry == nil {
		return false
	}
	entry.mu.Lock()
	defer entry.mu.Unlock()
	return entry.index == ix
}

// drop removes the indexes of histories.
func (x *indexes) drop(keys ...memory.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range keys {
		delete(x.entries, key)
	}
}

// DropChat removes the indexes of a chat.
func (x *indexes) DropChat(chat memory.Chat) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.entries, func(key memory.Key, _ *indexed) bool { return key.Chat() == chat })
}

// bound removes the least recently used indexes until the total size is at most bytes.
func (x *indexes) bound(bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	total := int64(0)
	var keys []memory.Key
	for key, entry := range x.entries {
		total += entry.bytes.Load()
		keys = append(keys, key)
	}
	if total <= bytes {
		return
	}
	slices.SortFunc(keys, func(a, b memory.Key) int { return x.entries[a].used.Compare(x.entries[b].used) })
	for _, key := range keys[:len(keys)-1] { // the most recent one is in use
		if total <= bytes {
			return
		}
		total -= x.entries[key].bytes.Load()
		delete(x.entries, key)
	}
}

const (
	vectorWait  = time.Second      // for the vector of a query
	vectorPause = 30 * time.Second // without requests to the apiserver after a failure
)

// placing is the state of the work on vectors. The newest messages of searched histories get vectors from the
// apiserver's embedding model. Without vectors, or if the query's vector is late, a search uses only words. The zero
// value is ready to use.
type placing struct {
	muted   atomic.Int64 // Unix ms until which the apiserver gets no requests
	working sync.Map     // indexes whose messages are being placed
	turn    sync.Mutex   // held while messages are placed, so that search requests find room
}

// vectors returns the vectors of texts, or nil. After a failure it logs the reason and pauses requests for vectorPause.
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

// vectorOf returns the vector of a query, or nil if there is none within vectorWait.
func (s *Searcher) vectorOf(ctx context.Context, query string) []float32 {
	ctx, cancel := context.WithTimeout(ctx, vectorWait)
	defer cancel()
	if vectors := s.vectors(ctx, query); vectors != nil {
		return vectors[0]
	}
	return nil
}

// place requests missing vectors for the newest messages of indexes in the background, while the indexes are in use.
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

// placeSome requests vectors for some messages. It returns false if no message needs one, or after a failure.
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
