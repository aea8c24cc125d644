package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/spool"
)

// Erasure is one erasure as a fact, and the body of POST /internal/v1/erasures.
type Erasure struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// Applied says what a process knew of the chat, and Redis may still keep.
type Applied struct {
	Runs []string `json:"runs"`
}

// Follower is what this process knows of erasures, and how far it has followed those of
// others.
type Follower struct {
	File *erasures.File // what was applied to this disk

	Mu        sync.Mutex
	Applied   map[string]int64 // guarded by mu: to what this process holds in memory
	StartTurn int64            // guarded by mu: the turn from which Redis is asked
}

// HalfErased is for how long after an erasure Redis may lose a part of it: far longer
// than a failover or a start from an older file reaches back.
const HalfErased = time.Hour

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
