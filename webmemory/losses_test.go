package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/webmemory"
)

// shownTexts returns the texts of a chat's own history as the process at url shows them.
func shownTexts(w *webmemorytest.World, url, chat string) (said []string) {
	w.T.Helper()
	w.Target(url, func() {
		got := w.Do("GET", "/v1/chats/"+chat+"/history", nil)
		var page struct{ Messages []memory.Message }
		require.NoError(w.T, json.Unmarshal(got.Body, &page), string(got.Body))
		for _, m := range page.Messages {
			said = append(said, m.Content)
		}
	})
	return said
}

// postReset posts a message to the process at url and reports whether the run tells of a memory reset.
func postReset(w *webmemorytest.World, url, chat, text string) (reset bool) {
	w.T.Helper()
	w.Target(url, func() {
		roles := w.PostStream(chat, text).Roles()
		require.Equal(w.T, "run_started", roles[0])
		reset = roles[1] == "memory_reset"
		require.Equal(w.T, "run_finished", roles[len(roles)-1])
	})
	return reset
}

// allowKeys makes Redis refuse all keys that match none of the patterns, to all clients.
func allowKeys(w *webmemorytest.World, patterns ...string) {
	w.T.Helper()
	args := []any{"ACL", "SETUSER", "default", "resetkeys"}
	for _, p := range patterns {
		args = append(args, "~"+p)
	}
	require.NoError(w.T, w.Redis.Do(context.Background(), args...).Err())
}

func exchanges(texts ...string) (all []string) {
	for _, text := range texts {
		all = append(all, text, "hi")
	}
	return all
}

// A process writes back all it knows as soon as Redis has lost its data: it is listed
// and readable through every process, before a chat is used.
func TestAllThatIsCachedIsWrittenBackAtOnce(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	second := w.StartReplica()
	for i := range 20 {
		require.False(t, postReset(w, w.URL, fmt.Sprint("c", i), "one"))
	}
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	webmemorytest.Eventually(t, "all is back", func() bool {
		n := 0
		w.Target(second, func() {
			n = strings.Count(string(w.Do("GET", "/v1/chats?limit=100", nil).Body), `"chat_id"`)
		})
		return n == 20
	})
	webmemorytest.Eventually(t, "and counted", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "mneme_memory_lost_total 40")
	})
	for i := range 20 {
		chat := fmt.Sprint("c", i)
		require.Equal(t, exchanges("one"), shownTexts(w, second, chat))
		w.Target(second, func() {
			require.Contains(t, string(w.Do("GET", "/v1/chats/"+chat, nil).Body), "subagent:analytic:"+chat)
		})
	}
	require.True(t, postReset(w, second, "c3", "two"), "whoever runs the next one tells")
	require.False(t, postReset(w, w.URL, "c3", "three"), "once")
	require.True(t, postReset(w, w.URL, "c4", "two"), "each chat is told")
	require.False(t, postReset(w, w.URL, "c4", "three"))
	require.False(t, postReset(w, w.URL, "new", "one"), "a chat that began after the loss has lost nothing")
	require.False(t, postReset(w, w.URL, "new", "two"))
	require.Equal(t, exchanges("one", "two", "three"), shownTexts(w, second, "c3"))
}

// A process has read chats, and Redis loses its data before the process could read the epoch: what it has cached comes
// back, although it cannot know that another epoch was there before.
func TestALossBeforeTheFirstEpochIsWrittenBack(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	require.False(t, postReset(w, w.URL, "1", "one"))
	webmemorytest.Eventually(t, "no turn is held", func() bool { return len(w.Keys("{chat_history:1}:turn")) == 0 })
	allowKeys(w, "[^m]*", "mneme:[^e]*", "mneme:er*") // all but the epoch
	second := w.StartReplica()
	require.Equal(t, exchanges("one"), shownTexts(w, second, "1"))
	w.Shutdown(w.URL) // which would bring all back
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	allowKeys(w, "*")
	webmemorytest.Eventually(t, "it is back", func() bool { return len(w.History("chat_history:1")) == 2 })
}

