package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/webmemory/node"
)

// Runs are those that wrote the messages of the histories.
func (w *Writer) Runs() (runs []string) {
	for _, h := range w.Histories {
		for _, raw := range h.Raw(0) {
			var m struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(raw, &m) == nil && memory.RunOf(m.ID) != "" {
				runs = append(runs, memory.RunOf(m.ID))
			}
		}
	}
	return runs
}

// This file is about what is written into a chat: the run's log and the histories, in
// Redis under the lease's fencing token, or in the spool, a write-ahead log on this disk,
// while Redis does not take them.

// Writer writes into one chat under its lease. It pins the histories as they were when it
// began plus what it appended since. It is the sink of the fold (event.Histories); its
// methods are for one goroutine.
type Writer struct {
	*Lease
	Store *redisstore.Store
	Cache *cache.Cache
	Spool *spool.Spool

	Subagents []memory.Agent // the subagents that there are, for all of the turn

	// Redacted says whether the text of a spool's entry was redacted.
	Redacted func(spool.Entry) bool
	// Rewound says whether a run of a turn was taken back since.
	Rewound func(run string, turn int64) bool

	retryAt    time.Time // not before Redis is asked to log events, after a try that failed
	extendedAt time.Time // when the log's life was prolonged

	Closed    string                         // the run that waited and was ended for this lease; "" for none
	run       string                         // whose events are stored
	logged    func() []redisstore.Logged     // the run's events until now
	entries   int                            // that the run's log should have in Redis
	placed    bool                           // what they add to the histories is there already
	Histories map[memory.Key]*memory.History // pinned
}

// Prepare loads the histories and stores what the spools hold of the chat.
func (w *Writer) Prepare(ctx context.Context, agents []memory.Agent) error {
	if err := w.Load(ctx, agents); err != nil {
		return err
	}
	if err := w.drain(ctx); err != nil {
		return err
	}
	if w.Open == nil {
		return nil
	}
	return w.borrow(ctx)
}

