package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// StoreWatch tracks the state of Redis: whether it responds, and whether it lost data. In a chat's meta it stores only
// the last loss that was reported to the chat's clients. Suspected data loss is treated as data loss.
type StoreWatch struct {
	*Core
	Health health
	Losses Losses
}

// health is the state of the service's dependencies, for concurrent use.
type health struct {
	mu sync.Mutex
	dependencies
}

// dependencies is the state of the service's dependencies. In health, mu guards it.
type dependencies struct {
	Answered  bool      // Redis has responded once
	DownSince time.Time // when Redis stopped responding; zero while it responds
	Refusal   string    // why some writes fail although Redis responds; "" if none fail
	Denied    bool      // the refusal lasts until an operator grants a permission
	Cold      string    // why the cold store cannot be read; "" if it can
	Full      float64   // used fraction of Redis's maxmemory, as last seen
}

// fullFrom is the used fraction of Redis's maxmemory at which the service becomes degraded.
const fullFrom = 0.8

// TooFull returns a warning if full, the used fraction of maxmemory, is at least fullFrom. Otherwise it returns "".
func TooFull(full float64) string {
	if full < fullFrom {
		return ""
	}
	return fmt.Sprintf("Redis has used %.0f %% of its maxmemory, and when it is full takes no more messages: "+
		"raise maxmemory, erase chats, or bound webmemory.archive.", 100*full)
}

// NoteFull stores the used fraction of maxmemory. It reports whether the fraction has just reached fullFrom.
func (h *health) NoteFull(full float64) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.Full < fullFrom && full >= fullFrom
	h.Full = full
	return news
}

// Note records whether Redis responded. It reports whether that changed.
func (h *health) Note(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.DownSince.IsZero() == (err != nil)
	switch {
	case err == nil:
		h.Answered, h.DownSince = true, time.Time{}
	case news:
		h.DownSince = time.Now()
	}
	return news
}

// NoteRefusal stores the reason why Redis refuses writes, "" for none. It reports whether the refusal is new.
func (h *health) NoteRefusal(why string, denied bool) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = why != "" && h.Refusal == ""
	h.Refusal, h.Denied = why, denied
	return fresh
}

// NoteCold stores the reason why the cold store cannot be read, "" if it can. It reports whether the fault is new.
func (h *health) NoteCold(reason string) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = reason != "" && h.Cold == ""
	h.Cold = reason
	return fresh
}

func (h *health) Get() dependencies {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dependencies
}

// Losses records the data losses of Redis that this process noticed. The epoch is a random mark that Redis stores with
// its data. A different epoch means that all data is lost. A server that was not there before may have lost only its
// last writes, or may have loaded an older state.
type Losses struct {
	mu        sync.Mutex
	lastReset time.Time              // guarded by mu: when the last loss was noticed, or the process began
	lastLoss  time.Time              // guarded by mu: when the last loss was noticed; zero for never
	epoch     string                 // guarded by mu: epoch of Redis, as last seen; "" before
	servers   []string               // guarded by mu: run ids of the Redis servers, as last seen
	Used      map[memory.Chat]string // guarded by mu: epoch of the last run in this process, by chat
	Wake      chan struct{}          // receives a value after a possible loss
}

// note records the time, and a loss if isLoss is set. The caller holds mu.
func (l *Losses) note(isLoss bool) {
	if isLoss || l.lastReset.IsZero() {
		l.lastReset = time.Now()
	}
	if isLoss {
		l.lastLoss = l.lastReset
	}
}

// Noticed reports whether a loss was noticed within window.
func (l *Losses) Noticed(window time.Duration) bool { return time.Since(l.Newest()) < window }

// Newest returns when the last loss was noticed; zero for never.
func (l *Losses) Newest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLoss
}

// IsRecent reports whether Redis lost data so recently that other processes may not have written theirs back yet. A
// start of this process counts as a loss.
func (l *Losses) IsRecent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lastReset) < Retelling
}

