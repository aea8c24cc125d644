package webmemory

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/access/tally"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about erasing. An erasure is done under the chat's lease, before all posts
// that wait for it. Then it is a fact with a number (a tombstone): in Redis for all
// processes, and on the disk of each that has applied it to what it holds (tombstones.go).

// eraser erases a chat or one of its histories, or redacts messages, under a turn that its caller holds, and finishes
// what another process left half done. The gateway's conversation goes first; from then on to the last step the chat's
// meta says what is pending.
type eraser struct {
	*core
	peers      *peers
	redactor   *redactor
	rewinder   *rewinder
	tombstones *tombstones
}

// eraseRoutes is DELETE of chats, of histories and of what a user said. It takes the turn of each chat before all posts
// that wait for it.
type eraseRoutes struct {
	*core
	eraser     *eraser
	tombstones *tombstones
	leaser     *leaser
}

// deleteHistory is DELETE …/history of a chat or of one of its subagents.
func (s *eraseRoutes) deleteHistory(c *gin.Context, key memory.Key) error {
	return s.erase(c, key.Chat(), eraseScope{history: &key})
}

// deleteChat is DELETE /v1/chats/{chat}; with scan=true it also looks through all
// keys of Redis for what no index names.
func (s *eraseRoutes) deleteChat(c *gin.Context, chat memory.Chat) error {
	scan, err := problem.Flag(c, "scan")
	if err != nil {
		return err
	}
	return s.erase(c, chat, eraseScope{scan: scan})
}

// eraseScope is what of a chat is to be erased: one history, or everything.
type eraseScope struct {
	history *memory.Key
	scan    bool // look through all keys of Redis
	counted bool // what its calls of models took stays counted: its tenant goes as a whole
}

func (w eraseScope) has(key memory.Key) bool { return w.history == nil || *w.history == key }

// String returns the form that parseEraseScope parses.
func (w eraseScope) String() string {
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

func parseEraseScope(text string) eraseScope {
	if key, ok := memory.ParseKey(text); ok {
		return eraseScope{history: &key}
	}
	return eraseScope{scan: text == "scan", counted: text == "counted"}
}

// erase removes what is wanted gone of a chat.
func (s *eraseRoutes) erase(c *gin.Context, chat memory.Chat, what eraseScope) error {
	allowed := 2*storeTimeout + redisstore.Beat
	if what.scan {
		allowed = scanTimeout
	}
	p := deleting
	if what.history != nil {
		p = erasing
	}
	return takeAway(s.leaser, c, chat, p, allowed, func(ctx context.Context, w *writer) (webapi.Erased, error) {
		return s.eraser.eraseUnder(ctx, w, what)
	})
}

// scrub returns when nothing that was erased is in a file of the store's any more.
func (s *eraser) scrub() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), scrubWait)
	defer cancel()
	return s.store.Server.Scrub(ctx)
}

