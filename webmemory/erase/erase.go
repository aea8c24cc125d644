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

// This file is about erasing. An erasure is done under the chat's lease, before all posts
// that wait for it. Then it is a fact with a number (a tombstone): in Redis for all
// processes, and on the disk of each that has applied it to what it holds (tombstones.go).

// Eraser erases a chat or one of its histories, or redacts messages, under a turn that its caller holds, and finishes
// what another process left half done. The gateway's conversation goes first; from then on to the last step the chat's
// meta says what is pending.
type Eraser struct {
	*node.Core
	Peers      *node.Peers
	Redactor   *Redactor
	Rewinder   *Rewinder
	Tombstones *Tombstones
}

// Scope is what of a chat is to be erased: one history, or everything.
type Scope struct {
	History *memory.Key
	Scan    bool // look through all keys of Redis
	Counted bool // what its calls of models took stays counted: its tenant goes as a whole
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

// Scrub returns when nothing that was erased is in a file of the store's any more.
func (s *Eraser) Scrub() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Life), node.ScrubWait)
	defer cancel()
	return s.Store.Server.Scrub(ctx)
}

// EraseUnder erases under the chat's lease. The gateway's conversation goes first, whole:
// it may hold what any of the histories does, and once the chat is gone its id is lost. From then on to the last step
// the chat's meta says that an erasure is pending, so that the process that takes the lease next brings to its end
// what this one may leave.
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
	// Also what is not there gets its tombstone: Redis may just have lost it, and a process
	// that was not told yet may be about to write it back.
	keys := slices.Clone(chatKeys)
	var extraKeys []string
	for key := range w.Histories { // what left a number or a tombstone
		keys = append(keys, key)
	}
	if what.History != nil {
		keys = append(keys, *what.History) // of a subagent that is in no list, perhaps
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
	// From here on it is a fact: a process that holds a copy drops it, and none is written back.
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
	if what.has(memory.ChatKey(w.Chat)) { // which has the messages that notes of users were made from
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
	s.Cache.Forget(keys...) // also what this turn has read, which is no older than the erasure: it is not written back
	err = s.eraseStored(ctx, w, fact, runs, keys, extraKeys)
	s.Cache.Forget(keys...) // what was read while the store erased
	return out, err
}

// FinishErasure does the whole of an erasure once more, of which each step may have been done. A turn that found it and
// goes on does so in another conversation. One that takes something away itself gets none: were its process killed before
// it did, the id would stand in the tombstone of a chat that is gone and that no list names.
func (s *Eraser) FinishErasure(ctx context.Context, w *runs.Writer, what Scope, goesOn bool) error {
	if _, err := s.EraseUnder(ctx, w, what); err != nil || what.History != nil || !goesOn {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// scrubbedLater has the store's files scrubbed of what was taken away under a turn, beside the turn, which goes on in
// another conversation.
func (s *Eraser) scrubbedLater(ctx context.Context, w *runs.Writer) error {
	s.Workers.Go(func() {
		if err := s.Scrub(); err != nil {
			s.Log.Warn().Err(err).Msg("what was erased may still be in a file of the store's")
		}
	})
	return s.FreshConversation(ctx, w)
}

// ForgetUsage takes an erased chat or user out of the counters of what calls of models took.
func (s *Eraser) ForgetUsage(ctx context.Context, tenant memory.Tenant, groupBy tally.Dimension, name string) error {
	if err := s.Cfg.Usage.Forget(ctx, tenant, groupBy, name); err != nil {
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// eraseStored erases all of a chat in Redis: the runs that are known here, the histories
// with what belongs to them, what lies beside these, and the runs that other processes
// know of once they are told.
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
	return s.Store.EraseChat(ctx, w.Number, w.Chat) // with its meta, which said that the erasure is pending
}

// FreshConversation gives a chat another conversation at the gateway. The one before was erased, and a process that
// hears of that later erases it once more.
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

// UndoImport erases what an import has stored that is not whole.
func (s *Eraser) UndoImport(ctx context.Context, w *runs.Writer, keys ...memory.Key) error {
	if err := s.Cache.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	return s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
}

// This file erases users: the notes at once, and the chats some at a time. The list of the chats is in Redis, and each
// chat leaves it when it is erased. Redis also lists the erasures that are not done, so that other processes finish
// them. Two at once do no harm.

// Bounds of one request that erases chats of a user.
const (
	MaxUserChats  = 50
	UserEraseTime = 20 * time.Second // after which no further chat is begun with
)
