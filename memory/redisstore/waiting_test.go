package redisstore_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/redisstore"
)

func TestARunIsSuspendedAndReopened(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	suspends(t, redisstore.New(client, zerolog.Nop()), client)
}

func clusterWaiting(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	suspends(t, s, cluster.Client())
}

// The address of a run is read as it was written by a process that has the services' secret, and by no other.
func TestTheAddressOfARunIsSealed(t *testing.T) {
	const at = "http://replica:8081/v1/runs/r/events"
	client := redistest.Start(t).Client()
	s := redisstore.New(client, zerolog.Nop())
	s.Secret = "secret"
	chat := memory.MustChat("1")
	turn, err := s.Turns.Take(ctx, chat, "one", "c", time.Minute)
	require.NoError(t, err)
	run := redisstore.OpenRun{Run: "r", Turn: turn.Number, Body: "b", Events: at}
	_, err = s.Turns.Open(ctx, chat, "one", time.Minute, run)
	require.NoError(t, err)
	for secret, want := range map[string]string{"secret": at, "another": "", "": ""} {
		reader := redisstore.New(client, zerolog.Nop())
		reader.Secret = secret
		got, err := reader.Turns.OpenRun(ctx, chat)
		require.NoError(t, err)
		run.Events = want
		require.Equal(t, run, *got, "with the secret %q", secret)
	}
}

// A lease that is taken again after a loss has its run as it was noted before, with its address.
func TestARunThatIsRegainedHasItsAddress(t *testing.T) {
	client := redistest.Start(t).Client()
	s := redisstore.New(client, zerolog.Nop())
	s.Secret = "secret"
	chat := memory.MustChat("1")
	turn, err := s.Turns.Take(ctx, chat, "one", "c", time.Minute)
	require.NoError(t, err)
	run := redisstore.OpenRun{Run: "r", Turn: turn.Number, Body: "b", Events: "http://replica:8081/v1/runs/r/events"}
	_, err = s.Turns.Open(ctx, chat, "one", time.Minute, run)
	require.NoError(t, err)
	noted := client.HGet(ctx, "{chat_history:1}:meta", "open").Val()
	require.NoError(t, client.FlushAll(ctx).Err())
	held, err := s.Turns.Regain(ctx, chat, "one", time.Minute, turn, &run)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, noted, client.HGet(ctx, "{chat_history:1}:meta", "open").Val())
	got, err := s.Turns.OpenRun(ctx, chat)
	require.NoError(t, err)
	require.Equal(t, run, *got)
}

// What a run goes on from names its address under the seal that the open run has: one that was written without it, by
// a foreign program or by a version before, is not followed, and all else is read.
func TestTheAddressOfARunThatWaitsIsSealed(t *testing.T) {
	client := redistest.Start(t).Client()
	s := redisstore.New(client, zerolog.Nop())
	s.Secret = "secret"
	chat := memory.MustChat("1")
	turn, err := s.Turns.Take(ctx, chat, "one", "c", time.Minute)
	require.NoError(t, err)
	run := redisstore.OpenRun{Run: "r", Turn: turn.Number, Body: "b", Events: "http://replica:8081/v1/runs/r/events"}
	rest := redisstore.Rest{Run: "r", Until: time.Now().Add(time.Hour).UnixMilli()}
	require.NoError(t, s.Suspensions.SaveState(ctx, chat, "one",
		&redisstore.Waiting{Rest: rest, Seq: 1, State: []byte(`{}`), Open: run}))
	kept := func() redisstore.OpenRun {
		t.Helper()
		got, err := s.Suspensions.State(ctx, chat, "r")
		require.NoError(t, err)
		require.NotNil(t, got)
		return got.Open
	}
	require.Equal(t, run, kept())
	for _, at := range []string{"http://elsewhere/v1/runs/r/events", run.Events} {
		foreign := run
		foreign.Events = at
		record, err := json.Marshal(foreign)
		require.NoError(t, err)
		require.NoError(t, client.HSet(ctx, "{chat_history:1}:waiting", "open", record).Err())
		foreign.Events = ""
		require.Equal(t, foreign, kept())
	}
}

