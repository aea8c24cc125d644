package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/webmemory"
)

func TestAnErasureReachesTheColdStore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	w.rich("1")
	w.restful("1")
	w.asleep("1")
	require.Equal(t, []string{name}, s.names(t, cold.Chats))
	data, err := s.Store.Get(ctx, name)
	require.NoError(t, err)

	s.away.Store(true)
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 503, got.status, string(got.body))
	require.Contains(t, got.problem(t).Message, "cold store")
	require.NoError(t, w.look.ZScore(ctx, "mneme:cold", "1").Err(), "nothing is changed")
	require.Equal(t, 503, w.do("GET", "/v1/chats/1/history", nil).status)
	got = w.do("POST", "/chat", `{"chat_id":"1","message":"hi"}`, "Content-Type", "application/json")
	require.Equal(t, 503, got.status, string(got.body))
	s.away.Store(false)

	// It is open until the object is gone.
	gone := func(op, _ string) error {
		if op == "delete" {
			return errAway
		}
		return nil
	}
	s.before.Store(&gone)
	require.Equal(t, 503, w.do("DELETE", "/v1/chats/1", nil).status)
	require.NotEmpty(t, w.look.HGet(ctx, "{chat_history:1}:meta", "pending").Val())
	s.before.Store(nil)
	got = w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Empty(t, w.keysOf("1"))
	require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "1").Err())

	w.rich("2")
	w.restful("2")
	w.asleep("2")
	got = w.do("DELETE", "/v1/chats/2", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), cold.Name(cold.Chats, memory.MustChat("2")), "what is erased names the object")

	// A sweeper that was paused since before the erasure brings nothing back.
	require.NoError(t, s.Store.Put(ctx, name, data))
	require.NoError(t, w.look.FlushAll(ctx).Err())
	got = w.do("GET", "/v1/chats/1/history", nil)
	require.NotContains(t, string(got.body), "question")
	require.Empty(t, s.names(t, cold.Chats))
}

// A redaction, a rewind and the erasure of a history take out of the store what it has of the chat.
func TestWhatIsTakenAwayLeavesTheColdStore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	for i, way := range []func(chat, id string) answer{
		func(chat, id string) answer { return w.do("DELETE", "/v1/chats/"+chat+"/messages/"+id, nil) },
		func(chat, id string) answer {
			return w.do("POST", "/v1/chats/"+chat+"/rewind", `{"to":"`+id+`"}`, "Content-Type", "application/json")
		},
		func(chat, _ string) answer {
			return w.do("DELETE", "/v1/chats/"+chat+"/subagents/analytic/history", nil)
		},
	} {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"}).status)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"secret"}).status)
		w.restful(chat)
		w.asleep(chat)
		require.Len(t, s.names(t, cold.Chats), 1)
		var page struct {
			Messages []struct{ ID string }
		}
		require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/"+chat+"/history", nil).body, &page))
		require.Len(t, s.names(t, cold.Chats), 1, "it stays as it was")
		got := way(chat, page.Messages[1].ID)
		require.Equal(t, 200, got.status, string(got.body))
		require.Empty(t, s.names(t, cold.Chats), chat)
	}
}

// A tenant's sleeping chats are in its export, and go when it is erased.
func TestChatsOfATenantSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"))
	w.putApiserver(forTenants(w.runs.Handler()))
	store := access.NewStore(w.look)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	text, _, err := store.Create(ctx, access.Key{Name: "bot", Tenant: acme, Scopes: access.Scopes})
	require.NoError(t, err)
	operator, _, err := store.Create(ctx, access.Key{Name: "operator", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	w.url = w.process(sleepy(s, wakeful), func(c *webmemory.Config) {
		keys := access.NewAuthenticator(nil, store, zerolog.Nop())
		t.Cleanup(func() { _ = keys.Close() })
		c.Gate, c.Keys = &access.Gate{Keys: keys, Secret: strings.Repeat("s", 32)}, store
		c.Usage, c.Audit = tally.New(w.look, time.Hour), audit.New(w.look)
	})
	for _, chat := range []string{"t1", "t2"} {
		got := w.do("POST", "/v1/chats/"+chat+"/messages", message{"rosebud " + chat}, "Authorization", "Bearer "+text)
		require.Equal(t, 200, got.status, string(got.body))
	}
	require.NoError(t, w.look.ZAdd(ctx, "mneme:tenants", redis.Z{Score: 1, Member: "acme"}).Err()) // its key was used
	sleep := func(chat string) {
		long := float64(time.Now().Add(-2 * wakeful).UnixMilli())
		require.NoError(t, w.look.HSet(ctx, "{chat_history:acme/"+chat+"}:meta", "turn", int64(long)).Err())
		require.NoError(t, w.look.ZAddXX(ctx, "mneme:chats:acme", redis.Z{Score: long, Member: chat}).Err())
		eventually(t, "the chat sleeps", func() bool {
			return w.look.ZScore(ctx, "mneme:cold:acme", chat).Err() == nil && len(w.keysOf("acme/"+chat)) == 0
		})
	}
	sleep("t1")
	got := w.do("GET", "/v1/tenants/acme/export", nil, "Authorization", "Bearer "+operator)
	require.Equal(t, 200, got.status)
	require.Contains(t, string(got.body), "rosebud t1")
	require.Contains(t, string(got.body), "rosebud t2")
	sleep("t2")
	for erased := (struct{ Done bool }{}); !erased.Done; {
		got := w.do("DELETE", "/v1/tenants/acme", nil, "Authorization", "Bearer "+operator)
		require.Equal(t, 200, got.status, "%s", got.body)
		require.NoError(t, json.Unmarshal(got.body, &erased))
	}
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.look.Exists(ctx, "mneme:cold:acme").Val())
}
