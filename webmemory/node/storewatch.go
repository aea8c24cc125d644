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

// StoreWatch is what this process knows of the state of Redis: whether it answers, and whether it lost data. It keeps
// in the meta of a chat only which loss the chat's clients were told of. A loss that may have been is taken for one.
type StoreWatch struct {
	*Core
	Health health
	Losses Losses
}

// health is what the service knows of what it depends on.
type health struct {
	mu sync.Mutex
	dependencies
}

// dependencies are the state of what the service depends on. In health they are guarded by its mu.
type dependencies struct {
	Answered  bool      // the store has answered once
	DownSince time.Time // when it stopped answering; zero while it does
	Refusal   string    // why something cannot be written although the store answers; empty while all can
	Denied    bool      // the refusal lasts until an operator permits something
	Cold      string    // why the cold store cannot be read; "" while it can
	Full      float64   // which part of its maxmemory Redis has used, as last seen
}

// fullFrom is the part of Redis's maxmemory from which on the service is degraded.
const fullFrom = 0.8

// TooFull is the sentence about a Redis that has used so much of its maxmemory, "" for less.
func TooFull(full float64) string {
	if full < fullFrom {
		return ""
	}
	return fmt.Sprintf("Redis has used %.0f %% of its maxmemory, and when it is full takes no more messages: "+
		"raise maxmemory, erase chats, or bound webmemory.archive.", 100*full)
}

// NoteFull says whether Redis is as full as that, and was not before.
func (h *health) NoteFull(full float64) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.Full < fullFrom && full >= fullFrom
	h.Full = full
	return news
}

// Note takes whether the store answered, and says whether that is news.
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

// NoteRefusal says whether there is a reason that was not there before.
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

// Losses is what this process knows of data that Redis lost. The epoch is a random mark
// that Redis keeps with its data: another one means that all is lost. A server that was
// not there before may have lost its last writes only, or have loaded an older state.
type Losses struct {
	mu        sync.Mutex
	lastReset time.Time              // guarded by mu: when one was noticed last, or the process began
	lastLoss  time.Time              // guarded by mu: when one was noticed last; zero for never
	epoch     string                 // guarded by mu: the store's mark, as last seen; "" before
	servers   []string               // guarded by mu: run ids of its servers, as last seen
	Used      map[memory.Chat]string // guarded by mu: chats with runs here, and the epoch of the last one
	Wake      chan struct{}          // something may have been lost
}

// note takes the time of a loss, if it is one. The caller holds mu.
func (l *Losses) note(isLoss bool) {
	if isLoss || l.lastReset.IsZero() {
		l.lastReset = time.Now()
	}
	if isLoss {
		l.lastLoss = l.lastReset
	}
}

// Noticed says whether a loss was noticed within a time.
func (l *Losses) Noticed(window time.Duration) bool { return time.Since(l.Newest()) < window }

// Newest is when a loss was noticed last; zero for never.
func (l *Losses) Newest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLoss
}

// IsRecent reports whether Redis lost data so recently that other processes may not have written theirs back yet.
func (l *Losses) IsRecent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lastReset) < Retelling
}

func (l *Losses) wakeUp() {
	select {
	case l.Wake <- struct{}{}:
	default: // it is asked for already
	}
}

// usedIn notes that a chat is used, and says whether it was used in another epoch before;
// that stays so until it is told.
func (l *Losses) usedIn(chat memory.Chat, epoch string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prev, ok := l.Used[chat]
	if !ok {
		makeRoom(l.Used) // what a chat lost that is forgotten, and is cached, is told all the same
		l.Used[chat] = epoch
	}
	return ok && prev != epoch
}

// NoteEpoch takes note of the epoch that Redis holds. The first one tells nothing of what Redis lost before: while no
// process was there, or after this one had read some of it. So what is known here is written back then, too.
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

// NoteServers takes note of which servers hold the data, by their run ids.
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

// LostLately looks whether Redis lost something, and says whether other processes may
// still be writing back what they know: for a while after a loss, and after this process
// began. If Redis does not answer they may.
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

// HasLoss reports whether Redis has lost data lately, as its epoch and servers say.
func (s *StoreWatch) HasLoss(ctx context.Context) bool {
	_ = s.LostLately(ctx) // notes what it finds
	return s.Losses.Noticed(Retelling)
}

// LossOf says whether a run of a chat is to tell its client that the memory lost data:
// something of the chat was brought back, or Redis lost everything since the chat was used
// here. It gives the epoch, in which that is told once, by whichever process. It is also
// where a loss is noticed first, if the chat is used right after it.
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

// ToldLoss notes that a chat's run has told of a loss, under the store's mark that it
// was asked with; "" is the one that was seen last, for a run that another process began.
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
