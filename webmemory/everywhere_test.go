package webmemory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/stack"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/spool"
)

// secrets are words that stand nowhere by themselves, one for each place that users'
// words get to.
var secrets = []string{"Quittengelee", "Holunderblüte", "Schlehenlikör", "Wirsingstrunk"}

// tells is a run that has, in chat 1, a secret in the task, in what comes back, and in
// the answer.
func tells() webmemorytest.Agent {
	return func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		secrets := secrets
		if r.Chat.ID() != "1" {
			secrets = []string{"no", "no", "no", "no"}
		}
		of := event.Head{Subagent: "analytic", CallID: "c"}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(of, &event.Delegation{Task: "task " + secrets[1], Calls: event.Serial})
		emit(of, &event.Completion{Response: "result " + secrets[2], Status: event.Completed})
		emit(event.Head{}, &event.AssistantDelta{Text: "answer " + secrets[3]})
		emit(event.Head{}, &event.Assistant{Content: "answer " + secrets[3]})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// secretPlaces returns the places in Redis and below folders that contain a secret.
func secretPlaces(w *webmemorytest.World, folders ...string) (places []string) {
	w.T.Helper()
	return placesOf(w, secrets, folders...)
}

// placesOf returns the places in Redis and below folders that contain one of the words.
func placesOf(w *webmemorytest.World, words []string, folders ...string) (places []string) {
	w.T.Helper()
	ctx := context.Background()
	note := func(place string, content string) {
		for _, s := range words {
			if strings.Contains(content, s) {
				places = append(places, place+": "+s)
			}
		}
	}
	for _, folder := range folders {
		require.NoError(w.T, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			note("a name", path)
			if err == nil && !d.IsDir() {
				content, _ := os.ReadFile(path) // one that went meanwhile has nothing
				note(path, string(content))
			}
			return nil
		}))
	}
	for _, key := range w.Keys("") {
		note("a name", key)
		dump, _ := w.Redis.Dump(ctx, key).Result()
		note(key, dump)
		// A dump may be compressed.
		content := fmt.Sprint(w.Redis.Get(ctx, key).Val(), w.Redis.HGetAll(ctx, key).Val(),
			w.Redis.XRange(ctx, key, "-", "+").Val(),
			w.Redis.ZRange(ctx, key, 0, -1).Val(), w.Redis.SMembers(ctx, key).Val(), w.Redis.LRange(ctx, key, 0, -1).Val())
		note(key, content)
	}
	return places
}

// process is a webmemory as a process of its own.
type process struct {
	*stack.Process
	settings webmemorytest.ChildConfig
}

// startChildren starts n child processes, each with its own disk.
func startChildren(w *webmemorytest.World, n int) (urls, data []string, processes []*process) {
	for range n {
		s := w.ChildConfig()
		s.Data = w.T.TempDir()
		url, p := w.StartChild(s)
		urls, data, processes = append(urls, url), append(data, s.Data), append(processes, &process{p, s})
	}
	return urls, data, processes
}

// After an erasure not a byte of what it erased is left in Redis, nor on any disk:
// not of a process that could not be asked, once it goes on, nor of one that was
// dead, once it starts, nor where the chat's index was lost.
func TestErasureLeavesNoByte(t *testing.T) {
	t.Parallel()
	for _, index := range []string{"there", "lost"} {
		t.Run("the chat's index is "+index, func(t *testing.T) {
			t.Parallel()
			w := webmemorytest.NewWorld(t, tells())
			ctx := context.Background()
			urls, data, processes := startChildren(w, 4)
			for round := range 2 {
				for i, url := range urls {
					w.Target(url, func() {
						got := w.Post("1", "hello "+secrets[0], "Idempotency-Key", fmt.Sprint(round, i))
						require.Equal(t, 200, got.Status, string(got.Body))
						require.Equal(t, 200, w.Post("2", "stays").Status)
					})
				}
			}
			require.NotEmpty(t, secretPlaces(w, data[0]))
			asleep, dead := 1, 2
			processes[asleep].Pause()
			processes[dead].Kill()
			// What it could not store before it died.
			left, err := spool.Open(filepath.Join(data[dead], "spool"), spool.Options{}, webmemorytest.Logger())
			require.NoError(t, err)
			// Of a turn before that of the erasure, which begins in this millisecond at the earliest.
			old := memory.Mark{Run: "OLD", Seq: 1, Turn: time.Now().UnixMilli() - 1}
			for _, key := range []memory.Key{memory.ChatKey(memory.MustChat("1")),
				memory.SubagentKey("knowledge", memory.MustChat("1"))} {
				m := memory.Message{Role: memory.RoleUser, Content: secrets[0], Timestamp: event.Seconds(time.Now())}
				require.NoError(t, left.Add(spool.Entry{Queue: spool.History(key), Mark: old, Bytes: m.Encode()}))
			}
			require.NoError(t, left.Close())
			if index == "lost" {
				webmemorytest.Eventually(t, "no turn is held", func() bool {
					return w.Redis.Exists(ctx, "{chat_history:1}:turn").Val() == 0
				})
				require.NoError(t, w.Redis.Del(ctx, "{chat_history:1}:meta").Err())
			}

			w.Target(urls[0], func() {
				got := w.Do("DELETE", "/v1/chats/1", nil)
				require.Equal(t, 200, got.Status, string(got.Body))
			})
			require.Empty(t, secretPlaces(w, data[0], data[3]), "Redis, and the disks of those who could be asked")
			require.NotEmpty(t, secretPlaces(w, data[asleep]))
			require.NotEmpty(t, secretPlaces(w, data[dead]))

			processes[asleep].Signal(syscall.SIGCONT)
			w.StartChild(processes[dead].settings)
			webmemorytest.Eventually(t, "those who were away have applied it", func() bool {
				return len(secretPlaces(w, data...)) == 0
			})
			w.Target(urls[asleep], func() {
				require.Contains(t, string(w.Do("GET", "/v1/chats/1", nil).Body), `"histories":[]`)
				require.Equal(t, 200, w.Post("1", "a new beginning").Status)
			})
			require.NotContains(t, strings.Join(w.History("chat_history:1"), ""), secrets[0])
			require.NotEmpty(t, w.History("chat_history:2"), "another chat is as it was")
			logs, err := os.ReadFile(filepath.Join(data[0], "logs", "memory_2.log"))
			require.NoError(t, err)
			require.True(t, bytes.Contains(logs, []byte("stays")))
		})
	}
}

