package webmemory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about redaction: messages of a chat lose their text, in the histories, in their archives, and
// wherever else it is kept. It is an erasure (erase.go) with a name of its own, by which each process takes
// the text out of what it holds. The histories themselves follow their cuts.

// redactor blanks the text of messages, in Redis and in the copies of this process. Redacting once more changes
// nothing, so that it may be done again whenever Redis came back with the text.
type redactor struct {
	*core
	histories *histories
}

// redactRoutes is DELETE of a message: it finds what the message's exchange said in other histories, and has it blanked
// under the chat's turn, before all posts that wait.
type redactRoutes struct {
	*core
	histories *histories
	eraser    *eraser
	leaser    *leaser
}

// redactMessage is DELETE …/messages/{id} of a chat or of one of its subagents.
func (s *redactRoutes) redactMessage(c *gin.Context, key memory.Key) error {
	scope := c.DefaultQuery("scope", webapi.Exchange)
	if scope != webapi.Exchange && scope != webapi.Message {
		return problem.BadRequest("scope is exchange or message, not %.40q.", scope)
	}
	dry, err := problem.Flag(c, "dry_run")
	if err != nil {
		return err
	}
	id, exchange, headCache := c.Param("id"), scope == webapi.Exchange, heads{}
	// An id that is not there stops no run.
	plan, err := s.planRedaction(c.Request.Context(), key, id, exchange, headCache)
	if err != nil {
		return err
	}
	if dry {
		c.Set(nothingDone, true)
		return api.Answer(c.Writer, http.StatusOK, plan.out, nil)
	}
	return takenAwayBy(s.leaser, c, func() (webapi.Redacted, error) {
		plan, err := takeAwayNow(s.leaser, key.Chat(), erasing, redactTimeout, func(ctx context.Context, w *writer) (
			redactionPlan, error) {
			plan, err := s.planRedaction(ctx, key, id, exchange, headCache)
			if err == nil {
				err = s.eraser.redactUnder(ctx, w, plan)
			}
			return plan, err
		})
		return plan.out, err
	})
}

// redactTimeout limits a redaction, which reads the whole chat. 100,000 messages take seconds.
const redactTimeout = 5 * time.Minute

// maxRedacted bounds the messages of an exchange that are named one by one.
const maxRedacted = 1000

// redactionPlan is what a redaction is to do.
type redactionPlan struct {
	what erasures.Redaction
	keys []memory.Key // the chat's histories
	out  webapi.Redacted

	headCache heads // what is known of the histories' segments
}

// planRedaction finds the messages that a redaction takes the text of.
func (s *redactRoutes) planRedaction(ctx context.Context, key memory.Key, id string, exchange bool, headCache heads) (
	plan redactionPlan, err error) {
	chat := key.Chat()
	histories, err := s.histories.currentAll(ctx, chat, key)
	if err != nil {
		return plan, err
	}
	v, err := s.histories.pin(ctx, histories, headCache)
	if err != nil {
		return plan, err
	}
	plan = redactionPlan{headCache: headCache, out: webapi.Redacted{Redacted: []webapi.MessageRef{}}}
	for k, p := range v {
		p.onGap = func(webapi.HistoryGap, error) error { plan.out.Partial = true; return nil }
		v[k] = p
	}
	for k := range histories {
		plan.keys = append(plan.keys, k)
	}
	slices.SortFunc(plan.keys, func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
	ids, err := s.exchangeOf(ctx, v[key], key, id)
	if key == memory.ChatKey(chat) {
		// The chat's route takes an id of any of its histories, as recall gives it.
		for i := 0; i < len(plan.keys) && errors.Is(err, errUnknownMessage); i++ {
			key = plan.keys[i]
			ids, err = s.exchangeOf(ctx, v[key], key, id)
		}
		if errors.Is(err, errUnknownMessage) {
			err = errUnknownMessage
		}
	}
	if err != nil {
		return plan, err
	}
	plan.what = erasures.Redaction{Chat: chat, Key: key, IDs: ids}
	if run := memory.RunOf(id); !exchange {
		plan.what.IDs = []string{id}
	} else if isRunID(run) {
		plan.what = erasures.Redaction{Chat: chat, Run: run}
	} else if len(ids) > maxRedacted {
		return plan, &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("The exchange has more than %d messages; redact them one by one, with scope=message.",
				maxRedacted)}
	}
	for _, k := range plan.keys {
		has := func(id string) bool { return plan.what.Has(k, id) }
		for one, err := range s.histories.parts(ctx, v[k], has) {
			for i := 0; i < len(one.heads) && err == nil; i++ {
				if id := one.heads[i].ID; has(id) {
					plan.out.Redacted = append(plan.out.Redacted, webapi.MessageRef{Subagent: k.Agent(), ID: id})
				}
			}
			if err != nil {
				return plan, err
			}
		}
	}
	return plan, nil
}

