package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/cold"
)

func TestAnErasureReachesTheColdStore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	fillChat(w, "1")
	ageChats(w, "1")
	awaitSleep(w, "1")
	require.Equal(t, []string{name}, s.names(t, cold.Chats))
	data, err := s.Store.Get(ctx, name)
	require.NoError(t, err)

	s.away.Store(true)
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 503, got.Status, string(got.Body))
	require.Contains(t, got.Problem(t).Message, "cold store")
	require.NoError(t, w.Redis.ZScore(ctx, "mneme:cold", "1").Err(), "nothing is changed")
	require.Equal(t, 503, w.Do("GET", "/v1/chats/1/history", nil).Status)
	got = w.Do("POST", "/chat", `{"chat_id":"1","message":"hi"}`, "Content-Type", "application/json")
	require.Equal(t, 503, got.Status, string(got.Body))
	s.away.Store(false)

	// It is open until the object is gone.
	gone := func(op, _ string) error {
		if op == "delete" {
			return errAway
		}
		return nil
	}
	s.before.Store(&gone)
	require.Equal(t, 503, w.Do("DELETE", "/v1/chats/1", nil).Status)
	require.NotEmpty(t, w.Redis.HGet(ctx, "{chat_history:1}:meta", "pending").Val())
	s.before.Store(nil)
	got = w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Empty(t, chatKeys(w, "1"))
	require.Equal(t, redis.Nil, w.Redis.ZScore(ctx, "mneme:cold", "1").Err())

	fillChat(w, "2")
	ageChats(w, "2")
	awaitSleep(w, "2")
	got = w.Do("DELETE", "/v1/chats/2", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), cold.Name(cold.Chats, memory.MustChat("2")), "what is erased names the object")

	// A sweeper that was paused since before the erasure brings nothing back.
	require.NoError(t, s.Store.Put(ctx, name, data))
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	got = w.Do("GET", "/v1/chats/1/history", nil)
	require.NotContains(t, string(got.Body), "question")
	require.Empty(t, s.names(t, cold.Chats))
}

// A redaction, a rewind and the erasure of a history take out of the store what it has of the chat.
func TestWhatIsTakenAwayLeavesTheColdStore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	for i, way := range []func(chat, id string) webmemorytest.Response{
		func(chat, id string) webmemorytest.Response {
			return w.Do("DELETE", "/v1/chats/"+chat+"/messages/"+id, nil)
		},
		func(chat, id string) webmemorytest.Response {
			return w.Do("POST", "/v1/chats/"+chat+"/rewind", `{"to":"`+id+`"}`, "Content-Type", "application/json")
		},
		func(chat, _ string) webmemorytest.Response {
			return w.Do("DELETE", "/v1/chats/"+chat+"/subagents/analytic/history", nil)
		},
	} {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.Post(chat, "hi").Status)
		require.Equal(t, 200, w.Post(chat, "secret").Status)
		ageChats(w, chat)
		awaitSleep(w, chat)
		require.Len(t, s.names(t, cold.Chats), 1)
		var page struct {
			Messages []struct{ ID string }
		}
		require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/"+chat+"/history", nil).Body, &page))
		require.Len(t, s.names(t, cold.Chats), 1, "it stays as it was")
		got := way(chat, page.Messages[1].ID)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Empty(t, s.names(t, cold.Chats), chat)
	}
}

// A tenant's sleeping chats are in its export, and go when it is erased.
func TestChatsOfATenantSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	w.SetApiserver(forTenants(w.Runs.Handler()))
	store, _, text, operator := createKeys(w)
	w.URL = w.StartReplica(sleepy(s, wakeful), requireKeys(w, store))
	for _, chat := range []string{"t1", "t2"} {
		got := w.Post(chat, "rosebud "+chat, "Authorization", "Bearer "+text)
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:tenants", redis.Z{Score: 1, Member: "acme"}).Err()) // its key was used
	sleep := func(chat string) {
		long := float64(time.Now().Add(-2 * wakeful).UnixMilli())
		require.NoError(t, w.Redis.HSet(ctx, "{chat_history:acme/"+chat+"}:meta", "turn", int64(long)).Err())
		require.NoError(t, w.Redis.ZAddXX(ctx, "mneme:chats:acme", redis.Z{Score: long, Member: chat}).Err())
		webmemorytest.Eventually(t, "the chat sleeps", func() bool {
			return w.Redis.ZScore(ctx, "mneme:cold:acme", chat).Err() == nil && len(chatKeys(w, "acme/"+chat)) == 0
		})
	}
	sleep("t1")
	got := w.Do("GET", "/v1/tenants/acme/export", nil, "Authorization", "Bearer "+operator)
	require.Equal(t, 200, got.Status)
	require.Contains(t, string(got.Body), "rosebud t1")
	require.Contains(t, string(got.Body), "rosebud t2")
	sleep("t2")
	for erased := (struct{ Done bool }{}); !erased.Done; {
		got := w.Do("DELETE", "/v1/tenants/acme", nil, "Authorization", "Bearer "+operator)
		require.Equal(t, 200, got.Status, "%s", got.Body)
		require.NoError(t, json.Unmarshal(got.Body, &erased))
	}
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.Redis.Exists(ctx, "mneme:cold:acme").Val())
}
