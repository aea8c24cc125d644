package webmemory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/tally"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// This file is about erasing. An erasure is done under the chat's lease, before all posts
// that wait for it. Then it is a fact with a number (a tombstone): in Redis for all
// processes, and on the disk of each that has applied it to what it holds. One that Redis
// has forgotten is told again.

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
	chat, err := chatOf(c)
	if err != nil {
		return err
	}
	scan, err := flag(c, "scan")
	if err != nil {
		return err
	}
	return s.erase(c, chat, wanted{scan: scan})
}

// wanted is what of a chat is to be erased: one history, or everything.
type wanted struct {
	history *memory.Key
	scan    bool // look through all keys of Redis
	counted bool // what its calls of models took stays counted: its tenant goes as a whole
}

func (w wanted) has(key memory.Key) bool { return w.history == nil || *w.history == key }

// String is what wantedOf reads.
func (w wanted) String() string {
	switch {
	case w.history != nil:
		return w.history.String()
	case w.counted:
		return "counted"
	case w.scan:
		return "scan"
	}
	return ""
}

func wantedOf(text string) wanted {
	if key, ok := memory.ParseKey(text); ok {
		return wanted{history: &key}
	}
	return wanted{scan: text == "scan", counted: text == "counted"}
}

// erase removes what is wanted gone of a chat.
func (s *Server) erase(c *gin.Context, chat memory.Chat, what wanted) error {
	allowed := 2*storeTimeout + redisstore.Beat
	if what.scan {
		allowed = scanTimeout
	}
	return takeAway(s, c, chat, allowed, func(ctx context.Context, w *writer) (webapi.Erased, error) {
		return s.eraseUnder(ctx, w, what)
	})
}

// takeAway takes something of a chat away, see takeAwayNow, and answers with what do gives.
func takeAway[A any](s *Server, c *gin.Context, chat memory.Chat, allowed time.Duration,
	do func(context.Context, *writer) (A, error)) error {
	return takenAwayBy(s, c, func() (A, error) { return takeAwayNow(s, chat, allowed, do) })
}

// takenAwayBy answers with what something gives that takes something of a chat away. It goes on if its client leaves.
func takenAwayBy[A any](s *Server, c *gin.Context, do func() (A, error)) error {
	type end struct {
		out A
		err error
	}
	ended := make(chan end, 1)
	s.workers.Go(func() {
		out, err := do()
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
		out, erased := any(e.out).(webapi.Erased)
		c.Set(nothingDone, erased && out.Nothing)
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

// scrubWait is how long an erasure waits until its text is in no file of the store's.
const scrubWait = time.Minute

// takeAwayNow erases or redacts, by do, under the chat's lease, which it takes before all
// waiters and after stopping what runs: once it has returned no run can still use or write
// what is gone. Posts that wait are refused. allowed bounds do.
func takeAwayNow[A any](s *Server, chat memory.Chat, allowed time.Duration,
	do func(context.Context, *writer) (A, error)) (out A, err error) {
	if out, err = takeAwayUnscrubbed(s, chat, allowed, do); err != nil {
		return out, err
	}
	return out, s.scrub()
}

// scrub returns when nothing that was erased is in a file of the store's any more.
func (s *Server) scrub() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), scrubWait)
	defer cancel()
	return s.store.Server.Scrub(ctx)
}

// takeAwayUnscrubbed is takeAwayNow for a caller that takes several things away, and scrubs once.
func takeAwayUnscrubbed[A any](s *Server, chat memory.Chat, allowed time.Duration,
	do func(context.Context, *writer) (A, error)) (out A, err error) {
	ctx, cancel := context.WithTimeout(s.life, max(eraseWait, 2*s.cfg.Lease))
	defer cancel()
	token := redisstore.EraserToken + s.token()
	yield, err := s.goFirst(ctx, chat, token)
	if err != nil {
		return out, err
	}
	s.dismiss(chat)
	w, err := s.turnFor(ctx, ctx, chat, token, erasing, takenAway,
		func(*redisstore.Rest) error { return nil })
	if err != nil {
		yield()
		return out, err
	}
	defer func() {
		yield()
		s.queue.saw(chat, "", 0) // posts that came during the erasure may have their turn
		w.next()
	}()
	done, stop := context.WithTimeout(context.WithoutCancel(ctx), allowed)
	defer stop()
	out, err = do(done, w)
	if ending := w.end(); ending != nil {
		s.log.Warn().Err(ending).Msg(notGivenBack)
	}
	return out, err
}

