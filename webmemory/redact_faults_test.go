package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/memory/spool"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

const pin = "QX-4711-ZZ"

// told makes n processes with disks of their own, each of which has had a turn of chat 1; the first one has the pin in
// it.
func told(t *testing.T, n int) (w *webmemorytest.World, urls, data []string, processes []*process) {
	t.Helper()
	w = webmemorytest.NewWorld(t, gossip("no such text"))
	urls, data, processes = startChildren(w, n)
	for i, url := range urls {
		w.Target(url, func() {
			got := w.Post("1", []string{pin, "hello"}[min(i, 1)], "Idempotency-Key", fmt.Sprint(i))
			require.Equal(t, 200, got.Status, string(got.Body))
		})
	}
	return w, urls, data, processes
}

// startRedaction starts the redaction of a message of chat 1 and waits until so returns true. ended waits for the end of
// the request.
func startRedaction(w *webmemorytest.World, url, id string, so func() bool) (ended func()) {
	var asking sync.WaitGroup
	w.Target(url, func() {
		r := w.NewRequest("DELETE", "/v1/chats/1/messages/"+id, nil)
		asking.Go(func() {
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
			}
		})
	})
	webmemorytest.Eventually(w.T, "the redaction has begun", so)
	return asking.Wait
}

// isRedacted reports whether chat 1 has both exchanges and the first one is redacted.
func isRedacted(w *webmemorytest.World) bool {
	said := w.History("chat_history:1")
	return len(said) == 4 && said[0] == "user: "+memory.RedactedText && said[2] == "user: hello"
}

// Redis loses everything after a redaction, and a process that has not heard of it comes back with older copies, of
// histories and of runs: what it writes back is redacted again, also if the process that redacted was dead meanwhile.
func TestAnOlderCopyDoesNotUndoARedaction(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]bool{"the one that redacted lives": false, "it is dead meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, urls, data, processes := told(t, 2)
			processes[1].Pause()
			if dead { // and no other process has heard of the redaction, nor finds a request about it once it goes on
				w.Shutdown(w.URL)
				allowKeys(w, "[^m]*", "mneme:[^p]*") // all but the list of processes
			}
			ended := startRedaction(w, urls[0], storedIDs(w, "chat_history:1")[0], func() bool { return isRedacted(w) })
			if dead {
				processes[0].Kill()
				allowKeys(w, "*")
			}
			require.NoError(t, w.Redis.FlushAll(context.Background()).Err())
			processes[1].Signal(syscall.SIGCONT)
			if dead {
				webmemorytest.Eventually(t, "the older copy is written back", func() bool {
					return len(w.History("chat_history:1")) == 4
				})
				require.NotEmpty(t, placesOfText(w, pin))
				w.StartChild(processes[0].settings)
			}
			ended()
			webmemorytest.Eventually(t, "it is redacted", func() bool {
				return isRedacted(w) && len(placesOfText(w, pin, data...)) == 0
			})
		})
	}
}

// A process is killed in the middle of a redaction, at several places: once one runs on its disk again the redaction is
// whole, or was never begun; and it can be asked for again.
func TestAProcessIsKilledInARedaction(t *testing.T) {
	t.Parallel()
	w, urls, data, processes := told(t, 2)
	ctx := context.Background()
	id := storedIDs(w, "chat_history:1")[0]
	for _, so := range []func() bool{
		func() bool { return w.Redis.Exists(ctx, "{chat_history:1}:first").Val() == 1 },
		func() bool { return len(w.Redis.ZRange(ctx, "mneme:erasures", 0, -1).Val()) > 0 },
		func() bool { return isRedacted(w) },
	} {
		ended := startRedaction(w, urls[0], id, so)
		processes[0].Kill()
		ended()
		urls[0], processes[0].Process = w.StartChild(processes[0].settings)
	}
	webmemorytest.Eventually(t, "it is whole", func() bool {
		return isRedacted(w) && len(placesOfText(w, pin, data...)) == 0
	})
	w.Target(urls[0], func() { require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+id).Redacted, 10) })
	require.True(t, isRedacted(w))
}

