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

// Redactor blanks the text of messages, in Redis and in the copies of this process. Redacting once more changes
// nothing, so that it may be done again whenever Redis came back with the text.
type Redactor struct {
	*Core
	Histories *Histories
}

// RedactRoutes is DELETE of a message: it finds what the message's exchange said in other histories, and has it blanked
// under the chat's turn, before all posts that wait.
type RedactRoutes struct {
	*Core
	Histories *Histories
	Eraser    *Eraser
	Leaser    *Leaser
}

// RedactMessage is DELETE …/messages/{id} of a chat or of one of its subagents.
func (s *RedactRoutes) RedactMessage(c *gin.Context, key memory.Key) error {
	scope := c.DefaultQuery("scope", webapi.Exchange)
	if scope != webapi.Exchange && scope != webapi.Message {
		return problem.BadRequest("scope is exchange or message, not %.40q.", scope)
	}
	dry, err := problem.Flag(c, "dry_run")
	if err != nil {
		return err
	}
	id, exchange, headCache := c.Param("id"), scope == webapi.Exchange, Heads{}
	// An id that is not there stops no run.
	plan, err := s.planRedaction(c.Request.Context(), key, id, exchange, headCache)
	if err != nil {
		return err
	}
	if dry {
		c.Set(NothingDone, true)
		return api.Answer(c.Writer, http.StatusOK, plan.Out, nil)
	}
	return TakenAwayBy(s.Leaser, c, func() (webapi.Redacted, error) {
		plan, err := TakeAwayNow(s.Leaser, key.Chat(), Erasing, RedactTimeout, func(ctx context.Context, w *Writer) (
			RedactionPlan, error) {
			plan, err := s.planRedaction(ctx, key, id, exchange, headCache)
			if err == nil {
				err = s.Eraser.RedactUnder(ctx, w, plan)
			}
			return plan, err
		})
		return plan.Out, err
	})
}

// redactTimeout limits a redaction, which reads the whole chat. 100,000 messages take seconds.
const RedactTimeout = 5 * time.Minute

// maxRedacted bounds the messages of an exchange that are named one by one.
const MaxRedacted = 1000

// RedactionPlan is what a redaction is to do.
type RedactionPlan struct {
	What erasures.Redaction
	Keys []memory.Key // the chat's histories
	Out  webapi.Redacted

	HeadCache Heads // what is known of the histories' segments
}