// A chat is used on one process, Redis loses its data, and the chat goes on at once
// on another one, which knows nothing of it, then on the first.
func TestAChatGoesOnElsewhereRightAfterALoss(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	first, second := w.URL, w.StartReplica()
	var said []string
	for i := range 6 {
		said = append(said, fmt.Sprint("message ", i))
		require.False(t, postReset(w, first, "1", said[i]))
	}
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	said = append(said, "on the second", "on the first again")
	told := postReset(w, second, "1", said[6]) // if the first process has written back by then
	require.Equal(t, !told, postReset(w, first, "1", said[7]), "the first run that can know of it tells")
	require.False(t, postReset(w, first, "1", "and on"))
	said = append(said, "and on")
	for _, url := range []string{first, second} {
		require.Equal(t, exchanges(said...), shownTexts(w, url, "1"))
	}
	require.Len(t, w.History("subagent:analytic:1"), 18)
}

// A chat with a memory that no process had cached is told too, where it was used before.
func TestALossOfWhatNobodyHasIsTold(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	require.False(t, postReset(w, w.URL, "1", "one"))
	require.False(t, postReset(w, w.URL, "2", "one"))
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/2", nil).Status)
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	require.True(t, postReset(w, w.URL, "2", "two"))
	require.False(t, postReset(w, w.URL, "2", "three"))
	require.Equal(t, exchanges("two", "three"), shownTexts(w, w.URL, "2"))
}

// Redis is started again with an older state, under the epoch that it had.
func TestAnOlderStateIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	second := w.StartReplica()
	require.False(t, postReset(w, w.URL, "1", "one"))
	require.NoError(t, w.Redis.Save(context.Background()).Err())
	require.False(t, postReset(w, w.URL, "1", "two"))
	require.False(t, postReset(w, w.URL, "2", "begun since"))
	dump := filepath.Join(w.RedisServer.Dir, "dump.rdb")
	before, err := os.ReadFile(dump)
	require.NoError(t, err)
	w.RedisServer.Kill()
	require.NoError(t, os.WriteFile(dump, before, 0o600))
	require.NoError(t, w.RedisServer.Run())
	webmemorytest.Eventually(t, "the rest is back", func() bool {
		return len(shownTexts(w, second, "1")) == 4 && len(shownTexts(w, second, "2")) == 2
	})
	require.Equal(t, exchanges("one", "two"), shownTexts(w, second, "1"))
	require.Contains(t, string(w.Do("GET", "/metrics", nil).Body), "mneme_redis_changes_total 1")
	require.True(t, postReset(w, second, "1", "three"))
	require.Equal(t, exchanges("one", "two", "three"), shownTexts(w, w.URL, "1"))
}

// A failover loses the last writes; they are back before the chat is used.
func TestAFailoverIsMadeGoodAtOnce(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewSentinelWorld(t, webmemorytest.Answers("hi"))
	first, second := w.StartReplica(), w.StartReplica()
	w.URL = first
	require.False(t, postReset(w, first, "1", "one"))
	w.Sentinel.CutReplica()
	require.False(t, postReset(w, first, "1", "two"))
	require.False(t, postReset(w, first, "2", "begun since"))
	w.Sentinel.Failover()
	webmemorytest.Eventually(t, "the rest is back", func() bool {
		for _, chat := range []string{"1", "2"} {
			ok := false
			w.Target(second, func() { ok = w.Do("GET", "/v1/chats/"+chat+"/history", nil).Status == 200 })
			if !ok {
				return false
			}
		}
		return len(shownTexts(w, second, "1")) == 4 && len(shownTexts(w, second, "2")) == 2
	})
	require.Equal(t, exchanges("one", "two"), shownTexts(w, second, "1"))
	require.True(t, postReset(w, first, "1", "three"))
	require.Equal(t, exchanges("one", "two", "three"), shownTexts(w, second, "1"))
}

// Redis loses its data again and again while two processes answer, each in its own
// chats and both in one. What was answered is there once.
func TestNothingAnsweredIsLostUnderLossAfterLoss(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	urls := []string{w.URL, w.StartReplica()}
	var mu sync.Mutex
	answered := map[string][]string{}
	stop := make(chan struct{})
	var posting sync.WaitGroup
	for i, url := range urls {
		for _, chat := range []string{"both", fmt.Sprint("own", i)} {
			posting.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					text := fmt.Sprintf("%s %d.%d", chat, i, n)
					req, err := http.NewRequest("POST", url+"/v1/chats/"+chat+"/messages", strings.NewReader(`{"message":"`+text+`"}`))
					if err != nil {
						t.Error(err)
						return
					}
					if w.Send(req).Status == http.StatusOK {
						mu.Lock()
						answered[chat] = append(answered[chat], text)
						mu.Unlock()
					}
				}
			})
		}
	}
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, texts := range answered {
			n += len(texts)
		}
		return n
	}
	for range 8 {
		before := count()
		webmemorytest.Eventually(t, "messages are answered", func() bool { return count() >= before+12 })
		require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	}
	close(stop)
	posting.Wait()
	for chat, want := range answered {
		for _, url := range urls {
			missing := want
			webmemorytest.Eventually(t, "all of chat "+chat+" is back", func() bool {
				found := map[string]int{}
				for _, text := range shownTexts(w, url, chat) {
					found[text]++
				}
				missing = nil
				for _, text := range want {
					if found[text] != 1 {
						missing = append(missing, fmt.Sprint(text, ": ", found[text]))
					}
				}
				return len(missing) == 0
			})
		}
	}
}