// exchangeOf are the ids of the exchange around a message of a history: a user message and what follows it
// until the next one.
func (s *redactRoutes) exchangeOf(ctx context.Context, p pinned, key memory.Key, id string) (ids []string, err error) {
	matched := false
	for one, err := range s.histories.parts(ctx, p, noID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.heads {
			if h.Role == memory.RoleUser {
				if matched {
					return ids, nil
				}
				ids = nil
			}
			matched = matched || h.ID == id
			if len(ids) <= maxRedacted || h.ID == id {
				ids = append(ids, h.ID)
			}
		}
	}
	if !matched {
		return nil, &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
			Message: fmt.Sprintf("The history %s has no message with the id %.140q.", key, id)}
	}
	return ids, nil
}

// redactUnder redacts under the chat's lease. First goes what may be out of reach, so that nothing is changed
// then. From there on to the last step the chat's meta says that the redaction is pending, so that the process that
// takes the lease next brings to its end what this one may leave.
func (s *eraser) redactUnder(ctx context.Context, w *writer, plan redactionPlan) error {
	if err := s.eraseConversations(ctx, w.chat, w.Number); err != nil {
		return err
	}
	if err := fair.Block(ctx, func() error { return s.runs.DeleteRuns(ctx, w.chat) }); err != nil {
		return asking(err)
	}
	if err := s.store.Rewinds.Pending(ctx, w.Number, w.chat, plan.what.Name(), "", s.cfg.Lease); err != nil {
		return err
	}
	if err := s.redactPending(ctx, w, plan); err != nil {
		return err
	}
	s.sessions.write(w.chat, sessionLine("redacted: %d messages", len(plan.out.Redacted)))
	return nil
}

// redactPending does what a redaction does that is pending, of which each step may have been done.
func (s *eraser) redactPending(ctx context.Context, w *writer, plan redactionPlan) error {
	if _, err := s.tier.forget(ctx, w.chat, w.Number, false); err != nil {
		return err
	}
	if err := s.rewinder.dropRewound(ctx, w.chat); err != nil { // which may hold the text
		return err
	}
	// Another process must not offer the one that was erased once more.
	if _, err := s.store.Turns.ChangeConversation(ctx, w.chat, rand.Text()); err != nil {
		return err
	}
	runs := s.tombstones.runsOf(w)
	fact := erasure{Name: plan.what.Name(), Turn: w.Number}
	if err := s.tombstones.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return err
	}
	if err := s.store.Erasures.Note(ctx, fact.Turn, fact.Name); err != nil {
		return err
	}
	if _, err := s.redactor.redactStored(ctx, plan.what, w.Number, false, plan.headCache, plan.keys...); err != nil {
		return err
	}
	runs = append(runs, s.peers.tellOthers(ctx, fact)...)
	if err := s.store.Runs.Redact(ctx, w.chat, 0, redactedAnswer(), runs...); err != nil {
		return err
	}
	if err := s.releaseForgotten(ctx, w.chat, plan); err != nil {
		return err
	}
	return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
}

// releaseForgotten releases the entries of a quarantine that proposed a redaction.
func (s *eraser) releaseForgotten(ctx context.Context, chat memory.Chat, plan redactionPlan) error {
	entries, err := s.store.Chats.Quarantined(ctx, chat)
	entries = slices.DeleteFunc(entries, func(entry string) bool {
		id, forgotten := strings.CutPrefix(entry, memory.ForgetEntry)
		return !forgotten || id != plan.what.Run &&
			!slices.ContainsFunc(plan.keys, func(key memory.Key) bool { return plan.what.Has(key, id) })
	})
	if err == nil && len(entries) > 0 {
		_, err = s.store.Chats.Quarantine(ctx, chat, true, entries...)
	}
	return err
}