// eraseUnder erases under the chat's lease. The gateway's conversation goes first, whole:
// it may hold what any of the histories does, and once the chat is gone its id is lost. From then on to the last step
// the chat's meta says that an erasure is pending, so that the process that takes the lease next brings to its end
// what this one may leave.
func (s *eraser) eraseUnder(ctx context.Context, w *writer, what eraseScope) (webapi.Erased, error) {
	out := webapi.Erased{Erased: []string{}}
	cards, err := s.store.Chats.Cards(ctx, w.chat)
	if err != nil {
		return out, err
	}
	setAsides, err := s.store.Rewinds.List(ctx, w.chat)
	if err != nil {
		return out, err
	}
	if err := s.eraseConversations(ctx, w.chat, w.Number); err != nil {
		return out, err
	}
	if err := s.store.Rewinds.Pending(ctx, w.Number, w.chat, pendingErase+what.String(), "", s.cfg.Lease); err != nil {
		return out, err
	}
	asleep, err := s.tier.forget(ctx, w.chat, w.Number, what.history == nil)
	if err != nil {
		return out, err
	}
	out.Erased = append(out.Erased, asleep...)
	if err := s.rewinder.dropRewound(ctx, w.chat); err != nil {
		return out, err
	}
	chatKeys, err := s.store.Chats.Keys(ctx, w.chat, s.cfg.Agents()...)
	if err != nil {
		return out, err
	}
	// Also what is not there gets its tombstone: Redis may just have lost it, and a process
	// that was not told yet may be about to write it back.
	keys := slices.Clone(chatKeys)
	var extraKeys []string
	for key := range w.histories { // what left a number or a tombstone
		keys = append(keys, key)
	}
	if what.history != nil {
		keys = append(keys, *what.history) // of a subagent that is in no list, perhaps
	}
	if what.scan {
		var scanned []memory.Key
		if scanned, extraKeys, err = s.store.Chats.Scan(ctx, w.chat); err != nil {
			return out, err
		}
		keys = append(keys, scanned...)
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
	out.Erased = append(out.Erased, extraKeys...)
	out.Nothing = len(out.Erased) == 0 && len(setAsides) == 0 && (what.history != nil || cards[0].Missing)
	keys = slices.DeleteFunc(keys, func(k memory.Key) bool { return !what.has(k) })
	// From here on it is a fact: a process that holds a copy drops it, and none is written back.
	fact := erasure{Name: erasures.Chat(w.chat), Turn: w.Number}
	if what.history != nil {
		fact.Name = what.history.String()
	}
	runs := s.tombstones.runsOf(w)
	if err := s.tombstones.applyErasures(ctx, map[string]int64{fact.Name: fact.Turn}); err != nil {
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
		s.peers.tellOthers(ctx, fact)
		return out, s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
	}
	documents := false
	err = fair.Block(ctx, func() (err error) { documents, err = s.runs.DeleteChat(ctx, w.chat); return err })
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
	err = s.eraseStored(ctx, w, fact, runs, keys, extraKeys)
	s.cache.Forget(keys...) // what was read while the store erased
	return out, err
}

// finishErasure does the whole of an erasure once more, of which each step may have been done. A turn that found it and
// goes on does so in another conversation. One that takes something away itself gets none: were its process killed before
// it did, the id would stand in the tombstone of a chat that is gone and that no list names.
func (s *eraser) finishErasure(ctx context.Context, w *writer, what eraseScope, goesOn bool) error {
	if _, err := s.eraseUnder(ctx, w, what); err != nil || what.history != nil || !goesOn {
		return err
	}
	return s.scrubbedLater(ctx, w)
}

// scrubbedLater has the store's files scrubbed of what was taken away under a turn, beside the turn, which goes on in
// another conversation.
func (s *eraser) scrubbedLater(ctx context.Context, w *writer) error {
	s.workers.Go(func() {
		if err := s.scrub(); err != nil {
			s.log.Warn().Err(err).Msg("what was erased may still be in a file of the store's")
		}
	})
	return s.freshConversation(ctx, w)
}

// forgetUsage takes an erased chat or user out of the counters of what calls of models took.
func (s *eraser) forgetUsage(ctx context.Context, tenant memory.Tenant, groupBy tally.Dimension, name string) error {
	if err := s.cfg.Usage.Forget(ctx, tenant, groupBy, name); err != nil {
		return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
	}
	return nil
}

// eraseStored erases all of a chat in Redis: the runs that are known here, the histories
// with what belongs to them, what lies beside these, and the runs that other processes
// know of once they are told.
func (s *eraser) eraseStored(
	ctx context.Context, w *writer, fact erasure, runs []string, keys []memory.Key, extraKeys []string,
) error {
	if err := s.store.Runs.Erase(ctx, w.chat, runs...); err != nil {
		return err
	}
	if err := s.store.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	if err := s.store.Chats.Remove(ctx, extraKeys...); err != nil {
		return err
	}
	if err := s.store.Runs.Erase(ctx, w.chat, s.peers.tellOthers(ctx, fact)...); err != nil {
		return err
	}
	if err := s.store.Stored.Chat(ctx, w.chat, 0); err != nil {
		return err
	}
	return s.store.EraseChat(ctx, w.Number, w.chat) // with its meta, which said that the erasure is pending
}

// freshConversation gives a chat another conversation at the gateway. The one before was erased, and a process that
// hears of that later erases it once more.
func (s *eraser) freshConversation(ctx context.Context, w *writer) error {
	fresh := rand.Text()
	if _, err := s.store.Turns.ChangeConversation(ctx, w.chat, fresh); err != nil {
		return err
	}
	s.conversations.note(w.chat, fresh, w.Number)
	w.renewing.Lock()
	defer w.renewing.Unlock()
	w.Conversation = fresh
	return nil
}

// undoImport erases what an import has stored that is not whole.
func (s *eraser) undoImport(ctx context.Context, w *writer, keys ...memory.Key) error {
	if err := s.cache.Erase(ctx, w.Number, keys...); err != nil {
		return err
	}
	return s.store.Rewinds.Pending(ctx, w.Number, w.chat, "", "", 0)
}
