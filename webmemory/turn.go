package webmemory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
)

// storeTimeout bounds one command to the store.
const storeTimeout = 5 * time.Second

// errTurnLost is the cause of a turn's context after somebody else could take it.
var errTurnLost = fmt.Errorf("the lease is no longer held: %w", memory.ErrMoved)

// turn is the right to write into one chat, and the histories as they were when
// it began plus what was appended since. It is a fold's sink; its methods are
// for one goroutine.
type turn struct {
	redisstore.Turn
	chat  memory.Chat
	token string
	ttl   time.Duration // of the lease
	store *redisstore.Store
	cache *cache.Cache
	spool *spool.Spool
	later func(func(context.Context) error) // see Server.later

	ctx      context.Context // ends when the turn is lost or given back
	cancel   context.CancelCauseFunc
	keeper   sync.WaitGroup                     // the goroutine that renews
	renewing sync.Mutex                         // one renewal at a time
	note     atomic.Pointer[redisstore.OpenRun] // the run that is open in it; nil for none
	lost     atomic.Bool                        // Redis has lost the turn; it was taken again, and what else was lost is not put back yet
	retaken  chan struct{}                      // holds a token when it is time to put it back
	detached atomic.Bool                        // the lease could not be renewed in time: write to the spool only
	renewed  atomic.Int64                       // when the lease was last asked for with success, Unix ns of this process's clock

	again time.Time // not before Redis is asked to log events, after a try that failed

	run       string                         // whose events are stored
	logged    func() []redisstore.Logged     // the run's events until now
	placed    bool                           // what they add to the histories is there already
	histories map[memory.Key]*memory.History // pinned
}

// token makes the token of a turn that this process takes.
func (s *Server) token() string { return redisstore.Token(s.spool.Name(), rand.Text()) }

// isDead says whether the process that made a token is proven dead, here where its disk
// can be read.
func (s *Server) isDead(token string) bool { return s.spool.Dead(redisstore.HolderOf(token)) }

// errClaimed: somebody else takes the chat's next turn, who may stand in this
// process's line behind the caller, and so can only come when the caller steps back.
var errClaimed = errors.New("the chat's next turn is claimed")

