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

// Erasure is the name and the turn of an erasure. It is the body of POST /internal/v1/erasures.
type Erasure struct {
	Name string `json:"name"`
	Turn int64  `json:"turn"`
}

// Applied lists the runs of the chat that a process knew and that Redis may still hold.
type Applied struct {
	Runs []string `json:"runs"`
}

// Follower records the known erasures and how far this process has followed the erasures of others.
type Follower struct {
	File *erasures.File // erasures applied to this disk

	Mu        sync.Mutex
	Applied   map[string]int64 // guarded by Mu: turns of the erasures applied to memory, by name
	StartTurn int64            // guarded by Mu: turn from which erasures are read from Redis
}

// HalfErased is how long after an erasure Redis may lose a part of it. It is much longer than a failover or a start
// from an older file reaches back.
const HalfErased = time.Hour

// Redactions holds the redactions of a chat.
type Redactions []erasures.Redacted

// RedactionsOf returns the redactions of a chat that are recorded on this disk or in Redis.
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

// Cover reports whether a spool entry contains redacted text. An event from a turn before a redaction always counts,
// because its run had ended by then.
func (rs Redactions) Cover(e spool.Entry) bool {
	return slices.ContainsFunc(rs, func(r erasures.Redacted) bool {
		return e.Mark.Turn < r.Turn && (e.Events || r.Has(e.Key, memory.MessageID(e.Mark.Run, e.Mark.Seq)))
	})
}

// Reach returns the newest turn in which text of a history was erased or redacted. Spooled text from before it may be
// affected.
func (f *Follower) Reach(key memory.Key) (turn int64) {
	turn = f.File.HistoryTurn(key)
	for _, r := range f.File.Redactions(key.Chat()) {
		turn = max(turn, r.Turn)
	}
	return turn
}

// Covers reports whether a spool entry was erased or redacted.
func (f *Follower) Covers(e spool.Entry) bool {
	return e.Mark.Turn < f.File.HistoryTurn(e.Key) || Redactions(f.File.Redactions(e.Key.Chat())).Cover(e)
}