// A process is killed at every few of the requests that a redaction makes of Redis. Nothing is redacted then, or
// without that it is asked for once more no byte of the text is left, and the chat goes on.
func TestAKilledRedactionIsFinished(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	ends := filepath.Join(disk, "ends")
	w := webmemorytest.NewWorld(t, gossip("no such text"), webmemorytest.ShortenLease,
		func(c *webmemory.Config) { c.EndStoreDir = ends })
	begun := 0
	for n, whole := int64(0), false; !whole; n += 1 + n/4 {
		chat := fmt.Sprint("r", n)
		secret := "QX-" + chat + "-ZZ"
		for _, text := range []string{"my pin is " + secret, "once more " + secret} {
			require.Equal(t, 200, w.Post(chat, text).Status)
		}
		ids := storedIDs(w, "chat_history:"+chat)
		rewindChat(t, w, chat, ids[1])
		require.Equal(t, 200, w.Do("PATCH", "/v1/chats/"+chat, `{"title":"of `+secret+`"}`).Status)
		before := exportChat(t, w, chat)
		way := newCutter(t, w.RedisServer.Addr)
		settings := w.ChildConfig()
		settings.Redis = []string{way.addr}
		settings.Spool, settings.Ends = filepath.Join(disk, "spool"), ends
		child, process := w.StartChild(settings)
		answered := make(chan webmemorytest.Response, 1)
		w.Target(child, func() {
			require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat, nil).Status)
			req := w.NewRequest("DELETE", "/v1/chats/"+chat+"/messages/"+ids[0], nil)
			way.left.Store(n)
			way.armed.Store(true)
			go func() { answered <- sendQuietly(w, req) }()
		})
		select {
		case a := <-answered:
			require.Equal(t, 200, a.Status, string(a.Body))
			whole = true
		case <-way.reached:
		}
		process.Kill()
		ctx, meta := t.Context(), "{chat_history:"+chat+"}:meta"
		webmemorytest.Eventually(t, "nothing is pending", func() bool {
			return !w.Redis.HExists(ctx, meta, "pending").Val() &&
				w.Redis.Exists(ctx, "{chat_history:"+chat+"}:turn", "{chat_history:"+chat+"}:first").Val() == 0
		})
		if !whole && exportChat(t, w, chat) == before {
			require.NotEmpty(t, w.Redis.Keys(ctx, "*"+chat+"*rewound*").Val(), "killed after %d requests", n)
			continue
		}
		begun++
		require.Empty(t, placesOfText(w, secret, w.SessionLogs, disk), "killed after %d requests", n)
		require.Equal(t, []string{"user: (redacted)", "assistant: (redacted)"}, w.History("chat_history:"+chat))
		require.NotContains(t, w.Gateway.Erased(), w.Redis.HGet(ctx, meta, "conversation").Val())
		require.Equal(t, 200, w.Post(chat, "and on").Status)
		require.NotContains(t, w.Gateway.Erased(), w.Redis.HGet(ctx, meta, "conversation").Val())
		require.Len(t, w.History("chat_history:"+chat), 4)
	}
	require.Greater(t, begun, 5)
	require.Positive(t, w.Metric(`mneme_faults_total{fault="half_change"}`), "it is told")
}

// Redactions of one message and of others at once, by several processes, all succeed.
func TestRedactionsAtOnce(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("fine"))
	urls := []string{w.URL, w.StartReplica()}
	for i := range 4 {
		require.Equal(t, 200, w.Post("1", fmt.Sprint(pin, i)).Status)
	}
	ids := storedIDs(w, "chat_history:1")
	var all sync.WaitGroup
	for i := range 6 {
		w.Target(urls[i%2], func() {
			req := w.NewRequest("DELETE", "/v1/chats/1/messages/"+ids[2*(i%4)], nil)
			all.Go(func() {
				if got := w.Send(req); got.Status != 200 {
					t.Errorf("%d: %s", got.Status, got.Body)
				}
			})
		})
	}
	all.Wait()
	require.Empty(t, placesOfText(w, pin, w.SessionLogs, w.Spools))
	require.Equal(t, ids, storedIDs(w, "chat_history:1"))
}