// takeTurn takes the chat's lease, under a token of its own if none is given, and
// brings every history of the chat up to date under it. It waits for another holder
// until waiting ends, or not at all for a place now; errClaimed says that the caller
// must line up again.
func (s *Server) takeTurn(ctx, waiting context.Context, chat memory.Chat, token string, at place) (*turn, error) {
	t := &turn{
		chat: chat, token: cmp.Or(token, s.token()), ttl: s.cfg.Lease, store: s.store, cache: s.cache, spool: s.spool,
		histories: map[memory.Key]*memory.History{}, retaken: make(chan struct{}, 1),
		later: s.later,
	}
	for {
		taken, err := s.store.Take(ctx, chat, t.token, cmp.Or(s.conversations.newest(chat), rand.Text()), t.ttl)
		held := &redisstore.HeldError{Erased: taken.Erased}
		if err != nil && !errors.As(err, &held) {
			return nil, err
		}
		if err != nil && s.isDead(held.Token) {
			// Who stands in the way is dead: neither its lease nor its claim is waited for.
			if err := errors.Join(s.store.Leave(ctx, chat, held.Token), s.store.Yield(ctx, chat, held.Token)); err != nil {
				return nil, err
			}
			continue
		}
		if at != erasing && (s.queue.saw(chat, held.Erased, taken.Number) || held.Erasing) {
			s.dismiss(chat)
			if err == nil {
				err = s.store.Leave(ctx, chat, t.token)
			}
			return nil, errors.Join(errErased, err)
		}
		if err == nil && s.conversations.erased(chat, taken) {
			if err := s.eraseOffered(ctx, chat, taken); err != nil {
				return nil, errors.Join(err, s.store.Leave(ctx, chat, t.token))
			}
			continue // the lease is held: it is taken again with a conversation that is new
		}
		if err == nil {
			t.Turn = taken
			s.conversations.note(chat, taken.Conversation, taken.Number)
			break
		}
		if at == now {
			return nil, fmt.Errorf("%w: %w", errQueueSlow, err)
		}
		select {
		case <-time.After(jitter(min(held.Left, 250*time.Millisecond))):
		case <-waiting.Done():
			return nil, fmt.Errorf("%w: %w", ended(waiting), err)
		}
		if held.Claimed {
			return nil, errClaimed
		}
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.renewed.Store(int64(sinceStart()))
	t.keeper.Go(t.keep)
	if t.Open != nil {
		// Who left the run may have died beside us, with events in its spool.
		s.adopt()
	}
	err := s.eraseForgotten(ctx, chat)
	if t.Open != nil && t.Open.Turn < s.follower.file.Of(memory.ChatKey(chat)) {
		t.Open = nil // it was erased with its chat, and Redis came back with it
	}
	if err == nil {
		err = t.load(ctx, s.cfg.Agents)
	}
	if err == nil {
		err = t.drain(ctx)
	}
	if err == nil && t.Open != nil {
		err = t.borrow(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.leave())
	}
	return t, nil
}

// jitter is a time between half of d and d.
func jitter(d time.Duration) time.Duration {
	half := max(int64(d)/2, int64(time.Millisecond))
	n, err := rand.Int(rand.Reader, big.NewInt(half))
	if err != nil {
		return d
	}
	return time.Duration(half + n.Int64())
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

var start = time.Now()

// sinceStart is a clock that nobody sets.
func sinceStart() time.Duration { return time.Since(start) }

// unrenewed is how long ago the lease was last known to be held.
func (t *turn) unrenewed() time.Duration { return sinceStart() - time.Duration(t.renewed.Load()) }

// keep renews the lease until the turn ends, three times in its life. Two thirds
// of it without an answer, and nothing is written to Redis any more: the holder
// stops before another may begin. The run goes on into the spool, since without
// Redis nobody else can take the turn either. That cannot be said after a time in
// which this process did not run: then the turn is lost.
func (t *turn) keep() {
	tick := time.NewTicker(t.ttl / 3)
	defer tick.Stop()
	asked := sinceStart()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		before := asked // not when it was answered: the pause may lie between the two
		asked = sinceStart()
		ctx, cancel := context.WithTimeout(t.ctx, min(storeTimeout, t.ttl/3))
		held, err := t.renew(ctx)
		cancel()
		switch {
		case err == nil && held:
			t.renewed.Store(int64(asked))
		case err == nil, asked-before >= t.ttl*2/3:
			t.cancel(errTurnLost)
			return
		case t.unrenewed() >= t.ttl*2/3:
			t.detached.Store(true)
			return
		}
	}
}

// standing is nil while this turn may go on. When the lease may have run out, as
// after a time in which this process did not run, it waits for what keep finds.
func (t *turn) standing() error {
	for t.ctx.Err() == nil && !t.detached.Load() && t.unrenewed() >= t.ttl {
		select {
		case <-t.ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return context.Cause(t.ctx)
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
	if err := t.standing(); err != nil {
		return err
	}
	lines := make([]redisstore.Logged, len(events))
	for i, e := range events {
		lines[i] = redisstore.Logged{Seq: e.Seq, Line: e.Encode()}
	}
	if !t.detached.Load() && !time.Now().Before(t.again) {
		ctx, cancel := context.WithTimeout(t.ctx, storeTimeout)
		defer cancel()
		err := t.spool.Drain(ctx, spool.Events(t.chat), t.relog)
		if err == nil {
			err = t.store.Log(ctx, t.chat, t.run, lines...)
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

// closeGap writes the run's log anew: all events that it is known to have, and those
// that follow. What stood behind the gap follows again from where the run's events are.
func (t *turn) closeGap(ctx context.Context, following ...redisstore.Logged) error {
	newest, err := t.store.TurnOf(ctx, t.chat)
	if err != nil {
		return err
	}
	if newest > t.Number {
		return errTurnLost // the log is another's by now
	}
	return t.store.Relog(ctx, t.chat, t.run, append(t.logged(), following...)...)
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
	if len(lines) > 0 {
		err = t.store.Log(ctx, t.chat, run, lines...)
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
	if err == nil {
		t.histories[key] = h
	}
	return err
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
	for err == nil && len(entries) > 0 {
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
		_, err = into(ctx, entries[:n])
		entries = entries[n:]
	}
	return err
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
	h, err = t.cache.Append(ctx, h, mark, end.Encode())
	if err == nil {
		t.histories[last.Key] = h
	}
	return err
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

// end gives the turn back, its run over; once Redis is back, if it is away.
func (t *turn) end() error { return t.giveBack(t.store.Release) }

// leave gives the turn back as it found it: a run that is open stays so, for
// another process to finish.
func (t *turn) leave() error { return t.giveBack(t.store.Leave) }

func (t *turn) giveBack(how func(context.Context, memory.Chat, string) error) error {
	t.cancel(nil)
	t.keeper.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), storeTimeout)
	defer cancel()
	err := how(ctx, t.chat, t.token)
	if errors.Is(err, memory.ErrUnavailable) {
		t.later(func(ctx context.Context) error { return how(ctx, t.chat, t.token) })
	}
	return err
}

// later goes on trying what Redis did not take, until it does.
func (s *Server) later(try func(context.Context) error) {
	s.workers.Go(func() {
		for {
			select {
			case <-time.After(jitter(soon)):
			case <-s.life.Done():
				return
			}
			ctx, cancel := context.WithTimeout(s.life, storeTimeout)
			err := try(ctx)
			cancel()
			if !errors.Is(err, memory.ErrUnavailable) {
				return
			}
		}
	})
}
