package erase

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"mneme/access/fair"
	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/erasures"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/runs"
)

// Eraser erases a chat or a single history, or redacts messages. Its caller holds the chat's turn. Eraser also finishes
// changes that another process left half done. An erasure becomes a tombstone with its turn: in Redis for all
// processes, and on the disk of each process that has applied it.
//
// The gateway's conversation is erased first. From then until the last step, the chat's meta records the pending
// change, so that the next holder of the lease can finish it.
type Eraser struct {
	*node.Core
	Peers      *node.Peers
	Redactor   *Redactor
	Rewinder   *Rewinder
	Tombstones *Tombstones
}

// Scope selects what an erasure removes from a chat: one history, or everything.
type Scope struct {
	History *memory.Key
	Scan    bool // scan all keys of Redis
	Counted bool // keep the chat's usage counters: its whole tenant is erased
}

func (w Scope) has(key memory.Key) bool { return w.History == nil || *w.History == key }

// String returns the form that ParseScope parses.
func (w Scope) String() string {
	switch {
	case w.History != nil:
		return w.History.String()
	case w.Counted:
		return "counted"
	case w.Scan:
		return "scan"
	}
	return ""
}

// ParseScope returns the scope of a pending erasure from its stored form.
func ParseScope(text string) Scope {
	if key, ok := memory.ParseKey(text); ok {
		return Scope{History: &key}
	}
	return Scope{Scan: text == "scan", Counted: text == "counted"}
}

// Scrub waits until the store's files contain no erased text.
func (s *Eraser) Scrub() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Life), node.ScrubWait)
	defer cancel()
	return s.Store.Server.Scrub(ctx)
}

// EraseUnder erases the scope what under the chat's lease. It starts with the whole conversation at the gateway, which
// may contain text of any history. Once the chat is erased, the conversation's id is lost.
func (s *Eraser) EraseUnder(ctx context.Context, w *runs.Writer, what Scope) (webapi.Erased, error) {
	out := webapi.Erased{Erased: []string{}}
	cards, err := s.Store.Chats.Cards(ctx, w.Chat)
	if err != nil {
		return out, err
	}
	setAsides, err := s.Store.Rewinds.List(ctx, w.Chat)
	if err != nil {
		return out, err
	}
	if err := s.EraseConversations(ctx, w.Chat, w.Number); err != nil {
		return out, err
	}
	if err := s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, PendingErase+what.String(), "", s.Cfg.Lease); err != nil {
		return out, err
	}
	asleep, err := s.Tier.Forget(ctx, w.Chat, w.Number, what.History == nil)
	if err != nil {
		return out, err
	}
	out.Erased = append(out.Erased, asleep...)
	if err := s.Rewinder.dropRewound(ctx, w.Chat); err != nil {
		return out, err
	}
	chatKeys, err := s.Store.Chats.Keys(ctx, w.Chat, s.Cfg.Agents()...)
	if err != nil {
		return out, err
	}
	// Missing histories get a tombstone too. Redis may have just lost them, and a process that does not know of the
	// erasure yet may be about to write them back.
	keys := slices.Clone(chatKeys)
	var extraKeys []string
	for key := range w.Histories { // keys with a turn or a tombstone
		keys = append(keys, key)
	}
	if what.History != nil {
		keys = append(keys, *what.History) // its subagent may be missing from every list
	}
	if what.Scan {
		var scanned []memory.Key
		if scanned, extraKeys, err = s.Store.Chats.Scan(ctx, w.Chat); err != nil {
			return out, err
		}
		keys = append(keys, scanned...)
	}
	stored, err := s.Store.Chats.Measure(ctx, keys...)
	if err != nil {
		return out, err
	}
	for _, h := range stored {
		keys = append(keys, h.Key)
		if what.has(h.Key) {
			out.Erased = append(out.Erased, h.Key.String())
		}
	}
	out.Erased = append(out.Erased, extraKeys...)
	out.Nothing = len(out.Erased) == 0 && len(setAsides) == 0 && (what.History != nil || cards[0].Missing)
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return !what.has(k) })
	// From here on the erasure is final: processes drop their copies and write none back.
	fact := node.Erasure{Name: erasures.Chat(w.Chat), Turn: w.Number}
	if what.History != nil {
		fact.Name = what.History.String()
	}
	runs := s.Tombstones.runsOf(w)
	if err := s.Tombstones.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
		return out, err
	}
	if err := s.Store.Erasures.Note(ctx, fact.Turn, fact.Name); err != nil {
		return out, err
	}
	if what.has(memory.ChatKey(w.Chat)) { // notes of users are made from the chat's own messages
		if _, err := s.Store.Users.VoidNotes(ctx, w.Chat, func(memory.Note) bool { return true }); err != nil {
			return out, err
		}
	}
	if what.History != nil {
		s.Sessions.Write(w.Chat, node.SessionLine("erased: %v", out.Erased))
		if err := s.Cache.Erase(ctx, w.Number, keys...); err != nil {
			return out, err
		}
		s.Peers.TellOthers(ctx, fact)
		return out, s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
	}
	documents := false
	err = fair.Block(ctx, func() (err error) { documents, err = s.Runs.DeleteChat(ctx, w.Chat); return err })
	if err != nil {
		return out, node.Unreachable(err)
	}
	out.Nothing = out.Nothing && !documents
	if !what.Counted {
		if err := s.ForgetUsage(ctx, w.Chat.Tenant(), tally.ByChat, w.Chat.ID()); err != nil {
			return out, err
		}
	}
	s.Cache.Forget(keys...) // also copies of this turn: they are no older than the erasure, but must not be written back
	err = s.eraseStored(ctx, w, fact, runs, keys, extraKeys)
	s.Cache.Forget(keys...) // copies read while the store erased
	return out, err
}

