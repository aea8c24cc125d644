package redisstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// runSuite runs the tests that every memory.Store passes. stores returns two clients of one place, as two processes
// have them, with nothing stored.
func runSuite(t *testing.T, stores func(t *testing.T) (one, two memory.Store)) {
	for name, test := range map[string]func(*testing.T, memory.Store, memory.Store){
		"what is appended is loaded":                           appended,
		"an event applied twice is one message":                twice,
		"an older turn cannot write":                           fenced,
		"an older turn cannot write where it has not looked":   fencedUnseen,
		"a stale copy loses nothing":                           stale,
		"concurrent writers lose nothing":                      concurrent,
		"a current copy comes back itself":                     proven,
		"erased stays erased":                                  erased,
		"late appends die on the tombstone":                    tombstone,
		"a new turn writes again after an erasure":             reborn,
		"keys that look alike are apart":                       alike,
		"a cancelled call is an error, never an empty history": cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			one, two := stores(t)
			test(t, one, two)
		})
	}
}

var (
	chatKey  = memory.ChatKey(memory.MustChat("12345"))
	agentKey = memory.SubagentKey("analytic", memory.MustChat("12345"))
)

func user(text string) []byte {
	return memory.Message{Role: memory.RoleUser, Content: text, Timestamp: 1763711157.25}.Encode()
}

func load(t *testing.T, s memory.Store, turn int64, key memory.Key) *memory.History {
	t.Helper()
	h, err := s.Load(ctx, turn, memory.Empty(key))
	require.NoError(t, err)
	require.Len(t, h, 1)
	return h[0]
}

func texts(t *testing.T, h *memory.History) []string {
	t.Helper()
	messages, err := h.Messages(0)
	require.NoError(t, err)
	out := []string{}
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return out
}

func add(t *testing.T, s memory.Store, h *memory.History, mark memory.Mark, text string) *memory.History {
	t.Helper()
	h, err := s.Append(ctx, h, mark, user(text))
	require.NoError(t, err)
	return h
}

func appended(t *testing.T, one, two memory.Store) {
	h := load(t, one, 7, agentKey)
	require.Zero(t, h.Len())
	h = add(t, one, h, memory.Mark{Run: "r", Seq: 1, Turn: 7}, "меня зовут <Алия> & co")
	add(t, one, h, memory.Mark{Run: "r", Seq: 2, Turn: 7}, "second")
	found := load(t, two, 0, agentKey)
	require.Equal(t, []string{"меня зовут <Алия> & co", "second"}, texts(t, found))
	require.True(t, json.Valid(found.JSON()))
	require.NotContains(t, string(found.JSON()), `\u003c`, "no HTML escaping")
}

func twice(t *testing.T, one, two memory.Store) {
	h := load(t, one, 7, chatKey)
	first := memory.Mark{Run: "r", Seq: 1, Turn: 7}
	add(t, one, h, first, "hello")
	add(t, one, h, first, "hello") // the same copy, as a re-sent command has it
	grown := add(t, two, load(t, two, 7, chatKey), memory.Mark{Run: "r", Seq: 3, Turn: 7}, "more")
	again := add(t, two, grown, first, "hello")
	require.Equal(t, []string{"hello", "more"}, texts(t, again), "the current history comes back")
	require.Equal(t, []string{"hello", "more"}, texts(t, load(t, one, 0, chatKey)))
}

