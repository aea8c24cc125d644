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
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/redisstore"
	"mneme/webmemory"
)

// shows are the contents of a chat's own history as a process gives them.
func (w *world) shows(url, chat string) (said []string) {
	w.t.Helper()
	w.on(url, func() {
		got := w.do("GET", "/v1/chats/"+chat+"/history", nil)
		var page struct{ Messages []memory.Message }
		require.NoError(w.t, json.Unmarshal(got.body, &page), string(got.body))
		for _, m := range page.Messages {
			said = append(said, m.Content)
		}
	})
	return said
}

// says posts a message to a process and gives what run_started says of the memory.
func (w *world) says(url, chat, text string) (reset bool) {
	w.t.Helper()
	w.on(url, func() {
		roles := w.open("POST", "/v1/chats/"+chat+"/messages", message{text}).roles()
		require.Equal(w.t, "run_started", roles[0])
		reset = roles[1] == "memory_reset"
		require.Equal(w.t, "run_finished", roles[len(roles)-1])
	})
	return reset
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
	w := newWorld(t, answers("hi"))
	second := w.process()
	for i := range 20 {
		require.False(t, w.says(w.url, fmt.Sprint("c", i), "one"))
	}
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	eventually(t, "all is back", func() bool {
		n := 0
		w.on(second, func() {
			n = strings.Count(string(w.do("GET", "/v1/chats?limit=100", nil).body), `"chat_id"`)
		})
		return n == 20
	})
	eventually(t, "and counted", func() bool {
		return strings.Contains(string(w.do("GET", "/metrics", nil).body), "mneme_memory_lost_total 40")
	})
	for i := range 20 {
		chat := fmt.Sprint("c", i)
		require.Equal(t, exchanges("one"), w.shows(second, chat))
		w.on(second, func() {
			require.Contains(t, string(w.do("GET", "/v1/chats/"+chat, nil).body), "subagent:analytic:"+chat)
		})
	}
	require.True(t, w.says(second, "c3", "two"), "whoever runs the next one tells")
	require.False(t, w.says(w.url, "c3", "three"), "once")
	require.True(t, w.says(w.url, "c4", "two"), "each chat is told")
	require.False(t, w.says(w.url, "c4", "three"))
	require.False(t, w.says(w.url, "new", "one"), "a chat that began after the loss has lost nothing")
	require.False(t, w.says(w.url, "new", "two"))
	require.Equal(t, exchanges("one", "two", "three"), w.shows(second, "c3"))
}

// A process has read chats, and Redis loses its data before the process could read the epoch: what it has cached comes
// back, although it cannot know that another epoch was there before.
func TestALossBeforeTheFirstEpochIsWrittenBack(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, answers("hi"))
	require.False(t, w.says(w.url, "1", "one"))
	eventually(t, "no turn is held", func() bool { return len(w.keys("{chat_history:1}:turn")) == 0 })
	w.allowKeys("[^m]*", "mneme:[^e]*", "mneme:er*") // all but the epoch
	second := w.process()
	require.Equal(t, exchanges("one"), w.shows(second, "1"))
	w.shutdown[w.url]() // which would bring all back
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	w.allowKeys("*")
	eventually(t, "it is back", func() bool { return len(w.stored("chat_history:1")) == 2 })
}

// A chat is used on one process, Redis loses its data, and the chat goes on at once
// on another one, which knows nothing of it, then on the first.
func TestAChatGoesOnElsewhereRightAfterALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hi"))
	first, second := w.url, w.process()
	var said []string
	for i := range 6 {
		said = append(said, fmt.Sprint("message ", i))
		require.False(t, w.says(first, "1", said[i]))
	}
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	said = append(said, "on the second", "on the first again")
	told := w.says(second, "1", said[6]) // if the first process has written back by then
	require.Equal(t, !told, w.says(first, "1", said[7]), "the first run that can know of it tells")
	require.False(t, w.says(first, "1", "and on"))
	said = append(said, "and on")
	for _, url := range []string{first, second} {
		require.Equal(t, exchanges(said...), w.shows(url, "1"))
	}
	require.Len(t, w.stored("subagent:analytic:1"), 18)
}

// A chat with a memory that no process had cached is told too, where it was used before.
func TestALossOfWhatNobodyHasIsTold(t *testing.T) {
	w := newWorld(t, answers("hi"))
	require.False(t, w.says(w.url, "1", "one"))
	require.False(t, w.says(w.url, "2", "one"))
	require.Equal(t, 200, w.do("DELETE", "/v1/chats/2", nil).status)
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	require.True(t, w.says(w.url, "2", "two"))
	require.False(t, w.says(w.url, "2", "three"))
	require.Equal(t, exchanges("two", "three"), w.shows(w.url, "2"))
}

