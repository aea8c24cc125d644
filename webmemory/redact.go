package webmemory

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	webapi "mneme/webmemory/api"
)

// This file is about redaction: messages of a chat lose their text, in the histories, in their archives, and
// wherever else it is kept. It is an erasure (erase.go) with a name of its own, by which each process takes
// the text out of what it holds. The histories themselves follow their cuts.

// redactMessage is DELETE …/messages/{id} of a chat or of one of its subagents.
func (s *Server) redactMessage(c *gin.Context) error {
	key, err := keyOf(c)
	if err != nil {
		return err
	}
	scope := c.DefaultQuery("scope", webapi.Exchange)
	if scope != webapi.Exchange && scope != webapi.Message {
		return badRequest("scope is exchange or message, not %.40q.", scope)
	}
	dry, err := flag(c, "dry_run")
	if err != nil {
		return err
	}
	id, exchange := c.Param("id"), scope == webapi.Exchange
	// An id that is not there stops no run.
	plan, err := s.planRedaction(c.Request.Context(), key, id, exchange, dry)
	if err != nil {
		return err
	}
	if dry {
		c.Set(nothingDone, true)
		api.WriteJSON(c.Writer, http.StatusOK, plan.out)
		return nil
	}
	return takeAway(s, c, key.Chat(), redactTimeout, func(ctx context.Context, w *writer) (webapi.Redacted, error) {
		plan, err := s.planRedaction(ctx, key, id, exchange, true)
		if err != nil {
			return webapi.Redacted{}, err
		}
		return plan.out, s.redactUnder(ctx, w, plan)
	})
}

// redactTimeout bounds a redaction, which reads all of a chat: 100,000 messages take seconds.
const redactTimeout = 5 * time.Minute

// maxRedacted bounds the messages of an exchange that are named one by one.
const maxRedacted = 1000

// redactionPlan is what a redaction is to do.
type redactionPlan struct {
	what erasures.Redaction
	keys []memory.Key // the chat's histories
	out  webapi.Redacted
}

// planRedaction finds the messages that a redaction takes the text of, and, if it is asked to, those that
// repeat it.
func (s *Server) planRedaction(ctx context.Context, key memory.Key, id string, exchange, repeats bool) (
	plan redactionPlan, err error) {
	chat := key.Chat()
	if plan.keys, err = s.store.Keys(ctx, chat, s.cfg.Agents...); err != nil {
		return plan, err
	}
	if !slices.Contains(plan.keys, key) {
		plan.keys = append(plan.keys, key)
	}
	ids, err := s.exchangeOf(ctx, key, id)
	if key == memory.ChatKey(chat) {
		// The chat's route takes an id of any of its histories, as recall gives it.
		for i := 0; i < len(plan.keys) && errors.Is(err, errUnknownMessage); i++ {
			key = plan.keys[i]
			ids, err = s.exchangeOf(ctx, key, id)
		}
		if errors.Is(err, errUnknownMessage) {
			err = errUnknownMessage
		}
	}
	if err != nil {
		return plan, err
	}
	plan.what = erasures.Redaction{Chat: chat, Key: key, IDs: ids}
	if run, _, ok := memory.SplitID(id); !exchange {
		plan.what.IDs = []string{id}
	} else if run = strings.TrimSuffix(run, memory.ClosingSuffix); ok && isRunID(run) {
		plan.what = erasures.Redaction{Chat: chat, Run: run}
	} else if len(ids) > maxRedacted {
		return plan, &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("The exchange has more than %d messages; redact them one by one, with scope=message.",
				maxRedacted)}
	}
	plan.out = webapi.Redacted{Redacted: []webapi.MessageRef{}, AlsoIn: []webapi.MessageRef{}}
	if !repeats {
		return plan, nil
	}
	words := newRepeats()
	for _, k := range plan.keys {
		err := s.eachMessage(ctx, k, func(raw json.RawMessage, id string) error {
			if !plan.what.Has(k, id) {
				return nil
			}
			plan.out.Redacted = append(plan.out.Redacted, webapi.MessageRef{Subagent: k.Agent(), ID: id})
			return words.learn(raw)
		})
		if err != nil && !errors.Is(err, errUnread) {
			return plan, err
		}
	}
	others := func(see func(raw json.RawMessage, ref webapi.MessageRef) error) error {
		for _, k := range plan.keys {
			err := s.eachMessage(ctx, k, func(raw json.RawMessage, id string) error {
				if plan.what.Has(k, id) {
					return nil
				}
				return see(raw, webapi.MessageRef{Subagent: k.Agent(), ID: id})
			})
			if errors.Is(err, errUnread) {
				plan.out.Partial = true
			} else if err != nil {
				return err
			}
		}
		return nil
	}
	number := 0
	err = others(func(raw json.RawMessage, _ webapi.MessageRef) error {
		number++
		return words.count(raw, number)
	})
	if err == nil {
		err = others(words.look)
	}
	if err != nil {
		return plan, err
	}
	var cut bool
	plan.out.AlsoIn, cut = words.found()
	plan.out.Partial = plan.out.Partial || cut
	return plan, nil
}