// planRedaction finds the messages that a redaction takes the text of.
func (s *RedactRoutes) planRedaction(ctx context.Context, key memory.Key, id string, exchange bool, headCache Heads) (
	plan RedactionPlan, err error) {
	chat := key.Chat()
	histories, err := s.Histories.CurrentAll(ctx, chat, key)
	if err != nil {
		return plan, err
	}
	v, err := s.Histories.Pin(ctx, histories, headCache)
	if err != nil {
		return plan, err
	}
	plan = RedactionPlan{HeadCache: headCache, Out: webapi.Redacted{Redacted: []webapi.MessageRef{}}}
	for k, p := range v {
		p.OnGap = func(webapi.HistoryGap, error) error { plan.Out.Partial = true; return nil }
		v[k] = p
	}
	for k := range histories {
		plan.Keys = append(plan.Keys, k)
	}
	slices.SortFunc(plan.Keys, func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
	ids, err := s.exchangeOf(ctx, v[key], key, id)
	if key == memory.ChatKey(chat) {
		// The chat's route takes an id of any of its histories, as recall gives it.
		for i := 0; i < len(plan.Keys) && errors.Is(err, ErrUnknownMessage); i++ {
			key = plan.Keys[i]
			ids, err = s.exchangeOf(ctx, v[key], key, id)
		}
		if errors.Is(err, ErrUnknownMessage) {
			err = ErrUnknownMessage
		}
	}
	if err != nil {
		return plan, err
	}
	plan.What = erasures.Redaction{Chat: chat, Key: key, IDs: ids}
	if run := memory.RunOf(id); !exchange {
		plan.What.IDs = []string{id}
	} else if IsRunID(run) {
		plan.What = erasures.Redaction{Chat: chat, Run: run}
	} else if len(ids) > MaxRedacted {
		return plan, &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("The exchange has more than %d messages; redact them one by one, with scope=message.",
				MaxRedacted)}
	}
	for _, k := range plan.Keys {
		has := func(id string) bool { return plan.What.Has(k, id) }
		for one, err := range s.Histories.Parts(ctx, v[k], has) {
			for i := 0; i < len(one.Heads) && err == nil; i++ {
				if id := one.Heads[i].ID; has(id) {
					plan.Out.Redacted = append(plan.Out.Redacted, webapi.MessageRef{Subagent: k.Agent(), ID: id})
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
func (s *RedactRoutes) exchangeOf(ctx context.Context, p Pinned, key memory.Key, id string) (ids []string, err error) {
	matched := false
	for one, err := range s.Histories.Parts(ctx, p, NoID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.Heads {
			if h.Role == memory.RoleUser {
				if matched {
					return ids, nil
				}
				ids = nil
			}
			matched = matched || h.ID == id
			if len(ids) <= MaxRedacted || h.ID == id {
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

// RedactUnder redacts under the chat's lease. First goes what may be out of reach, so that nothing is changed
// then. From there on to the last step the chat's meta says that the redaction is pending, so that the process that
// takes the lease next brings to its end what this one may leave.
func (s *Eraser) RedactUnder(ctx context.Context, w *Writer, plan RedactionPlan) error {
	if err := s.EraseConversations(ctx, w.Chat, w.Number); err != nil {
		return err
	}
	if err := fair.Block(ctx, func() error { return s.Runs.DeleteRuns(ctx, w.Chat) }); err != nil {
		return Asking(err)
	}
	if err := s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, plan.What.Name(), "", s.Cfg.Lease); err != nil {
		return err
	}
	if err := s.redactPending(ctx, w, plan); err != nil {
		return err
	}
	s.Sessions.Write(w.Chat, SessionLine("redacted: %d messages", len(plan.Out.Redacted)))
	return nil
}

// redactPending does what a redaction does that is pending, of which each step may have been done.
func (s *Eraser) redactPending(ctx context.Context, w *Writer, plan RedactionPlan) error {
	if _, err := s.Tier.Forget(ctx, w.Chat, w.Number, false); err != nil {
		return err
	}
	if err := s.Rewinder.dropRewound(ctx, w.Chat); err != nil { // which may hold the text
		return err
	}
	// Another process must not offer the one that was erased once more.
	if _, err := s.Store.Turns.ChangeConversation(ctx, w.Chat, rand.Text()); err != nil {
		return err
	}
	runs := s.Tombstones.runsOf(w)
	fact := Erasure{Name: plan.What.Name(), Turn: w.Number}
	if err := s.Tombstones.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return err
	}
	if err := s.Store.Erasures.Note(ctx, fact.Turn, fact.Name); err != nil {
		return err
	}
	if _, err := s.Redactor.redactStored(ctx, plan.What, w.Number, false, plan.HeadCache, plan.Keys...); err != nil {
		return err
	}
	runs = append(runs, s.Peers.TellOthers(ctx, fact)...)
	if err := s.Store.Runs.Redact(ctx, w.Chat, 0, RedactedAnswer(), runs...); err != nil {
		return err
	}
	if err := s.releaseForgotten(ctx, w.Chat, plan); err != nil {
		return err
	}
	return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
}

// releaseForgotten releases the entries of a quarantine that proposed a redaction.
func (s *Eraser) releaseForgotten(ctx context.Context, chat memory.Chat, plan RedactionPlan) error {
	entries, err := s.Store.Chats.Quarantined(ctx, chat)
	entries = slices.DeleteFunc(entries, func(entry string) bool {
		id, forgotten := strings.CutPrefix(entry, memory.ForgetEntry)
		return !forgotten || id != plan.What.Run &&
			!slices.ContainsFunc(plan.Keys, func(key memory.Key) bool { return plan.What.Has(key, id) })
	})
	if err == nil && len(entries) > 0 {
		_, err = s.Store.Chats.Quarantine(ctx, chat, true, entries...)
	}
	return err
}

// FinishRedaction brings a redaction to its end that another process left pending. The turn that found it goes on in
// another conversation.
func (s *Eraser) FinishRedaction(ctx context.Context, w *Writer, what erasures.Redaction) error {
	keys, err := s.Store.Chats.Keys(ctx, w.Chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	if what.Run == "" {
		keys = append(keys, what.Key) // of a subagent that is in no list, perhaps
	}
	if err := s.redactPending(ctx, w, RedactionPlan{What: what, Keys: keys}); err != nil {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// redactStored takes the text out of what Redis keeps in histories of a chat, with the notes made from it, by a
// redaction that was made in a turn. It says whether there was any. again: without the turn.
func (s *Redactor) redactStored(ctx context.Context, what erasures.Redaction, turn int64, redo bool, headCache Heads,
	keys ...memory.Key) (changed bool, err error) {
	for _, key := range keys {
		has := func(id string) bool { return what.Has(key, id) }
		h, err := s.Store.Redactions.Redact(ctx, turn, redo, key, has, headCache.ContainsNone(has), suspects(what)...)
		if err != nil {
			return changed, err
		}
		if h != nil {
			changed = true
			s.Cache.Forget(key) // what a look read meanwhile
			s.Cache.Put(h)
		}
		writer := turn
		if redo {
			writer = redisstore.NoTurn
		}
		void, err := s.Store.Notes.Void(ctx, writer, key, func(n memory.Note) bool {
			return n.Message != "" && what.Has(memory.ChatKey(what.Chat), n.Message)
		})
		if err != nil {
			return changed, err
		}
		changed = changed || void > 0
	}
	own := memory.ChatKey(what.Chat)
	void, err := s.Store.Users.VoidNotes(ctx, what.Chat, func(n memory.Note) bool { return what.Has(own, n.Message) })
	if err != nil {
		return changed, err
	}
	changed = changed || void > 0
	if err := s.Store.Chats.RedactTitle(ctx, what.Chat, func(id string) bool { return what.Has(own, id) }); err != nil {
		return changed, err
	}
	return changed, s.Store.Redactions.RemoveDamaged(ctx, keys...)
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
func (s *Redactor) redactAgain(ctx context.Context, what erasures.Redaction, turn int64) error {
	if err := s.Store.Rewinds.Drop(ctx, what.Chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.Histories.KeysThere(ctx, what.Chat)
	if err != nil {
		return err
	}
	// What was erased since may be there anew, imported under the same ids.
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return s.Follower.File.HistoryTurn(k) > turn })
	changed, err := s.redactStored(ctx, what, turn, true, nil, keys...)
	if err != nil {
		return err
	}
	if changed {
		s.Log.Warn().Str("chat", what.Chat.String()).Msg("Redis came back with what was redacted; it was redacted once more")
		oldConversation, err := s.Store.Turns.ChangeConversation(ctx, what.Chat, rand.Text())
		if err == nil && oldConversation != "" {
			err = s.Runs.EraseConversation(ctx, what.Chat.Tenant(), oldConversation)
		}
		if err != nil {
			return err
		}
	}
	return s.Store.Runs.Redact(ctx, what.Chat, turn, RedactedAnswer())
}

// RedactCopies takes the text of redactions that this disk knows out of this process's copies of a chat's
// histories, which may be older: should Redis have lost all, what comes back from them does not say it.
func (s *Redactor) RedactCopies(chat memory.Chat) error {
	if len(s.Follower.File.Redactions(chat)) == 0 {
		return nil
	}
	for _, h := range s.Cache.List() {
		if h.Key().Chat() != chat {
			continue
		}
		redacted, err := s.RedactedCopy(h)
		if err != nil {
			return err
		}
		if redacted != h {
			s.Cache.Refresh(h, redacted)
		}
	}
	return nil
}

// RedactedAnswer is what a post gets that repeats a run after its answer was taken away.
func RedactedAnswer() []byte { return EncodeFinal(api.ErrGone.Status, api.ErrGone) }

// Redactions are those of a chat.
type Redactions []erasures.Redacted

// RedactionsOf returns the redactions of a chat that this disk or Redis knows.
func (s *Core) RedactionsOf(ctx context.Context, chat memory.Chat) (list Redactions, err error) {
	s.Follower.Mu.Lock()
	startTurn := s.Follower.StartTurn
	s.Follower.Mu.Unlock()
	turns, err := s.Store.Erasures.ListSince(ctx, startTurn)
	if err != nil {
		return nil, err
	}
	for name, turn := range turns {
		if r, ok := erasures.RedactionOf(name); ok && r.Chat == chat {
			list = append(list, erasures.Redacted{Redaction: r, Turn: turn})
		}
	}
	return append(list, s.Follower.File.Redactions(chat)...), nil
}

// Cover says whether a spool's entry has text that was redacted: that of a message, or an event of a run, all
// of which were over.
func (rs Redactions) Cover(e spool.Entry) bool {
	return slices.ContainsFunc(rs, func(r erasures.Redacted) bool {
		return e.Mark.Turn < r.Turn && (e.Events || r.Has(e.Key, memory.MessageID(e.Mark.Run, e.Mark.Seq)))
	})
}

// Reach is the turn before which a spool may have erased or redacted text of a history.
func (f *Follower) Reach(key memory.Key) (turn int64) {
	turn = f.File.HistoryTurn(key)
	for _, r := range f.File.Redactions(key.Chat()) {
		turn = max(turn, r.Turn)
	}
	return turn
}

// Covers says whether a spool's entry was erased or redacted.
func (f *Follower) Covers(e spool.Entry) bool {
	return e.Mark.Turn < f.File.HistoryTurn(e.Key) || Redactions(f.File.Redactions(e.Key.Chat())).Cover(e)
}