// suspends takes runs of some chats, in any slots, from their turns to a wait and back.
func suspends(t *testing.T, s *redisstore.Store, client redis.UniversalClient) {
	expires := time.Now().Add(time.Hour).UnixMilli()
	for i := range 20 {
		chat := memory.MustChat(fmt.Sprint("chat", i))
		turn, err := s.Turns.Take(ctx, chat, "one", "c", time.Minute)
		require.NoError(t, err)
		open := redisstore.OpenRun{Run: "r2", Turn: turn.Number, Body: "b", First: "r"}
		_, err = s.Runs.Begin(ctx, chat, "r2", "b")
		require.NoError(t, err)
		_, err = s.Turns.Open(ctx, chat, "one", time.Minute, open)
		require.NoError(t, err)
		_, err = s.Runs.Log(ctx, chat, "r2", true, redisstore.Logged{Seq: 1, Line: []byte(`{}`)})
		require.NoError(t, err)

		word, _, err := s.Runs.Claim(ctx, chat, "one", turn.Number, "r", "call", redisstore.Call{Tool: "t"}, false)
		require.NoError(t, err)
		require.Equal(t, memory.CallGranted, word)
		word, _, err = s.Runs.Claim(ctx, chat, "one", turn.Number, "r", "call", redisstore.Call{Tool: "t"}, false)
		require.NoError(t, err)
		require.Equal(t, memory.CallUnknown, word)
		for _, other := range []struct {
			token string
			turn  int64
		}{{"two", turn.Number}, {"one", turn.Number - 1}, {"one", turn.Number + 1}} {
			_, _, err = s.Runs.Claim(ctx, chat, other.token, other.turn, "r", "more", redisstore.Call{}, false)
			require.ErrorIs(t, err, memory.ErrMoved)
		}
		_, err = s.Runs.Settle(ctx, chat, turn.Number-1, "r", "call", []byte("late"))
		require.ErrorIs(t, err, memory.ErrMoved)
		kept, err := s.Runs.Settle(ctx, chat, turn.Number, "r", "call", []byte("result"))
		require.NoError(t, err)
		require.True(t, kept)

		w := &redisstore.Waiting{Seq: 1, Event: []byte(`{}`), State: []byte(`{"step":1}`), Open: open,
			Rest: redisstore.Rest{Run: "r2", Turn: turn.Number, First: expires + int64(i), Until: expires + 100}}
		require.ErrorIs(t, s.Suspensions.SaveState(ctx, chat, "two", w), memory.ErrMoved)
		require.ErrorIs(t, s.Suspensions.Suspend(ctx, chat, "one", w), redisstore.ErrStateLost, "the state comes first")
		require.NoError(t, s.Suspensions.SaveState(ctx, chat, "one", w))
		require.ErrorIs(t, s.Suspensions.Suspend(ctx, chat, "two", w), memory.ErrMoved)
		none, err := s.Suspensions.Waiting(ctx, chat)
		require.NoError(t, err)
		require.Nil(t, none, "it is not in force yet")
		require.NoError(t, s.Suspensions.Suspend(ctx, chat, "one", w))
		found, err := s.Suspensions.Waiting(ctx, chat)
		require.NoError(t, err)
		require.Equal(t, w, found)
		for _, key := range []string{"events:" + chat.String() + ":r2", "run:" + chat.String() + ":r2",
			"{chat_history:" + chat.String() + "}:waiting", "{chat_history:" + chat.String() + "}:calls:r"} {
			at, err := client.PTTL(ctx, key).Result()
			require.NoError(t, err)
			require.InDelta(t, time.Hour, at, float64(time.Minute), key)
		}

		turn, err = s.Turns.Take(ctx, chat, "two", "c", time.Minute)
		require.NoError(t, err)
		require.Nil(t, turn.Open)
		require.Equal(t, &w.Rest, turn.Waiting)
		if i%2 == 0 { // another one's work, such as a note
			require.NoError(t, s.Suspensions.Release(ctx, chat, "two", *turn.Waiting))
			continue
		}
		open.Turn = turn.Number
		require.ErrorIs(t, s.Suspensions.Reopen(ctx, chat, "one", time.Minute, open), memory.ErrMoved)
		require.NoError(t, s.Suspensions.Reopen(ctx, chat, "two", time.Minute, open))
		require.ErrorIs(t, s.Suspensions.Reopen(ctx, chat, "two", time.Minute, open), redisstore.ErrStateLost)
		word, result, err := s.Runs.Claim(ctx, chat, "two", turn.Number, "r", "call", redisstore.Call{}, false)
		require.NoError(t, err)
		require.Equal(t, memory.CallDone, word)
		require.Equal(t, "result", string(result))
		require.NoError(t, s.Suspensions.Approve(ctx, chat, turn.Number, "crm/refund", "crm/pay"))
		require.NoError(t, s.Suspensions.Approve(ctx, chat, turn.Number, "crm/pay", "a \"b\""))
		tools, err := s.Suspensions.Approved(ctx, chat)
		require.NoError(t, err)
		require.Equal(t, []string{"crm/refund", "crm/pay", "a \"b\""}, tools)
		require.NoError(t, s.Turns.Close(ctx, chat, "two", "r2", "r", true))
		state, err := s.Suspensions.State(ctx, chat, "r2")
		require.NoError(t, err)
		require.Nil(t, state)
	}
	chats, waiting, next, err := s.Suspensions.List(ctx, memory.Tenant{}, "", 100)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, chats, 10)
	require.Equal(t, "chat18", chats[9].String())
	require.Equal(t, "r2", waiting[9].Run)
	require.Empty(t, waiting[9].State, "a list does not read states")
	for _, chat := range chats {
		require.NoError(t, s.Runs.Erase(ctx, chat))
	}
	chats, _, _, err = s.Suspensions.List(ctx, memory.Tenant{}, "", 100)
	require.NoError(t, err)
	require.Empty(t, chats)
	left, err := s.Turns.Abandoned(ctx)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A run that comes to its end while a process looks whether it waits is not taken for one of which
