package erase

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
)

// This file is about rewinds as facts: how all processes hear of one, drop what they hold of it, and tell a Redis again
// that has forgotten it.

// rewound is a rewind as a fact, and the body of POST /internal/v1/rewinds.
type rewound struct {
	Chat   memory.StoredChat `json:"chat"`
	Turn   int64             `json:"turn"`   // in which the histories change
	Rewind int64             `json:"rewind"` // in which the rewind began
	Runs   []string          `json:"runs"`   // that it takes back
	Keys   []string          `json:"keys"`   // histories that change
}

// tellRewound notes a rewind here and in Redis, and tells the other processes, of which those that cannot be
// reached find it there.
func (s *Rewinder) tellRewound(ctx context.Context, fact rewound) error {
	if err := s.applyRewound(ctx, fact); err != nil {
		return err
	}
	var cuts []string
	for _, key := range fact.Keys {
		k, _ := memory.ParseKey(key)
		cuts = append(cuts, erasures.HandCut(k))
	}
	if err := s.NoteAll(ctx, fact.Turn, cuts); err != nil {
		return err
	}
	var names []string
	for _, run := range fact.Runs {
		names = append(names, erasures.Rewound(fact.Chat.Chat, run))
	}
	if err := s.NoteAll(ctx, fact.Rewind, names); err != nil {
		return err
	}
	for runs := fact.Runs; ; {
		part := fact
		part.Runs = runs[:min(len(runs), 10_000)]
		err := node.AskAll(ctx, s.Peers, http.MethodPost, "/rewinds", part, func(struct{}) {}, func(p redisstore.Process,
			err error) {
			s.Log.Warn().Err(err).Str("process", p.ID).Msg("another process has not applied a rewind yet; it does when it looks")
		})
		if err != nil {
			s.Log.Warn().Err(err).Msg("other processes are not known; they apply a rewind when they look")
		}
		if runs = runs[len(part.Runs):]; len(runs) == 0 {
			return nil
		}
	}
}

// PostRewound is POST /internal/v1/rewinds: another process takes something back.
func (s *Rewinder) PostRewound(c *gin.Context, fact rewound) error {
	if fact.Chat.Chat.IsZero() || fact.Turn <= 0 || fact.Rewind <= 0 {
		return problem.BadRequest("A rewind has a chat, a turn and the turn in which it began.")
	}
	return api.Answer(c.Writer, http.StatusOK, struct{}{}, s.applyRewound(c.Request.Context(), fact))
}

// applyRewound drops what this process and its disk hold of runs that are taken back, and what was said to
// models; the cuts, if it has some, are noted first.
func (s *Rewinder) applyRewound(ctx context.Context, fact rewound) error {
	if err := s.EraseConversations(ctx, fact.Chat.Chat, fact.Turn); err != nil {
		return err
	}
	cuts := map[string]int64{}
	for _, name := range fact.Keys {
		key, ok := memory.ParseKey(name)
		if !ok || key.Chat() != fact.Chat.Chat {
			return problem.BadRequest("%.200q is no history of the chat.", name)
		}
		cuts[name] = fact.Turn
	}
	names := map[string]int64{}
	for _, run := range fact.Runs {
		names[erasures.Rewound(fact.Chat.Chat, run)] = fact.Rewind
	}
	if err := errors.Join(s.Cfg.Cuts.Add(cuts), s.Follower.File.Add(names)); err != nil {
		return err
	}
	for name := range cuts {
		key, _ := memory.ParseKey(name)
		s.Cache.Forget(key)
	}
	for _, run := range fact.Runs {
		s.Registry.Mu.Lock()
		if r := s.Registry.Live[run]; r != nil && r.Chat == fact.Chat.Chat && r.Expired(0) && r.Turn.Load() < fact.Rewind {
			s.Registry.Unlist(r)
		}
		s.Registry.Mu.Unlock()
		if head, lines := s.EndStore.Find(fact.Chat.Chat, run); len(lines) > 0 && head.Turn < fact.Rewind {
			err := errors.Join(s.EndStore.RemoveRun(fact.Chat.Chat, run),
				s.EndStore.RemoveRun(fact.Chat.Chat, node.CallsFile+run))
			if err != nil {
				return err
			}
		}
	}
	if err := s.Sessions.Remove(fact.Chat.Chat); err != nil {
		return err
	}
	s.Follower.Mu.Lock()
	defer s.Follower.Mu.Unlock()
	maps.Copy(s.Follower.Applied, names)
	return nil
}