// FinishErasure runs a pending erasure again from the start. Any of its steps may be done already. If goesOn is true,
// the turn that found the pending erasure continues in a new conversation. A turn that itself removes something gets no
// new conversation. If its process were killed before the removal, the conversation's id would stay in the tombstone of
// a deleted chat that no list names.
func (s *Eraser) FinishErasure(ctx context.Context, w *runs.Writer, what Scope, goesOn bool) error {
	if _, err := s.EraseUnder(ctx, w, what); err != nil || what.History != nil || !goesOn {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// scrubbedLater scrubs the store's files in the background. The turn continues in a new conversation.
func (s *Eraser) scrubbedLater(ctx context.Context, w *runs.Writer) error {
	s.Workers.Go(func() {
		if err := s.Scrub(); err != nil {
			s.Log.Warn().Err(err).Msg("what was erased may still be in a file of the store's")
		}
	})
	return s.FreshConversation(ctx, w)
}

// ForgetUsage removes an erased chat or user from the counters of model usage. name is its id.
func (s *Eraser) ForgetUsage(ctx context.Context, tenant memory.Tenant, groupBy tally.Dimension, name string) error {
	if err := s.Cfg.Usage.Forget(ctx, tenant, groupBy, name); err != nil {
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// eraseStored erases everything of a chat in Redis: its known runs, its histories with their data, and extraKeys. It
// then sends fact to the other processes, and erases the runs that they report.
func (s *Eraser) eraseStored(
	ctx context.Context, w *runs.Writer, fact node.Erasure, runs []string, keys []memory.Key, extraKeys []string,
) error {
	if err := s.Store.Runs.Erase(ctx, w.Chat, runs...); err != nil {
		return err
	}
	if err := s.Store.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	if err := s.Store.Chats.Remove(ctx, extraKeys...); err != nil {
		return err
	}
	if err := s.Store.Runs.Erase(ctx, w.Chat, s.Peers.TellOthers(ctx, fact)...); err != nil {
		return err
	}
	if err := s.Store.Stored.Chat(ctx, w.Chat, 0); err != nil {
		return err
	}
	return s.Store.EraseChat(ctx, w.Number, w.Chat) // with the meta, which marks the erasure as pending
}

// FreshConversation starts a new conversation for a chat at the gateway. The previous conversation was erased, and a
// process that learns of the erasure later repeats it.
func (s *Eraser) FreshConversation(ctx context.Context, w *runs.Writer) error {
	fresh := rand.Text()
	if _, err := s.Store.Turns.ChangeConversation(ctx, w.Chat, fresh); err != nil {
		return err
	}
	s.Conversations.Note(w.Chat, fresh, w.Number)
	w.Renewing.Lock()
	defer w.Renewing.Unlock()
	w.Conversation = fresh
	return nil
}

// UndoImport erases the histories of an incomplete import.
func (s *Eraser) UndoImport(ctx context.Context, w *runs.Writer, keys ...memory.Key) error {
	if err := s.Cache.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
}

// Limits of one request that erases chats of a user. Notes are erased at once, chats in batches. Redis lists the
// remaining chats and unfinished erasures, for other processes to finish. Concurrent erasures of a user do no harm.
const (
	MaxUserChats  = 50
	UserEraseTime = 20 * time.Second // the request starts no further chat after this time
)
