package webmemory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
)

// turn is a chat's lease with the histories as they were when it began plus what was
// appended since. It is a fold's sink; its methods are for one goroutine.
type turn struct {
	*lease
	store *redisstore.Store
	cache *cache.Cache
	spool *spool.Spool

	again time.Time // not before Redis is asked to log events, after a try that failed
	kept  time.Time // when the log's life was prolonged

	run       string                         // whose events are stored
	logged    func() []redisstore.Logged     // the run's events until now
	entries   int                            // that the run's log should have in Redis
	placed    bool                           // what they add to the histories is there already
	histories map[memory.Key]*memory.History // pinned
}

// turnOf waits for the turn that a post is to run in. Until it has it, the post can
// be dismissed.
func (s *Server) turnOf(ctx context.Context, r *run, at place) (*turn, error) {
	waiting, dismiss := context.WithCancelCause(ctx)
	defer dismiss(nil)
	r.waits(dismiss)
	defer r.waits(nil)
	waiting, cancel := context.WithTimeout(waiting, s.cfg.QueueWait)
	defer cancel()
	token := ""
	if at == before {
		token = s.token()
		yield, err := s.goFirst(ctx, r.chat, token)
		if err != nil {
			return nil, err
		}
		defer yield()
	}
	return s.turnFor(ctx, waiting, r.chat, token, at)
}

// turnFor waits for the chat's turn. A run that a dead process left open is brought to
// its end first.
func (s *Server) turnFor(ctx, waiting context.Context, chat memory.Chat, token string, at place) (*turn, error) {
	for {
		t, err := s.takeTurn(ctx, waiting, chat, token, at)
		if err != nil || t.Open == nil {
			return t, err
		}
		left := s.resume(t)
		if at == now {
			return nil, errQueueSlow
		}
		select {
		case <-left.done:
		case <-waiting.Done():
			return nil, ended(waiting)
		}
	}
}

// takeTurn acquires the chat's lease and brings every history of the chat up to date
// under it. What was left for it in the spools of this disk is stored first.
func (s *Server) takeTurn(ctx, waiting context.Context, chat memory.Chat, token string, at place) (*turn, error) {
	l, err := s.acquire(ctx, waiting, chat, token, at)
	if err != nil {
		return nil, err
	}
	t := &turn{
		lease: l, store: s.store, cache: s.cache, spool: s.spool, histories: map[memory.Key]*memory.History{},
	}
	if t.Open != nil {
		// Who left the run may have died beside us, with events in its spool.
		s.adopt()
	}
	if err := t.prepare(ctx, s.cfg.Agents); err != nil {
		err = errors.Join(err, t.leave())
		t.next()
		return nil, err
	}
	return t, nil
}

// prepare loads the histories and stores what the spools hold of the chat.
func (t *turn) prepare(ctx context.Context, agents []memory.Agent) error {
	if err := t.load(ctx, agents); err != nil {
		return err
	}
	if err := t.drain(ctx); err != nil {
		return err
	}
	if t.Open == nil {
		return nil
	}
	return t.borrow(ctx)
}