// followRewinds applies the rewinds of other processes that this one was not told of.
func (s *Rewinder) followRewinds(ctx context.Context, turns map[string]int64) error {
	facts := map[memory.Chat]map[int64]*rewound{}
	s.Follower.Mu.Lock()
	for name, turn := range turns {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn <= s.Follower.Applied[name] {
			continue
		}
		if facts[chat] == nil {
			facts[chat] = map[int64]*rewound{}
		}
		if facts[chat][turn] == nil {
			facts[chat][turn] = &rewound{Chat: memory.StoredChat{Chat: chat}, Turn: turn, Rewind: turn}
		}
		facts[chat][turn].Runs = append(facts[chat][turn].Runs, run)
	}
	s.Follower.Mu.Unlock()
	for _, byTurn := range facts {
		for _, fact := range byTurn {
			if err := s.applyRewound(ctx, *fact); err != nil {
				return err
			}
		}
	}
	return nil
}

// RewindsOf is RewoundSince for the runs of a chat, with what Redis knows and this process was not told yet.
func (s *Rewinder) RewindsOf(ctx context.Context, chat memory.Chat) (func(run string, turn int64) bool, error) {
	s.Follower.Mu.Lock()
	startTurn := s.Follower.StartTurn
	s.Follower.Mu.Unlock()
	turns, err := s.Store.Erasures.ListSince(ctx, startTurn)
	return func(run string, turn int64) bool {
		name := erasures.Rewound(chat, strings.TrimSuffix(run, memory.ClosingSuffix))
		return turns[name] > turn || s.RewoundSince(chat, run, turn)
	}, err
}

// restoreRewinds takes back once more what rewinds took back of which Redis does not know any more.
func (s *Rewinder) restoreRewinds(ctx context.Context) error {
	recorded, err := s.Follower.File.Turns()
	if err != nil {
		return err
	}
	stored, err := s.Store.Erasures.ListSince(ctx, 0)
	if err != nil {
		return err
	}
	oldest := time.Now().Add(-erasures.Life).UnixMilli()
	forgotten := map[memory.Chat]map[string]int64{}
	for name, turn := range recorded {
		chat, run, ok := erasures.RewoundOf(name)
		if !ok || turn < oldest || turn <= stored[name] {
			continue
		}
		if recorded[erasures.Restored(chat, strconv.FormatInt(turn, 10))] > 0 {
			continue
		}
		if forgotten[chat] == nil {
			forgotten[chat] = map[string]int64{}
		}
		forgotten[chat][run] = turn
	}
	for chat, runs := range forgotten {
		if err := s.rewindAgain(ctx, chat, runs); err != nil {
			return err
		}
	}
	return nil
}

// rewindAgain takes back what runs said before a turn.
func (s *Rewinder) rewindAgain(ctx context.Context, chat memory.Chat, runs map[string]int64) error {
	keys, err := s.Store.Chats.Keys(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	loaded := make([]*memory.History, 0, len(keys))
	for _, key := range keys {
		loaded = append(loaded, memory.Empty(key))
	}
	if loaded, err = s.Store.Load(ctx, 0, loaded...); err != nil {
		return err
	}
	cut, byTurn := int64(0), map[int64][]string{}
	for run, turn := range runs {
		cut = max(cut, turn)
		byTurn[turn] = append(byTurn[turn], erasures.Rewound(chat, run))
	}
	for _, h := range loaded {
		_, err := s.Store.Rewinds.TakeBack(ctx, 0, cut, h, s.Cfg.MaxHistory, func(id string, raw json.RawMessage) bool {
			msg, _ := past.HeadOf(raw)
			return runs[memory.RunOf(id)] > 0 && msg.Timestamp*1000 < float64(runs[memory.RunOf(id)])
		}, past.Heads(nil).ContainsNone(past.NoID), past.Heads(nil).ContainsOnly(past.NoID))
		if err != nil {
			return err
		}
	}
	err = s.takeBackBeside(ctx, redisstore.NoTurn, chat, keys, func(n memory.Note) bool {
		return runs[memory.RunOf(n.Message)] > 0 && n.TS*1000 < float64(runs[memory.RunOf(n.Message)])
	}, slices.Collect(maps.Keys(runs)))
	if err != nil {
		return err
	}
	for turn, names := range byTurn {
		if err := s.NoteAll(ctx, turn, names); err != nil {
			return err
		}
	}
	return nil
}

// dropRewound deletes all that is set aside of a chat, which holds words of any of its histories.
func (s *Rewinder) dropRewound(ctx context.Context, chat memory.Chat) error {
	return s.Store.Rewinds.Drop(ctx, chat, math.MaxInt64, 0)
}
