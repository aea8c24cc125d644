package webmemory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
)

// This file is about data that Redis lost: how it is noticed, what of it is brought
// back, and who is told.

// losses is what is known of them.
type losses struct {
	mu      sync.Mutex
	at      time.Time              // guarded by mu: when one was noticed last, or the process began
	epoch   string                 // guarded by mu: the store's mark, as last seen; "" before
	servers []string               // guarded by mu: run ids of its servers, as last seen
	used    map[memory.Chat]string // guarded by mu: chats with runs here, and the epoch of the last one
	wake    chan struct{}          // something may have been lost
}

// maxUsed bounds how many chats are remembered to have been used here.
const maxUsed = 1 << 16

// noteEpoch takes note of the store's mark. Another one than before: all is lost.
func (s *Server) noteEpoch(epoch string) {
	s.losses.mu.Lock()
	lost := s.losses.epoch != "" && s.losses.epoch != epoch
	s.losses.epoch = epoch
	s.losses.note(lost)
	s.losses.mu.Unlock()
	if lost {
		s.metrics.resets.Inc()
		s.log.Error().Msg("Redis has lost its data: another epoch. What is known here is written back")
		s.losses.wakeUp()
	}
}

// noteServers takes note of who holds the data. One that was not there before may
// have lost the last of it, or have loaded an older state.
func (s *Server) noteServers(ids []string) {
	s.losses.mu.Lock()
	fresh := len(s.losses.servers) > 0 && slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(s.losses.servers, id) })
	if len(ids) > 0 {
		s.losses.servers = ids
	}
	s.losses.note(fresh)
	s.losses.mu.Unlock()
	if fresh {
		s.metrics.changes.Inc()
		s.log.Warn().Msg("Redis is another server than before: restarted, or failed over. What is known here and missing there is written back")
		s.losses.wakeUp()
	}
}

// note takes the time of a loss, if it is one. The caller holds mu.
func (l *losses) note(lost bool) {
	if lost || l.at.IsZero() {
		l.at = time.Now()
	}
}

// retelling is for how long after a loss Redis may not have been told yet what others
// know: they notice it, write back, and wait for the turns of busy chats.
const retelling = 2 * time.Minute

// lostLately looks whether Redis lost something, and says whether others may still be
// telling it what they know, as for a while after this process began too. Where that
// cannot be seen they may.
func (s *Server) lostLately(ctx context.Context) bool {
	if s.losses.lately() {
		return true
	}
	epoch, err := s.store.Epoch(ctx)
	if err != nil {
		return true
	}
	s.noteEpoch(epoch)
	servers, err := s.store.Servers(ctx)
	if err != nil {
		return true
	}
	s.noteServers(servers)
	return s.losses.lately()
}

func (l *losses) lately() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.at) < retelling
}

func (l *losses) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // it is asked for already
	}
}

// Bounds of writing back: histories that are looked at in one round trip, round trips
// at one time, and how often it is said how far it is.
const (
	writeBackBatch = 64
	writeBackers   = 8
	writeBackSays  = 5 * time.Second
)

// writeBack brings back what Redis lost, each time that something may be lost, until
// it has succeeded.
func (s *Server) writeBack() {
	for {
		select {
		case <-s.losses.wake:
		case <-s.life.Done():
			return
		}
		for err := s.writeBackAll(s.life); err != nil; err = s.writeBackAll(s.life) {
			if s.life.Err() != nil {
				return
			}
			s.log.Warn().Err(err).Msg("what is known here was not written back whole; it is tried again")
			select {
			case <-time.After(jitter(time.Second)):
			case <-s.life.Done():
				return
			}
		}
		s.workers.Go(func() { s.restoreRuns(s.life) })
	}
}

// writeBackAll writes back all histories that are cached. What was erased or changed
// on purpose comes first, so that nothing of that is brought back.
func (s *Server) writeBackAll(ctx context.Context) error {
	if err := s.syncErasures(ctx); err != nil {
		return err
	}
	began, before := time.Now(), s.store.Counts.Lost.Load()
	copies := s.cache.All()
	var looked atomic.Int64
	said := func() {
		if len(copies) == 0 {
			return
		}
		s.log.Warn().Int("histories", len(copies)).Int64("looked_at", looked.Load()).Int64("brought_back", s.store.Counts.Lost.Load()-before).
			Dur("took", time.Since(began)).Msg("writing back what Redis lost")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []*memory.History)
	var working sync.WaitGroup
	for range writeBackers {
		working.Go(func() {
			for batch := range batches {
				ctx, stop := context.WithTimeout(ctx, 6*storeTimeout)
				current, err := s.store.WriteBack(ctx, batch...)
				stop()
				looked.Add(int64(len(batch)))
				if err != nil {
					cancel(err)
					continue
				}
				for i, h := range current {
					if h != nil {
						s.cache.Refresh(batch[i], h)
					}
				}
			}
		})
	}
	tick := time.NewTicker(writeBackSays)
	defer tick.Stop()
	for batch := range slices.Chunk(copies, writeBackBatch) {
		for sent := false; !sent && ctx.Err() == nil; {
			select {
			case batches <- batch:
				sent = true
			case <-tick.C:
				said()
			case <-ctx.Done():
			}
		}
	}
	close(batches)
	working.Wait()
	said()
	return context.Cause(ctx)
}

// noteCut keeps on disk that somebody deleted or rewrote a history, in the turn that
// took note of it, and says so to the other processes, see followHandCuts.
func (s *Server) noteCut(key memory.Key, turn int64) {
	err := s.cfg.Cuts.Add(map[string]int64{key.String(): turn})
	if err != nil {
		s.log.Error().Err(err).Str("key", key.String()).Msg("a change by hand is not known here if Redis loses its data; older copies may come back then")
	}
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	if err := s.store.NoteErasure(ctx, turn, erasures.HandCut(key)); err != nil {
		s.log.Warn().Err(err).Str("key", key.String()).Msg("other processes do not know of a change by hand until they use the history")
	}
}