// Redis is started again with an older state, under the epoch that it had.
func TestAnOlderStateIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := newWorld(t, answers("hi"))
	second := w.process()
	require.False(t, w.says(w.url, "1", "one"))
	require.NoError(t, w.look.Save(context.Background()).Err())
	require.False(t, w.says(w.url, "1", "two"))
	require.False(t, w.says(w.url, "2", "begun since"))
	dump := filepath.Join(w.redis.Dir, "dump.rdb")
	before, err := os.ReadFile(dump)
	require.NoError(t, err)
	w.redis.Kill()
	require.NoError(t, os.WriteFile(dump, before, 0o600))
	require.NoError(t, w.redis.Run())
	eventually(t, "the rest is back", func() bool {
		return len(w.shows(second, "1")) == 4 && len(w.shows(second, "2")) == 2
	})
	require.Equal(t, exchanges("one", "two"), w.shows(second, "1"))
	require.Contains(t, string(w.do("GET", "/metrics", nil).body), "mneme_redis_changes_total 1")
	require.True(t, w.says(second, "1", "three"))
	require.Equal(t, exchanges("one", "two", "three"), w.shows(w.url, "1"))
}

// A failover loses the last writes; they are back before the chat is used.
func TestAFailoverIsMadeGoodAtOnce(t *testing.T) {
	t.Parallel()
	w := newSentinelWorld(t, answers("hi"))
	first, second := w.process(), w.process()
	w.url = first
	require.False(t, w.says(first, "1", "one"))
	w.sentinel.CutReplica()
	require.False(t, w.says(first, "1", "two"))
	require.False(t, w.says(first, "2", "begun since"))
	w.sentinel.Failover()
	eventually(t, "the rest is back", func() bool {
		for _, chat := range []string{"1", "2"} {
			ok := false
			w.on(second, func() { ok = w.do("GET", "/v1/chats/"+chat+"/history", nil).status == 200 })
			if !ok {
				return false
			}
		}
		return len(w.shows(second, "1")) == 4 && len(w.shows(second, "2")) == 2
	})
	require.Equal(t, exchanges("one", "two"), w.shows(second, "1"))
	require.True(t, w.says(first, "1", "three"))
	require.Equal(t, exchanges("one", "two", "three"), w.shows(second, "1"))
}

// Redis loses its data again and again while two processes answer, each in its own
// chats and both in one. What was answered is there once.
func TestNothingAnsweredIsLostUnderLossAfterLoss(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	w := newWorld(t, answers("hi"))
	urls := []string{w.url, w.process()}
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
					if w.send(req).status == http.StatusOK {
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
		eventually(t, "messages are answered", func() bool { return count() >= before+12 })
		require.NoError(t, w.look.FlushAll(context.Background()).Err())
	}
	close(stop)
	posting.Wait()
	for chat, want := range answered {
		for _, url := range urls {
			missing := want
			eventually(t, "all of chat "+chat+" is back", func() bool {
				found := map[string]int{}
				for _, text := range w.shows(url, chat) {
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
	w := newWorld(t, answers("hi"), own)
	list, other := disk()
	second := w.process(other)
	w.says(w.url, "1", "one")
	w.says(second, "1", "two") // it has a copy
	require.NoError(t, w.look.Del(context.Background(), "chat_history:1").Err())
	w.says(w.url, "1", "three")
	eventually(t, "the other process has heard of it", func() bool {
		heard, _ := os.ReadFile(list)
		return strings.Contains(string(heard), `"chat_history:1"`)
	})
	w.shutdown[w.url]()
	require.NoError(t, w.look.FlushAll(context.Background()).Err())
	eventually(t, "the other history is back", func() bool {
		return w.look.Exists(context.Background(), "subagent:analytic:1").Val() == 1
	})
	require.True(t, w.says(second, "1", "five"))
	require.Equal(t, exchanges("three", "five"), w.shows(second, "1"))
}

// A chat gets its conversation at the gateway again after Redis has lost which one it
// was. Where a process that did not know it gave the chat another one, an erasure
// reaches both.
func TestAChatsConversationsAreKnownAfterALoss(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, answers("fine"))
	other := w.process(apart(t))
	conversation := func() string { return w.look.HGet(ctx, "{chat_history:1}:meta", "conversation").Val() }
	say := func() { require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hello"}).status) }
	say()
	first := conversation()
	require.NotEmpty(t, first)
	require.NoError(t, w.look.FlushAll(ctx).Err())
	say()
	require.Equal(t, first, conversation())

	require.NoError(t, w.look.FlushAll(ctx).Err())
	w.on(other, say)
	second := conversation() // the first one, if that has been told again by now
	w.on(other, func() { require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status) })
	// The deleting process may not have had the first one's address from Redis before
	// that lost it; the first one then finds the erasure when it looks next.
	eventually(t, "both conversations are erased at the gateway", func() bool {
		erased := w.gateway.set(false)
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
	w := newWorld(t, answers("done"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"secret"}).status)
	w.shutdown[w.url]()
	client := w.connect()
	defer client.Close()
	other, chat := redisstore.New(client, zerolog.Nop()), memory.MustChat("1")
	copies, err := other.Load(ctx, 0, memory.Empty(memory.ChatKey(chat)),
		memory.Empty(memory.SubagentKey("analytic", chat)))
	require.NoError(t, err)
	turn, err := w.look.HGet(ctx, "{chat_history:1}:meta", "turn").Int64()
	require.NoError(t, err)
	for _, h := range copies {
		require.Equal(t, 2, h.Len())
		h.ProvenIn(turn)
	}
	require.NoError(t, w.look.FlushAll(ctx).Err())
	w.on(w.process(), func() { require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status) })
	_, err = other.WriteBack(ctx, copies...)
	require.NoError(t, err)
	require.Nil(t, w.stored("chat_history:1"))
	require.Nil(t, w.stored("subagent:analytic:1"))
}