// Load brings the histories of the chat up to date, and raises their fencing tokens: the
// chat's own history, those in its index, and of the configured subagents' those that are
// stored or cached without being there, as another program leaves them, or Redis that lost
// them. A subagent that the chat never used has no key, and the chat's own number fences
// its first message.
func (w *Writer) Load(ctx context.Context, agents []memory.Agent) error {
	keys := []memory.Key{memory.ChatKey(w.Chat)}
	for _, a := range w.Agents {
		keys = append(keys, memory.SubagentKey(a, w.Chat))
	}
	for key := range w.Histories { // of a lease that goes on
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	var unknown []memory.Key
	for _, a := range agents {
		key := memory.SubagentKey(a, w.Chat)
		switch {
		case slices.Contains(keys, key):
		case w.Cache.Peek(key) != nil:
			keys = append(keys, key)
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		exists, err := w.Store.Chats.Exist(ctx, unknown...)
		if err != nil {
			return err
		}
		for i, key := range unknown {
			if exists[i] {
				keys = append(keys, key)
			}
		}
	}
	copies := make([]*memory.History, len(keys))
	for i, k := range keys {
		copies[i] = w.History(k)
	}
	current, err := w.Cache.Load(ctx, w.Number, copies...)
	if err != nil {
		return err
	}
	for _, h := range current {
		w.Histories[h.Key()] = h
	}
	return nil
}

// History is the pinned copy of one history.
func (w *Writer) History(key memory.Key) *memory.History {
	if h := w.Histories[key]; h != nil {
		return h
	}
	return memory.Empty(key)
}

// logPause is for how long Redis is not asked to log events after a try that failed: a run
// must not wait for an absent Redis at each event.
const logPause = 300 * time.Millisecond

// record puts events into the run's log: in Redis, or, while that does not take
// them, in the spool.
func (w *Writer) record(events []event.Event) error {
	if err := w.mayWrite(); err != nil {
		return err
	}
	lines := make([]redisstore.Logged, len(events))
	for i, e := range events {
		lines[i] = redisstore.Logged{Seq: e.Seq, Line: e.Line()}
	}
	if !w.detached.Load() && !time.Now().Before(w.retryAt) {
		ctx, cancel := context.WithTimeout(w.Ctx, node.StoreTimeout)
		defer cancel()
		err := w.Spool.Drain(ctx, spool.Events(w.Chat), w.relog)
		if err == nil {
			err = w.log(ctx, lines...)
		}
		if errors.Is(err, redisstore.ErrGap) {
			err = w.closeGap(ctx, lines...)
		}
		if err == nil || errors.Is(err, memory.ErrMoved) {
			return err
		}
		w.retryAt = time.Now().Add(logPause)
	}
	entries := make([]spool.Entry, len(lines))
	for i, l := range lines {
		mark := memory.Mark{Run: w.run, Seq: l.Seq, Turn: w.Number}
		entries[i] = spool.Entry{Queue: spool.Events(w.Chat), Mark: mark, Bytes: l.Line}
	}
	return w.Spool.Add(entries...)
}

// keepLog is how often the life of a run's log is prolonged.
const keepLog = time.Minute

// log adds events to the run's log in Redis.
func (w *Writer) log(ctx context.Context, lines ...redisstore.Logged) error {
	keep := time.Since(w.extendedAt) > keepLog
	entries, err := w.Store.Runs.Log(ctx, w.Chat, w.run, keep, lines...)
	if err == nil {
		w.entries += entries
		if keep {
			w.extendedAt = time.Now()
		}
	}
	return err
}

// closeGap writes the run's log anew: all events that it is known to have, and those
// that follow. What stood behind the gap comes again from the apiserver. The chat's fencing
// token is compared first: after a newer lease the log is another process's, which may have
// closed the run in it, and writing over that would give one event's id two contents.
func (w *Writer) closeGap(ctx context.Context, following ...redisstore.Logged) error {
	newest, err := w.Store.Turns.Latest(ctx, w.Chat)
	if err != nil {
		return err
	}
	if newest > w.Number {
		return errLeaseLost // the log is another's by now
	}
	w.entries, err = w.Store.Runs.Relog(ctx, w.Chat, w.run, append(w.logged(), following...)...)
	return err
}

// relog puts events out of the spool into their run's log. It drops those of a run
// that is over: its log has an end, or is gone.
func (w *Writer) relog(ctx context.Context, entries []spool.Entry) (done int, err error) {
	erased, err := w.Store.Erasures.Erased(ctx, entries[0].Key)
	if err != nil {
		return 0, err
	}
	run := entries[0].Mark.Run
	var lines []redisstore.Logged
	for _, e := range entries {
		if e.Mark.Turn >= erased && !w.Redacted(e) && !w.Rewound(run, e.Mark.Turn) &&
			(run == w.run || w.Open != nil && w.Open.Run == run) {
			lines = append(lines, redisstore.Logged{Seq: e.Mark.Seq, Line: e.Bytes})
		}
	}
	if len(lines) > 0 && run == w.run {
		err = w.log(ctx, lines...)
	} else if len(lines) > 0 {
		_, err = w.Store.Runs.Log(ctx, w.Chat, run, true, lines...)
	}
	if errors.Is(err, redisstore.ErrGap) {
		err = nil // the process that drives the run finds the gap and closes it
	}
	if err != nil {
		return 0, err
	}
	return len(entries), nil
}

// Append stores what an event adds to a history, under the fencing token: in Redis, or,
// when that did not take it or may not have, in the spool. What follows in the same
// history goes to the spool too until that is drained, and so does everything while events
// wait there: a history is never ahead of its log.
func (w *Writer) Append(key memory.Key, seq int64, m memory.Message) error {
	if w.Ctx.Err() != nil {
		return context.Cause(w.Ctx)
	}
	if w.placed {
		return nil
	}
	run, _, ok := memory.SplitID(m.ID) // what closes a run is marked apart from it
	if !ok {
		return fmt.Errorf("a message for %s has no id of a run: %q", key, m.ID)
	}
	mark := memory.Mark{Run: run, Seq: seq, Turn: w.Number}
	encoded := m.Encode()
	err := error(memory.ErrUnavailable)
	if !w.detached.Load() && w.Spool.Pending(spool.Events(w.Chat)) == 0 {
		err = w.AppendEncoded(key, mark, encoded)
	}
	if !errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	return w.Spool.Add(spool.Entry{Queue: spool.History(key), Mark: mark, Bytes: encoded})
}

// AppendEncoded appends an encoded message to a history, after what the spool has for it.
func (w *Writer) AppendEncoded(key memory.Key, mark memory.Mark, encoded []byte) error {
	ctx, cancel := context.WithTimeout(w.Ctx, node.StoreTimeout)
	defer cancel()
	if w.Spool.Pending(spool.History(key)) > 0 {
		if err := w.Spool.Drain(ctx, spool.History(key), w.apply); err != nil {
			return err
		}
	}
	h, err := w.Cache.Append(ctx, w.History(key), mark, encoded)
	if err != nil {
		return err
	}
	w.Histories[key] = h
	return nil
}

// drain stores what the spool of this process holds of the chat, of an earlier lease or of
// this one: the events first, since a history is never ahead of its log.
func (w *Writer) drain(ctx context.Context) error {
	if err := w.Spool.Drain(ctx, spool.Events(w.Chat), w.relog); err != nil {
		return err
	}
	for _, q := range w.Spool.Queues() {
		if q.Key.Chat() != w.Chat || q.Events {
			continue
		}
		if err := w.Spool.Drain(ctx, q, w.apply); err != nil {
			return err
		}
	}
	return nil
}

// borrow stores what living processes on this disk hold of the chat in their spools: a run
// that they left must not be closed short of what they have shown of it. They find
// duplicates when they drain their spools themselves.
func (w *Writer) borrow(ctx context.Context) error {
	entries, err := w.Spool.ReadOthers(w.Chat)
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
		into := w.apply
		if entries[0].Events {
			into = w.relog
		}
		if _, err := into(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// apply appends entries of a spool under this fencing token. Those of a lease that is over
// come behind what was written since, in one block; those from before an erasure are
// dropped.
func (w *Writer) apply(ctx context.Context, entries []spool.Entry) (done int, err error) {
	key := entries[0].Key
	erased, err := w.Store.Erasures.Erased(ctx, key)
	if err != nil {
		return 0, err
	}
	for i, e := range entries {
		if e.Mark.Turn < erased || w.Redacted(e) || w.Rewound(e.Mark.Run, e.Mark.Turn) {
			continue
		}
		mark := e.Mark
		mark.Turn = w.Number
		prevLen := w.History(key).Len()
		h, err := w.Cache.Append(ctx, w.History(key), mark, e.Bytes)
		if err != nil {
			return i, err
		}
		w.Histories[key] = h
		if e.Mark.Turn != w.Number && h.Len() > prevLen {
			w.Store.Counts.Late.Add(1)
		}
	}
	return len(entries), w.closeLate(ctx, entries[len(entries)-1])
}

// closeLate closes a delegation that came late out of a spool, of a run that is over and
// did not know of it at its end. A task of another run stays open: what came late was known
// already, and that run goes on.
func (w *Writer) closeLate(ctx context.Context, last spool.Entry) error {
	run := strings.TrimSuffix(last.Mark.Run, memory.ClosingSuffix)
	finished := last.Mark.Turn != w.Number && (w.Open == nil || w.Open.Run != run)
	h := w.History(last.Key)
	if !finished || last.Key.Agent() == "" {
		return nil
	}
	message, open, err := openMessage(h, run)
	if err != nil || !open {
		return err
	}
	return w.CloseWith(ctx, h, message, run, last.Mark.Seq)
}

// openMessage returns the last message of a history. open reports whether it is a question or a task of a run.
func openMessage(h *memory.History, run string) (m memory.Message, open bool, err error) {
	if h.Len() == 0 {
		return m, false, nil
	}
	last, err := memory.Decode(h.Raw(h.Len() - 1))
	if err != nil {
		return m, false, err
	}
	return last[0], last[0].Role == memory.RoleUser && memory.RunOf(last[0].ID) == run, nil
}

// CloseWith ends a history behind its last message, which event seq of a run made that is lost.
func (w *Writer) CloseWith(ctx context.Context, h *memory.History, last memory.Message, run string, seq int64) error {
	mark := memory.Mark{Run: event.Closing(run), Seq: seq + 1, Turn: w.Number}
	end := memory.Failed(event.RunLost)
	end.Timestamp, end.ID = last.Timestamp, memory.MessageID(mark.Run, mark.Seq)
	h, err := w.Cache.Append(ctx, h, mark, end.Encode())
	if err == nil {
		w.Histories[h.Key()] = h
	}
	return err
}

// Trim cuts the histories back to limit messages. What cannot be trimmed now is
// trimmed after a later turn.
func (w *Writer) Trim(limit int) error {
	if w.detached.Load() {
		return nil
	}
	var failed error
	for key, h := range w.Histories {
		ctx, cancel := context.WithTimeout(w.Ctx, node.StoreTimeout)
		short, err := w.Store.Archives.Trim(ctx, h, w.Number, limit)
		cancel()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if short != h {
			w.Histories[key] = short
			w.Cache.Put(short)
		}
	}
	return failed
}