// followHandCuts keeps on this disk what other processes found changed by hand, and
// brings copies of it up to date: should Redis lose it, an older one brings nothing
// back.
func (s *Server) followHandCuts(ctx context.Context, turns map[string]int64) error {
	known, err := s.cfg.Cuts.All()
	if err != nil {
		return err
	}
	fresh := map[string]int64{}
	for name, turn := range turns {
		key, ok := erasures.HandCutOf(name)
		if !ok || turn <= known[key.String()] {
			continue
		}
		fresh[key.String()] = turn
		if have := s.cache.Peek(key); have != nil && have.Turn() < turn {
			if _, err := s.cache.Load(ctx, 0, memory.Empty(key)); err != nil {
				return err
			}
		}
	}
	return s.cfg.Cuts.Add(fresh)
}

// restoreHandCuts tells Redis again which histories were deleted or rewritten by hand.
func (s *Server) restoreHandCuts(ctx context.Context) error {
	known, err := s.cfg.Cuts.All()
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	for name, turn := range known {
		if key, ok := memory.ParseKey(name); ok && turn >= oldest {
			if err := s.store.RestoreCut(ctx, turn, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// lossOf says whether a run of a chat is to tell that the memory lost data: something
// of the chat was brought back, or Redis lost everything since the chat was used here.
// It gives the store's mark, under which it is told once, whoever tells. It is also
// where a loss is noticed first, if the chat is used right after it. loss is what the
// store knows of the chat's.
func (s *Server) lossOf(ctx context.Context, chat memory.Chat, loss redisstore.Loss) (epoch string, lost bool) {
	if _, since := s.health.get(); !since.IsZero() {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, checkEvery)
	defer cancel()
	epoch = loss.Epoch
	var err error
	if epoch == "" {
		epoch, err = s.store.Epoch(ctx)
	}
	if err != nil {
		s.log.Debug().Err(err).Str("chat", chat.String()).Msg("whether a chat lost something is not known")
		return "", false
	}
	s.noteEpoch(epoch)
	since := s.losses.usedIn(chat, epoch)
	return epoch, loss.Lost || since && loss.Told != epoch
}

// usedIn notes that a chat is used, and says whether it was used under another epoch.
// Until that is told it stays so.
func (l *losses) usedIn(chat memory.Chat, epoch string) (otherwise bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, known := l.used[chat]
	if !known {
		for other := range l.used {
			if len(l.used) < maxUsed {
				break
			}
			delete(l.used, other) // any: what they lost and is cached is told all the same
		}
		l.used[chat] = epoch
	}
	return known && before != epoch
}

// toldLoss notes that a chat's run has told of a loss, under the store's mark that it
// was asked with; "" is the one that was seen last, for a run that another process began.
func (s *Server) toldLoss(ctx context.Context, chat memory.Chat, epoch string) {
	s.losses.mu.Lock()
	epoch = cmp.Or(epoch, s.losses.epoch)
	s.losses.used[chat] = epoch
	s.losses.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.store.TellLoss(ctx, chat, epoch); err != nil {
		s.log.Warn().Err(err).Str("chat", chat.String()).Msg("a loss may be told twice")
	}
}

// conversations are those that the gateway has of chats used here. Redis may lose
// which one a chat has: it gets it again, with the thinking that the gateway kept, and
// an erasure reaches all of them.
type conversations struct {
	mu sync.Mutex
	of map[memory.Chat]map[string]int64 // guarded by mu: the newest turn of each, by its id
}

// note takes note of a chat's conversation in a turn.
func (c *conversations) note(chat memory.Chat, id string, turn int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[chat] == nil {
		for other := range c.of {
			if len(c.of) < maxUsed {
				break
			}
			delete(c.of, other)
		}
		c.of[chat] = map[string]int64{}
	}
	c.of[chat][id] = max(c.of[chat][id], turn)
}

// newest is the chat's last one, "" if none is known.
func (c *conversations) newest(chat memory.Chat) (id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, turn := range c.of[chat] {
		if turn > c.of[chat][id] {
			id = other
		}
	}
	return id
}

// erased says whether a chat's conversation, as its turn was taken, is one that was
// erased since it was last used here: this process had not heard of the erasure, and
// has offered it again to a Redis that had lost it.
func (c *conversations) erased(chat memory.Chat, taken redisstore.Turn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest, known := c.of[chat][taken.Conversation]
	return known && newest <= taken.ErasedIn()
}

// eraseOffered erases such a conversation at the gateway, and takes it away from the
// chat, whose turn is held.
func (s *Server) eraseOffered(ctx context.Context, chat memory.Chat, taken redisstore.Turn) error {
	if err := s.eraseConversations(ctx, chat, taken.ErasedIn()); err != nil {
		return err
	}
	return s.store.DropConversation(ctx, chat)
}

// until are a chat's that had no turn after this one.
func (c *conversations) until(chat memory.Chat, turn int64) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, newest := range c.of[chat] {
		if newest <= turn {
			ids = append(ids, id)
		}
	}
	return ids
}

// eraseConversations erases what the gateway has of a chat from a turn and those
// before it, as far as this process knows its conversations.
func (s *Server) eraseConversations(ctx context.Context, chat memory.Chat, turn int64) error {
	c := &s.conversations
	ids := c.until(chat, turn)
	for _, id := range ids {
		if err := s.runs.EraseConversation(ctx, id); err != nil {
			return asking(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.of[chat], id)
	}
	if len(c.of[chat]) == 0 {
		delete(c.of, chat)
	}
	return nil
}