// stopRunOf stops the chat's open run, in whichever process it is, unless that is
// the one that was stopped before. It gives the run that is stopped now.
func (s *Server) stopRunOf(ctx context.Context, chat memory.Chat, before string) (stopped string) {
	failed := func(err error) string {
		s.log.Debug().Err(err).Str("chat", chat.String()).Msg("a run was not stopped; it is tried again")
		return before
	}
	open, err := s.store.Turns.OpenRun(ctx, chat)
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

// eraseUnder erases under the chat's lease. The gateway's conversation goes first, whole:
// it may hold what any of the histories does, and once the chat is gone its id is lost. From then on to the last step
// the chat's meta says that an erasure is pending, so that the process that takes the lease next brings to its end
// what this one may leave.
func (s *Server) eraseUnder(ctx context.Context, w *writer, what wanted) (webapi.Erased, error) {
	out := webapi.Erased{Erased: []string{}}
	cards, err := s.store.Chats.Cards(ctx, w.chat)
	if err != nil {
		return out, err
	}
	aside, err := s.store.Rewinds.List(ctx, w.chat)
	if err != nil {
		return out, err
	}
	if err := s.eraseConversations(ctx, w.chat, w.Number); err != nil {
		return out, err
	}
	if err := s.store.Rewinds.Pending(ctx, w.Number, w.chat, pendingErase+what.String(), "", s.cfg.Lease); err != nil {
		return out, err
	}
	if err := s.dropRewound(ctx, w.chat); err != nil {
		return out, err
	}
	named, err := s.store.Chats.Keys(ctx, w.chat, s.cfg.Agents...)
	if err != nil {
		return out, err
	}
	// Also what is not there gets its tombstone: Redis may just have lost it, and a process
	// that was not told yet may be about to write it back.
	keys := slices.Clone(named)
	var beside []string
	for key := range w.histories { // what left a number or a tombstone
		keys = append(keys, key)
	}
	if what.history != nil {
		keys = append(keys, *what.history) // of a subagent that is in no list, perhaps
	}
	if what.scan {
		var more []memory.Key
		if more, beside, err = s.store.Chats.Scan(ctx, w.chat); err != nil {
			return out, err
		}
		keys = append(keys, more...)
	}
	stored, err := s.store.Chats.Measure(ctx, keys...)
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
	out.Nothing = len(out.Erased) == 0 && len(aside) == 0 && (what.history != nil || cards[0].Gone)
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return !what.has(k) })
	// From here on it is a fact: a process that holds a copy drops it, and none is written back.
	fact := erasure{Name: erasures.Chat(w.chat), Turn: w.Number}
	if what.history != nil {
		fact.Name = what.history.String()
	}
	runs := s.runsOf(w)
	if err := s.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return out, err
	}
	if err := s.store.Erasures.Note(ctx, fact.Turn, fact.Name); err != nil {
		return out, err
	}
	if what.has(memory.ChatKey(w.chat)) { // which has the messages that notes of users were made from
		if _, err := s.store.Users.VoidNotes(ctx, w.chat, func(memory.Note) bool { return true }); err != nil {
			return out, err
		}
	}
	if what.history != nil {
		s.sessions.write(w.chat, sessionLine("erased: %v", out.Erased))
		if err := s.cache.Erase(ctx, w.Number, keys...); err != nil {
			return out, err
		}
		s.tellOthers(ctx, fact)
		return out, s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
	}
	documents, err := s.runs.DeleteChat(ctx, w.chat)
	if err != nil {
		return out, asking(err)
	}
	out.Nothing = out.Nothing && !documents
	if !what.counted {
		if err := s.forgetUsage(ctx, w.chat.Tenant(), tally.ByChat, w.chat.ID()); err != nil {
			return out, err
		}
	}
	s.cache.Forget(keys...) // also what this turn has read, which is no older than the erasure: it is not written back
	err = s.eraseStored(ctx, w, fact, runs, keys, beside)
	s.cache.Forget(keys...) // what was read while the store erased
	return out, err
}

// finishErasure does the whole of an erasure once more, of which each step may have been done. The turn that found it
// goes on in another conversation.
func finishErasure(ctx context.Context, s *Server, w *writer, what wanted) error {
	if _, err := s.eraseUnder(ctx, w, what); err != nil || what.history != nil {
		return err
	}
	return scrubbedLater(ctx, s, w)
}

// scrubbedLater has the store's files scrubbed of what was taken away under a turn, beside the turn, which goes on in
// another conversation.
func scrubbedLater(ctx context.Context, s *Server, w *writer) error {
	s.workers.Go(func() {
		if err := s.scrub(); err != nil {
			s.log.Warn().Err(err).Msg("what was erased may still be in a file of the store's")
		}
	})
	return freshConversation(ctx, s, w)
}

