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
	"mneme/internal/webmemorytest"
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
			w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
			other := w.StartReplica() // one that keeps nothing of the chats
			chat := 0
			for j, kind := range slices.Sorted(maps.Keys(wrongs)) {
				for _, first := range waysOf(i, j) {
					chat++
					id := fmt.Sprint("c", chat)
					t.Run(kind+", "+first, func(t *testing.T) {
						outer := w.T
						w.T = t
						defer func() { w.T = outer }()
						path := "/v1/chats/" + id
						got := w.Do("POST", path+"/messages", webmemorytest.Message("before"), "Idempotency-Key", "k")
						require.Equal(t, 200, got.Status, string(got.Body))
						run := got.RunID()
						webmemorytest.Eventually(t, "the turn is over", func() bool {
							return w.Redis.Exists(context.Background(), "{chat_history:"+id+"}:turn").Val() == 0
						})
						name := key
						switch strings.Count(key, "%s") {
						case 1:
							name = fmt.Sprintf(key, id)
						case 2:
							name = fmt.Sprintf(key, id, run)
						}
						// a process may write the key at any time
						_, err := w.Redis.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
							p.Del(context.Background(), name)
							return wrongs[kind](p, name)
						})
						require.NoError(t, err)
						asks := map[string]func() webmemorytest.Response{
							"post": func() webmemorytest.Response { return w.Do("POST", path+"/messages", webmemorytest.Message("after")) },
							"repeat": func() webmemorytest.Response {
								return w.Do("POST", path+"/messages", webmemorytest.Message("before"), "Idempotency-Key", "k")
							},
							"chat":     func() webmemorytest.Response { return w.Do("GET", path, nil) },
							"history":  func() webmemorytest.Response { return w.Do("GET", path+"/history", nil) },
							"subagent": func() webmemorytest.Response { return w.Do("GET", path+"/subagents/analytic/history", nil) },
							"list":     func() webmemorytest.Response { return w.Do("GET", "/v1/chats", nil) },
							"events": func() webmemorytest.Response {
								return w.Do("GET", path+"/runs/"+run+"/events", nil, "Last-Event-ID", "1")
							},
							"delete": func() webmemorytest.Response { return w.Do("DELETE", path, nil) },
						}
						fine := func(name string, a webmemorytest.Response) {
							t.Helper()
							require.NotEqual(t, 503, a.Status, string(a.Body))
							if a.Status >= 500 {
								require.Equal(t, "history_damaged", a.Problem(t).Code)
								require.Contains(t, a.Problem(t).Message, id, "it names the key")
								require.False(t, a.Problem(t).Retryable)
								require.NotContains(t, []string{"post", "repeat", "delete", "list"}, name, string(a.Body))
							}
						}
						for _, url := range []string{w.URL, other} {
							w.Target(url, func() { fine(first, asks[first]()) })
						}
						for _, then := range []string{"list", "chat", "post"} {
							fine(then, asks[then]())
						}
						if first != "delete" {
							require.Contains(t, w.History("chat_history:"+id), "user: after")
						}
						fine("delete", asks["delete"]())
						require.Equal(t, 200, w.Do("GET", "/readyz", nil).Status)
						webmemorytest.Eventually(t, "nobody looks after the chat any more", func() bool {
							return len(w.Keys("{chat_history:"+id+"}:turn")) == 0
						})
						for _, left := range w.Keys("") {
							if strings.Contains(left, id) && !strings.HasSuffix(left, "}:turn") {
								require.Regexp(t, `\}:meta$`, left)
								all, err := w.Redis.HGetAll(context.Background(), left).Result()
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
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	ctx := context.Background()
	require.Equal(t, 200, w.Post("1", "before").Status)
	require.NoError(t, w.Redis.Do(ctx, "ACL", "SETUSER", "default", "-renamenx").Err())
	for _, key := range []string{"subagent:analytic:1", "turns:open"} {
		require.NoError(t, w.Redis.Del(ctx, key).Err())
		require.NoError(t, w.Redis.RPush(ctx, key, sentinel).Err())
		got := w.Post("1", "after")
		require.Equal(t, 500, got.Status, string(got.Body))
		require.Equal(t, "history_damaged", got.Problem(t).Code)
		require.Contains(t, got.Problem(t).Message, key)
		require.False(t, got.Problem(t).Retryable)
		require.NoError(t, w.Redis.Del(ctx, "subagent:analytic:1").Err())
	}
	webmemorytest.Eventually(t, "readyz names it", func() bool {
		got := w.Do("GET", "/readyz", nil)
		return got.Status == 200 && strings.Contains(string(got.Body), "degraded") &&
			strings.Contains(string(got.Body), "turns:open")
	})
	require.NoError(t, w.Redis.Do(ctx, "ACL", "SETUSER", "default", "+renamenx").Err())
	webmemorytest.Eventually(t, "all is well", func() bool {
		return !strings.Contains(string(w.Do("GET", "/readyz", nil).Body), "degraded")
	})
	require.Equal(t, 200, w.Post("1", "after").Status)
	require.Len(t, w.Keys("{turns:open}:damaged:"), 1)
}
