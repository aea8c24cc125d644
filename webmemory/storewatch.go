package webmemory

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

// storeWatch is what this process knows of the state of Redis: whether it answers, and whether it lost data. It keeps
// in the meta of a chat only which loss the chat's clients were told of. A loss that may have been is taken for one.
type storeWatch struct {
	*core
	health health
	losses losses
}

// health is what the service knows of what it depends on.
type health struct {
	mu sync.Mutex
	dependencies
}

// dependencies are the state of what the service depends on. In health they are guarded by its mu.
type dependencies struct {
	answered  bool      // the store has answered once
	downSince time.Time // when it stopped answering; zero while it does
	refusal   string    // why something cannot be written although the store answers; empty while all can
	denied    bool      // the refusal lasts until an operator permits something
	cold      string    // why the cold store cannot be read; "" while it can
	full      float64   // which part of its maxmemory Redis has used, as last seen
}

// fullFrom is the part of Redis's maxmemory from which on the service is degraded.
const fullFrom = 0.8

// tooFull is the sentence about a Redis that has used so much of its maxmemory, "" for less.
func tooFull(full float64) string {
	if full < fullFrom {
		return ""
	}
	return fmt.Sprintf("Redis has used %.0f %% of its maxmemory, and when it is full takes no more messages: "+
		"raise maxmemory, erase chats, or bound webmemory.archive.", 100*full)
}

// noteFull says whether Redis is as full as that, and was not before.
func (h *health) noteFull(full float64) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.full < fullFrom && full >= fullFrom
	h.full = full
	return news
}

// note takes whether the store answered, and says whether that is news.
func (h *health) note(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = h.downSince.IsZero() == (err != nil)
	switch {
	case err == nil:
		h.answered, h.downSince = true, time.Time{}
	case news:
		h.downSince = time.Now()
	}
	return news
}

// noteRefusal says whether there is a reason that was not there before.
func (h *health) noteRefusal(why string, denied bool) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = why != "" && h.refusal == ""
	h.refusal, h.denied = why, denied
	return fresh
}

// noteCold stores the reason why the cold store cannot be read, "" if it can. It reports whether the fault is new.
func (h *health) noteCold(reason string) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = reason != "" && h.cold == ""
	h.cold = reason
	return fresh
}

func (h *health) get() dependencies {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dependencies
}

// losses is what this process knows of data that Redis lost. The epoch is a random mark
// that Redis keeps with its data: another one means that all is lost. A server that was
// not there before may have lost its last writes only, or have loaded an older state.
type losses struct {
	mu        sync.Mutex
	lastReset time.Time              // guarded by mu: when one was noticed last, or the process began
	lastLoss  time.Time              // guarded by mu: when one was noticed last; zero for never
	epoch     string                 // guarded by mu: the store's mark, as last seen; "" before
	servers   []string               // guarded by mu: run ids of its servers, as last seen
	used      map[memory.Chat]string // guarded by mu: chats with runs here, and the epoch of the last one
	wake      chan struct{}          // something may have been lost
}

// note takes the time of a loss, if it is one. The caller holds mu.
func (l *losses) note(isLoss bool) {
	if isLoss || l.lastReset.IsZero() {
		l.lastReset = time.Now()
	}
	if isLoss {
		l.lastLoss = l.lastReset
	}
}

// noticed says whether a loss was noticed within a time.
func (l *losses) noticed(window time.Duration) bool { return time.Since(l.newest()) < window }

// newest is when a loss was noticed last; zero for never.
func (l *losses) newest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLoss
}

func (l *losses) isRecent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lastReset) < retelling
}

func (l *losses) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // it is asked for already
	}
}

// usedIn notes that a chat is used, and says whether it was used in another epoch before;
// that stays so until it is told.
func (l *losses) usedIn(chat memory.Chat, epoch string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prev, ok := l.used[chat]
	if !ok {
		makeRoom(l.used) // what a chat lost that is forgotten, and is cached, is told all the same
		l.used[chat] = epoch
	}
	return ok && prev != epoch
}