func (l *Losses) wakeUp() {
	select {
	case l.Wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// usedIn records the use of a chat. It reports whether the chat's last use was in another epoch. This stays true until
// ToldLoss is called.
func (l *Losses) usedIn(chat memory.Chat, epoch string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prev, ok := l.Used[chat]
	if !ok {
		makeRoom(l.Used) // a loss of a forgotten chat is still reported if the chat is cached
		l.Used[chat] = epoch
	}
	return ok && prev != epoch
}

// NoteEpoch records the epoch of Redis. The first epoch does not show earlier losses, from before any process ran or
// after this process had read some data. So this process writes its data back after the first epoch too.
func (s *StoreWatch) NoteEpoch(epoch string) {
	s.Losses.mu.Lock()
	fresh := s.Losses.epoch != epoch
	isLoss := fresh && s.Losses.epoch != ""
	s.Losses.epoch = epoch
	s.Losses.note(isLoss)
	s.Losses.mu.Unlock()
	if isLoss {
		s.Metrics.resets.Inc()
		s.Log.Error().Msg("Redis has lost its data: another epoch. What is known here is written back")
	}
	if fresh {
		s.Losses.wakeUp()
	}
}

// NoteServers records the run ids of the Redis servers. A new server counts as a loss.
func (s *StoreWatch) NoteServers(ids []string) {
	s.Losses.mu.Lock()
	fresh := len(s.Losses.servers) > 0 && slices.ContainsFunc(ids, func(id string) bool {
		return !slices.Contains(s.Losses.servers, id)
	})
	if len(ids) > 0 {
		s.Losses.servers = ids
	}
	s.Losses.note(fresh)
	s.Losses.mu.Unlock()
	if fresh {
		s.Metrics.changes.Inc()
		s.Log.Warn().Msg("Redis is another server than before: restarted, or failed over. What is known here and missing " +
			"there is written back")
		s.Losses.wakeUp()
	}
}

// LostLately checks whether Redis lost data. It reports whether other processes may still be writing their data back.
// This is true for a while after a loss and after this process began, and if Redis does not respond.
func (s *StoreWatch) LostLately(ctx context.Context) bool {
	epoch, err := s.Store.Server.Epoch(ctx)
	if err != nil {
		return true
	}
	s.NoteEpoch(epoch)
	servers, _, err := s.Store.Server.RunIDs(ctx)
	if err != nil {
		return true
	}
	s.NoteServers(servers)
	return s.Losses.IsRecent()
}

// HasLoss reports whether Redis has lost data recently, according to its epoch and servers.
func (s *StoreWatch) HasLoss(ctx context.Context) bool {
	_ = s.LostLately(ctx) // records losses
	return s.Losses.Noticed(Retelling)
}

// LossOf reports whether a run of a chat must report a data loss to its client. It must if a part of the chat was
// restored, or if Redis lost all data after the chat's last use in this process. LossOf also returns the epoch, because
// a loss is reported once per epoch, by any process. If the chat is used right after a loss, LossOf notices the loss
// first.
func (s *StoreWatch) LossOf(ctx context.Context, chat memory.Chat, loss redisstore.Loss) (epoch string, dataLost bool) {
	if !s.Health.Get().DownSince.IsZero() {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, CheckEvery)
	defer cancel()
	epoch = loss.Epoch
	var err error
	if epoch == "" {
		epoch, err = s.Store.Server.Epoch(ctx)
	}
	if err != nil {
		s.Log.Debug().Err(err).Str("chat", chat.String()).Msg("whether a chat lost something is not known")
		return "", false
	}
	s.NoteEpoch(epoch)
	epochChanged := s.Losses.usedIn(chat, epoch)
	return epoch, loss.Recovered || epochChanged && loss.ReportedEpoch != epoch
}

// ToldLoss records that a run of the chat has reported a loss. epoch is the result of LossOf. If another process began
// the run, epoch is "" and the last seen epoch is used.
func (s *StoreWatch) ToldLoss(ctx context.Context, chat memory.Chat, epoch string) {
	s.Losses.mu.Lock()
	epoch = cmp.Or(epoch, s.Losses.epoch)
	s.Losses.Used[chat] = epoch
	s.Losses.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	if err := s.Store.Turns.TellLoss(ctx, chat, epoch); err != nil {
		s.Log.Warn().Err(err).Str("chat", chat.String()).Msg("a loss may be told twice")
	}
}
