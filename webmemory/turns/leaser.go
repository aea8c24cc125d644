package turns

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/access"
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// Leaser grants the lease of a chat. A caller waits in this process's queue, then for the lease in Redis. Leaser first
// finishes the work of a dead holder: an open run, a pending change, or entries in spools. Nothing that was erased,
// redacted or rewound is restored from a spool.
type Leaser struct {
	*node.Core
	Registry   *runs.Registry
	Redactor   *erase.Redactor
	Rewinder   *erase.Rewinder
	Tombstones *erase.Tombstones
	Eraser     *erase.Eraser
	Runner     *runs.Runner
	Restorer   *Restorer

	Queue  *runs.Queue
	Keeper *runs.Keeper
}

// turnOf waits for the chat's lease on behalf of a post, and then counts its run. Until it has the lease, the post can
// be dismissed. A post that interrupts comes before all others.
func (s *Leaser) turnOf(ctx context.Context, r *runs.Run, pos runs.Place) (*runs.Writer, error) {
	waiting, dismiss := context.WithCancelCause(ctx)
	defer dismiss(nil)
	r.SetDismiss(dismiss)
	defer r.SetDismiss(nil)
	waiting, cancel := context.WithTimeout(waiting, s.Cfg.QueueWait)
	defer cancel()
	if r.Keyed {
		s.Workers.Go(func() { s.watchOwnRun(waiting, r, dismiss) })
	}
	token := ""
	if pos == runs.PlaceFirst {
		token = s.Token()
		yield, err := s.goFirst(ctx, r.Chat, token)
		if err != nil {
			return nil, err
		}
		defer yield()
	}
	w, err := s.turnFor(ctx, waiting, r.Chat, token, pos, runs.Superseded, func(rest *redisstore.Rest) error {
		if rest.Run == r.ID {
			return &ownRunError{&redisstore.Record{Body: r.Body}}
		}
		return s.Runner.Count(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	if err := s.Runner.Count(ctx, r); err != nil {
		return nil, errors.Join(err, w.Release(w.End, &s.Log))
	}
	return w, nil
}

// watchOwnRun dismisses a waiting post when the record of its run appears. After Redis loses data, another process may
// restore the record late. It returns when waiting ends.
func (s *Leaser) watchOwnRun(waiting context.Context, r *runs.Run, dismiss context.CancelCauseFunc) {
	for node.Pause(waiting, node.Jitter(time.Second)) == nil {
		if record, err := runs.RecordOf(waiting, s.Store, r); err == nil && record != nil {
			dismiss(&ownRunError{record})
			return
		}
	}
}

// ownRunError indicates that another process has restored the run of this post, with its record.
type ownRunError struct{ record *redisstore.Record }

func (*ownRunError) Error() string { return "the chat's run is the post's own" }

// turnFor waits for the chat's lease. It first finishes a run that another process left open. Then it denies the waits
// of a run that waits, with the reason why, unless check returns an error. If why is nil, the run keeps waiting.
func (s *Leaser) turnFor(ctx, waiting context.Context, chat memory.Chat, token string, pos runs.Place, why *runs.Denial,
	check func(*redisstore.Rest) error) (*runs.Writer, error) {
	closed := ""
	for {
		w, err := s.takeTurn(ctx, waiting, chat, token, pos)
		if err != nil {
			return nil, err
		}
		// a run of a deleted chat is stopped, not finished
		if w.Closed = closed; pos == runs.Deleting && w.Open != nil {
			s.stopLater(w.Open)
			w.Open = nil
		}
		if w.Open == nil && (w.Waiting == nil || why == nil) {
			if err := s.checkKey(ctx, pos); err != nil {
				return nil, errors.Join(err, w.Release(w.End, &s.Log))
			}
			return w, nil
		}
		var prev *runs.Run
		switch {
		case w.Open != nil:
			prev = s.Runner.Resume(w)
		case pos == runs.PlaceIdle && !runs.Expired(w.Waiting):
			rest := w.Waiting
			return nil, errors.Join(s.busyWaiting(ctx, chat, rest), w.Release(w.End, &s.Log))
		default:
			if err := check(w.Waiting); err != nil {
				return nil, errors.Join(err, w.Release(w.End, &s.Log))
			}
			prev = s.Runner.Deny(w, why)
			closed = prev.ID
		}
		if pos == runs.PlaceIdle {
			return nil, problem.ErrQueueSlow
		}
		select {
		case <-prev.Done:
		case <-waiting.Done():
			return nil, runs.WaitError(waiting)
		}
	}
}

// busyWaiting returns the error for a post that requires an idle chat, while the chat's run waits.
func (s *Leaser) busyWaiting(ctx context.Context, chat memory.Chat, rest *redisstore.Rest) error {
	p := &api.Problem{Status: http.StatusConflict, Code: webapi.CodeChatBusy, RunID: rest.Run,
		Message: "A run of the chat waits for somebody; answer it, or send the message with another on_busy, which " +
			"counts as a no."}
	if w, err := s.Store.Suspensions.Waiting(ctx, chat); err == nil && w != nil {
		if pending, err := runs.WaitsOf(w); err == nil {
			p.Pending = pending
		}
	}
	return p
}

// checkKey returns an error if the request's key was revoked while the request waited for its turn. A revoked key
// starts nothing, but an erasure continues.
func (s *Leaser) checkKey(ctx context.Context, pos runs.Place) error {
	who, gate := access.FromContext(ctx), s.Cfg.Gate
	if pos >= runs.Erasing || who.Key == "" || gate == nil || gate.Keys == nil {
		return nil
	}
	return gate.Keys.Check(ctx, who)
}

// UnderTurn runs do as the chat's only writer. If the lease is lost, it ends do's context.
func (s *Leaser) UnderTurn(ctx context.Context, chat memory.Chat, do func(context.Context, *runs.Writer) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	var w *runs.Writer
	err := fair.Block(ctx, func() (err error) {
		w, err = s.turnFor(ctx, waiting, chat, "", runs.PlaceLast, nil, nil)
		return err
	})
	if err != nil {
		return err
	}
	turnCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(w.Ctx, func() { stop(context.Cause(w.Ctx)) })()
	err = do(turnCtx, w)
	return errors.Join(err, w.Release(w.End, &s.Log))
}

// takeTurn acquires the chat's lease and brings the chat up to date under it. The returned writer holds the lease.
// w.Open or w.Waiting may be set. Redis may list a run as waiting that has ended or waits for something else. In that
// case takeTurn restores the run, returns the lease with it, and starts again.
func (s *Leaser) takeTurn(ctx, waiting context.Context, chat memory.Chat, token string,
	pos runs.Place) (*runs.Writer, error) {
	for {
		l, err := s.acquire(ctx, waiting, chat, token, pos)
		if err != nil {
			return nil, err
		}
		w := &runs.Writer{
			Lease: l, Store: s.Store, Cache: s.Cache, Spool: s.Spool, Histories: map[memory.Key]*memory.History{},
			Subagents: s.Cfg.Agents(),
			Redacted:  func(spool.Entry) bool { return false },
			Rewound:   func(string, int64) bool { return false },
		}
		released, err := s.bringUpToDate(ctx, w, pos)
		if err == nil && !released {
			return w, nil
		}
		if err != nil {
			err = errors.Join(err, w.Leave())
		}
		w.Next()
		if err != nil {
			return nil, err
		}
	}
}

// bringUpToDate does under a new lease what a chat needs before anything new is written to it, in this order:
//
//  1. Remove redacted text from this process's copies.
//  2. Load the histories under the lease's fencing token. Drain this disk's spools for the chat, except for text that
//     was erased, redacted or rewound (Writer.Prepare).
//  3. Finish the pending change of a dead holder.
//  4. If Redis lost that a waiting run resumed, restore the run.
//
// released reports that the lease was returned with a restored run.
func (s *Leaser) bringUpToDate(ctx context.Context, w *runs.Writer, pos runs.Place) (released bool, err error) {
	if w.Open != nil {
		s.Adopt() // the run's process may have died on this machine, with events in its spool
	}
	if w.Open != nil || s.Spool.Bytes() > 0 {
		redacted, err := s.RedactionsOf(ctx, w.Chat)
		if err != nil {
			return false, err
		}
		w.Redacted = redacted.Cover
		if w.Rewound, err = s.Rewinder.RewindsOf(ctx, w.Chat); err != nil {
			return false, err
		}
	}
	if err := s.Redactor.RedactCopies(w.Chat); err != nil {
		return false, err
	}
	if err := w.Prepare(ctx, w.Subagents); err != nil {
		return false, err
	}
	if w.Pending != "" {
		if err := s.finishPending(ctx, w, pos); err != nil {
			return false, err
		}
		w.Histories = map[memory.Key]*memory.History{}
		if err := w.Load(ctx, w.Subagents); err != nil {
			return false, err
		}
	}
	if w.Waiting == nil {
		return false, nil
	}
	return s.Restorer.wentOnSince(ctx, w)
}

// finishPending finishes the change that a dead holder of the chat's lease left pending. It completes an erasure, a
// redaction, a rewind or a restore. It undoes an import.
func (s *Leaser) finishPending(ctx context.Context, w *runs.Writer, pos runs.Place) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.ScrubWait)
	defer cancel()
	s.Log.Warn().Str("chat", w.Chat.String()).Str("change", w.Pending).Msg("finishing what another process left")
	s.Metrics.Faults.WithLabelValues(node.HalfChange).Inc()
	if scope, erasing := strings.CutPrefix(w.Pending, erase.PendingErase); erasing {
		return s.Eraser.FinishErasure(ctx, w, erase.ParseScope(scope), pos < runs.Erasing)
	}
	if what, redacting := erasures.RedactionOf(w.Pending); redacting && what.Chat == w.Chat {
		return s.Eraser.FinishRedaction(ctx, w, what)
	}
	if w.Pending == erase.PendingImport {
		return s.Eraser.UndoImport(ctx, w, slices.Collect(maps.Keys(w.Histories))...)
	}
	id, rewind := strings.CutPrefix(w.Pending, erase.PendingRewind)
	if !rewind {
		id = strings.TrimPrefix(w.Pending, erase.PendingRestore)
	}
	a, err := s.Store.Rewinds.Read(ctx, w.Chat, id)
	switch {
	case err != nil:
		return err
	case a == nil: // finished already, or erased
		return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
	case rewind:
		return s.Rewinder.FinishRewind(ctx, w, a, nil)
	}
	return s.Rewinder.FinishRestore(ctx, w, a)
}

// acquire takes a chat's lease under token, or under a new token if token is empty. It waits in this process's queue
// first, then for a holder in another process, until waiting ends. At runs.PlaceIdle it does not wait.
//
// Tombstones are applied before the lease is used. A Redis that restarted from an older state has erased text again, so
// acquire repeats the erasures that this disk knows. It also drops a run that was open or waited before the erasure.
func (s *Leaser) acquire(ctx, waiting context.Context, chat memory.Chat, token string,
	pos runs.Place) (*runs.Lease, error) {
	token = cmp.Or(token, s.Token())
	for retry := false; ; retry = true {
		next, err := s.Queue.Enter(waiting, chat, pos, retry)
		if err != nil {
			return nil, err
		}
		l, err := s.take(ctx, waiting, chat, token, pos)
		if errors.Is(err, runs.ErrClaimed) {
			next()
			continue
		}
		if err != nil {
			next()
			return nil, err
		}
		l.Next = next
		if err := s.Tombstones.EraseForgotten(ctx, chat); err != nil {
			err = errors.Join(err, l.Leave())
			next()
			return nil, err
		}
		if l.Open != nil && (l.Open.Turn < s.Follower.File.HistoryTurn(memory.ChatKey(chat)) ||
			s.RedactedSince(chat, l.Open.Turn) || s.RewoundSince(chat, l.Open.Run, l.Open.Turn)) {
			l.Open = nil // finished, rewound or erased before Redis returned with it
		}
		if l.Waiting != nil && (l.Waiting.Turn < s.Follower.File.HistoryTurn(memory.ChatKey(chat)) ||
			s.RedactedSince(chat, l.Waiting.Turn) || s.RewoundSince(chat, l.Waiting.Run, l.Waiting.Turn)) {
			l.Waiting = nil // likewise
		}
		return l, nil
	}
}

// take acquires a chat's lease in Redis, and the keeper renews it from then on. While another process holds the lease,
// take polls with jitter. runs.ErrClaimed indicates that the caller must enter the queue again.
//
// Redis grants the lease and the fencing token in one script. take evaluates the result in an order that must not
// change:
//
//  1. Remove a holder that is proven dead.
//  2. Refuse the caller if the chat was erased since the caller entered the queue. The new message may refer to erased
//     text.
//  3. Replace a conversation at the gateway that was erased meanwhile. The lease would offer its text to a model again.
func (s *Leaser) take(ctx, waiting context.Context, chat memory.Chat, token string,
	pos runs.Place) (*runs.Lease, error) {
	began := node.Monotonic()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) { // most holders finish soon
		requested := node.Monotonic()
		conversation := cmp.Or(s.Conversations.Newest(chat), rand.Text())
		turn, err := s.Store.Turns.Take(ctx, chat, token, conversation, s.Cfg.Lease)
		heldErr := &redisstore.HeldError{Erased: turn.Erased}
		if err != nil && !errors.As(err, &heldErr) {
			return nil, err
		}
		if breaks := pos == runs.Deleting && requested-began > breakAfter; err != nil && (breaks || s.IsDead(heldErr.Token)) {
			// The holder or claimant in the way is dead, or does not stop for the deletion of its chat. Redis rejects its later
			// writes by their fencing token.
			turns := s.Store.Turns
			if err := errors.Join(turns.Leave(ctx, chat, heldErr.Token), turns.Yield(ctx, chat, heldErr.Token)); err != nil {
				return nil, err
			}
			continue
		}
		if pos < runs.Erasing && (s.Queue.NoteErasure(chat, heldErr.Erased, turn.Number) || heldErr.Erasing) {
			s.Registry.Dismiss(chat)
			if err == nil {
				err = s.Store.Turns.Leave(ctx, chat, token)
			}
			return nil, errors.Join(problem.ErrErased, err)
		}
		if err == nil && turn.Conversation == conversation { // Redis may have had nothing of the chat
			slept, failed := s.Tier.Slept(ctx, chat, turn)
			if failed != nil && !(pos >= runs.Erasing && node.Unread(failed)) {
				return nil, errors.Join(failed, s.Store.Turns.Leave(ctx, chat, token))
			}
			if slept {
				continue
			}
		}
		if err == nil && s.Conversations.Erased(chat, turn) {
			if err := s.EraseOffered(ctx, chat, turn); err != nil {
				return nil, errors.Join(err, s.Store.Turns.Leave(ctx, chat, token))
			}
			continue // take the held lease again, with a new conversation
		}
		if err == nil {
			s.Conversations.Note(chat, turn.Conversation, turn.Number)
			l := &runs.Lease{Turn: turn, Chat: chat, Token: token, Requested: requested}
			s.Keeper.Add(ctx, l)
			return l, nil
		}
		if pos == runs.PlaceIdle {
			return nil, fmt.Errorf("%w: %w", problem.ErrQueueSlow, err)
		}
		if node.Pause(waiting, node.Jitter(min(heldErr.Remaining, wait))) != nil {
			return nil, fmt.Errorf("%w: %w", runs.WaitError(waiting), err)
		}
		if heldErr.Claimed {
			return nil, runs.ErrClaimed
		}
	}
}