// What is in the archive is redacted there, also what no run made, by whichever process. A damaged part of the archive is said, and blocks nothing.
func TestRedactionInTheArchive(t *testing.T) {
	t.Parallel()
	short := func(c *webmemory.Config) { c.MaxHistory = 10 }
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("fine"), short)
	other := w.StartReplica(short)
	var b strings.Builder
	say := func(role, text string, i int) {
		fmt.Fprintf(&b, `{"message":{"role":%q,"content":%q,"timestamp":%d,"id":"m.%d"}}`+"\n", role, text, 1_700_000_000+i, i)
	}
	for i := range 600 {
		switch i {
		case 20:
			say("user", "My password is swordfish, keep it safe for me", i)
		case 21:
			say("assistant", "Swordfish. Noted.", i)
		case 22:
			say("tool", "remembered", i)
		case 300:
			say("user", "was it SWORDFISH?", i)
		case 400:
			say("user", "please keep it safe for all", i)
		case 23:
			say("user", "Next.", i)
		case 599:
			say("assistant", "it was swordfish", i)
		default:
			say([]string{"user", "assistant"}[i%2], "password? noted: nothing is said here, my dear, for I keep it", i)
		}
	}
	status, body := w.Do("POST", "/v1/chats/a/import", b.String()).Text()
	require.Equal(t, 201, status, body)
	w.Target(other, func() {
		require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "swordfish")), "wordfish")
	})
	ref := func(ids ...int) (all []webapi.MessageRef) {
		for _, id := range ids {
			all = append(all, webapi.MessageRef{ID: fmt.Sprint("m.", id)})
		}
		return all
	}
	got := redactMessage(w, "/v1/chats/a/messages/m.21?dry_run=true")
	require.Equal(t, ref(20, 21, 22), got.Redacted)
	require.Equal(t, got, redactMessage(w, "/v1/chats/a/messages/m.21"))
	require.NotEmpty(t, placesOfText(w, "SWORDFISH"))
	for _, id := range []string{"m.300", "m.599"} {
		require.Len(t, redactMessage(w, "/v1/chats/a/messages/"+id+"?scope=message").Redacted, 1)
	}
	for _, text := range []string{"wordfish", "SWORDFISH"} {
		require.Empty(t, placesOfText(w, text))
		w.Target(other, func() {
			require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "swordfish")), text)
		})
	}
	_, export := w.Do("GET", "/v1/chats/a/export", nil).Text()
	require.Equal(t, 601, strings.Count(export, "\n"))
	require.Contains(t, export, `{"message":{"role":"user","content":"(redacted)","timestamp":1700000020,"id":"m.20"}}`)

	ctx := context.Background()
	archive := "{chat_history:a}:archive"
	require.NoError(t, w.Redis.HSet(ctx, archive, "0", strings.Repeat("[{", 100)).Err())
	got = redactMessage(w, "/v1/chats/a/messages/m.500")
	require.True(t, got.Partial)
	require.Len(t, got.Redacted, 2)
	require.Equal(t, 404, w.Do("DELETE", "/v1/chats/a/messages/m.2", nil).Status)
}

// What goes on while a redaction is asked for is stopped, and is in the chat with what was said until then.
func TestRedactionOfARunUnderWay(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	url, _ := w.StartChild(w.ChildConfig())
	w.Target(url, func() { w.PostStream("1", pin).Until("subagent_delegation") })
	id := storedIDs(w, "chat_history:1")[0]
	require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+id).Redacted, 4)
	require.Empty(t, placesOfText(w, pin, w.SessionLogs, w.Spools))
	require.Equal(t, []string{"user: (redacted)", "assistant: (redacted)"}, w.History("chat_history:1"))
	require.Equal(t, []string{"user: (redacted)", "assistant: (redacted)"}, w.History("subagent:analytic:1"))
}

// A history that another program or a version before wrote is redacted by the ids that an export shows.
func TestRedactionWithoutIDs(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("fine"))
	require.NoError(t, w.Redis.Set(context.Background(), "chat_history:1", `[{"role":"user","content":"hello"},
		{"role":"assistant","content":"hello"},{"role":"user","content":"`+pin+`"},{"role":"assistant","content":"`+pin+`",
		"extra":"`+pin+`"},{"role":"user","content":"hello"}]`, 0).Err())
	_, export := w.Do("GET", "/v1/chats/1/export", nil).Text()
	var line webapi.ExportLine
	require.NoError(t, json.Unmarshal([]byte(strings.Split(export, "\n")[3]), &line))
	var m memory.Message
	require.NoError(t, json.Unmarshal(line.Message, &m))
	require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+m.ID).Redacted, 2)
	require.Empty(t, placesOfText(w, pin, w.SessionLogs, w.Spools))
	require.Equal(t, []string{"user: hello", "assistant: hello", "user: (redacted)", "assistant: (redacted)",
		"user: hello"}, w.History("chat_history:1"))
	_, after := w.Do("GET", "/v1/chats/1/export", nil).Text()
	require.Equal(t, strings.Count(export, `"id":"x`), strings.Count(after, `"id":"x`))
}

