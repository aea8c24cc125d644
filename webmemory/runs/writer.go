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

// Runs returns the id of the run of each message in the histories. An id may occur several times.
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

// Writer writes the run's log and the histories of one chat under its lease. It writes to Redis under the fencing
// token. While Redis rejects writes, it uses the spool, a write-ahead log on this disk.
//
// It pins the histories as of its start, plus its own messages. It is the sink of event.Histories. Its methods are for
// one goroutine.
type Writer struct {
	*Lease
	Store *redisstore.Store
	Cache *cache.Cache
	Spool *spool.Spool

	Subagents []memory.Agent // configured subagents, fixed for the turn

	// Redacted reports whether the text of a spool entry was redacted.
	Redacted func(spool.Entry) bool
	// Rewound reports whether a run of turn was rewound since.
	Rewound func(run string, turn int64) bool

	retryAt    time.Time // earliest time to log to Redis again after a failed attempt
	extendedAt time.Time // time when the log's lifetime was last extended

	Closed    string                         // waiting run that was ended for this lease; "" if none
	run       string                         // run whose events are stored
	logged    func() []redisstore.Logged     // returns the run's events so far
	entries   int                            // expected number of entries of the run's log in Redis
	placed    bool                           // the histories already have the messages of the events
	Histories map[memory.Key]*memory.History // pinned histories
}

// Prepare loads the histories and stores the chat's entries from the spools.
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

// Load updates the chat's histories and raises their fencing tokens. It loads the chat's own history, the pinned
// histories and those in the index. It also loads configured subagents' histories that are stored or cached without an
// index entry. Another program or a loss in Redis can cause this.
//
// A subagent that the chat never used has no key. The chat's own number fences its first message.
func (w *Writer) Load(ctx context.Context, agents []memory.Agent) error {
	keys := []memory.Key{memory.ChatKey(w.Chat)}
	for _, a := range w.Agents {
		keys = append(keys, memory.SubagentKey(a, w.Chat))
	}
	for key := range w.Histories { // pinned since an earlier Load under this lease
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

// History returns the pinned copy of a history, or an empty history.
func (w *Writer) History(key memory.Key) *memory.History {
	if h := w.Histories[key]; h != nil {
		return h
	}
	return memory.Empty(key)
}

// logPause is the pause after a failed attempt to log to Redis. Without it, a run would wait for an unavailable Redis
// at each event.
const logPause = 300 * time.Millisecond

// record adds events to the run's log in Redis. If Redis does not accept them, it adds them to the spool.
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

// keepLog is the interval for extending the lifetime of a run's log.
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

// closeGap rewrites the run's log with all its known events, followed by following. The apiserver sends the events
// after the gap again.
//
// closeGap first compares the chat's fencing token. After a newer lease, the log belongs to another process, which may
// have closed the run. Overwriting it would give one event's id two contents.
func (w *Writer) closeGap(ctx context.Context, following ...redisstore.Logged) error {
	newest, err := w.Store.Turns.Latest(ctx, w.Chat)
	if err != nil {
		return err
	}
	if newest > w.Number {
		return errLeaseLost // the log belongs to another process now
	}
	w.entries, err = w.Store.Runs.Relog(ctx, w.Chat, w.run, append(w.logged(), following...)...)
	return err
}

// relog moves events from the spool to their run's log. It drops events of an ended run, whose log has an end or no
// longer exists.
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

// Append stores an event's message in a history in Redis, under the fencing token. If Redis did not take it, or may not
// have, Append adds it to the spool. The history's later messages then use the spool too, until it is drained. While
// the spool has events, all messages use it, because a history is never ahead of its log.
func (w *Writer) Append(key memory.Key, seq int64, m memory.Message) error {
	if w.Ctx.Err() != nil {
		return context.Cause(w.Ctx)
	}
	if w.placed {
		return nil
	}
	run, _, ok := memory.SplitID(m.ID) // a closing message has a run id of its own
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

// AppendEncoded appends an encoded message to a history, after the history's spooled entries.
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

// drain stores the chat's entries from this process's spool, from this lease or an earlier one. Events come first,
// because a history is never ahead of its log.
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

// borrow stores the chat's entries from the spools of living processes on this disk. A run that they left must not be
// closed without events that they have shown. They find the duplicates when they drain their spools.
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

// apply appends spool entries under this fencing token. Entries of an earlier lease follow the messages written since,
// in one block. Entries from before an erasure are dropped.
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

// closeLate closes a delegation that came late from the spool. Its run has ended without it. A task of another run
// stays open: the late entry was a duplicate, and that run continues.
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

// CloseWith ends a history after its last message with the failure event.RunLost. Event seq of the lost run wrote that
// message.
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

// Trim shortens the histories to limit messages. A history that cannot be trimmed now is trimmed after a later turn.
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
