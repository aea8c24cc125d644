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

// eraseWait is the minimum time that an erasure waits for the chat's turn. It is longer than a lease, because the
// holder may have died.
const eraseWait = 30 * time.Second

// breakAfter is how long the deletion of a chat waits for another holder before it breaks the lease.
const breakAfter = 5 * time.Second

// TakeAway runs do as TakeAwayNow does, and answers the request with its result.
func TakeAway[A any](s *Leaser, c *gin.Context, chat memory.Chat, pos runs.Place, allowed time.Duration,
	do func(context.Context, *runs.Writer) (A, error)) error {
	return TakenAwayBy(s, c, func() (A, error) { return TakeAwayNow(s, chat, pos, allowed, do) })
}

// TakenAwayBy runs do, which removes something from chats, and answers the request with its result. do continues if the
// client disconnects.
func TakenAwayBy[A any](s *Leaser, c *gin.Context, do func() (A, error)) error {
	type end struct {
		out A
		err error
	}
	done := make(chan end, 1)
	ctx := c.Request.Context()
	fair.Leave(ctx) // do takes its own place in s.Work
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

// TakeAwayNow runs do, an erasure, redaction or rewind, under the chat's lease. It stops the active run and takes the
// lease before all waiting posts, which are refused. It scrubs the store's files after do. After it returns, no run can
// use or write the removed text. pos is runs.Erasing or runs.Deleting. allowed limits the time of do.
func TakeAwayNow[A any](s *Leaser, chat memory.Chat, pos runs.Place, allowed time.Duration,
	do func(context.Context, *runs.Writer) (A, error)) (out A, err error) {
	if out, err = TakeAwayUnscrubbed(s, chat, pos, allowed, do); err != nil {
		return out, err
	}
	return out, s.Eraser.Scrub()
}

// TakeAwayUnscrubbed is TakeAwayNow for a caller that removes several things and then scrubs once.
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
		s.Queue.NoteErasure(chat, "", 0) // posts that arrived during the erasure may proceed
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
