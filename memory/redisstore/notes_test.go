package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// notes is the Redis key of a history's notes.
var notes = "{" + key.String() + "}:notes"

func adding(n memory.Note) func([]memory.Note) ([]memory.Note, error) {
	return func(all []memory.Note) ([]memory.Note, error) { return append(all, n), nil }
}

// notesOf are the texts of a history's notes.
func notesOf(t *testing.T, s *redisstore.Store, key memory.Key) (texts []string) {
	t.Helper()
	all, err := s.Notes.Read(ctx, key)
	require.NoError(t, err)
	for _, n := range all[0] {
		texts = append(texts, n.Text)
	}
	return texts
}

// Notes are one JSON array that redis-cli shows, of a subagent also before its first message;
// the chat's meta says that there are some.
func TestNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chat := memory.ChatKey(key.Chat())
	require.Empty(t, notesOf(t, w.Store, key))
	n := memory.Note{ID: "n1", Text: "Aliya <ё> & co", State: memory.NoteActive, Author: memory.ByUser, Message: "r.1",
		TS: 7.5}
	require.NoError(t, w.Notes.Change(ctx, 5, key, adding(n)))
	require.NoError(t, w.Notes.Change(ctx, 5, chat, adding(memory.Note{ID: "n2", Text: "b", TS: 8})))
	require.Equal(t, `[{"id":"n1","text":"Aliya <ё> & co","state":"active","by":"user","message":"r.1","ts":7.5}]`,
		w.redis.Get(ctx, notes).Val())
	found, err := w.Notes.Read(ctx, chat, key, memory.ChatKey(memory.MustChat("other")))
	require.NoError(t, err)
	require.Equal(t, []memory.Note{n}, found[1])
	require.Equal(t, "b", found[0][0].Text)
	require.Empty(t, found[2])

	take, err := w.Turns.Take(ctx, key.Chat(), "token", "c", time.Minute)
	require.NoError(t, err)
	require.Equal(t, []memory.Agent{"analytic"}, take.Agents)
	loss, err := w.Turns.Open(ctx, key.Chat(), "token", time.Minute, redisstore.OpenRun{Run: "r"})
	require.NoError(t, err)
	require.True(t, loss.Notes)
	stored, err := w.Chats.Histories(ctx, key.Chat())
	require.NoError(t, err)
	require.Equal(t, []redisstore.Stored{{Key: chat, Notes: 1, NotesBytes: 50}, {Key: key, Notes: 1, NotesBytes: 92}},
		stored)

	require.ErrorIs(t, w.Notes.Change(ctx, 4, chat, adding(n)), memory.ErrMoved, "of an earlier turn")
	boom := errors.New("no")
	require.ErrorIs(t, w.Notes.Change(ctx, take.Number, key,
		func([]memory.Note) ([]memory.Note, error) { return nil, boom }), boom)
	require.Equal(t, []string{"b"}, notesOf(t, w.Store, chat))

	gone, err := w.Notes.Void(ctx, take.Number, key, func(n memory.Note) bool { return n.Message == "r.1" })
	require.NoError(t, err)
	require.Equal(t, 1, gone)
	require.Zero(t, w.redis.Exists(ctx, notes).Val())
}

// Of two processes that change notes at the same time neither takes away what the other added.
func TestNotesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := redisstore.New(w.redis, zerolog.Nop())
	var adding sync.WaitGroup
	for i, s := range []*redisstore.Store{w.Store, other, w.Store, other} {
		adding.Go(func() {
			for j := range 10 {
				n := memory.Note{ID: fmt.Sprint(i, j), Text: fmt.Sprint(i, j)}
				require.NoError(t, s.Notes.Change(ctx, 5, key,
					func(all []memory.Note) ([]memory.Note, error) { return append(all, n), nil }))
			}
		})
	}
	adding.Wait()
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(notesOf(t, w.Store, key)))), 40)
}

// An erasure takes the notes along, and one that Redis has forgotten takes them once more;
// those that were made since stay.
func TestAnErasureTakesTheNotes(t *testing.T) {
	t.Parallel()
	for name, erase := range map[string]func(w world) error{
		"a history": func(w world) error { return w.Erase(ctx, 60_000, key) },
		"a chat":    func(w world) error { return w.EraseChat(ctx, 60_000, key.Chat(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, w.Notes.Change(ctx, 5, key, adding(memory.Note{Text: "old", TS: 5})))
			before := w.redis.Get(ctx, notes).Val()
			require.NoError(t, erase(w))
			require.Zero(t, w.redis.Exists(ctx, notes).Val())
			require.ErrorIs(t, w.Notes.Change(ctx, 5, key, adding(memory.Note{Text: "late", TS: 6})), memory.ErrMoved)

			require.NoError(t, w.redis.FlushAll(ctx).Err())
			require.NoError(t, w.redis.Set(ctx, notes, before, 0).Err())
			require.NoError(t, w.Notes.Change(ctx, 70_000, key, adding(memory.Note{Text: "new", TS: 70})))
			cut, err := w.Erasures.Cut(ctx, 60_000, key, true)
			require.NoError(t, err)
			require.True(t, cut)
			require.Equal(t, []string{"new"}, notesOf(t, w.Store, key))
			histories, _, err := w.Chats.Scan(ctx, key.Chat())
			require.NoError(t, err)
			require.Contains(t, histories, key)
		})
	}
}

// What is no list of notes is told as damaged, set aside by the next change, and goes with
// the history.
func TestDamagedNotes(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(w world) error{
		"no JSON": func(w world) error { return w.redis.Set(ctx, notes, "[{", 0).Err() },
		"a list":  func(w world) error { return w.redis.RPush(ctx, notes, "a secret").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, put(w))
			if name == "no JSON" {
				_, err := w.Notes.Read(ctx, key)
				require.ErrorIs(t, err, memory.ErrDamaged)
			}
			require.NoError(t, w.Notes.Change(ctx, 5, key, adding(memory.Note{Text: "a"})))
			require.Equal(t, []string{"a"}, notesOf(t, w.Store, key))
			require.Len(t, w.redis.Keys(ctx, "*damaged*").Val(), 1)
			require.NoError(t, w.Erase(ctx, 6, key))
			require.Empty(t, w.redis.Keys(ctx, "*damaged*").Val())
		})
	}
}

// A chat's notes are in the slots of its histories.
func TestNotesOverACluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := redisstore.New(redistest.StartCluster(t).Client(), zerolog.Nop())
	for i := range 5 {
		key := memory.SubagentKey("analytic", memory.MustChat(fmt.Sprint(i)))
		require.NoError(t, s.Notes.Change(ctx, 5, key, adding(memory.Note{Text: "a"})))
		require.Equal(t, []string{"a"}, notesOf(t, s, key))
		require.NoError(t, s.EraseChat(ctx, 6, key.Chat(), key))
		require.Empty(t, notesOf(t, s, key))
	}
}
