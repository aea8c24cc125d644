package webmemory

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
	"mneme/webmemory/problem"
)

// leaser is about whose turn a chat is: a place in this process's line, the lease in Redis, and what has to be done
// before its holder may begin. Whatever a holder that died has left is brought to its end first (an open run, a change
// that is pending, entries in spools), and nothing that was erased, redacted or taken back comes out of a spool.
type leaser struct {
	*core
	registry   *registry
	redactor   *redactor
	rewinder   *rewinder
	tombstones *tombstones
	eraser     *eraser
	runner     *runner
	restorer   *restorer

	queue  *queue
	keeper *keeper
}

// turnOf waits for the chat's lease on behalf of a post, which can be dismissed until it
// has it, and then has its run counted. A post that interrupts goes before all others.
func (s *leaser) turnOf(ctx context.Context, r *run, pos place) (*writer, error) {
	waiting, dismiss := context.WithCancelCause(ctx)
	defer dismiss(nil)
	r.setDismiss(dismiss)
	defer r.setDismiss(nil)
	waiting, cancel := context.WithTimeout(waiting, s.cfg.QueueWait)
	defer cancel()
	if r.keyed {
		s.workers.Go(func() { s.watchOwnRun(waiting, r, dismiss) })
	}
	token := ""
	if pos == placeFirst {
		token = s.token()
		yield, err := s.goFirst(ctx, r.chat, token)
		if err != nil {
			return nil, err
		}
		defer yield()
	}
	w, err := s.turnFor(ctx, waiting, r.chat, token, pos, saidElse, func(rest *redisstore.Rest) error {
		if rest.Run == r.id {
			return &ownRunError{&redisstore.Record{Body: r.body}}
		}
		return s.runner.count(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	if err := s.runner.count(ctx, r); err != nil {
		return nil, errors.Join(err, w.release(w.end, &s.log))
	}
	return w, nil
}

// watchOwnRun stops a waiting post when the record of its run appears. After Redis loses data, another process may
// restore the record late. It returns when waiting ends.
func (s *leaser) watchOwnRun(waiting context.Context, r *run, dismiss context.CancelCauseFunc) {
	for pause(waiting, jitter(time.Second)) == nil {
		if record, err := recordOf(waiting, s.store, r); err == nil && record != nil {
			dismiss(&ownRunError{record})
			return
		}
	}
}

// ownRunError indicates that another process has restored the run of this post, with its record.
type ownRunError struct{ record *redisstore.Record }

func (*ownRunError) Error() string { return "the chat's run is the post's own" }

// turnFor waits for the chat's lease. A run that another process left open is brought to
// its end first, and so is one that waits for an answer, for the reason given, if may has nothing against it; no
// reason leaves it so.
func (s *leaser) turnFor(ctx, waiting context.Context, chat memory.Chat, token string, pos place, why *denial,
	check func(*redisstore.Rest) error) (*writer, error) {
	closed := ""
	for {
		w, err := s.takeTurn(ctx, waiting, chat, token, pos)
		if err != nil {
			return nil, err
		}
		if w.closed = closed; pos == deleting && w.Open != nil { // the run goes with its chat, and is not brought to its end
			s.stopLater(w.Open)
			w.Open = nil
		}
		if w.Open == nil && (w.Waiting == nil || why == nil) {
			if err := s.checkKey(ctx, pos); err != nil {
				return nil, errors.Join(err, w.release(w.end, &s.log))
			}
			return w, nil
		}
		var prev *run
		switch {
		case w.Open != nil:
			prev = s.runner.resume(w)
		case pos == placeIdle && !expired(w.Waiting):
			rest := w.Waiting
			return nil, errors.Join(s.busyWaiting(ctx, chat, rest), w.release(w.end, &s.log))
		default:
			if err := check(w.Waiting); err != nil {
				return nil, errors.Join(err, w.release(w.end, &s.log))
			}
			prev = s.runner.deny(w, why)
			closed = prev.id
		}
		if pos == placeIdle {
			return nil, problem.ErrQueueSlow
		}
		select {
		case <-prev.done:
		case <-waiting.Done():
			return nil, waitError(waiting)
		}
	}
}

// busyWaiting refuses a post that takes only a chat at rest: a run waits in it.
func (s *leaser) busyWaiting(ctx context.Context, chat memory.Chat, rest *redisstore.Rest) error {
	p := &api.Problem{Status: http.StatusConflict, Code: webapi.CodeChatBusy, RunID: rest.Run,
		Message: "A run of the chat waits for somebody; answer it, or send the message with another on_busy, which " +
			"counts as a no."}
	if w, err := s.store.Suspensions.Waiting(ctx, chat); err == nil && w != nil {
		if pending, err := waitsOf(w); err == nil {
			p.Pending = pending
		}
	}
	return p
}

// checkKey is nil if the key that a request came with is still good: it may have waited for long for its turn, and of
// what is revoked nothing begins. An erasure goes on.
func (s *leaser) checkKey(ctx context.Context, pos place) error {
	who, gate := access.FromContext(ctx), s.cfg.Gate
	if pos >= erasing || who.Key == "" || gate == nil || gate.Keys == nil {
		return nil
	}
	return gate.Keys.Check(ctx, who)
}

// underTurn does something to a chat as its only writer. A lease that is lost meanwhile ends
// its context.
func (s *leaser) underTurn(ctx context.Context, chat memory.Chat, do func(context.Context, *writer) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.QueueWait)
	defer cancel()
	var w *writer
	err := fair.Block(ctx, func() (err error) {
		w, err = s.turnFor(ctx, waiting, chat, "", placeLast, nil, nil)
		return err
	})
	if err != nil {
		return err
	}
	turnCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(w.ctx, func() { stop(context.Cause(w.ctx)) })()
	err = do(turnCtx, w)
	return errors.Join(err, w.release(w.end, &s.log))
}

// takeTurn acquires the chat's lease and brings every history of the chat up to date
// under it. What was left for it in the spools of this disk is stored first.
func (s *leaser) takeTurn(ctx, waiting context.Context, chat memory.Chat, token string, pos place) (*writer, error) {
	l, err := s.acquire(ctx, waiting, chat, token, pos)
	if err != nil {
		return nil, err
	}
	w := &writer{
		lease: l, store: s.store, cache: s.cache, spool: s.spool, histories: map[memory.Key]*memory.History{},
		agents:   s.cfg.Agents(),
		redacted: func(spool.Entry) bool { return false },
		rewound:  func(string, int64) bool { return false },
	}
	if w.Open != nil {
		// The process that left the run may have died beside us, with events in its spool.
		s.adopt()
	}
	if w.Open != nil || s.spool.Bytes() > 0 {
		var redacted redactions
		redacted, err = s.redactionsOf(ctx, chat) // their text must not come out of a spool
		w.redacted = redacted.cover
		if err == nil {
			w.rewound, err = s.rewinder.rewindsOf(ctx, chat)
		}
	}
	if err == nil {
		err = s.redactor.redactCopies(chat)
	}
	if err == nil {
		err = w.prepare(ctx, w.agents)
	}
	if err == nil && w.Pending != "" {
		if err = s.finishPending(ctx, w, pos); err == nil {
			w.histories = map[memory.Key]*memory.History{}
			err = w.load(ctx, w.agents)
		}
	}
	retry := false
	if err == nil && w.Waiting != nil {
		retry, err = s.restorer.wentOnSince(ctx, w)
	}
	if err != nil {
		err = errors.Join(err, w.leave())
		w.next()
		return nil, err
	}
	if retry {
		w.next()
		return s.takeTurn(ctx, waiting, chat, token, pos)
	}
	return w, nil
}

// finishPending brings to its end what a holder of the chat's lease began that has died: an erasure, a redaction, a
// rewind or its restoring is done to its end, an import is undone.
func (s *leaser) finishPending(ctx context.Context, w *writer, pos place) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scrubWait)
	defer cancel()
	s.log.Warn().Str("chat", w.chat.String()).Str("change", w.Pending).Msg("finishing what another process left")
	s.metrics.faults.WithLabelValues(halfChange).Inc()
	if scope, erase := strings.CutPrefix(w.Pending, pendingErase); erase {
		return s.eraser.finishErasure(ctx, w, parseEraseScope(scope), pos < erasing)
	}
	if what, redacting := erasures.RedactionOf(w.Pending); redacting && what.Chat == w.chat {
		return s.eraser.finishRedaction(ctx, w, what)
	}
	if w.Pending == pendingImport {
		return s.eraser.undoImport(ctx, w, slices.Collect(maps.Keys(w.histories))...)
	}
	id, rewind := strings.CutPrefix(w.Pending, pendingRewind)
	if !rewind {
		id = strings.TrimPrefix(w.Pending, pendingRestore)
	}
	a, err := s.store.Rewinds.Read(ctx, w.chat, id)
	switch {
	case err != nil:
		return err
	case a == nil: // it is done, or erased
		return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
	case rewind:
		return s.rewinder.finishRewind(ctx, w, a, nil)
	}
	return s.rewinder.finishRestore(ctx, w, a)
}

