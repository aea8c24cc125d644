package webmemory_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/webmemory"
)

// Whatever step a process dies at, on the way out and back, nothing of the chat is lost, and nothing is left.
func TestAChatSurvivesADeathAtEveryStepOfItsSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), shortened)
	fillChat(w, "1")
	before := chatValues(w, "1")
	// The steps are those commands and scripts that change something, as a client sends them.
	for at := 1; ; at++ {
		hook := &failing{}
		ageChats(w, "1")
		hook.dieAt(at)
		w.Hook = hook
		dies := w.StartReplica(sleepy(s, wakeful), shortened, func(c *webmemory.Config) { c.Lease = 300 * time.Millisecond })
		w.Hook = nil
		webmemorytest.Eventually(t, "it sleeps, or its process is dead", func() bool {
			return hook.dead.Load() || w.Redis.ZScore(ctx, "mneme:cold", "1").Err() == nil &&
				errors.Is(w.Redis.ZScore(ctx, "mneme:chats", "1").Err(), redis.Nil)
		})
		slept := !hook.dead.Load()
		if slept { // the rest of the steps are those on the way back
			w.Target(dies, func() { w.Do("GET", "/v1/chats/1/history", nil) })
		}
		reached := hook.dead.Load()
		w.Shutdown(dies)
		lives := w.StartReplica(sleepy(s, wakeful), shortened, func(c *webmemory.Config) { c.Lease = 300 * time.Millisecond })
		read := func() {
			w.Target(lives, func() {
				got := w.Do("GET", "/v1/chats/1/history", nil)
				require.Equal(t, 200, got.Status, string(got.Body))
			})
		}
		if read(); at%2 == 0 {
			require.Equal(t, before, chatValues(w, "1"), "step %d", at)
			ageChats(w, "1")
			awaitSleep(w, "1")
			read()
		}
		require.Equal(t, before, chatValues(w, "1"), "step %d", at)
		require.NoError(t, w.Redis.ZScore(ctx, "mneme:chats", "1").Err())
		w.Shutdown(lives)
		if !reached {
			require.Greater(t, at, 10)
			return
		}
	}
}

// failing is a hook after which a client does nothing any more, as if its process were dead.
type failing struct {
	mu   sync.Mutex
	left int // guarded by mu: steps until it dies; 0 while it lives
	dead atomic.Bool
}

func (f *failing) dieAt(step int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = step
}

var errDead = errors.New("this process is dead")