// noteEpoch takes note of the epoch that Redis holds. The first one tells nothing of what Redis lost before: while no
// process was there, or after this one had read some of it. So what is known here is written back then, too.
func (s *storeWatch) noteEpoch(epoch string) {
	s.losses.mu.Lock()
	fresh := s.losses.epoch != epoch
	isLoss := fresh && s.losses.epoch != ""
	s.losses.epoch = epoch
	s.losses.note(isLoss)
	s.losses.mu.Unlock()
	if isLoss {
		s.metrics.resets.Inc()
		s.log.Error().Msg("Redis has lost its data: another epoch. What is known here is written back")
	}
	if fresh {
		s.losses.wakeUp()
	}
}

// noteServers takes note of which servers hold the data, by their run ids.
func (s *storeWatch) noteServers(ids []string) {
	s.losses.mu.Lock()
	fresh := len(s.losses.servers) > 0 && slices.ContainsFunc(ids, func(id string) bool {
		return !slices.Contains(s.losses.servers, id)
	})
	if len(ids) > 0 {
		s.losses.servers = ids
	}
	s.losses.note(fresh)
	s.losses.mu.Unlock()
	if fresh {
		s.metrics.changes.Inc()
		s.log.Warn().Msg("Redis is another server than before: restarted, or failed over. What is known here and missing " +
			"there is written back")
		s.losses.wakeUp()
	}
}

// lostLately looks whether Redis lost something, and says whether other processes may
// still be writing back what they know: for a while after a loss, and after this process
// began. If Redis does not answer they may.
func (s *storeWatch) lostLately(ctx context.Context) bool {
	epoch, err := s.store.Server.Epoch(ctx)
	if err != nil {
		return true
	}
	s.noteEpoch(epoch)
	servers, _, err := s.store.Server.RunIDs(ctx)
	if err != nil {
		return true
	}
	s.noteServers(servers)
	return s.losses.isRecent()
}

// hasLoss reports whether Redis has lost data lately, as its epoch and servers say.
func (s *storeWatch) hasLoss(ctx context.Context) bool {
	_ = s.lostLately(ctx) // notes what it finds
	return s.losses.noticed(retelling)
}

// lossOf says whether a run of a chat is to tell its client that the memory lost data:
// something of the chat was brought back, or Redis lost everything since the chat was used
// here. It gives the epoch, in which that is told once, by whichever process. It is also
// where a loss is noticed first, if the chat is used right after it.
func (s *storeWatch) lossOf(ctx context.Context, chat memory.Chat, loss redisstore.Loss) (epoch string, dataLost bool) {
	if !s.health.get().downSince.IsZero() {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, checkEvery)
	defer cancel()
	epoch = loss.Epoch
	var err error
	if epoch == "" {
		epoch, err = s.store.Server.Epoch(ctx)
	}
	if err != nil {
		s.log.Debug().Err(err).Str("chat", chat.String()).Msg("whether a chat lost something is not known")
		return "", false
	}
	s.noteEpoch(epoch)
	epochChanged := s.losses.usedIn(chat, epoch)
	return epoch, loss.Recovered || epochChanged && loss.ReportedEpoch != epoch
}

// toldLoss notes that a chat's run has told of a loss, under the store's mark that it
// was asked with; "" is the one that was seen last, for a run that another process began.
func (s *storeWatch) toldLoss(ctx context.Context, chat memory.Chat, epoch string) {
	s.losses.mu.Lock()
	epoch = cmp.Or(epoch, s.losses.epoch)
	s.losses.used[chat] = epoch
	s.losses.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.store.Turns.TellLoss(ctx, chat, epoch); err != nil {
		s.log.Warn().Err(err).Str("chat", chat.String()).Msg("a loss may be told twice")
	}
}
