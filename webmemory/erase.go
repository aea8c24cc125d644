package webmemory

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// deleteHistory is DELETE …/history of a chat or of one of its subagents.
func (s *Server) deleteHistory(c *gin.Context) error {
	key, err := keyOf(c)
	if err != nil {
		return err
	}
	return s.erase(c, key.Chat(), func(k memory.Key) bool { return k == key })
}

// deleteChat is DELETE /v1/chats/{chat}.
func (s *Server) deleteChat(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	return s.erase(c, chat, nil)
}

type erased struct {
	Erased []string `json:"erased"`
}

// erase removes those of a chat's histories that which names, all of the chat if
// which is nil. It goes on if its client leaves.
func (s *Server) erase(c *gin.Context, chat memory.Chat, which func(memory.Key) bool) error {
	type end struct {
		out erased
		err error
	}
	ended := make(chan end, 1)
	s.workers.Go(func() {
		out, err := s.eraseNow(chat, which)
		if err != nil {
			s.log.Warn().Err(err).Str("chat", string(chat)).Msg("an erasure did not succeed")
		}
		ended <- end{out, err}
	})
	select {
	case e := <-ended:
		if e.err != nil {
			return e.err
		}
		api.WriteJSON(c.Writer, http.StatusOK, e.out)
		return nil
	case <-c.Request.Context().Done():
		return context.Cause(c.Request.Context())
	}
}

// eraseWait is how long an erasure waits for the chat's turn. Longer than a lease:
// the holder may have died.
const eraseWait = 30 * time.Second

// eraseNow takes the turn as a writer does, before all who wait for it and after
// stopping what runs, so that once it has returned no run can still use or write
// what was erased. Posts that wait are dismissed.
func (s *Server) eraseNow(chat memory.Chat, which func(memory.Key) bool) (erased, error) {
	ctx, cancel := context.WithTimeout(s.life, max(eraseWait, 2*s.cfg.Lease))
	defer cancel()
	token := redisstore.EraserToken + s.token()
	yield, err := s.goFirst(ctx, chat, token)
	if err != nil {
		return erased{}, err
	}
	s.dismiss(chat)
	t, leave, err := s.turnFor(ctx, ctx, chat, token, erasing)
	if err != nil {
		yield()
		return erased{}, err
	}
	defer func() {
		yield()
		s.queue.saw(chat, "") // posts that came during the erasure may have their turn
		leave()
	}()
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*storeTimeout)
	defer stop()
	out, err := s.eraseUnder(done, t, which)
	if ending := t.end(); ending != nil {
		s.log.Warn().Err(ending).Msg("a turn was not given back; it runs out by itself")
	}
	if err == nil {
		scrubbing, stop := context.WithTimeout(context.WithoutCancel(ctx), scrubWait)
		defer stop()
		err = s.store.Scrub(scrubbing)
	}
	return out, err
}

// scrubWait is how long an erasure waits until its text is in no file of the store's.
const scrubWait = time.Minute

// dismiss ends the wait of all posts of this process that wait for a chat's turn.
func (s *Server) dismiss(chat memory.Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.live {
		if r.chat == chat {
			r.mu.Lock()
			if r.dismiss != nil {
				r.dismiss(errErased)
			}
			r.mu.Unlock()
		}
	}
}

// stopRunOf stops the chat's open run, in whichever process it is, unless that is
// the one that was stopped before. It gives the run that is stopped now.
func (s *Server) stopRunOf(ctx context.Context, chat memory.Chat, before string) (stopped string) {
	open, err := s.store.OpenRun(ctx, chat)
	if err == nil && (open == nil || open.Run == before) {
		return before
	}
	if err == nil {
		err = s.stopOpen(ctx, open)
	}
	if err != nil {
		s.log.Debug().Err(err).Str("chat", string(chat)).Msg("a run was not stopped; it is tried again")
		return before
	}
	return open.Run
}

func (s *Server) stopOpen(ctx context.Context, open *redisstore.OpenRun) error {
	at := s.runs
	if open.Events != "" {
		var err error
		if at, err = s.runs.At(open.Events); err != nil {
			return err
		}
	}
	return at.Stop(ctx, open.Run)
}

// eraseUnder erases under the chat's turn. The gateway's conversation goes first,
// whole: it may hold what any of the histories does, and once the chat is gone
// nobody knows its id.
func (s *Server) eraseUnder(ctx context.Context, t *turn, which func(memory.Key) bool) (erased, error) {
	out := erased{Erased: []string{}}
	if err := s.runs.EraseConversation(ctx, t.Conversation); err != nil {
		return out, asking(err)
	}
	stored, err := s.store.Histories(ctx, t.chat)
	if err != nil {
		return out, err
	}
	wanted := map[memory.Key]bool{}
	for key := range t.histories { // the tombstones of those that hold nothing now
		wanted[key] = true
	}
	for _, h := range stored {
		wanted[h.Key] = true
		if which == nil || which(h.Key) {
			out.Erased = append(out.Erased, h.Key.String())
		}
	}
	var keys []memory.Key
	for key := range wanted {
		if which == nil || which(key) {
			keys = append(keys, key)
		}
	}
	if err := s.spool.Forget(keys...); err != nil {
		return out, err
	}
	if which != nil {
		s.sessions.write(t.chat, "erased: %v", out.Erased)
		return out, s.cache.Erase(ctx, t.Number, keys...)
	}
	s.cache.Forget(keys...)
	err = s.store.EraseChat(ctx, t.Number, t.chat, keys...)
	s.cache.Forget(keys...) // what was read while the store erased
	if err != nil {
		return out, err
	}
	s.dropRuns(t.chat)
	if err := s.sessions.remove(t.chat); err != nil {
		return out, err
	}
	if err := s.runs.DeleteChat(ctx, t.chat); err != nil {
		return out, asking(err)
	}
	return out, nil
}

// dropRuns forgets the events of a chat's finished runs.
func (s *Server) dropRuns(chat memory.Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.live {
		if r.chat == chat && r.over(0) {
			s.unlist(r)
		}
	}
}