// A history was deleted by hand, and the process that took note of it is gone when Redis
// loses its data: the others have heard of it, and bring back what has been said since,
// and nothing older.
func TestWhatWasDeletedByHandStaysSoAfterALoss(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	disk := func() (string, func(*webmemory.Config)) {
		list := filepath.Join(t.TempDir(), "cuts.ndjson")
		return list, func(c *webmemory.Config) {
			var err error
			c.Cuts, err = erasures.Open(list)
			require.NoError(t, err)
		}
	}
	_, own := disk()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"), own)
	list, other := disk()
	second := w.StartReplica(other)
	postReset(w, w.URL, "1", "one")
	postReset(w, second, "1", "two") // it has a copy
	require.NoError(t, w.Redis.Del(context.Background(), "chat_history:1").Err())
	postReset(w, w.URL, "1", "three")
	webmemorytest.Eventually(t, "the other process has heard of it", func() bool {
		heard, _ := os.ReadFile(list)
		return strings.Contains(string(heard), `"chat_history:1"`)
	})
	w.Shutdown(w.URL)
	require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
	webmemorytest.Eventually(t, "the other history is back", func() bool {
		return w.Redis.Exists(context.Background(), "subagent:analytic:1").Val() == 1
	})
	require.True(t, postReset(w, second, "1", "five"))
	require.Equal(t, exchanges("three", "five"), shownTexts(w, second, "1"))
}

// A chat gets its conversation at the gateway again after Redis has lost which one it
// was. Where a process that did not know it gave the chat another one, an erasure
// reaches both.
func TestAChatsConversationsAreKnownAfterALoss(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("fine"))
	other := w.StartReplica(webmemorytest.OwnDisk(t))
	conversation := func() string { return w.Redis.HGet(ctx, "{chat_history:1}:meta", "conversation").Val() }
	say := func() { require.Equal(t, 200, w.Post("1", "hello").Status) }
	say()
	first := conversation()
	require.NotEmpty(t, first)
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	say()
	require.Equal(t, first, conversation())

	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	w.Target(other, say)
	second := conversation() // the first one, if that has been told again by now
	w.Target(other, func() { require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status) })
	// The deleting process may not have had the first one's address from Redis before
	// that lost it; the first one then finds the erasure when it looks next.
	webmemorytest.Eventually(t, "both conversations are erased at the gateway", func() bool {
		erased := w.Gateway.Erased()
		return slices.Contains(erased, first) && slices.Contains(erased, second)
	})
	say()
	require.NotContains(t, []string{first, second}, conversation())
}

// Redis has just lost a history when its chat is erased, and another process, which was not
// told yet, is about to write it back: the erasure leaves a tombstone for it all the same.
func TestNothingIsWrittenBackBehindAnErasure(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("done"))
	require.Equal(t, 200, w.Post("1", "secret").Status)
	w.Shutdown(w.URL)
	client := w.Connect()
	defer client.Close()
	other, chat := redisstore.New(client, zerolog.Nop()), memory.MustChat("1")
	copies, err := other.Load(ctx, 0, memory.Empty(memory.ChatKey(chat)),
		memory.Empty(memory.SubagentKey("analytic", chat)))
	require.NoError(t, err)
	turn, err := w.Redis.HGet(ctx, "{chat_history:1}:meta", "turn").Int64()
	require.NoError(t, err)
	for _, h := range copies {
		require.Equal(t, 2, h.Len())
		h.ProvenIn(turn)
	}
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	w.Target(w.StartReplica(), func() { require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status) })
	_, err = other.WriteBack(ctx, copies...)
	require.NoError(t, err)
	require.Nil(t, w.History("chat_history:1"))
	require.Nil(t, w.History("subagent:analytic:1"))
}
