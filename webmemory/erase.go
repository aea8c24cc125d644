package webmemory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// deleteHistory is DELETE …/history of a chat or of one of its subagents.
func (s *Server) deleteHistory(c *gin.Context) error {
	key, err := keyOf(c)
	if err != nil {
		return err
	}
	return s.erase(c, key.Chat(), wanted{history: &key})
}

// deleteChat is DELETE /v1/chats/{chat}; with scan=true it also looks through all
// keys of Redis for what no index names.
func (s *Server) deleteChat(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	scan, err := flag(c, "scan")
	if err != nil {
		return err
	}
	return s.erase(c, chat, wanted{scan: scan})
}

// wanted is what of a chat is to be erased: everything, unless it is one history.
type wanted struct {
	history *memory.Key
	scan    bool // look through all keys of Redis
}

func (w wanted) has(key memory.Key) bool { return w.history == nil || *w.history == key }

// erase removes what is wanted gone of a chat. It goes on if its client leaves.
func (s *Server) erase(c *gin.Context, chat memory.Chat, what wanted) error {
	type end struct {
		out webapi.Erased
		err error
	}
	ended := make(chan end, 1)
	s.workers.Go(func() {
		out, err := s.eraseNow(chat, what)
		if err != nil {
			trail := telemetry.From(c.Request.Context())
			s.log.Warn().Err(err).EmbedObject(trail).Msg("an erasure did not succeed")
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

// scanTimeout bounds an erasure that looks through all keys: a million take seconds.
const scanTimeout = 10 * time.Minute

// eraseNow takes the turn as a writer does, before all who wait for it and after
// stopping what runs, so that once it has returned no run can still use or write
// what was erased. Posts that wait are dismissed.
func (s *Server) eraseNow(chat memory.Chat, what wanted) (webapi.Erased, error) {
	ctx, cancel := context.WithTimeout(s.life, max(eraseWait, 2*s.cfg.Lease))
	defer cancel()
	token := redisstore.EraserToken + s.token()
	yield, err := s.goFirst(ctx, chat, token)
	if err != nil {
		return webapi.Erased{}, err
	}
	s.dismiss(chat)
	t, err := s.turnFor(ctx, ctx, chat, token, erasing)
	if err != nil {
		yield()
		return webapi.Erased{}, err
	}
	defer func() {
		yield()
		s.queue.saw(chat, "", 0) // posts that came during the erasure may have their turn
		t.next()
	}()
	allowed := 2*storeTimeout + redisstore.Beat
	if what.scan {
		allowed = scanTimeout
	}
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), allowed)
	defer stop()
	out, err := s.eraseUnder(done, t, what)
	if ending := t.end(); ending != nil {
		s.log.Warn().Err(ending).Msg("a turn was not given back; it runs out by itself")
	}
	if err != nil {
		return out, err
	}
	scrubbing, stop := context.WithTimeout(context.WithoutCancel(ctx), scrubWait)
	defer stop()
	return out, s.store.Scrub(scrubbing)
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
	failed := func(err error) string {
		s.log.Debug().Err(err).Str("chat", chat.String()).Msg("a run was not stopped; it is tried again")
		return before
	}
	open, err := s.store.OpenRun(ctx, chat)
	if err != nil {
		return failed(err)
	}
	if open == nil || open.Run == before {
		return before
	}
	if err := s.stopOpen(ctx, open); err != nil {
		return failed(err)
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
func (s *Server) eraseUnder(ctx context.Context, t *turn, what wanted) (webapi.Erased, error) {
	out := webapi.Erased{Erased: []string{}}
	if err := s.eraseConversations(ctx, t.chat, t.Number); err != nil {
		return out, err
	}
	named, err := s.store.Keys(ctx, t.chat, s.cfg.Agents...)
	if err != nil {
		return out, err
	}
	var keys []memory.Key // of what is stored, and of what left a number or a tombstone
	var beside []string
	for key := range t.histories {
		keys = append(keys, key)
	}
	if what.history != nil {
		keys = append(keys, *what.history) // of a subagent that is in no list, perhaps
	}
	if what.scan {
		var more []memory.Key
		if more, beside, err = s.store.Scan(ctx, t.chat); err != nil {
			return out, err
		}
		keys = append(keys, more...)
	}
	stored, err := s.store.Measure(ctx, append(named, keys...)...)
	if err != nil {
		return out, err
	}
	for _, h := range stored {
		keys = append(keys, h.Key)
		if what.has(h.Key) {
			out.Erased = append(out.Erased, h.Key.String())
		}
	}
	out.Erased = append(out.Erased, beside...)
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return !what.has(k) })
	// From here on it is a fact: whoever holds a copy drops it, and none is written back.
	fact := erasure{Name: erasures.Chat(t.chat), Turn: t.Number}
	if what.history != nil {
		fact.Name = what.history.String()
	}
	runs := s.runsOf(t)
	if err := s.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return out, err
	}
	if err := s.store.NoteErasure(ctx, fact.Turn, fact.Name); err != nil {
		return out, err
	}
	if what.history != nil {
		s.sessions.write(t.chat, fmt.Sprintf("erased: %v", out.Erased))
		if err := s.cache.Erase(ctx, t.Number, keys...); err != nil {
			return out, err
		}
		s.tellOthers(ctx, fact)
		return out, nil
	}
	s.cache.Forget(keys...) // also what this turn has read, which is no older than the erasure: it is not written back
	err = s.eraseStored(ctx, t, fact, runs, keys, beside)
	s.cache.Forget(keys...) // what was read while the store erased
	if err != nil {
		return out, err
	}
	if err := s.runs.DeleteChat(ctx, t.chat); err != nil {
		return out, asking(err)
	}
	return out, nil
}

// eraseStored erases all of a chat in Redis: the runs that are known here, the histories
// with what belongs to them, what lies beside these, and the runs that other processes
// know of once they are told.
func (s *Server) eraseStored(
	ctx context.Context, t *turn, fact erasure, runs []string, keys []memory.Key, beside []string,
) error {
	if err := s.store.EraseRuns(ctx, t.chat, runs...); err != nil {
		return err
	}
	if err := s.store.EraseChat(ctx, t.Number, t.chat, keys...); err != nil {
		return err
	}
	if err := s.store.Remove(ctx, beside...); err != nil {
		return err
	}
	return s.store.EraseRuns(ctx, t.chat, s.tellOthers(ctx, fact)...)
}

// runsOf are the runs of a chat that this process knows of: those that it has lately
// shown, and those that wrote the messages of the histories.
func (s *Server) runsOf(t *turn) []string {
	runs := map[string]bool{}
	for _, id := range s.runsHere(t.chat) {
		runs[id] = true
	}
	for _, h := range t.histories {
		for _, raw := range h.Raw(0) {
			var m struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(raw, &m) == nil && m.ID != "" {
				run, _, _ := strings.Cut(m.ID, ".")
				runs[strings.TrimSuffix(run, memory.ClosingSuffix)] = true
			}
		}
	}
	return slices.Collect(maps.Keys(runs))
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
