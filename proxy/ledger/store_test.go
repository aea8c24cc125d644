package ledger_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
)

func numbered(s ledger.Scope, i int) ledger.Turn {
	turn := answer(s, opus, content(thinking(fmt.Sprint("thought ", i), fmt.Sprint("sig", i)),
		text(fmt.Sprint("answer ", i))))
	turn.Time = time.Unix(int64(1_700_000_000+i), 0)
	turn.Place = nil // of a tree, many roots would go
	return turn
}

func chat(i int) ledger.Scope {
	return ledger.Scope{Tenant: alice.Tenant, Route: "main", Conversation: fmt.Sprint("chat", i)}
}

func holds(t require.TestingT, l *ledger.Ledger, turn ledger.Turn) bool {
	return replayOne(t, l, turn.Scope, turn.Origin, string(turn.Content)).Same
}

func TestBoundsOfAScope(t *testing.T) {
	l := memoryOnly(t, ledger.Config{ScopeTurns: 10, ScopeBytes: 100 << 10})
	for i := range 100 {
		l.Record(t.Context(), numbered(alice, i))
	}
	require.Equal(t, 10, l.Stats().Turns)
	for i := range 100 {
		require.Equal(t, i >= 90, holds(t, l, numbered(alice, i)), "turn %d", i)
	}
	big := func(i int) ledger.Turn {
		return answer(alice, opus, content(text(fmt.Sprint(i)+strings.Repeat("x", 30<<10))))
	}
	for i := range 20 {
		l.Record(t.Context(), big(i))
	}
	require.LessOrEqual(t, l.Stats().Bytes, 102<<10)
	require.True(t, holds(t, l, big(19)))
	require.False(t, holds(t, l, big(0)))

	l.Record(t.Context(), answer(alice, opus, content(text(strings.Repeat("y", 200<<10)))))
	require.True(t, holds(t, l, big(19)), "what is too big does not drive out the rest")
}

func TestBoundsInAll(t *testing.T) {
	l := memoryOnly(t, ledger.Config{Turns: 50, Bytes: 1 << 20})
	kept := numbered(alice, 0)
	l.Record(t.Context(), kept)
	for i := range 1000 {
		l.Record(t.Context(), numbered(chat(i), i))
		require.True(t, holds(t, l, kept), "what is used stays")
	}
	require.Equal(t, 50, l.Stats().Turns)
	require.True(t, holds(t, l, numbered(chat(999), 999)))
	require.False(t, holds(t, l, numbered(chat(0), 0)))

	l = memoryOnly(t, ledger.Config{Bytes: 256 << 10})
	for i := range 2000 {
		l.Record(t.Context(), numbered(chat(i), i))
		l.Refuse(t.Context(), chat(i), opus, []string{fmt.Sprint("s", i)})
		require.LessOrEqual(t, l.Stats().Bytes, 256<<10)
	}
	require.Positive(t, l.Stats().Turns)
}

func TestRefusalsAreBounded(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	key := func(i int) string { return ledger.BlockKey([]byte(thinking("", fmt.Sprint("sig", i)))) }
	for i := range 3000 {
		l.Refuse(t.Context(), alice, opus, []string{key(i), key(i)})
	}
	require.Less(t, l.Stats().Bytes, 500<<10)
	state := func(i int) ledger.State {
		return replayOne(t, l, alice, opus, content(thinking("", fmt.Sprint("sig", i)))).States[0]
	}
	require.Equal(t, ledger.Refused, state(2999))
	require.Equal(t, ledger.Unknown, state(0))
}

func TestTTL(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := memoryOnly(t, ledger.Config{TTL: time.Hour, Now: func() time.Time { return now }})
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	for range 5 {
		now = now.Add(50 * time.Minute)
		require.True(t, replayOne(t, l, alice, opus, storedTurn).Same, "it is in use")
	}
	now = now.Add(61 * time.Minute)
	require.Nil(t, replayOne(t, l, alice, opus, storedTurn).Turn)
	l.Record(t.Context(), answer(chat(1), opus, storedTurn))
	require.Equal(t, 1, l.Stats().Turns)
	now = now.Add(61 * time.Minute)
	l.Record(t.Context(), answer(chat(2), opus, storedTurn))
	require.Equal(t, 1, l.Stats().Scopes, "what nobody asks for goes too")
}