// exchangeOf are the ids of the exchange around a message of a history: a user message and what follows it
// until the next one.
func (s *Server) exchangeOf(ctx context.Context, key memory.Key, id string) (ids []string, err error) {
	found := false
	err = s.eachMessage(ctx, key, func(raw json.RawMessage, at string) error {
		var m memory.Message
		if json.Unmarshal(raw, &m) == nil && m.Role == memory.RoleUser {
			if found {
				return errEnough
			}
			ids = nil
		}
		found = found || at == id
		if len(ids) <= maxRedacted || at == id {
			ids = append(ids, at)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) && !errors.Is(err, errUnread) {
		return nil, err
	}
	if !found {
		return nil, &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownMessage,
			Message: fmt.Sprintf("The history %s has no message with the id %.140q.", key, id)}
	}
	return ids, nil
}

var (
	// errEnough ends a walk.
	errEnough = errors.New("enough was seen")
	// errUnread: a walk passed over a damaged part of an archive.
	errUnread = errors.New("a part of the archive is damaged")
)

// eachMessage walks a history and its archive from the first message on, some at a time. What a trim moves
// meanwhile is seen once. After a damaged segment it goes on, and ends with errUnread.
func (s *Server) eachMessage(ctx context.Context, key memory.Key,
	see func(raw json.RawMessage, id string) error) error {
	loaded, err := s.cache.Load(ctx, 0, memory.Empty(key))
	if err != nil {
		return err
	}
	h, unread := loaded[0], error(nil)
	hot := map[string]bool{}
	ids := h.IDs()
	for _, id := range ids {
		hot[id] = true
	}
	segments, err := s.store.Segments(ctx, key)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(segments, 16) {
		read, err := s.store.ReadSegments(ctx, key, some...)
		raw := slices.Concat(read...)
		if errors.Is(err, memory.ErrDamaged) {
			unread = errUnread
			raw, _, err = s.readSegments(ctx, key, some)
		}
		if err != nil {
			return err
		}
		for i, id := range memory.IDs(raw) {
			if hot[id] {
				continue
			}
			if err := see(raw[i], id); err != nil {
				return err
			}
		}
	}
	for i, raw := range h.Raw(0) {
		if err := see(raw, ids[i]); err != nil {
			return err
		}
	}
	return unread
}

// redactUnder redacts under the chat's lease. First goes what may be out of reach, so that nothing is changed
// then and the answer can still name what repeats the text; from the note on the redaction is a fact, and is
// brought to its end by whoever comes after this process.
func (s *Server) redactUnder(ctx context.Context, w *writer, plan redactionPlan) error {
	if err := s.eraseConversations(ctx, w.chat, w.Number); err != nil {
		return err
	}
	if err := s.runs.DeleteRuns(ctx, w.chat); err != nil {
		return asking(err)
	}
	if err := s.dropRewound(ctx, w.chat); err != nil { // which may hold the text
		return err
	}
	// Another process must not offer the one that was erased once more.
	if _, err := s.store.ChangeConversation(ctx, w.chat, rand.Text()); err != nil {
		return err
	}
	runs := s.runsOf(w)
	fact := erasure{Name: plan.what.Name(), Turn: w.Number}
	if err := s.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return err
	}
	if err := s.store.NoteErasure(ctx, fact.Turn, fact.Name); err != nil {
		return err
	}
	if _, err := s.redactStored(ctx, plan.what, w.Number, false, plan.keys...); err != nil {
		return err
	}
	s.sessions.write(w.chat, sessionLine("redacted: %d messages", len(plan.out.Redacted)))
	runs = append(runs, s.tellOthers(ctx, fact)...)
	return s.store.RedactRuns(ctx, w.chat, 0, redactedAnswer(), runs...)
}

// redactStored takes the text out of what Redis keeps in histories of a chat, with the notes made from it, by a redaction that was made in a
// turn. It says whether there was any. again: without the turn.
func (s *Server) redactStored(ctx context.Context, what erasures.Redaction, turn int64, again bool,
	keys ...memory.Key) (changed bool, err error) {
	for _, key := range keys {
		h, err := s.store.Redact(ctx, turn, again, key, func(id string) bool { return what.Has(key, id) }, suspects(what)...)
		if err != nil {
			return changed, err
		}
		if h != nil {
			changed = true
			s.cache.Forget(key) // what a look read meanwhile
			s.cache.Put(h)
		}
		writer := turn
		if again {
			writer = redisstore.NoTurn
		}
		void, err := s.store.VoidNotes(ctx, writer, key, func(n memory.Note) bool {
			return n.Message != "" && what.Has(memory.ChatKey(what.Chat), n.Message)
		})
		if err != nil {
			return changed, err
		}
		changed = changed || void > 0
	}
	own := memory.ChatKey(what.Chat)
	void, err := s.store.VoidUserNotes(ctx, what.Chat, func(n memory.Note) bool { return what.Has(own, n.Message) })
	if err != nil {
		return changed, err
	}
	changed = changed || void > 0
	if err := s.store.RedactTitle(ctx, what.Chat, func(id string) bool { return what.Has(own, id) }); err != nil {
		return changed, err
	}
	return changed, s.store.RemoveDamaged(ctx, keys...)
}

