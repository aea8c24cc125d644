package turns

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/runs"
)

// This file is about taking something of a chat away, by an erasure, a redaction or a rewind: under the chat's lease,
// before all posts that wait for it, and after what runs was stopped. What is generic here is a function of the
// leaser's.

// eraseWait is how long an erasure waits for the chat's turn. Longer than a lease:
// the holder may have died.
const eraseWait = 30 * time.Second

// breakAfter bounds the time that the deletion of a chat waits for another holder of its lease.
const breakAfter = 5 * time.Second

// TakeAway takes something of a chat away, see TakeAwayNow, and answers with what do gives.
func TakeAway[A any](s *Leaser, c *gin.Context, chat memory.Chat, pos runs.Place, allowed time.Duration,
	do func(context.Context, *runs.Writer) (A, error)) error {
	return TakenAwayBy(s, c, func() (A, error) { return TakeAwayNow(s, chat, pos, allowed, do) })
}

// TakenAwayBy answers with what something gives that takes something of a chat away. It goes on if its client leaves.
func TakenAwayBy[A any](s *Leaser, c *gin.Context, do func() (A, error)) error {
	type end struct {
		out A
		err error
	}
	done := make(chan end, 1)
	ctx := c.Request.Context()
	fair.Leave(ctx) // the removal takes a place of its own
	s.Workers.Go(func() {
		out, err := do()
		if err != nil {
			trail := telemetry.FromContext(c.Request.Context())
			s.Log.Warn().Err(err).EmbedObject(trail).Msg("an erasure did not succeed")
		}
		done <- end{out, err}
	})
	select {
	case e := <-done:
		if e.err != nil {
			return e.err
		}
		out, erased := any(e.out).(webapi.Erased)
		c.Set(node.NothingDone, erased && out.Nothing)
		return api.Answer(c.Writer, http.StatusOK, e.out, nil)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TakeAwayNow erases or redacts, by do, under the chat's lease, which it takes before all
// waiters and after stopping what runs: once it has returned no run can still use or write
// what is gone. Posts that wait are refused. pos is Erasing or Deleting; allowed bounds do.
func TakeAwayNow[A any](s *Leaser, chat memory.Chat, pos runs.Place, allowed time.Duration,
	do func(context.Context, *runs.Writer) (A, error)) (out A, err error) {
	if out, err = TakeAwayUnscrubbed(s, chat, pos, allowed, do); err != nil {
		return out, err
	}
	return out, s.Eraser.Scrub()
}

// TakeAwayUnscrubbed is TakeAwayNow for a caller that takes several things away, and scrubs once.
func TakeAwayUnscrubbed[A any](s *Leaser, chat memory.Chat, pos runs.Place, allowed time.Duration,
	do func(context.Context, *runs.Writer) (A, error)) (out A, err error) {
	ctx, cancel := context.WithTimeout(s.Life, max(eraseWait, 2*s.Cfg.Lease))
	defer cancel()
	token := redisstore.EraserToken + s.Token()
	yield, err := s.goFirst(ctx, chat, token)
	if err != nil {
		return out, err
	}
	s.Registry.Dismiss(chat)
	w, err := s.turnFor(ctx, ctx, chat, token, pos, runs.Removed,
		func(*redisstore.Rest) error { return nil })
	if err != nil {
		yield()
		return out, err
	}
	defer func() {
		yield()
		s.Queue.NoteErasure(chat, "", 0) // posts that came during the erasure may have their turn
		w.Next()
	}()
	fair.Do(fair.With(context.WithoutCancel(ctx), s.Work, chat.Tenant()), func(ctx context.Context) {
		ctx, stop := context.WithTimeout(ctx, allowed)
		defer stop()
		out, err = do(ctx, w)
	})
	if ending := w.End(); ending != nil {
		s.Log.Warn().Err(ending).Msg(node.NotGivenBack)
	}
	return out, err
}
