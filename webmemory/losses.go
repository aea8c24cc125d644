package webmemory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/memory/redisstore"
)

// This file is about data that Redis lost, by a restart or a failover: how it is noticed,
// which clients are told, and how it is brought back: a lease with its run, histories that
// are cached, runs that ended, and what was deleted by hand. Erasures come first
// (erase.go), so that nothing erased is brought back.

// losses is what this process knows of data that Redis lost. The epoch is a random mark
// that Redis keeps with its data: another one means that all is lost. A server that was
// not there before may have lost its last writes only, or have loaded an older state.
type losses struct {
	mu      sync.Mutex
	at      time.Time              // guarded by mu: when one was noticed last, or the process began
	lost    time.Time              // guarded by mu: when one was noticed last; zero for never
	epoch   string                 // guarded by mu: the store's mark, as last seen; "" before
	servers []string               // guarded by mu: run ids of its servers, as last seen
	used    map[memory.Chat]string // guarded by mu: chats with runs here, and the epoch of the last one
	wake    chan struct{}          // something may have been lost
}

// maxUsed bounds how many chats are remembered to have been used here.
const maxUsed = 1 << 16

// makeRoom takes out any chats while there are as many as may be remembered.
func makeRoom[V any](chats map[memory.Chat]V) {
	for chat := range chats {
		if len(chats) < maxUsed {
			return
		}
		delete(chats, chat)
	}
}

// noteEpoch takes note of the epoch that Redis holds.
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