// the memory lost what it goes on from.
func TestARunThatEndsIsNotLost(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := t.Context()
	client := redistest.Start(t).Client()
	s := redisstore.New(client, zerolog.Nop())
	chat := memory.MustChat("chat")
	stop, looked := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				looked <- nil
				return
			default:
			}
			if _, err := s.Suspensions.Waiting(ctx, chat); err != nil {
				looked <- err
				return
			}
		}
	}()
	until := time.Now().Add(time.Hour).UnixMilli()
	for i := range 300 {
		run, token := fmt.Sprint("r", i), fmt.Sprint("t", i)
		turn, err := s.Turns.Take(ctx, chat, token, "c", time.Minute)
		require.NoError(t, err)
		open := redisstore.OpenRun{Run: run, Turn: turn.Number, Body: "b"}
		_, err = s.Turns.Open(ctx, chat, token, time.Minute, open)
		require.NoError(t, err)
		w := &redisstore.Waiting{Seq: 1, Event: []byte(`{}`), State: []byte(`{}`), Open: open,
			Rest: redisstore.Rest{Run: run, Turn: turn.Number, First: until, Until: until}}
		require.NoError(t, s.Suspensions.SaveState(ctx, chat, token, w))
		require.NoError(t, s.Suspensions.Suspend(ctx, chat, token, w))
		_, err = s.Turns.Take(ctx, chat, token, "c", time.Minute)
		require.NoError(t, err)
		require.NoError(t, s.Turns.Close(ctx, chat, token, run, "", true))
	}
	close(stop)
	require.NoError(t, <-looked)
}