// A run waits three days for a person: its turns, and those of all of its agents, are there.
func TestAConversationIsKept(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := memoryOnly(t, ledger.Config{TTL: time.Hour, Now: func() time.Time { return now }})
	mate, other := alice, alice
	mate.Route, other.Tenant = "teammate/analytic", strings.Repeat("b", 64)
	days := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	same := func(s ledger.Scope) bool { return replayOne(t, l, s, opus, storedTurn).Same }
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	l.Record(t.Context(), answer(other, opus, storedTurn))
	until := days(3)
	for _, at := range []time.Time{until, until, days(1)} {
		require.NoError(t, l.Keep(t.Context(), alice.Tenant, alice.Conversation, at))
	}
	l.Record(t.Context(), answer(mate, opus, storedTurn))
	now = until.Add(-time.Second)
	l.Record(t.Context(), answer(chat(1), opus, storedTurn)) // which drops what is too old
	require.True(t, same(alice))
	require.True(t, same(mate), "it was recorded later")
	require.False(t, same(other))
	now = until.Add(time.Hour + time.Second)
	require.False(t, same(alice), "it is as any other")

	l.Record(t.Context(), answer(alice, opus, storedTurn))
	require.NoError(t, l.Keep(t.Context(), alice.Tenant, alice.Conversation, days(3)))
	require.NoError(t, l.Forget(t.Context(), alice.Tenant, alice.Conversation))
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	now = days(1)
	require.False(t, same(alice), "an erasure ends it")
}

// Its room is needed: then it goes, as others do.
func TestAConversationThatIsKeptGoesForRoom(t *testing.T) {
	l := memoryOnly(t, ledger.Config{Turns: 10})
	l.Record(t.Context(), answer(chat(0), opus, storedTurn))
	require.NoError(t, l.Keep(t.Context(), chat(0).Tenant, chat(0).Conversation, time.Now().Add(time.Hour)))
	for i := range 10 {
		l.Record(t.Context(), answer(chat(1+i), opus, storedTurn))
	}
	require.False(t, replayOne(t, l, chat(0), opus, storedTurn).Same)
}

func TestForgetInMemory(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := memoryOnly(t, ledger.Config{Now: func() time.Time { return now }})
	mate := alice
	mate.Route = "teammate/analytic"
	other := numbered(chat(1), 1)
	l.Record(t.Context(), other)
	for _, s := range []ledger.Scope{alice, mate} {
		l.Record(t.Context(), answer(s, opus, storedTurn))
		l.Refuse(t.Context(), s, opus, []string{"tX"})
	}
	require.NoError(t, l.Forget(t.Context(), alice.Tenant, alice.Conversation))
	for _, s := range []ledger.Scope{alice, mate} {
		require.Nil(t, replayOne(t, l, s, opus, storedTurn).Turn)
	}
	require.True(t, replayOne(t, l, chat(1), other.Origin, string(other.Content)).Same)

	late := answer(alice, opus, storedTurn)
	late.Time = now.Add(-time.Second)
	l.Record(t.Context(), late)
	require.Nil(t, replayOne(t, l, alice, opus, storedTurn).Turn, "its request is older than the erasure")
	l.Record(t.Context(), answer(alice, opus, storedTurn))
	require.True(t, replayOne(t, l, alice, opus, storedTurn).Same, "the conversation may begin anew")
}

func TestManyAtATime(t *testing.T) {
	l := memoryOnly(t, ledger.Config{})
	const scopes, writers, turns = 3, 4, 25
	var writing sync.WaitGroup
	for s := range scopes {
		for w := range writers {
			writing.Go(func() {
				for i := range turns {
					l.Record(t.Context(), numbered(chat(s), w*turns+i))
				}
			})
			writing.Go(func() {
				for i := range turns {
					turn := numbered(chat(s), w*turns+i)
					got := replayOne(t, l, turn.Scope, turn.Origin, string(turn.Content))
					if got.Turn != nil && (!got.Same || got.States[0] != ledger.Proven) {
						t.Error("half a turn was seen")
					}
					l.Refuse(t.Context(), chat(s), kimi, []string{fmt.Sprint("t", w, i)})
				}
			})
		}
	}
	writing.Go(func() {
		for i := range 50 {
			if err := l.Forget(t.Context(), alice.Tenant, fmt.Sprint("gone", i)); err != nil {
				t.Error(err)
			}
			l.Stats()
		}
	})
	writing.Wait()
	for s := range scopes {
		for i := range writers * turns {
			require.True(t, holds(t, l, numbered(chat(s), i)), "turn %d of chat %d", i, s)
		}
	}
	require.Equal(t, scopes*writers*turns, l.Stats().Turns)
}