// claimLife is how long a claim on a chat's next lease outlives the process that made it.
const claimLife = 3 * time.Second

// goFirst claims the chat's next lease before all waiters in any process, and stops the chat's open run. Until yield is
// called, it renews the claim and stops runs that other posts start.
func (s *Leaser) goFirst(ctx context.Context, chat memory.Chat, token string) (yield func(), err error) {
	if err := s.Store.Turns.First(ctx, chat, token, claimLife); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		for stopped := s.stopRunOf(ctx, chat, ""); node.Pause(ctx, node.Jitter(claimLife/12)) == nil; {
			if err := s.Store.Turns.First(ctx, chat, token, claimLife); err != nil && ctx.Err() == nil {
				s.Log.Debug().Err(err).Str("chat", chat.String()).Msg("a claim on the next turn was not renewed")
			}
			stopped = s.stopRunOf(ctx, chat, stopped)
		}
	})
	return func() {
		cancel()
		working.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.StoreTimeout)
		defer cancel()
		if err := s.Store.Turns.Yield(ctx, chat, token); err != nil {
			s.Log.Debug().Err(err).Str("chat", chat.String()).Msg("a claim on the next turn runs out by itself")
		}
	}, nil
}

// stopRunOf stops the chat's open run, in any process, unless it is prevRun. It returns the run stopped last.
func (s *Leaser) stopRunOf(ctx context.Context, chat memory.Chat, prevRun string) (stopped string) {
	failed := func(err error) string {
		s.Log.Debug().Err(err).Str("chat", chat.String()).Msg("a run was not stopped; it is tried again")
		return prevRun
	}
	open, err := s.Store.Turns.OpenRun(ctx, chat)
	if err != nil {
		return failed(err)
	}
	if open == nil || open.Run == prevRun {
		return prevRun
	}
	if err := s.stopOpen(ctx, open); err != nil {
		return failed(err)
	}
	return open.Run
}

// stopLater stops a run that another process left, in the background.
func (s *Leaser) stopLater(open *redisstore.OpenRun) {
	s.Workers.Go(func() {
		ctx, cancel := context.WithTimeout(s.Life, node.StoreTimeout)
		defer cancel()
		_ = s.stopOpen(ctx, open) // if this fails, run_timeout ends the run
	})
}

func (s *Leaser) stopOpen(ctx context.Context, open *redisstore.OpenRun) error {
	client := s.Runs
	if open.Events != "" {
		var err error
		if client, err = s.Runs.ForEvents(open.Events); err != nil {
			return err
		}
	}
	return client.Stop(ctx, open.Run)
}