func fenced(t *testing.T, one, two memory.Store) {
	old := add(t, one, load(t, one, 7, chatKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "old")
	load(t, two, 8, chatKey)
	_, err := one.Append(ctx, old, memory.Mark{Run: "a", Seq: 2, Turn: 7}, user("zombie"))
	require.ErrorIs(t, err, memory.ErrMoved)
	_, err = one.Load(ctx, 7, memory.Empty(chatKey))
	require.ErrorIs(t, err, memory.ErrMoved)
	require.Equal(t, []string{"old"}, texts(t, load(t, two, 0, chatKey)))
	// What was applied stays a success, whichever process has the turn by then.
	_, err = one.Append(ctx, memory.Empty(chatKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, user("old"))
	if err != nil {
		require.ErrorIs(t, err, memory.ErrMoved)
	}
}

func fencedUnseen(t *testing.T, one, two memory.Store) {
	load(t, two, 8, agentKey)
	_, err := one.Append(ctx, memory.Empty(agentKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, user("zombie"))
	require.ErrorIs(t, err, memory.ErrMoved)
	require.Zero(t, load(t, two, 0, agentKey).Len())
}

func stale(t *testing.T, one, two memory.Store) {
	h := add(t, one, load(t, one, 7, chatKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "1")
	add(t, two, load(t, two, 7, chatKey), memory.Mark{Run: "b", Seq: 1, Turn: 7}, "2")
	h = add(t, one, h, memory.Mark{Run: "a", Seq: 2, Turn: 7}, "3")
	require.Equal(t, []string{"1", "2", "3"}, texts(t, h))
}

func concurrent(t *testing.T, one, two memory.Store) {
	const writers, messages = 8, 20
	var all sync.WaitGroup
	for w := range writers {
		store := one
		if w%2 == 1 {
			store = two
		}
		all.Go(func() {
			h := memory.Empty(chatKey)
			for n := range messages {
				var err error
				mark := memory.Mark{Run: fmt.Sprintf("run%d", w), Seq: int64(n + 1), Turn: 7}
				for {
					// Contention may use up one call's attempts; the mark makes trying again safe.
					grown, failed := store.Append(ctx, h, mark, user(fmt.Sprintf("%d-%d", w, n)))
					if err = failed; err == nil {
						h = grown
						break
					}
					if !isUnavailable(err) {
						t.Errorf("append: %v", err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	got := texts(t, load(t, one, 0, chatKey))
	require.Len(t, got, writers*messages)
	next := map[string]int{}
	for _, text := range got {
		var w, n int
		_, err := fmt.Sscanf(text, "%d-%d", &w, &n)
		require.NoError(t, err)
		require.Equal(t, next[fmt.Sprint(w)], n, "each writer's messages keep their order")
		next[fmt.Sprint(w)]++
	}
}

func proven(t *testing.T, one, two memory.Store) {
	h := add(t, one, load(t, one, 7, chatKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "1")
	same, err := one.Load(ctx, 8, h)
	require.NoError(t, err)
	require.Same(t, h, same[0], "no bytes move for a copy that is proven")
	add(t, two, load(t, two, 8, chatKey), memory.Mark{Run: "b", Seq: 1, Turn: 8}, "2")
	grown, err := one.Load(ctx, 8, h)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, texts(t, grown[0]))
}

func erased(t *testing.T, one, two memory.Store) {
	h := add(t, one, load(t, one, 7, agentKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "secret")
	_, err := two.Load(ctx, 7, memory.Empty(agentKey)) // a copy over there
	require.NoError(t, err)
	require.NoError(t, one.Erase(ctx, 8, agentKey))
	for _, s := range []memory.Store{one, two} {
		again, err := s.Load(ctx, 9, h) // with the very copy at hand
		require.NoError(t, err)
		require.Zero(t, again[0].Len())
	}
}

func tombstone(t *testing.T, one, two memory.Store) {
	h := add(t, one, load(t, one, 7, agentKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "secret")
	require.NoError(t, two.Erase(ctx, 8, agentKey))
	_, err := one.Append(ctx, h, memory.Mark{Run: "a", Seq: 2, Turn: 7}, user("late"))
	require.ErrorIs(t, err, memory.ErrMoved)
	require.ErrorIs(t, one.Erase(ctx, 7, agentKey), memory.ErrMoved, "an older turn cannot erase either")
	require.Zero(t, load(t, one, 9, agentKey).Len())
}

func reborn(t *testing.T, one, two memory.Store) {
	add(t, one, load(t, one, 7, agentKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "before")
	require.NoError(t, one.Erase(ctx, 8, agentKey))
	add(t, two, load(t, two, 9, agentKey), memory.Mark{Run: "b", Seq: 1, Turn: 9}, "after")
	require.Equal(t, []string{"after"}, texts(t, load(t, one, 0, agentKey)))
}

func alike(t *testing.T, one, _ memory.Store) {
	keys := []memory.Key{
		memory.ChatKey(memory.MustChat("1")), memory.ChatKey(memory.MustChat("x:1")),
		memory.SubagentKey("a", memory.MustChat("1")), memory.SubagentKey("a", memory.MustChat("x:1")),
		memory.SubagentKey("a-b", memory.MustChat("1")),
	}
	for i, key := range keys {
		add(t, one, load(t, one, 7, key), memory.Mark{Run: "r", Seq: 1, Turn: 7}, fmt.Sprint(i))
	}
	require.NoError(t, one.Erase(ctx, 8, keys[2]))
	for i, key := range keys {
		want := []string{fmt.Sprint(i)}
		if i == 2 {
			want = []string{}
		}
		require.Equal(t, want, texts(t, load(t, one, 0, key)), key.String())
	}
}

func cancelled(t *testing.T, one, _ memory.Store) {
	h := add(t, one, load(t, one, 7, chatKey), memory.Mark{Run: "a", Seq: 1, Turn: 7}, "1")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := one.Load(gone, 8, memory.Empty(chatKey))
	require.ErrorIs(t, err, memory.ErrUnavailable)
	_, err = one.Append(gone, h, memory.Mark{Run: "a", Seq: 2, Turn: 7}, user("2"))
	require.ErrorIs(t, err, memory.ErrUnavailable)
}

func isUnavailable(err error) bool { return errors.Is(err, memory.ErrUnavailable) }