// step counts a command that is about the chat's sleep.
func (f *failing) step(cmd redis.Cmder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name := cmd.Name(); f.left > 0 && (strings.HasPrefix(name, "eval") || name == "zadd" || name == "zrem") {
		if f.left--; f.left == 0 {
			f.dead.Store(true)
		}
	}
	if f.dead.Load() {
		return errDead
	}
	return nil
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.step(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := f.step(cmd); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func TestChatsOfTheEmbeddedStoreSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := newSmall(t, t.TempDir(), webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	fillChat(w.World, "1")
	before := chatValues(w.World, "1")
	ageChats(w.World, "1")
	awaitSleep(w.World, "1")
	require.Equal(t, 200, w.Do("GET", "/v1/chats/1/history", nil).Status)
	require.Equal(t, before, chatValues(w.World, "1"))
}

// Processes that are killed while chats fall asleep, wake and are erased lose nothing that was acknowledged, and leave
// nothing of what was erased.
func TestProcessesAreKilledWhileChatsSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), shortened)
	settings := w.ChildConfig()
	settings.Cold = string(s.Store.(cold.Folder))
	lives, _ := w.StartChild(settings)
	said := map[string][]string{}
	post := func(url, chat, text string) {
		w.Target(url, func() {
			resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/chats/"+chat+"/messages", webmemorytest.Message(text)))
			if err != nil {
				return // its process was killed
			}
			resp.Body.Close()
			require.NotEqual(t, 500, resp.StatusCode)
			if resp.StatusCode == 200 {
				said[chat] = append(said[chat], text)
			}
		})
	}
	for round := range 15 {
		dies, process := w.StartChild(settings)
		for i := range 3 {
			chat := fmt.Sprint("c", i)
			post(dies, chat, fmt.Sprintf("m%d.%d.a", i, round))
			post(lives, chat, fmt.Sprintf("m%d.%d.b", i, round))
		}
		time.Sleep(time.Duration(100*round) * time.Millisecond) // another moment of its sweeps each time
		process.Kill()
	}
	w.Shutdown(w.URL)
	w.URL = w.StartReplica(sleepy(s, wakeful), shortened)
	for chat, texts := range said {
		require.Greater(t, len(texts), 20)
		got := w.Do("GET", "/v1/chats/"+chat+"/export", nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		for _, text := range texts {
			require.Equal(t, 1, strings.Count(string(got.Body), `"content":"`+text+`"`), text)
		}
	}
	for chat := range said {
		dies, process := w.StartChild(settings)
		erased := make(chan struct{})
		go func() {
			defer close(erased)
			req, _ := http.NewRequest("DELETE", dies+"/v1/chats/"+chat, nil)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		time.Sleep(5 * time.Millisecond) // some moment of it
		process.Kill()
		<-erased
		got := w.Do("DELETE", "/v1/chats/"+chat, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Empty(t, chatKeys(w, chat))
		require.ErrorIs(t, w.Redis.ZScore(ctx, "mneme:cold", chat).Err(), redis.Nil)
		require.NotContains(t, s.names(t, cold.Chats), cold.Name(cold.Chats, memory.MustChat(chat)))
	}
}

// The lists of chats may be in shards, and a process may count them otherwise: it finds those that sleep.
func TestChatsOfAListInShardsSleep(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	w.ListShards = 4
	w.URL = w.StartReplica(sleepy(s, wakeful))
	long := time.Now().Add(-2 * wakeful).UnixMilli()
	for _, chat := range []string{"c1", "c2", "c3"} {
		require.Equal(t, 200, w.Post(chat, "hi").Status)
		require.NoError(t, w.Redis.HSet(ctx, "{chat_history:"+chat+"}:meta", "turn", long).Err())
		lists, err := w.Redis.Keys(ctx, "mneme:chats*").Result()
		require.NoError(t, err)
		for _, list := range lists {
			require.NoError(t, w.Redis.ZAddXX(ctx, list, redis.Z{Score: float64(long), Member: chat}).Err())
		}
		webmemorytest.Eventually(t, "it sleeps", func() bool {
			return inColdList(w, chat) && len(chatKeys(w, chat)) == 0
		})
	}
	require.Equal(t, 3, strings.Count(string(w.Do("GET", "/v1/chats?order=used", nil).Body), `"asleep":true`))
	for i, chat := range []string{"c1", "c2", "c3"} {
		w.ListShards = []int{1, 2, 512}[i]
		w.Target(w.StartReplica(sleepy(s, time.Hour)), func() {
			require.Contains(t, string(w.Do("GET", "/v1/chats/"+chat+"/history", nil).Body), `"hi"`)
			require.False(t, inColdList(w, chat))
		})
	}
}

// inColdList reports whether a chat is in a list of sleeping chats.
func inColdList(w *webmemorytest.World, chat string) bool {
	for _, list := range w.Keys("mneme:cold") {
		if w.Redis.ZScore(context.Background(), list, chat).Err() == nil {
			return true
		}
	}
	return false
}

// A sleeping chat takes at most 150 bytes of Redis.
func TestASleepingChatIsSmall(t *testing.T) {
	t.Parallel()
	ctx, n := context.Background(), 100_000
	w := &webmemorytest.World{T: t}
	w.RedisServer = redistest.Start(t)
	w.Redis = w.RedisServer.Client()
	used := func() int64 {
		info := w.Redis.Info(ctx, "memory").Val()
		var bytes int64
		_, err := fmt.Sscanf(info[strings.Index(info, "used_memory:"):], "used_memory:%d", &bytes)
		require.NoError(t, err)
		return bytes
	}
	before, at := used(), float64(time.Now().UnixMilli())
	members := make([]redis.Z, 0, 1000)
	for i := range n {
		members = append(members, redis.Z{Score: at + float64(i), Member: fmt.Sprintf("%08x-b5f0-4c2e-9a55-000000000000", i)})
		if len(members) == cap(members) {
			require.NoError(t, w.Redis.ZAdd(ctx, "mneme:cold", members...).Err())
			members = members[:0]
		}
	}
	each := (used() - before) / int64(n)
	t.Logf("%d bytes for each sleeping chat", each)
	require.LessOrEqual(t, each, int64(150))
}