// forgetUsage takes an erased chat or user out of the counters of what calls of models took.
func (s *Server) forgetUsage(ctx context.Context, of memory.Tenant, by tally.By, name string) error {
	if err := s.cfg.Usage.Forget(ctx, of, by, name); err != nil {
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// eraseStored erases all of a chat in Redis: the runs that are known here, the histories
// with what belongs to them, what lies beside these, and the runs that other processes
// know of once they are told.
func (s *Server) eraseStored(
	ctx context.Context, w *writer, fact erasure, runs []string, keys []memory.Key, beside []string,
) error {
	if err := s.store.Runs.Erase(ctx, w.chat, runs...); err != nil {
		return err
	}
	if err := s.store.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	if err := s.store.Chats.Remove(ctx, beside...); err != nil {
		return err
	}
	if err := s.store.Runs.Erase(ctx, w.chat, s.tellOthers(ctx, fact)...); err != nil {
		return err
	}
	return s.store.EraseChat(ctx, w.Number, w.chat) // with its meta, which said that the erasure is pending
}

// eraseConversations erases at the gateway what a chat said up to a number, as far as this
// process knows the chat's conversations.
func (s *Server) eraseConversations(ctx context.Context, chat memory.Chat, turn int64) error {
	c := &s.conversations
	ids := c.until(chat, turn)
	for _, id := range ids {
		if err := s.runs.EraseConversation(ctx, chat.Tenant(), id); err != nil {
			return asking(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.of[chat], id)
	}
	if len(c.of[chat]) == 0 {
		delete(c.of, chat)
	}
	return nil
}

// eraseOffered erases such a conversation at the gateway (conversations.erased), and takes
// it away from the chat while its lease is held.
func (s *Server) eraseOffered(ctx context.Context, chat memory.Chat, taken redisstore.Turn) error {
	if err := s.eraseConversations(ctx, chat, taken.ErasedIn()); err != nil {
		return err
	}
	return s.store.Turns.DropConversation(ctx, chat)
}

// runsOf are the runs of a chat that this process knows of: those that it has lately
// shown, and those that wrote the messages of the histories.
func (s *Server) runsOf(w *writer) []string {
	runs := append(s.runsHere(w.chat), w.runs()...)
	slices.Sort(runs)
	return slices.Compact(runs)
}

// runs are those that wrote the messages of the histories.
func (w *writer) runs() (runs []string) {
	for _, h := range w.histories {
		for _, raw := range h.Raw(0) {
			var m struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(raw, &m) == nil && m.ID != "" {
				run, _, _ := strings.Cut(m.ID, ".")
				runs = append(runs, strings.TrimSuffix(run, memory.ClosingSuffix))
			}
		}
	}
	return runs
}

// erasure is one erasure as a fact, and the body of POST /internal/v1/erasures.
type erasure struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// applied says what a process knew of the chat, and Redis may still keep.
type applied struct {
	Runs []string `json:"runs"`
}

// tellOthers asks all living processes to apply an erasure, and waits for them, but
// for no longer than each may take to answer. A process that cannot be reached applies it
// when it looks next. It gives the runs of the chat that they knew of.
func (s *Server) tellOthers(ctx context.Context, e erasure) (runs []string) {
	take := func(out applied) { runs = append(runs, out.Runs...) }
	err := askAll(ctx, s, http.MethodPost, "/erasures", e, take, func(p redisstore.Process, err error) {
		s.log.Warn().Err(err).Str("process", p.ID).
			Msg("another process has not applied an erasure yet; it does when it looks")
	})
	if err != nil {
		s.log.Warn().Err(err).Msg("other processes are not known; they apply an erasure when they look")
	}
	return runs
}

// postErasure is POST /internal/v1/erasures: another process has erased something.
func (s *Server) postErasure(c *gin.Context) error {
	var e erasure
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &e); err != nil {
		return err
	}
	concerned, ok := concernedBy(e.Name)
	if !ok || e.Turn <= 0 {
		return badRequest("An erasure has a name, chat:<chat>, the key of a history or that of a redaction, and a turn.")
	}
	out := applied{Runs: s.runsHere(concerned.chat)}
	if err := s.applyErasures(c.Request.Context(), map[string]int64{e.Name: e.Turn}); err != nil {
		return err
	}
	if concerned.key == nil {
		// An erasure or a redaction has the chat's turn, so that none of them goes on. A post that comes again with its key
		// would find one that its apiserver knows.
		if err := s.runs.DeleteRuns(c.Request.Context(), concerned.chat); err != nil {
			return asking(err)
		}
	}
	if concerned.redacted {
		// With it Redis has the cuts of the histories, by which cached copies are brought up to date.
		if err := s.followErasures(c.Request.Context()); err != nil {
			return err
		}
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// concerned is what an erasure is of, by its name.
type concerned struct {
	chat     memory.Chat
	key      *memory.Key // one history, nil for all of the chat
	redacted bool        // messages lost their text; the histories stay
}

// concernedBy reads a name of package erasures; ok is false for that of another kind.
func concernedBy(name string) (c concerned, ok bool) {
	if r, redacted := erasures.RedactionOf(name); redacted {
		return concerned{chat: r.Chat, redacted: true}, true
	}
	c.chat, c.key, ok = erasures.ChatOf(name)
	return c, ok
}

// follower is what this process knows of erasures, and how far it has followed those of
// others.
type follower struct {
	file *erasures.File // what was applied to this disk

	mu      sync.Mutex
	applied map[string]int64 // guarded by mu: to what this process holds in memory
	since   int64            // guarded by mu: the turn from which Redis is asked
}

// followMargin is by how much the clocks that make turns may differ.
const followMargin = 10 * time.Minute

// followErasures applies what was erased since this process last looked.
func (s *Server) followErasures(ctx context.Context) error {
	began := time.Now()
	s.follower.mu.Lock()
	since := s.follower.since
	s.follower.mu.Unlock()
	turns, err := s.store.Erasures.Since(ctx, since)
	if err != nil {
		return err
	}
	if err := s.applyErasures(ctx, turns); err != nil {
		return err
	}
	if err := s.followHandCuts(ctx, turns); err != nil {
		return err
	}
	if err := s.followRewinds(ctx, turns); err != nil {
		return err
	}
	s.follower.mu.Lock()
	defer s.follower.mu.Unlock()
	s.follower.since = began.Add(-followMargin).UnixMilli()
	return nil
}

// applyErasures erases from this process's memory and disk what was erased in turns,
// by name, and notes it on the disk. What was applied before costs nothing. The
// gateway's conversations go first: once they are forgotten here no other process may
// know them.
func (s *Server) applyErasures(ctx context.Context, turns map[string]int64) error {
	f := &s.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, turn := range turns {
		if of, ok := concernedBy(name); ok && turn > f.applied[name] {
			if err := s.eraseConversations(ctx, of.chat, turn); err != nil {
				return err
			}
		}
	}
	known, err := f.file.Known(turns)
	if err != nil {
		return err
	}
	fresh := map[string]int64{}
	for name, turn := range turns {
		if _, ok := erasures.UserOf(name); ok && turn > known[name] {
			fresh[name] = turn // notes of users are in Redis alone: that it was told is what this disk has to know
		}
		of, ok := concernedBy(name)
		if !ok || turn <= f.applied[name] {
			continue
		}
		fresh[name] = turn
		for _, h := range s.cache.All() {
			// In the turn itself it was read before it was erased. After a redaction copies follow its cuts.
			if h.Key().Chat() == of.chat && (of.key == nil || *of.key == h.Key()) && !of.redacted && h.Turn() <= turn {
				s.cache.Forget(h.Key())
			}
		}
		s.dropRuns(of.chat)
		s.indexes.dropChat(of.chat)
		if turn <= known[name] {
			continue // another process of this disk has
		}
		if err := s.sessions.remove(of.chat); err != nil {
			return err
		}
		if err := s.ends.remove(of.chat); err != nil {
			return err
		}
	}
	if err := f.file.Add(fresh); err != nil {
		return err
	}
	if err := s.spool.Forget(f.reach, f.covers); err != nil { // also of folders adopted since
		return err
	}
	for name := range fresh {
		if of, _ := concernedBy(name); of.redacted {
			if err := s.redactCopies(of.chat); err != nil {
				return err
			}
		}
	}
	maps.Copy(f.applied, fresh)
	return nil
}

// halfErased is for how long after an erasure Redis may lose a part of it: far longer
// than a failover or a start from an older file reaches back.
const halfErased = time.Hour

// syncErasures brings together what this disk and Redis know of erasures and of changes
// by hand. It tries until it has, or ctx ends: before that nothing may be written back.
func (s *Server) syncErasures(ctx context.Context) error {
	for {
		err := s.trySyncErasures(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.log.Debug().Err(err).Msg("what was erased is not known yet")
		if err := pause(ctx, jitter(time.Second)); err != nil {
			return err
		}
	}
}

func (s *Server) trySyncErasures(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	if err := s.followErasures(ctx); err != nil {
		return err
	}
	if err := s.restoreErasures(ctx); err != nil {
		return err
	}
	if err := s.restoreHandCuts(ctx); err != nil {
		return err
	}
	return s.restoreRewinds(ctx)
}

// restoreErasures tells Redis again of what this disk knows to be erased, and erases
// it there once more, before anything else is written back.
func (s *Server) restoreErasures(ctx context.Context) error {
	known, err := s.follower.file.All()
	if err != nil {
		return err
	}
	stored, err := s.store.Erasures.Since(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	// That Redis knows of an erasure does not say that all of it is done there: a failover
	// may have lost the rest of it.
	recent := time.Now().Add(-halfErased).UnixMilli()
	for name, turn := range known {
		if turn < oldest || turn <= stored[name] && turn < recent {
			continue
		}
		if err := s.eraseAgain(ctx, name, turn); err != nil {
			return err
		}
	}
	return nil
}

// eraseForgotten is restoreErasures for one chat, just after its lease was taken. That a
// Redis came back with an older state is noticed moments later only, and until then no
// run may use what was erased, nor take it for read under the new fencing token.
func (s *Server) eraseForgotten(ctx context.Context, chat memory.Chat) error {
	if err := s.redactForgotten(ctx, chat); err != nil {
		return err
	}
	names := []string{erasures.Chat(chat), memory.ChatKey(chat).String()}
	for _, a := range s.cfg.Agents {
		names = append(names, memory.SubagentKey(a, chat).String())
	}
	for _, name := range names {
		turn := s.follower.file.Turn(name)
		if turn == 0 {
			continue
		}
		of := memory.ChatKey(chat)
		if _, key, _ := erasures.ChatOf(name); key != nil {
			of = *key
		}
		known, err := s.store.Erasures.Tombstone(ctx, of)
		if err == nil && turn > known {
			err = s.eraseAgain(ctx, name, turn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseAgain erases in Redis what was written before the turn in which a chat or a history was
// erased, by its name, and then tells Redis of the erasure, so that other processes apply it too.
func (s *Server) eraseAgain(ctx context.Context, name string, turn int64) error {
	if u, ok := erasures.UserOf(name); ok {
		if err := s.store.Users.VoidOldNotes(ctx, turn, u); err != nil {
			return err
		}
		return s.store.Erasures.Note(ctx, turn, name)
	}
	of, ok := concernedBy(name)
	if !ok {
		return nil // of a newer version
	}
	again := func() error { return s.cutAgain(ctx, turn, of.chat, of.key) }
	if r, redacted := erasures.RedactionOf(name); redacted {
		again = func() error { return s.redactAgain(ctx, r, turn) }
	}
	if err := again(); err != nil {
		return err
	}
	return s.store.Erasures.Note(ctx, turn, name)
}

// keysThere are a chat's own history and those of its subagents that Redis has.
func (s *Server) keysThere(ctx context.Context, chat memory.Chat) ([]memory.Key, error) {
	keys := []memory.Key{memory.ChatKey(chat)}
	named, err := s.store.Chats.Keys(ctx, chat, s.cfg.Agents...)
	if err != nil {
		return nil, err
	}
	found, err := s.store.Chats.Found(ctx, named...)
	if err != nil {
		return nil, err
	}
	for i, k := range named {
		if found[i] && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// cutAgain erases what was written before a turn: of one history, or, if key is nil, of all of
// a chat, with what belongs to its runs and, at the gateway, its conversation.
func (s *Server) cutAgain(ctx context.Context, turn int64, chat memory.Chat, key *memory.Key) error {
	if err := s.store.Rewinds.Drop(ctx, chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.keysThere(ctx, chat)
	if err != nil {
		return err
	}
	if key != nil {
		keys = []memory.Key{*key}
	}
	back := false
	for _, k := range keys {
		cut, err := s.store.Erasures.Cut(ctx, turn, k, key == nil)
		if err != nil {
			return err
		}
		back = back || cut
	}
	if key == nil || key.Agent() == "" {
		void, err := s.store.Users.VoidNotes(ctx, chat, func(n memory.Note) bool { return n.TS*1000 < float64(turn) })
		if err != nil {
			return err
		}
		back = back || void > 0
	}
	rest, err := s.store.Waits.Rest(ctx, chat)
	if err != nil {
		return err
	}
	back = back || rest != nil && rest.Turn < turn
	if !back {
		return nil
	}
	s.log.Warn().Str("chat", chat.String()).Msg("Redis came back with what was erased; it was erased once more")
	if key != nil {
		return nil
	}
	conversation, err := s.store.Runs.EraseOld(ctx, turn, chat)
	if err != nil || conversation == "" {
		return err
	}
	return s.runs.EraseConversation(ctx, chat.Tenant(), conversation)
}