// What a dead process has of a redacted run in its spool dies there; what it has of others is stored.
func TestRedactionReachesSpools(t *testing.T) {
	t.Parallel()
	w, urls, data, processes := told(t, 2)
	webmemorytest.Eventually(t, "no turn is held", func() bool { return len(w.Keys("{chat_history:1}:turn")) == 0 })
	processes[1].Kill()
	id := storedIDs(w, "chat_history:1")[0]
	run, _, _ := memory.SplitID(id)
	left, err := spool.Open(filepath.Join(data[1], "spool"), spool.Options{}, webmemorytest.Logger())
	require.NoError(t, err)
	turn := time.Now().UnixMilli()
	key := memory.SubagentKey("knowledge", memory.MustChat("1"))
	add := func(run string, seq int64, text string) {
		m := memory.Message{Role: memory.RoleAssistant, Content: text, Timestamp: event.Seconds(time.Now()),
			ID: memory.MessageID(run, seq)}
		mark := memory.Mark{Run: run, Seq: seq, Turn: turn}
		require.NoError(t, left.Add(spool.Entry{Queue: spool.History(key), Mark: mark, Bytes: m.Encode()},
			spool.Entry{Queue: spool.Events(key.Chat()), Mark: mark, Bytes: []byte(pin)}))
	}
	add(run, 90, pin)
	add("AAAAAAAAAAAAAAAAAAAAAAAAAA", 1, "stays")
	require.NoError(t, left.Close())
	w.Target(urls[0], func() { redactAll(w, id, pin) })
	require.Empty(t, placesOfText(w, pin, data[0]))
	require.NotEmpty(t, placesOfText(w, pin, data[1]))
	_, processes[1].Process = w.StartChild(processes[1].settings)
	webmemorytest.Eventually(t, "what is not redacted is stored", func() bool {
		return strings.Contains(strings.Join(w.History(key.String()), " "), "stays")
	})
	webmemorytest.Eventually(t, "nothing is left", func() bool { return len(placesOfText(w, pin, data...)) == 0 })
}

// A Redis that comes back as it was before a redaction is made to forget again, and the first post after it uses
// nothing of what was redacted.
func TestARedactionOutlivesRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, gossip("no such text"))
	urls, data := startReplicas(w, 2)
	for i, url := range urls {
		w.Target(url, func() {
			require.Equal(t, 200, w.Post("1", fmt.Sprint(pin, " in turn ", i)).Status)
		})
	}
	webmemorytest.Eventually(t, "no turn is held", func() bool { return len(w.Keys("{chat_history:1}:turn")) == 0 })
	before := dumpRedis(w) // the epoch too: nothing tells that Redis is another than before
	w.Target(urls[0], func() { redactAll(w, storedIDs(w, "chat_history:1")[0], pin) })
	require.Empty(t, placesOfText(w, pin, data...))
	loadRedis(w, before)
	require.NotEmpty(t, placesOfText(w, pin))
	w.Target(urls[1], func() {
		got := w.Post("1", "and on")
		require.Equal(t, 200, got.Status, string(got.Body))
	})
	require.Empty(t, placesOfText(w, pin, data...))
	require.Len(t, w.History("chat_history:1"), 6)
}

// A process that knows of a redaction, and has an older copy than the one that was redacted, brings nothing of the text
// back when Redis loses everything.
func TestAnOlderCopyIsRedactedWhereItLies(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers(pin))
	ctx := context.Background()
	for range 2 {
		require.Equal(t, 200, w.Post("1", pin).Status)
	}
	run, _, _ := memory.SplitID(storedIDs(w, "chat_history:1")[0])
	name := erasures.Redaction{Chat: memory.MustChat("1"), Run: run}.Name()
	later := float64(time.Now().Add(time.Minute).UnixMilli())
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:erasures", redis.Z{Score: later, Member: name}).Err())
	webmemorytest.Eventually(t, "it has heard of it", func() bool { return !exists(w.SessionLogs, "1") })
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	webmemorytest.Eventually(t, "the copy is written back", func() bool { return len(w.History("chat_history:1")) == 4 })
	require.Equal(t, []string{"user: (redacted)", "assistant: (redacted)", "user: " + pin, "assistant: " + pin},
		w.History("chat_history:1"))
	require.Equal(t, 200, w.Post("1", "and on").Status)
	require.Equal(t, "user: (redacted)", w.History("chat_history:1")[0])
}

// exists says whether a chat has a session log in a folder.
func exists(folder, chat string) bool {
	_, err := os.Stat(filepath.Join(folder, "memory_"+chat+".log"))
	return err == nil
}