// The first post after Redis came back as it was before an erasure finds nothing of
// what was erased, neither where the erasure is known nor, a moment later, elsewhere.
func TestTheFirstPostAfterAnOlderRedisFindsNothingErased(t *testing.T) {
	t.Parallel()
	contexts := make(chan string, 100)
	agent := tells()
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		contexts <- fmt.Sprint(r.Context)
		agent(ctx, r, emit)
	})
	urls, _, processes := startChildren(w, 2)
	post := func(url, text string) {
		w.Target(url, func() {
			got := w.Post("1", text, "Idempotency-Key", text)
			require.Equal(t, 200, got.Status, string(got.Body))
		})
	}
	post(urls[0], "hello "+secrets[0])
	webmemorytest.Eventually(t, "no turn is held", func() bool { return len(w.Keys("{chat_history:1}:turn")) == 0 })
	before := dumpRedis(w) // the epoch too: nothing tells that Redis is another than before
	processes[1].Kill()    // it never hears of the erasure
	w.Target(urls[0], func() { require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status) })
	loadRedis(w, before)
	other, _ := w.StartChild(processes[1].settings)
	post(other, "not known there")
	for len(contexts) > 0 {
		<-contexts
	}
	post(urls[0], "a new beginning")
	require.NotContains(t, <-contexts, secrets[0])
	webmemorytest.Eventually(t, "it is erased once more", func() bool {
		return !strings.Contains(strings.Join(w.History("chat_history:1"), ""), secrets[0])
	})
	post(other, "and on")
	require.NotContains(t, strings.Join(w.History("chat_history:1"), ""), secrets[0])
	require.Contains(t, strings.Join(w.History("chat_history:1"), ""), "not known there")
}

// dumpRedis returns all values in Redis, as RESTORE takes them.
func dumpRedis(w *webmemorytest.World) map[string]string {
	values := map[string]string{}
	for _, key := range w.Keys("") {
		value, err := w.Redis.Dump(context.Background(), key).Result()
		if !errors.Is(err, redis.Nil) { // a key may have ended since it was listed
			require.NoError(w.T, err)
			values[key] = value
		}
	}
	return values
}

// loadRedis makes Redis have these values and no others.
func loadRedis(w *webmemorytest.World, values map[string]string) {
	w.T.Helper()
	ctx := context.Background()
	_, err := w.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for key, value := range values {
			p.Restore(ctx, key, 0, value)
		}
		return nil
	})
	require.NoError(w.T, err)
}

// A Redis that comes back as it was before an erasure, or in the middle of it, when the
// fact was noted and nothing erased, is made to forget again.
func TestAnErasureOutlivesRedis(t *testing.T) {
	t.Parallel()
	for name, noted := range map[string]bool{"before it": false, "in the middle of it": true} {
		t.Run(name, func(t *testing.T) { anErasureOutlivesRedis(t, noted) })
	}
}

func anErasureOutlivesRedis(t *testing.T, noted bool) {
	w := webmemorytest.NewWorld(t, tells())
	ctx := context.Background()
	urls, data, _ := startChildren(w, 2)
	post := func(url, chat, text string) {
		w.Target(url, func() {
			got := w.Post(chat, text, "Idempotency-Key", text)
			require.Equal(t, 200, got.Status, string(got.Body))
		})
	}
	post(urls[0], "1", "hello "+secrets[0])
	post(urls[1], "1", "again "+secrets[0])
	post(urls[1], "2", "stays")
	webmemorytest.Eventually(t, "no turn is held", func() bool {
		return len(w.Keys("{chat_history:1}:turn", "{chat_history:2}:turn")) == 0
	})
	before := dumpRedis(w)
	delete(before, "mneme:epoch")
	w.Target(urls[0], func() { require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status) })
	require.Empty(t, secretPlaces(w, data...))

	facts := w.Redis.ZRangeWithScores(ctx, "mneme:erasures", 0, -1).Val()
	require.NotEmpty(t, facts)

	_, err := w.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for key, value := range before {
			p.Restore(ctx, key, 0, value)
		}
		if noted {
			p.ZAdd(ctx, "mneme:erasures", facts...)
		}
		return nil
	})
	require.NoError(t, err)
	webmemorytest.Eventually(t, "it is erased once more", func() bool {
		return len(w.Keys("chat_history:1", "subagent:analytic:1", "events:1:", "run:1:")) == 0
	})
	require.NotEmpty(t, w.History("chat_history:2"))
	post(urls[1], "1", "a new beginning")
	require.Len(t, w.History("chat_history:1"), 2)
}