// acquire takes a chat's lease under a token, made here if it is empty. It waits in the line
// of this process first, then for a holder in another one, until waiting ends; for the place
// now it does not wait at all.
//
// Tombstones come before use: a Redis that was restarted from an older state has again what
// was erased since. What this disk knows to be erased is therefore erased there once more before
// the lease is handed out; a run that was open before the erasure is not resumed either.
func (s *leaser) acquire(ctx, waiting context.Context, chat memory.Chat, token string, pos place) (*lease, error) {
	token = cmp.Or(token, s.token())
	for retry := false; ; retry = true {
		next, err := s.queue.enter(waiting, chat, pos, retry)
		if err != nil {
			return nil, err
		}
		l, err := s.take(ctx, waiting, chat, token, pos)
		if errors.Is(err, errClaimed) {
			next()
			continue
		}
		if err != nil {
			next()
			return nil, err
		}
		l.next = next
		if err := s.tombstones.eraseForgotten(ctx, chat); err != nil {
			err = errors.Join(err, l.leave())
			next()
			return nil, err
		}
		if l.Open != nil && (l.Open.Turn < s.follower.file.HistoryTurn(memory.ChatKey(chat)) ||
			s.redactedSince(chat, l.Open.Turn) || s.rewoundSince(chat, l.Open.Run, l.Open.Turn)) {
			l.Open = nil // it was over, taken back, or erased with its chat, and Redis came back with it
		}
		if l.Waiting != nil && (l.Waiting.Turn < s.follower.file.HistoryTurn(memory.ChatKey(chat)) ||
			s.redactedSince(chat, l.Waiting.Turn) || s.rewoundSince(chat, l.Waiting.Run, l.Waiting.Turn)) {
			l.Waiting = nil // likewise
		}
		return l, nil
	}
}