// noteServers takes note of which servers hold the data, by their run ids.
func (s *Server) noteServers(ids []string) {
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

// note takes the time of a loss, if it is one. The caller holds mu.
func (l *losses) note(lost bool) {
	if lost || l.at.IsZero() {
		l.at = time.Now()
	}
	if lost {
		l.lost = l.at
	}
}

// noticed says whether a loss was noticed within a time.
func (l *losses) noticed(within time.Duration) bool { return time.Since(l.newest()) < within }

// newest is when a loss was noticed last; zero for never.
func (l *losses) newest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// retelling is for how long after a loss Redis may still lack what other processes know:
// they notice it, write back, and wait for the leases of busy chats.
const retelling = 2 * time.Minute

// lostLately looks whether Redis lost something, and says whether other processes may
// still be writing back what they know: for a while after a loss, and after this process
// began. If Redis does not answer they may.
func (s *Server) lostLately(ctx context.Context) bool {
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

// lossOf says whether a run of a chat is to tell its client that the memory lost data:
// something of the chat was brought back, or Redis lost everything since the chat was used
// here. It gives the epoch, in which that is told once, by whichever process. It is also
// where a loss is noticed first, if the chat is used right after it.
func (s *Server) lossOf(ctx context.Context, chat memory.Chat, loss redisstore.Loss) (epoch string, lost bool) {
	if _, since := s.health.get(); !since.IsZero() {
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
	since := s.losses.usedIn(chat, epoch)
	return epoch, loss.Lost || since && loss.Told != epoch
}

// usedIn notes that a chat is used, and says whether it was used in another epoch before;
// that stays so until it is told.
func (l *losses) usedIn(chat memory.Chat, epoch string) (otherwise bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, known := l.used[chat]
	if !known {
		makeRoom(l.used) // what a chat lost that is forgotten, and is cached, is told all the same
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
	if err := s.store.Turns.TellLoss(ctx, chat, epoch); err != nil {
		s.log.Warn().Err(err).Str("chat", chat.String()).Msg("a loss may be told twice")
	}
}

// regainIfLost is regain if the lease was regained and no goroutine has put back yet what
// else was lost.
func (d *driver) regainIfLost(ctx context.Context) error {
	select {
	case <-d.writer.regained:
		return d.regain(ctx)
	default:
		return nil
	}
}

// regain puts back what Redis lost of a run under a lease that was regained: its record,
// its log and the pinned histories, in this order, since a history is never ahead of its
// log. Readers see nothing of it, and other processes find the run where it was.
func (d *driver) regain(ctx context.Context) error {
	d.log.Error().Msg("Redis has lost a chat in the middle of a run; it is put back")
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	err := d.putLostBack(ctx)
	if errors.Is(err, memory.ErrUnavailable) {
		// The run goes on without Redis; the next renewal asks for this again.
		d.log.Warn().Err(err).Msg("what Redis lost of a chat was not put back; it is tried again")
		return nil
	}
	if err != nil {
		return err
	}
	d.writer.lost.Store(false)
	d.server.metrics.regained.Inc()
	return nil
}

func (d *driver) putLostBack(ctx context.Context) error {
	if _, err := d.server.noteRun(ctx, d.run); err != nil {
		return err
	}
	entries, err := d.server.store.Runs.Relog(ctx, d.run.chat, d.run.id, d.run.logged()...)
	if err != nil {
		return err
	}
	d.writer.entries = entries
	if err := putOwnCallsBack(ctx, d); err != nil {
		return err
	}
	return d.writer.load(ctx, d.server.cfg.Agents)
}

// fillLog writes the run's log anew if Redis came back without some of its events, but
// with the lease, so that nothing else told of the loss.
func (d *driver) fillLog(ctx context.Context) error {
	n, err := d.server.store.Runs.LogLen(ctx, d.run.chat, d.run.id)
	if err != nil || n >= d.writer.entries {
		return err
	}
	d.log.Warn().Msg("Redis has lost events of a run that went on; its log is written anew")
	return d.writer.closeGap(ctx)
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
			_ = pause(s.life, jitter(time.Second))
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
	for i, h := range copies {
		redacted, err := s.redactedCopy(h)
		if err != nil {
			return err
		}
		if redacted != h {
			s.cache.Refresh(h, redacted)
			copies[i] = redacted
		}
	}
	var looked atomic.Int64
	said := func() {
		if len(copies) == 0 {
			return
		}
		s.log.Warn().Int("histories", len(copies)).Int64("looked_at", looked.Load()).
			Int64("brought_back", s.store.Counts.Lost.Load()-before).Dur("took", time.Since(began)).
			Msg("writing back what Redis lost")
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

// restoreTries bounds how often chats that are busy are tried for, about once a second.
const restoreTries = 60

// restoreRuns writes back the runs that ended lately, as far as this process remembers
// them or finds them on its disk, since no other process looks after them and a repeated
// post would run again what its client saw completed: first, at once, their messages,
// then all that is kept of each, as it gets their chats' leases.
func (s *Server) restoreRuns(ctx context.Context) {
	left := s.endedRuns()
	var placing sync.WaitGroup
	some := make(chan struct{}, writeBackers)
	for _, head := range left {
		if head.Waiting != nil { // what it said goes back with it, if it still waits
			continue
		}
		some <- struct{}{}
		placing.Go(func() {
			defer func() { <-some }()
			if err := s.placeRun(ctx, head); err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("the messages of a run come back with it")
			}
		})
	}
	placing.Wait()
	for range restoreTries {
		left = slices.DeleteFunc(left, func(head endHead) bool {
			err := s.restoreRun(ctx, head)
			if err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("run", head.Run).Msg("a run was not restored; it is tried again")
			}
			return err == nil
		})
		if len(left) == 0 {
			return
		}
		if pause(ctx, jitter(time.Second)) != nil {
			return
		}
	}
	s.log.Warn().Int("runs", len(left)).
		Msg("Redis does not know some runs that ended; their chats were busy, or it is away")
}

// placeRun brings back the messages of a run of which Redis knows no end. It fences no
// other writer, and so needs no lease.
func (s *Server) placeRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if known, err := s.knowsEnd(ctx, head); known || err != nil {
		return err
	}
	if err := s.followErasures(ctx); err != nil || s.redactedSince(head.Chat.Chat, head.Turn) {
		return err
	}
	_, lines := s.knownEvents(head.Chat.Chat, head.Run)
	copies, err := folded(head.Chat.Chat, head.Turn, head.events(lines))
	if err != nil {
		return err
	}
	_, err = s.store.WriteBack(ctx, copies...)
	return err
}

// knowsEnd says whether Redis knows how a run ended.
func (s *Server) knowsEnd(ctx context.Context, head endHead) (bool, error) {
	record, err := s.store.Runs.Record(ctx, head.Chat.Chat, head.Run)
	return err == nil && record != nil && len(record.Result) > 0 && record.Body != "", err
}

// endedRuns are those that ended here, or in a process with the same disk, oldest
// first.
func (s *Server) endedRuns() []endHead {
	heads := s.ends.heads()
	s.mu.Lock()
	for _, r := range s.live {
		if r.log.Done() {
			heads = append(heads, r.head())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(heads, func(a, b endHead) int {
		return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Run, b.Run))
	})
	return slices.CompactFunc(heads, func(a, b endHead) bool { return a.Run == b.Run })
}

// restoreRun writes one run back, unless Redis knows its end or its chat was erased since.
// It takes the chat's lease for that, which brings an open run to its end too.
func (s *Server) restoreRun(ctx context.Context, head endHead) error {
	ctx, cancel := context.WithTimeout(ctx, 2*storeTimeout)
	defer cancel()
	if known, err := s.knowsEnd(ctx, head); known || err != nil {
		return err
	}
	if head.Waiting != nil {
		if named, err := isNamed(ctx, s.store, head.Chat.Chat, head.Run); err != nil || named {
			return err
		}
	}
	if err := s.followErasures(ctx); err != nil {
		return err
	}
	w, err := s.takeTurn(ctx, ctx, head.Chat.Chat, "", now)
	if errors.Is(err, errErased) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Open != nil {
		run := w.Open.Run
		s.resume(w)
		if run == head.Run {
			return nil
		}
		return errQueueSlow
	}
	defer w.next()
	_, lines := s.knownEvents(head.Chat.Chat, head.Run)
	if events := head.events(lines); head.Waiting != nil {
		_, err = restoreWait(ctx, s, w, head, events)
	} else if len(events) > 0 && events[len(events)-1].Terminal() {
		err = s.putBack(ctx, w, head, events)
	}
	return errors.Join(err, w.end())
}

// forgotten looks for a run that is about to begin, and that may have run: Redis lost its
// record a moment ago, and the process that knows it has not written it back yet. Begun
// once more it would say other things under the ids of events that were shown. The record
// is that of a run that is over, written back under the chat's lease; one that goes on
// becomes the lease's open run. Neither, if no process knows the run. Of one of which
// nothing but its messages is left the record says that it was taken back: it is tried
// under another id.
func (s *Server) forgotten(ctx context.Context, r *run, w *writer) (*redisstore.Record, error) {
	if !r.keyed {
		return nil, nil
	}
	head, lines := s.knownEvents(r.chat, r.id)
	if len(lines) == 0 && s.lostLately(ctx) {
		var err error
		if head, lines, err = s.askForRun(ctx, r.chat, r.id); err != nil {
			return nil, err
		}
		if len(lines) == 0 && slices.Contains(w.runs(), r.id) { // as of a run that waited
			return &redisstore.Record{Body: r.body, Rewound: true}, nil
		}
	}
	head.Chat.Chat, head.Run = r.chat, r.id
	events := head.events(lines)
	switch {
	case len(events) == 0, s.rewoundSince(r.chat, r.id, head.Turn):
		return nil, nil
	case head.Waiting != nil && head.Body == r.body:
		if back, err := restoreWait(ctx, s, w, head, events); !back || err != nil {
			return nil, err
		}
		return &redisstore.Record{Body: r.body}, nil
	case head.Body != "" && head.Body != r.body:
		return nil, errKeyReused
	case s.redactedSince(r.chat, head.Turn):
		return &redisstore.Record{Body: r.body, Result: redactedAnswer()}, nil
	case !events[len(events)-1].Terminal():
		w.Open = &redisstore.OpenRun{Run: r.id, Turn: head.Turn, Body: r.body, Trace: r.trail.Parent(), Events: head.Events}
		_, err := s.store.Turns.Open(ctx, r.chat, w.token, s.cfg.Lease, *w.Open)
		return nil, err
	}
	if err := s.putBack(ctx, w, head, events); err != nil {
		return nil, err
	}
	return s.store.Runs.Record(ctx, r.chat, r.id)
}

// putBack writes back a run that is over, under its chat's lease; events are all of it.
func (s *Server) putBack(ctx context.Context, w *writer, head endHead, events []event.Event) error {
	d, err := tellAgain(ctx, s, w, head, events)
	if d == nil || err != nil {
		return err
	}
	status, body := d.run.final(ctx)
	if err := s.store.Runs.Finish(ctx, d.run.chat, d.run.id, encodeFinal(status, body)); err != nil {
		return err
	}
	w.over = d.run
	d.log.Warn().Msg("Redis has lost a run that was over; it was told again")
	return nil
}

// tellAgain stores the record, the events and the messages of a run that Redis lost, under its chat's lease. Neither
// driver nor error: it was erased, redacted or taken back since.
func tellAgain(ctx context.Context, s *Server, w *writer, head endHead, events []event.Event) (*driver, error) {
	if w.ErasedIn() > head.Turn || s.redactedSince(head.Chat.Chat, head.Turn) ||
		s.rewoundSince(head.Chat.Chat, head.Run, head.Turn) {
		return nil, nil
	}
	r := newRun(head.Run, head.Chat.Chat, head.Body)
	r.keyed, r.first = !head.Unkeyed, head.First
	d := s.driver(r, w, "")
	// Before the record: an answer that comes in between would find a run that was never answered. Nothing is granted
	// here, so that no process is waited for.
	known, err := callsOf(ctx, s, r.chat, r.firstRun())
	if err == nil || errors.Is(err, errMayComeBack) {
		err = putCallsBack(ctx, s, w.lease, r.id, r.firstRun(), known)
	}
	if err == nil {
		_, err = s.noteRun(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Seq > 1 && r.log.AtWait() {
			r.log.GoOn()
		}
		if err := r.log.Append(e); err != nil {
			return nil, err
		}
	}
	if _, err := s.store.Runs.Relog(ctx, r.chat, r.id, r.logged()...); err != nil {
		return nil, err
	}
	if err := w.place(ctx, head.Turn, events); err != nil {
		return nil, err
	}
	s.metrics.retold.Inc()
	return d, nil
}

// noteCut keeps on disk that an operator deleted or rewrote a history by hand, with the
// fencing token under which that was found, and tells the other processes
// (followHandCuts).
func (s *Server) noteCut(key memory.Key, turn int64) {
	err := s.cfg.Cuts.Add(map[string]int64{key.String(): turn})
	if err != nil {
		s.log.Error().Err(err).Str("key", key.String()).Msg(
			"a change by hand is not known here if Redis loses its data; older copies may come back then")
	}
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	if err := s.store.Erasures.Note(ctx, turn, erasures.HandCut(key)); err != nil {
		s.log.Warn().Err(err).Str("key", key.String()).Msg(
			"other processes do not know of a change by hand until they use the history")
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
