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
func tells() agent {
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

// traces are the places, in Redis and below folders, where a secret stands.
func (w *world) traces(folders ...string) (places []string) {
	w.t.Helper()
	return w.tracesOf(secrets, folders...)
}

// tracesOf are the places where one of some words stands.
func (w *world) tracesOf(words []string, folders ...string) (places []string) {
	w.t.Helper()
	ctx := context.Background()
	note := func(place string, content string) {
		for _, s := range words {
			if strings.Contains(content, s) {
				places = append(places, place+": "+s)
			}
		}
	}
	for _, folder := range folders {
		require.NoError(w.t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			note("a name", path)
			if err == nil && !d.IsDir() {
				content, _ := os.ReadFile(path) // one that went meanwhile has nothing
				note(path, string(content))
			}
			return nil
		}))
	}
	for _, key := range w.keys("") {
		note("a name", key)
		dump, _ := w.look.Dump(ctx, key).Result()
		note(key, dump)
		// A dump may be compressed.
		content := fmt.Sprint(w.look.Get(ctx, key).Val(), w.look.HGetAll(ctx, key).Val(),
			w.look.XRange(ctx, key, "-", "+").Val(),
			w.look.ZRange(ctx, key, 0, -1).Val(), w.look.SMembers(ctx, key).Val(), w.look.LRange(ctx, key, 0, -1).Val())
		note(key, content)
	}
	return places
}

// process is a webmemory as a process of its own.
type process struct {
	*stack.Process
	settings childSettings
}

// disks makes n webmemories as processes with disks of their own.
func (w *world) disks(n int) (urls, data []string, processes []*process) {
	for range n {
		s := w.settings()
		s.Data = w.t.TempDir()
		url, p := w.start(s)
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
			w := newWorld(t, tells())
			ctx := context.Background()
			urls, data, processes := w.disks(4)
			for round := range 2 {
				for i, url := range urls {
					w.on(url, func() {
						got := w.do("POST", "/v1/chats/1/messages", message{"hello " + secrets[0]}, "Idempotency-Key",
							fmt.Sprint(round, i))
						require.Equal(t, 200, got.status, string(got.body))
						require.Equal(t, 200, w.do("POST", "/v1/chats/2/messages", message{"stays"}).status)
					})
				}
			}
			require.NotEmpty(t, w.traces(data[0]))
			asleep, dead := 1, 2
			pause(t, processes[asleep].Process)
			processes[dead].Kill()
			// What it could not store before it died.
			left, err := spool.Open(filepath.Join(data[dead], "spool"), spool.Options{}, logger())
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
				eventually(t, "no turn is held", func() bool { return w.look.Exists(ctx, "{chat_history:1}:turn").Val() == 0 })
				require.NoError(t, w.look.Del(ctx, "{chat_history:1}:meta").Err())
			}

			w.on(urls[0], func() {
				got := w.do("DELETE", "/v1/chats/1", nil)
				require.Equal(t, 200, got.status, string(got.body))
			})
			require.Empty(t, w.traces(data[0], data[3]), "Redis, and the disks of those who could be asked")
			require.NotEmpty(t, w.traces(data[asleep]))
			require.NotEmpty(t, w.traces(data[dead]))

			processes[asleep].Signal(syscall.SIGCONT)
			w.start(processes[dead].settings)
			eventually(t, "those who were away have applied it", func() bool { return len(w.traces(data...)) == 0 })
			w.on(urls[asleep], func() {
				require.Contains(t, string(w.do("GET", "/v1/chats/1", nil).body), `"histories":[]`)
				require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"a new beginning"}).status)
			})
			require.NotContains(t, strings.Join(w.stored("chat_history:1"), ""), secrets[0])
			require.NotEmpty(t, w.stored("chat_history:2"), "another chat is as it was")
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
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		contexts <- fmt.Sprint(r.Context)
		agent(ctx, r, emit)
	})
	ctx := context.Background()
	urls, _, processes := w.disks(2)
	post := func(url, text string) {
		w.on(url, func() {
			got := w.do("POST", "/v1/chats/1/messages", message{text}, "Idempotency-Key", text)
			require.Equal(t, 200, got.status, string(got.body))
		})
	}
	post(urls[0], "hello "+secrets[0])
	eventually(t, "no turn is held", func() bool { return len(w.keys("{chat_history:1}:turn")) == 0 })
	before := w.dump()  // the epoch too: nothing tells that Redis is another than before
	processes[1].Kill() // it never hears of the erasure
	w.on(urls[0], func() { require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status) })
	_, err := w.look.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for key, value := range before {
			p.Restore(ctx, key, 0, value)
		}
		return nil
	})
	require.NoError(t, err)
	other, _ := w.start(processes[1].settings)
	post(other, "not known there")
	for len(contexts) > 0 {
		<-contexts
	}
	post(urls[0], "a new beginning")
	require.NotContains(t, <-contexts, secrets[0])
	eventually(t, "it is erased once more", func() bool {
		return !strings.Contains(strings.Join(w.stored("chat_history:1"), ""), secrets[0])
	})
	post(other, "and on")
	require.NotContains(t, strings.Join(w.stored("chat_history:1"), ""), secrets[0])
	require.Contains(t, strings.Join(w.stored("chat_history:1"), ""), "not known there")
}

// dump is all that Redis holds, as RESTORE takes it.
func (w *world) dump() map[string]string {
	values := map[string]string{}
	for _, key := range w.keys("") {
		value, err := w.look.Dump(context.Background(), key).Result()
		if !errors.Is(err, redis.Nil) { // a key may have ended since it was listed
			require.NoError(w.t, err)
			values[key] = value
		}
	}
	return values
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
	w := newWorld(t, tells())
	ctx := context.Background()
	urls, data, _ := w.disks(2)
	post := func(url, chat, text string) {
		w.on(url, func() {
			got := w.do("POST", "/v1/chats/"+chat+"/messages", message{text}, "Idempotency-Key", text)
			require.Equal(t, 200, got.status, string(got.body))
		})
	}
	post(urls[0], "1", "hello "+secrets[0])
	post(urls[1], "1", "again "+secrets[0])
	post(urls[1], "2", "stays")
	eventually(t, "no turn is held", func() bool {
		return len(w.keys("{chat_history:1}:turn", "{chat_history:2}:turn")) == 0
	})
	before := w.dump()
	delete(before, "mneme:epoch")
	w.on(urls[0], func() { require.Equal(t, 200, w.do("DELETE", "/v1/chats/1", nil).status) })
	require.Empty(t, w.traces(data...))

	facts := w.look.ZRangeWithScores(ctx, "mneme:erasures", 0, -1).Val()
	require.NotEmpty(t, facts)

	_, err := w.look.TxPipelined(ctx, func(p redis.Pipeliner) error {
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
	eventually(t, "it is erased once more", func() bool {
		return len(w.keys("chat_history:1", "subagent:analytic:1", "events:1:", "run:1:")) == 0
	})
	require.NotEmpty(t, w.stored("chat_history:2"))
	post(urls[1], "1", "a new beginning")
	require.Len(t, w.stored("chat_history:1"), 2)
}