// suspects are texts of which one stands in a damaged part of an archive if the redaction may concern it.
func suspects(what erasures.Redaction) (all []string) {
	if what.Run != "" {
		return []string{`"` + what.Run + "."}
	}
	for _, id := range what.IDs {
		all = append(all, `"`+id+`"`)
	}
	return all
}

// redactAgain makes a redaction once more that Redis has forgotten, or not heard of to its end.
func (s *Server) redactAgain(ctx context.Context, what erasures.Redaction, turn int64) error {
	if err := s.store.DropRewound(ctx, what.Chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.keysThere(ctx, what.Chat)
	if err != nil {
		return err
	}
	// What was erased since may be there anew, imported under the same ids.
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return s.follower.file.Of(k) > turn })
	back, err := s.redactStored(ctx, what, turn, true, keys...)
	if err != nil {
		return err
	}
	if back {
		s.log.Warn().Str("chat", what.Chat.String()).Msg("Redis came back with what was redacted; it was redacted once more")
		before, err := s.store.ChangeConversation(ctx, what.Chat, rand.Text())
		if err == nil && before != "" {
			err = s.runs.EraseConversation(ctx, what.Chat.Tenant(), before)
		}
		if err != nil {
			return err
		}
	}
	return s.store.RedactRuns(ctx, what.Chat, turn, redactedAnswer())
}

// redactCopies takes the text of redactions that this disk knows out of this process's copies of a chat's
// histories, which may be older: should Redis have lost all, what comes back from them does not say it.
func (s *Server) redactCopies(chat memory.Chat) error {
	if len(s.follower.file.Redactions(chat)) == 0 {
		return nil
	}
	for _, h := range s.cache.All() {
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

// redactedCopy is a copy without the text of redactions that it does not follow.
func (s *Server) redactedCopy(h *memory.History) (*memory.History, error) {
	var err error
	for _, r := range s.follower.file.Redactions(h.Key().Chat()) {
		if r.Turn > h.Cut() && r.Turn > s.follower.file.Of(h.Key()) && err == nil {
			h, err = h.Redacted(func(id string) bool { return r.Has(h.Key(), id) })
		}
	}
	return h, err
}

// redactForgotten is redactAgain of what this disk knows to be redacted in a chat whose lease was just taken,
// and Redis does not.
func (s *Server) redactForgotten(ctx context.Context, chat memory.Chat) error {
	known := s.follower.file.Redactions(chat)
	if len(known) == 0 {
		return nil
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = r.Name()
	}
	stored, err := s.store.Noted(ctx, names...)
	if err != nil {
		return err
	}
	for i, r := range known {
		if stored[i] >= r.Turn {
			continue
		}
		if err := s.eraseAgain(ctx, names[i], r.Turn); err != nil {
			return err
		}
	}
	return nil
}

// redactedAnswer is what a post gets that repeats a run whose answer was taken away.
func redactedAnswer() []byte { return encodeFinal(api.ErrGone.Status, api.ErrGone) }

// redactedSince says whether something of a chat was redacted, as far as is known here, after a turn: what was
// kept of a run of that turn is gone, and must not be written back.
func (s *Server) redactedSince(chat memory.Chat, turn int64) bool {
	return slices.ContainsFunc(s.follower.file.Redactions(chat), func(r erasures.Redacted) bool { return r.Turn > turn })
}

// redactions are those of a chat.
type redactions []erasures.Redacted

// redactionsOf are those that this disk or Redis knows.
func (s *Server) redactionsOf(ctx context.Context, chat memory.Chat) (all redactions, err error) {
	s.follower.mu.Lock()
	since := s.follower.since
	s.follower.mu.Unlock()
	turns, err := s.store.Erasures(ctx, since)
	if err != nil {
		return nil, err
	}
	for name, turn := range turns {
		if r, ok := erasures.RedactionOf(name); ok && r.Chat == chat {
			all = append(all, erasures.Redacted{Redaction: r, Turn: turn})
		}
	}
	return append(all, s.follower.file.Redactions(chat)...), nil
}

// cover says whether a spool's entry has text that was redacted: that of a message, or an event of a run, all
// of which were over.
func (all redactions) cover(e spool.Entry) bool {
	return slices.ContainsFunc(all, func(r erasures.Redacted) bool {
		return e.Mark.Turn < r.Turn && (e.Events || r.Has(e.Key, memory.MessageID(e.Mark.Run, e.Mark.Seq)))
	})
}

// reach is the turn before which a spool may have erased or redacted text of a history.
func (f *follower) reach(key memory.Key) (turn int64) {
	turn = f.file.Of(key)
	for _, r := range f.file.Redactions(key.Chat()) {
		turn = max(turn, r.Turn)
	}
	return turn
}

// covers says whether a spool's entry was erased or redacted.
func (f *follower) covers(e spool.Entry) bool {
	return e.Mark.Turn < f.file.Of(e.Key) || redactions(f.file.Redactions(e.Key.Chat())).cover(e)
}
