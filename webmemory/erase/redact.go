package erase

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/runs"
)

// Redactor blanks the text of messages in Redis and in this process's copies. It is idempotent, so that it can run
// again if Redis returns with the text.
//
// A redaction is an erasure with its own kind of name. Each process that receives the name removes the text from what
// it holds. Cached histories follow their cuts instead.
type Redactor struct {
	*node.Core
	Histories *past.Histories
}

// RedactTimeout limits a redaction, which reads the whole chat. 100,000 messages take seconds.
const RedactTimeout = 5 * time.Minute

// MaxRedacted limits how many messages of an exchange are named one by one.
const MaxRedacted = 1000

// RedactionPlan describes a redaction.
type RedactionPlan struct {
	What erasures.Redaction
	Keys []memory.Key // the chat's histories
	Out  webapi.Redacted

	HeadCache past.Heads // cached heads of the histories' segments
}

// RedactUnder redacts under the chat's lease. It calls the services that may be unreachable first, while nothing has
// changed. Then it marks the redaction as pending in the chat's meta until the last step.
func (s *Eraser) RedactUnder(ctx context.Context, w *runs.Writer, plan RedactionPlan) error {
	if err := s.EraseConversations(ctx, w.Chat, w.Number); err != nil {
		return err
	}
	if err := fair.Block(ctx, func() error { return s.Runs.DeleteRuns(ctx, w.Chat) }); err != nil {
		return node.Unreachable(err)
	}
	if err := s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, plan.What.Name(), "", s.Cfg.Lease); err != nil {
		return err
	}
	if err := s.redactPending(ctx, w, plan); err != nil {
		return err
	}
	s.Sessions.Write(w.Chat, node.SessionLine("redacted: %d messages", len(plan.Out.Redacted)))
	return nil
}

// redactPending runs the steps of a pending redaction. Any step may be done already.
func (s *Eraser) redactPending(ctx context.Context, w *runs.Writer, plan RedactionPlan) error {
	if _, err := s.Tier.Forget(ctx, w.Chat, w.Number, false); err != nil {
		return err
	}
	if err := s.Rewinder.dropRewound(ctx, w.Chat); err != nil { // set-aside messages may contain the text
		return err
	}
	// Another process must not offer the erased conversation again.
	if _, err := s.Store.Turns.ChangeConversation(ctx, w.Chat, rand.Text()); err != nil {
		return err
	}
	runs := s.Tombstones.runsOf(w)
	fact := node.Erasure{Name: plan.What.Name(), Turn: w.Number}
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

// releaseForgotten releases the quarantine entries that proposed this redaction.
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

// FinishRedaction finishes a redaction that another process left pending. The turn continues in a new conversation.
func (s *Eraser) FinishRedaction(ctx context.Context, w *runs.Writer, what erasures.Redaction) error {
	keys, err := s.Store.Chats.Keys(ctx, w.Chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	if what.Run == "" {
		keys = append(keys, what.Key) // its subagent may be missing from every list
	}
	if err := s.redactPending(ctx, w, RedactionPlan{What: what, Keys: keys}); err != nil {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// redactStored removes the redacted text, and the notes made from it, from the histories keys in Redis. turn is the
// turn of the redaction. If redo is true, redactStored writes without holding that turn. It reports whether it changed
// anything.
func (s *Redactor) redactStored(ctx context.Context, what erasures.Redaction, turn int64, redo bool,
	headCache past.Heads, keys ...memory.Key) (changed bool, err error) {
	for _, key := range keys {
		has := func(id string) bool { return what.Has(key, id) }
		h, err := s.Store.Redactions.Redact(ctx, turn, redo, key, has, headCache.ContainsNone(has), suspects(what)...)
		if err != nil {
			return changed, err
		}
		if h != nil {
			changed = true
			s.Cache.Forget(key) // a copy that a concurrent read cached
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

// suspects returns texts to search for in damaged parts of an archive. The redaction may concern a part that contains
// any of the texts.
func suspects(what erasures.Redaction) (texts []string) {
	if what.Run != "" {
		return []string{`"` + what.Run + "."}
	}
	for _, id := range what.IDs {
		texts = append(texts, `"`+id+`"`)
	}
	return texts
}

// redactAgain repeats a redaction that Redis lost entirely or in part.
func (s *Redactor) redactAgain(ctx context.Context, what erasures.Redaction, turn int64) error {
	if err := s.Store.Rewinds.Drop(ctx, what.Chat, turn, 0); err != nil {
		return err
	}
	keys, err := s.Histories.KeysThere(ctx, what.Chat)
	if err != nil {
		return err
	}
	// A history that was erased since may exist again, imported under the same ids.
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

// RedactCopies applies the redactions that this disk knows to this process's copies of a chat's histories. The copies
// may be older than the redactions. If Redis loses everything, a history restored from such a copy has no record of the
// redactions.
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

// RedactedAnswer returns the answer for a post that repeats a run whose answer was removed.
func RedactedAnswer() []byte { return runs.EncodeFinal(api.ErrGone.Status, api.ErrGone) }