// finishRedaction brings a redaction to its end that another process left pending. The turn that found it goes on in
// another conversation.
func (s *eraser) finishRedaction(ctx context.Context, w *writer, what erasures.Redaction) error {
	keys, err := s.store.Chats.Keys(ctx, w.chat, s.cfg.Agents()...)
	if err != nil {
		return err
	}
	if what.Run == "" {
		keys = append(keys, what.Key) // of a subagent that is in no list, perhaps
	}
	if err := s.redactPending(ctx, w, redactionPlan{what: what, keys: keys}); err != nil {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// redactStored takes the text out of what Redis keeps in histories of a chat, with the notes made from it, by a
// redaction that was made in a turn. It says whether there was any. again: without the turn.
func (s *redactor) redactStored(ctx context.Context, what erasures.Redaction, turn int64, redo bool, headCache heads,
	keys ...memory.Key) (changed bool, err error) {
	for _, key := range keys {
		has := func(id string) bool { return what.Has(key, id) }
		h, err := s.store.Redactions.Redact(ctx, turn, redo, key, has, headCache.containsNone(has), suspects(what)...)
		if err != nil {
			return changed, err
		}
		if h != nil {
			changed = true
			s.cache.Forget(key) // what a look read meanwhile
			s.cache.Put(h)
		}
		writer := turn
		if redo {
			writer = redisstore.NoTurn
		}
		void, err := s.store.Notes.Void(ctx, writer, key, func(n memory.Note) bool {
			return n.Message != "" && what.Has(memory.ChatKey(what.Chat), n.Message)
		})
		if err != nil {
			return changed, err
		}
		changed = changed || void > 0
	}
	own := memory.ChatKey(what.Chat)
	void, err := s.store.Users.VoidNotes(ctx, what.Chat, func(n memory.Note) bool { return what.Has(own, n.Message) })
	if err != nil {
		return changed, err
	}
	changed = changed || void > 0
	if err := s.store.Chats.RedactTitle(ctx, what.Chat, func(id string) bool { return what.Has(own, id) }); err != nil {
		return changed, err
	}
	return changed, s.store.Redactions.RemoveDamaged(ctx, keys...)
}

// suspects are texts of which one stands in a damaged part of an archive if the redaction may concern it.
func suspects(what erasures.Redaction) (texts []string) {
	if what.Run != "" {
		return []string{`"` + what.Run + "."}
	}
	for _, id := range what.IDs {
		texts = append(texts, `"`+id+`"`)
	}
	return texts
}

// redactAgain makes a redaction once more that Redis has forgotten, or not heard of to its end.
func (s *redactor) redactAgain(ctx context.Context, what erasures.Redaction, turn int64) error {
	if err := s.store.Rewinds.Drop(ctx, what.Chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.histories.keysThere(ctx, what.Chat)
	if err != nil {
		return err
	}
	// What was erased since may be there anew, imported under the same ids.
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return s.follower.file.HistoryTurn(k) > turn })
	changed, err := s.redactStored(ctx, what, turn, true, nil, keys...)
	if err != nil {
		return err
	}
	if changed {
		s.log.Warn().Str("chat", what.Chat.String()).Msg("Redis came back with what was redacted; it was redacted once more")
		oldConversation, err := s.store.Turns.ChangeConversation(ctx, what.Chat, rand.Text())
		if err == nil && oldConversation != "" {
			err = s.runs.EraseConversation(ctx, what.Chat.Tenant(), oldConversation)
		}
		if err != nil {
			return err
		}
	}
	return s.store.Runs.Redact(ctx, what.Chat, turn, redactedAnswer())
}

// redactCopies takes the text of redactions that this disk knows out of this process's copies of a chat's
// histories, which may be older: should Redis have lost all, what comes back from them does not say it.
func (s *redactor) redactCopies(chat memory.Chat) error {
	if len(s.follower.file.Redactions(chat)) == 0 {
		return nil
	}
	for _, h := range s.cache.List() {
		if h.Key().Chat() != chat {
			continue
		}
		redacted, err := s.redactedCopy(h)
		if err != nil {
			return err
		}
		if redacted != h {
			s.cache.Refresh(h, redacted)
		}
	}
	return nil
}

// redactedAnswer is what a post gets that repeats a run after its answer was taken away.
func redactedAnswer() []byte { return encodeFinal(api.ErrGone.Status, api.ErrGone) }

// redactions are those of a chat.
type redactions []erasures.Redacted

// redactionsOf returns the redactions of a chat that this disk or Redis knows.
func (s *core) redactionsOf(ctx context.Context, chat memory.Chat) (list redactions, err error) {
	s.follower.mu.Lock()
	startTurn := s.follower.startTurn
	s.follower.mu.Unlock()
	turns, err := s.store.Erasures.ListSince(ctx, startTurn)
	if err != nil {
		return nil, err
	}
	for name, turn := range turns {
		if r, ok := erasures.RedactionOf(name); ok && r.Chat == chat {
			list = append(list, erasures.Redacted{Redaction: r, Turn: turn})
		}
	}
	return append(list, s.follower.file.Redactions(chat)...), nil
}

// cover says whether a spool's entry has text that was redacted: that of a message, or an event of a run, all
// of which were over.
func (rs redactions) cover(e spool.Entry) bool {
	return slices.ContainsFunc(rs, func(r erasures.Redacted) bool {
		return e.Mark.Turn < r.Turn && (e.Events || r.Has(e.Key, memory.MessageID(e.Mark.Run, e.Mark.Seq)))
	})
}

// reach is the turn before which a spool may have erased or redacted text of a history.
func (f *follower) reach(key memory.Key) (turn int64) {
	turn = f.file.HistoryTurn(key)
	for _, r := range f.file.Redactions(key.Chat()) {
		turn = max(turn, r.Turn)
	}
	return turn
}

// covers says whether a spool's entry was erased or redacted.
func (f *follower) covers(e spool.Entry) bool {
	return e.Mark.Turn < f.file.HistoryTurn(e.Key) || redactions(f.file.Redactions(e.Key.Chat())).cover(e)
}