// take acquires a chat's lease in Redis, polling with jitter while another process holds it,
// and has the keeper renew it from then on. errClaimed says that the caller must line up
// again.
//
// Redis grants the lease and the fencing token in one script. What that found is judged in an
// order that must not change: a holder that is proven dead is set aside first; then an erasure
// since the caller lined up refuses it, since what the caller was going to say may refer to what
// is gone; then a conversation of the gateway that was erased meanwhile is given up, because
// the lease would offer its text to a model once more.
func (s *leaser) take(ctx, waiting context.Context, chat memory.Chat, token string, pos place) (*lease, error) {
	began := monotonic()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) { // most holders are about to be done
		requested := monotonic()
		conversation := cmp.Or(s.conversations.newest(chat), rand.Text())
		turn, err := s.store.Turns.Take(ctx, chat, token, conversation, s.cfg.Lease)
		heldErr := &redisstore.HeldError{Erased: turn.Erased}
		if err != nil && !errors.As(err, &heldErr) {
			return nil, err
		}
		if breaks := pos == deleting && requested-began > breakAfter; err != nil && (breaks || s.isDead(heldErr.Token)) {
			// The holder or claimant in the way is dead, or does not stop for the deletion of its chat. What it still
			// writes is refused by its fencing token.
			turns := s.store.Turns
			if err := errors.Join(turns.Leave(ctx, chat, heldErr.Token), turns.Yield(ctx, chat, heldErr.Token)); err != nil {
				return nil, err
			}
			continue
		}
		if pos < erasing && (s.queue.noteErasure(chat, heldErr.Erased, turn.Number) || heldErr.Erasing) {
			s.registry.dismiss(chat)
			if err == nil {
				err = s.store.Turns.Leave(ctx, chat, token)
			}
			return nil, errors.Join(problem.ErrErased, err)
		}
		if err == nil && turn.Conversation == conversation { // nothing of the chat may have been there
			slept, failed := s.tier.slept(ctx, chat, turn)
			if failed != nil && !(pos >= erasing && unread(failed)) {
				return nil, errors.Join(failed, s.store.Turns.Leave(ctx, chat, token))
			}
			if slept {
				continue
			}
		}
		if err == nil && s.conversations.erased(chat, turn) {
			if err := s.eraseOffered(ctx, chat, turn); err != nil {
				return nil, errors.Join(err, s.store.Turns.Leave(ctx, chat, token))
			}
			continue // the lease is held: it is taken again with a conversation that is new
		}
		if err == nil {
			s.conversations.note(chat, turn.Conversation, turn.Number)
			l := &lease{Turn: turn, chat: chat, token: token, requested: requested}
			s.keeper.add(ctx, l)
			return l, nil
		}
		if pos == placeIdle {
			return nil, fmt.Errorf("%w: %w", problem.ErrQueueSlow, err)
		}
		if pause(waiting, jitter(min(heldErr.Remaining, wait))) != nil {
			return nil, fmt.Errorf("%w: %w", waitError(waiting), err)
		}
		if heldErr.Claimed {
			return nil, errClaimed
		}
	}
}