// load brings the histories of the chat up to date: its own, those in its index, and
// of the configured subagents' those that are stored or cached without being there,
// as another program leaves them, or Redis that lost them. A subagent that the chat
// never used has no key, and the chat's own number fences its first message.
func (t *turn) load(ctx context.Context, agents []memory.Agent) error {
	keys := []memory.Key{memory.ChatKey(t.chat)}
	for _, a := range t.Agents {
		keys = append(keys, memory.SubagentKey(a, t.chat))
	}
	for key := range t.histories { // of a turn that goes on
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	var unknown []memory.Key
	for _, a := range agents {
		key := memory.SubagentKey(a, t.chat)
		switch {
		case slices.Contains(keys, key):
		case t.cache.Peek(key) != nil:
			keys = append(keys, key)
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		found, err := t.store.Found(ctx, unknown...)
		if err != nil {
			return err
		}
		for i, key := range unknown {
			if found[i] {
				keys = append(keys, key)
			}
		}
	}
	copies := make([]*memory.History, len(keys))
	for i, k := range keys {
		copies[i] = t.history(k)
	}
	current, err := t.cache.Load(ctx, t.Number, copies...)
	if err != nil {
		return err
	}
	for _, h := range current {
		t.histories[h.Key()] = h
	}
	return nil
}

// history is the turn's copy of one history.
func (t *turn) history(key memory.Key) *memory.History {
	if h := t.histories[key]; h != nil {
		return h
	}
	return memory.Empty(key)
}

// logPause keeps a run from waiting for an absent Redis at each event.
const logPause = 300 * time.Millisecond

// record puts events into the run's log: in Redis, or, while that does not take
// them, in the spool.
func (t *turn) record(events []event.Event) error {
	if err := t.mayWrite(); err != nil {
		return err
	}
	lines := make([]redisstore.Logged, len(events))
	for i, e := range events {
		lines[i] = redisstore.Logged{Seq: e.Seq, Line: e.Line()}
	}
	if !t.detached.Load() && !time.Now().Before(t.again) {
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		defer cancel()
		err := t.spool.Drain(ctx, spool.Events(t.chat), t.relog)
		if err == nil {
			err = t.log(ctx, lines...)
		}
		if errors.Is(err, redisstore.ErrGap) {
			err = t.closeGap(ctx, lines...)
		}
		if err == nil || errors.Is(err, memory.ErrMoved) {
			return err
		}
		t.again = time.Now().Add(logPause)
	}
	entries := make([]spool.Entry, len(lines))
	for i, l := range lines {
		mark := memory.Mark{Run: t.run, Seq: l.Seq, Turn: t.Number}
		entries[i] = spool.Entry{Queue: spool.Events(t.chat), Mark: mark, Bytes: l.Line}
	}
	return t.spool.Add(entries...)
}

// keepLog is how often the life of a run's log is prolonged.
const keepLog = time.Minute

// log adds events to the run's log in Redis.
func (t *turn) log(ctx context.Context, lines ...redisstore.Logged) error {
	keep := time.Since(t.kept) > keepLog
	entries, err := t.store.Log(ctx, t.chat, t.run, keep, lines...)
	if err == nil {
		t.entries += entries
		if keep {
			t.kept = time.Now()
		}
	}
	return err
}

// closeGap writes the run's log anew: all events that it is known to have, and those
// that follow. What stood behind the gap follows again from where the run's events are.
func (t *turn) closeGap(ctx context.Context, following ...redisstore.Logged) error {
	newest, err := t.store.TurnOf(ctx, t.chat)
	if err != nil {
		return err
	}
	if newest > t.Number {
		return errLeaseLost // the log is another's by now
	}
	t.entries, err = t.store.Relog(ctx, t.chat, t.run, append(t.logged(), following...)...)
	return err
}

// relog puts events out of the spool into their run's log. It drops those of a run
// that is over: its log has an end, or is gone.
func (t *turn) relog(ctx context.Context, entries []spool.Entry) (done int, err error) {
	erased, err := t.store.Erased(ctx, entries[0].Key)
	if err != nil {
		return 0, err
	}
	run := entries[0].Mark.Run
	var lines []redisstore.Logged
	for _, e := range entries {
		if e.Mark.Turn >= erased && (run == t.run || t.Open != nil && t.Open.Run == run) {
			lines = append(lines, redisstore.Logged{Seq: e.Mark.Seq, Line: e.Bytes})
		}
	}
	if len(lines) > 0 && run == t.run {
		err = t.log(ctx, lines...)
	} else if len(lines) > 0 {
		_, err = t.store.Log(ctx, t.chat, run, true, lines...)
	}
	if errors.Is(err, redisstore.ErrGap) {
		err = nil // who drives the run finds the gap and closes it
	}
	if err != nil {
		return 0, err
	}
	return len(entries), nil
}

// Append stores what an event adds, under this turn's number: in Redis, or, when
// that did not take it or may not have, in the spool. What follows in the same
// history goes to the spool too until it is drained, and so does everything while
// events wait there: a history is never ahead of its log.
func (t *turn) Append(key memory.Key, seq int64, m memory.Message) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if t.placed {
		return nil
	}
	run, _, ok := memory.SplitID(m.ID) // what closes a run is marked apart from it
	if !ok {
		return fmt.Errorf("a message for %s has no id of a run: %q", key, m.ID)
	}
	mark := memory.Mark{Run: run, Seq: seq, Turn: t.Number}
	encoded := m.Encode()
	err := error(memory.ErrUnavailable)
	if !t.detached.Load() && t.spool.Pending(spool.Events(t.chat)) == 0 {
		err = t.append(key, mark, encoded)
	}
	if !errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	return t.spool.Add(spool.Entry{Queue: spool.History(key), Mark: mark, Bytes: encoded})
}

func (t *turn) append(key memory.Key, mark memory.Mark, encoded []byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
	defer cancel()
	if t.spool.Pending(spool.History(key)) > 0 {
		if err := t.spool.Drain(ctx, spool.History(key), t.apply); err != nil {
			return err
		}
	}
	h, err := t.cache.Append(ctx, t.history(key), mark, encoded)
	if err != nil {
		return err
	}
	t.histories[key] = h
	return nil
}

// drain puts into Redis what an earlier turn, or this one, left in the spool of
// this chat: the events first, since a history is never ahead of its log.
func (t *turn) drain(ctx context.Context) error {
	if err := t.spool.Drain(ctx, spool.Events(t.chat), t.relog); err != nil {
		return err
	}
	for _, q := range t.spool.Queues() {
		if q.Key.Chat() != t.chat || q.Events {
			continue
		}
		if err := t.spool.Drain(ctx, q, t.apply); err != nil {
			return err
		}
	}
	return nil
}

// borrow is drain for what living processes beside this one hold of the chat: a
// run that they left must not be closed short of what they have shown of it. They
// find duplicates when they drain it themselves.
func (t *turn) borrow(ctx context.Context) error {
	entries, err := t.spool.Beside(t.chat)
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		n := slices.IndexFunc(entries, func(e spool.Entry) bool {
			return e.Queue != entries[0].Queue || e.Mark.Run != entries[0].Mark.Run
		})
		if n < 0 {
			n = len(entries)
		}
		into := t.apply
		if entries[0].Events {
			into = t.relog
		}
		if _, err := into(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// apply appends entries of the spool under this turn. Those of a turn that is
// over stand behind what was written since, in one block; those from before an
// erasure are dropped.
func (t *turn) apply(ctx context.Context, entries []spool.Entry) (done int, err error) {
	key := entries[0].Key
	erased, err := t.store.Erased(ctx, key)
	if err != nil {
		return 0, err
	}
	for i, e := range entries {
		if e.Mark.Turn < erased {
			continue
		}
		mark := e.Mark
		mark.Turn = t.Number
		before := t.history(key).Len()
		h, err := t.cache.Append(ctx, t.history(key), mark, e.Bytes)
		if err != nil {
			return i, err
		}
		t.histories[key] = h
		if e.Mark.Turn != t.Number && h.Len() > before {
			t.store.Counts.Late.Add(1)
		}
	}
	return len(entries), t.answer(ctx, entries[len(entries)-1])
}

// answer closes a delegation that came late out of the spool, of a run that is
// over and whose end did not know of it.
func (t *turn) answer(ctx context.Context, last spool.Entry) error {
	over := last.Mark.Turn != t.Number && (t.Open == nil || t.Open.Run != last.Mark.Run)
	h := t.history(last.Key)
	if !over || last.Key.Agent() == "" || h.Len() == 0 {
		return nil
	}
	message, err := memory.Decode(h.Raw(h.Len() - 1))
	if err != nil || message[0].Role != memory.RoleUser {
		return err
	}
	mark := memory.Mark{Run: event.Closing(last.Mark.Run), Seq: last.Mark.Seq + 1, Turn: t.Number}
	end := memory.Failed(event.RunLost)
	end.Timestamp, end.ID = message[0].Timestamp, memory.MessageID(mark.Run, mark.Seq)
	if h, err = t.cache.Append(ctx, h, mark, end.Encode()); err != nil {
		return err
	}
	t.histories[last.Key] = h
	return nil
}

// trim cuts the histories back to limit messages. What cannot be trimmed now is
// trimmed after a later turn.
func (t *turn) trim(limit int) error {
	if t.detached.Load() {
		return nil
	}
	var failed error
	for key, h := range t.histories {
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		short, err := t.store.Trim(ctx, h, t.Number, limit)
		cancel()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if short != h {
			t.histories[key] = short
			t.cache.Put(short)
		}
	}
	return failed
}
