package webmemory_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

const sentinel = "Zwetschgenknödel"

// wrongs are values of every type, and how to put one under a key.
var wrongs = map[string]func(c redis.Pipeliner, key string) error{
	"string": func(c redis.Pipeliner, key string) error { return c.Set(context.Background(), key, sentinel, 0).Err() },
	"list":   func(c redis.Pipeliner, key string) error { return c.RPush(context.Background(), key, sentinel).Err() },
	"hash": func(c redis.Pipeliner, key string) error {
		fields := []any{"open", sentinel, "r:", sentinel, "s:" + sentinel, "1", "s:analytic", "x", "d:", "", "d:{" + sentinel,
			"1", "conversation", "../" + sentinel}
		for _, field := range []string{"sum", "len", "count", "turn", "applied", "erased", "adopted", "cut", "first", "body",
			"result", "newest"} {
			fields = append(fields, field, sentinel)
		}
		return c.HSet(context.Background(), key, fields...).Err()
	},
	"set": func(c redis.Pipeliner, key string) error { return c.SAdd(context.Background(), key, sentinel).Err() },
	"zset": func(c redis.Pipeliner, key string) error {
		return c.ZAdd(context.Background(), key, redis.Z{Score: 1, Member: sentinel}).Err()
	},
	"stream": func(c redis.Pipeliner, key string) error {
		return c.XAdd(context.Background(), &redis.XAddArgs{Stream: key, ID: "1-1", Values: []any{"f", sentinel}}).Err()
	},
}

// waysToAsk something of a chat.
var waysToAsk = []string{"post", "repeat", "chat", "history", "subagent", "list", "events", "delete"}

// A key of any type in the place of any of ours bricks no chat: what is asked goes
// on, nothing is said to be out of reach, what was in the way is set aside, and goes
// when the chat is erased. The ways of a type are what is asked first.
func anyTypeUnderAnyKey(t *testing.T, waysOf func(key, kind int) []string) {
	for i, key := range []string{
		"chat_history:%s", "subagent:analytic:%s", "subagent:knowledge:%s", "{chat_history:%s}:meta",
		"{subagent:analytic:%s}:meta",
		"{subagent:knowledge:%s}:meta", "{chat_history:%s}:turn", "{chat_history:%s}:first", "events:%s:%s", "run:%s:%s",
		"turns:open", "mneme:epoch", "mneme:processes", "mneme:erasures", "mneme:chats",
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, answers("hello"))
			other := w.process() // one that keeps nothing of the chats
			chat := 0
			for j, kind := range slices.Sorted(maps.Keys(wrongs)) {
				for _, first := range waysOf(i, j) {
					chat++
					id := fmt.Sprint("c", chat)
					t.Run(kind+", "+first, func(t *testing.T) {
						outer := w.t
						w.t = t
						defer func() { w.t = outer }()
						path := "/v1/chats/" + id
						got := w.do("POST", path+"/messages", message{"before"}, "Idempotency-Key", "k")
						require.Equal(t, 200, got.status, string(got.body))
						run := got.header.Get("Mneme-Run-Id")
						eventually(t, "the turn is over", func() bool {
							return w.look.Exists(context.Background(), "{chat_history:"+id+"}:turn").Val() == 0
						})
						name := key
						switch strings.Count(key, "%s") {
						case 1:
							name = fmt.Sprintf(key, id)
						case 2:
							name = fmt.Sprintf(key, id, run)
						}
						// a process may write the key at any time
						_, err := w.look.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
							p.Del(context.Background(), name)
							return wrongs[kind](p, name)
						})
						require.NoError(t, err)
						asks := map[string]func() answer{
							"post":     func() answer { return w.do("POST", path+"/messages", message{"after"}) },
							"repeat":   func() answer { return w.do("POST", path+"/messages", message{"before"}, "Idempotency-Key", "k") },
							"chat":     func() answer { return w.do("GET", path, nil) },
							"history":  func() answer { return w.do("GET", path+"/history", nil) },
							"subagent": func() answer { return w.do("GET", path+"/subagents/analytic/history", nil) },
							"list":     func() answer { return w.do("GET", "/v1/chats", nil) },
							"events":   func() answer { return w.do("GET", path+"/runs/"+run+"/events", nil, "Last-Event-ID", "1") },
							"delete":   func() answer { return w.do("DELETE", path, nil) },
						}
						fine := func(name string, a answer) {
							t.Helper()
							require.NotEqual(t, 503, a.status, string(a.body))
							if a.status >= 500 {
								require.Equal(t, "history_damaged", a.problem(t).Code)
								require.Contains(t, a.problem(t).Message, id, "it names the key")
								require.False(t, a.problem(t).Retryable)
								require.NotContains(t, []string{"post", "repeat", "delete", "list"}, name, string(a.body))
							}
						}
						for _, url := range []string{w.url, other} {
							w.on(url, func() { fine(first, asks[first]()) })
						}
						for _, then := range []string{"list", "chat", "post"} {
							fine(then, asks[then]())
						}
						if first != "delete" {
							require.Contains(t, w.stored("chat_history:"+id), "user: after")
						}
						fine("delete", asks["delete"]())
						require.Equal(t, 200, w.do("GET", "/readyz", nil).status)
						eventually(t, "nobody looks after the chat any more", func() bool {
							return len(w.keys("{chat_history:"+id+"}:turn")) == 0
						})
						for _, left := range w.keys("") {
							if strings.Contains(left, id) && !strings.HasSuffix(left, "}:turn") {
								require.Regexp(t, `\}:meta$`, left)
								all, err := w.look.HGetAll(context.Background(), left).Result()
								require.NoError(t, err)
								require.NotContains(t, fmt.Sprint(all), sentinel)
							}
						}
					})
				}
			}
		})
	}
}

// What cannot be set aside is named, by the answer and by /readyz, and is not said to
// pass by itself.
func TestAKeyThatCannotBeSetAside(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"before"}).status)
	require.NoError(t, w.look.Do(ctx, "ACL", "SETUSER", "default", "-renamenx").Err())
	for _, key := range []string{"subagent:analytic:1", "turns:open"} {
		require.NoError(t, w.look.Del(ctx, key).Err())
		require.NoError(t, w.look.RPush(ctx, key, sentinel).Err())
		got := w.do("POST", "/v1/chats/1/messages", message{"after"})
		require.Equal(t, 500, got.status, string(got.body))
		require.Equal(t, "history_damaged", got.problem(t).Code)
		require.Contains(t, got.problem(t).Message, key)
		require.False(t, got.problem(t).Retryable)
		require.NoError(t, w.look.Del(ctx, "subagent:analytic:1").Err())
	}
	eventually(t, "readyz names it", func() bool {
		got := w.do("GET", "/readyz", nil)
		return got.status == 200 && strings.Contains(string(got.body), "degraded") &&
			strings.Contains(string(got.body), "turns:open")
	})
	require.NoError(t, w.look.Do(ctx, "ACL", "SETUSER", "default", "+renamenx").Err())
	eventually(t, "all is well", func() bool {
		return !strings.Contains(string(w.do("GET", "/readyz", nil).body), "degraded")
	})
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"after"}).status)
	require.Len(t, w.keys("{turns:open}:damaged:"), 1)
}