// claimLife is how long a claim on a chat's next lease outlives the process that made it.
const claimLife = 3 * time.Second

// goFirst claims the chat's next lease, before all waiters in any process, and stops what
// runs until then, also a run that another post begins meanwhile. It goes on with both
// until yield is called.
func (s *leaser) goFirst(ctx context.Context, chat memory.Chat, token string) (yield func(), err error) {
	if err := s.store.Turns.First(ctx, chat, token, claimLife); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		for stopped := s.stopRunOf(ctx, chat, ""); pause(ctx, jitter(claimLife/12)) == nil; {
			if err := s.store.Turns.First(ctx, chat, token, claimLife); err != nil && ctx.Err() == nil {
				s.log.Debug().Err(err).Str("chat", chat.String()).Msg("a claim on the next turn was not renewed")
			}
			stopped = s.stopRunOf(ctx, chat, stopped)
		}
	})
	return func() {
		cancel()
		working.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		if err := s.store.Turns.Yield(ctx, chat, token); err != nil {
			s.log.Debug().Err(err).Str("chat", chat.String()).Msg("a claim on the next turn runs out by itself")
		}
	}, nil
}

// stopRunOf stops the chat's open run, in whichever process it is, unless that is
// the one that was stopped before. It gives the run that is stopped now.
func (s *leaser) stopRunOf(ctx context.Context, chat memory.Chat, prevRun string) (stopped string) {
	failed := func(err error) string {
		s.log.Debug().Err(err).Str("chat", chat.String()).Msg("a run was not stopped; it is tried again")
		return prevRun
	}
	open, err := s.store.Turns.OpenRun(ctx, chat)
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
func (s *leaser) stopLater(open *redisstore.OpenRun) {
	s.workers.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, storeTimeout)
		defer cancel()
		_ = s.stopOpen(ctx, open) // if this fails, run_timeout ends the run
	})
}

func (s *leaser) stopOpen(ctx context.Context, open *redisstore.OpenRun) error {
	client := s.runs
	if open.Events != "" {
		var err error
		if client, err = s.runs.ForEvents(open.Events); err != nil {
			return err
		}
	}
	return client.Stop(ctx, open.Run)
}
