package webmemory_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/embedded"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/spool"
	"mneme/webmemory"
)

// ordinary is a run as most are: two subagents are asked, and all answers come in
// pieces, 170 in all.
func ordinary(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	text := func(of event.Head, words int, delta func(string) event.Payload) string {
		var all strings.Builder
		for i := range words {
			piece := fmt.Sprintf("%s%d ", [...]string{"выручка", "quarter", "растёт", "the", "на", "margin"}[i%6], i*i%97)
			all.WriteString(piece)
			emit(of, delta(piece))
		}
		return all.String()
	}
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
	for i, name := range []memory.Agent{"analytic", "knowledge"} {
		of := event.Head{Subagent: name, CallID: fmt.Sprint("call_", i)}
		emit(of, &event.Delegation{Task: "What is known of this: " + r.Message, Calls: event.Serial})
		answer := text(of, 40, func(s string) event.Payload { return &event.SubagentDelta{Text: s} })
		emit(of, &event.Completion{Response: answer, Status: event.Completed, Usage: event.Usage{
			InputTokens: 812, OutputTokens: 97,
		}})
	}
	answer := text(event.Head{}, 90, func(s string) event.Payload { return &event.AssistantDelta{Text: s} })
	emit(event.Head{}, &event.Assistant{Content: answer})
	emit(event.Head{}, &event.RunFinished{
		Outcome: event.Completed, Usage: event.Usage{InputTokens: 2400, OutputTokens: 300},
	})
}

// small is a whole service over an embedded store in dir.
type small struct {
	*webmemorytest.World
	dir   string
	store *embedded.Server
	close func()
}

func newSmall(t testing.TB, dir string, a webmemorytest.Agent, change ...func(*webmemory.Config)) *small {
	t.Helper()
	store, err := embedded.Open(context.Background(), embedded.Options{
		Dir: filepath.Join(dir, "redis"), Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{
		Addr: "embedded", Dialer: store.Dial, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	histories := redisstore.New(client, zerolog.Nop())
	histories.Compact = store.Compact
	_ = histories.Turns.ReleaseAll(context.Background())
	appends, err := spool.Open(filepath.Join(dir, "spool"), spool.Options{}, zerolog.Nop())
	require.NoError(t, err)
	w := &webmemorytest.World{}
	w.Redis = client
	w.Runs = apiserver.New(apiserver.Config{EraseConversation: w.Gateway.Erase}, a, func() []api.SubagentInfo {
		return []api.SubagentInfo{{Name: "analytic"}, {Name: "knowledge"}}
	}, webmemorytest.Logger())
	w.Apiserver = httptest.NewServer(w.Runs.Handler())
	runs, err := api.NewClient(w.Apiserver.URL, nil)
	require.NoError(t, err)
	cfg := webmemory.Config{Agents: webmemorytest.AgentNames, SessionLogs: filepath.Join(dir, "logs")}
	for _, c := range change {
		c(&cfg)
	}
	server := webmemory.New(cfg, histories, cache.New(histories, 1<<20), appends, runs, zerolog.Nop())
	door := httptest.NewServer(server.Handler())
	w.URL = door.URL
	ended := false
	s := &small{World: w, dir: dir, store: store, close: func() {
		if ended {
			return
		}
		ended = true
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Drain(ctx)
		server.Close()
		door.CloseClientConnections()
		door.Close()
		runs.Close()
		_ = w.Runs.Close()
		w.Apiserver.CloseClientConnections()
		w.Apiserver.Close()
		require.NoError(t, appends.Close())
		_ = client.Close()
		require.NoError(t, store.Close())
	}}
	t.Cleanup(s.close)
	if t, ok := t.(*testing.T); ok {
		w.T = t
	}
	return s
}

// turns has n turns, over ten chats, and waits until the store is at rest: the logs are
// packed, and the journal has given its room back.
func (s *small) turns(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		resp, err := http.Post(fmt.Sprintf("%s/v1/chats/%d/messages", s.URL, i%10), "application/json",
			strings.NewReader(fmt.Sprintf(`{"message":"How did revenue and margin of product %d go last quarter?"}`, i)))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		resp.Body.Close()
	}
	ctx := context.Background()
	require.Eventually(t, func() bool {
		for _, key := range s.Redis.Keys(ctx, "events:*").Val() {
			if s.Redis.XLen(ctx, key).Val() > 10 {
				return false
			}
		}
		var bytes, live int64
		for line := range strings.Lines(s.Redis.Info(ctx, "persistence").Val()) {
			_, _ = fmt.Sscanf(line, "journal_bytes:%d", &bytes)
			_, _ = fmt.Sscanf(line, "journal_live_bytes:%d", &live)
		}
		return live > 0 && bytes-live <= max(8<<10, live/4)
	}, 30*time.Second, 20*time.Millisecond)
}

// size is what the store has on the disk, in bytes.
func (s *small) size(t testing.TB) (bytes int64) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(s.dir, "redis"))
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		bytes += info.Size()
	}
	return bytes
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// kept is what n turns leave in the store once they are over, per turn: bytes on the
// disk, and of memory in a process that opens it.
func kept(t testing.TB, n int) (disk, memory float64) {
	t.Helper()
	s := newSmall(t, t.TempDir(), ordinary)
	s.turns(t, n)
	size := s.size(t)
	s.close()
	before := heap()
	store, err := embedded.Open(context.Background(), embedded.Options{
		Dir: filepath.Join(s.dir, "redis"), Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	after := heap()
	require.NoError(t, store.Close())
	return float64(size) / float64(n), float64(after-before) / float64(n)
}

// keptAtMost is what a turn may leave in the embedded store once it is over, in bytes.
const keptAtMost = 8 << 10

func TestATurnLeavesLittleInTheEmbeddedStore(t *testing.T) {
	testtier.Slow(t)
	disk, memory := kept(t, 100)
	t.Logf("%.0f bytes on the disk and %.0f in memory per turn", disk, memory)
	require.LessOrEqual(t, disk, float64(keptAtMost))
	require.LessOrEqual(t, memory, float64(keptAtMost))
}

// BenchmarkEmbeddedTurn prints what an ordinary turn leaves in the embedded store.
func BenchmarkEmbeddedTurn(b *testing.B) {
	for b.Loop() {
		disk, memory := kept(b, 200)
		b.ReportMetric(disk, "disk-B/turn")
		b.ReportMetric(memory, "heap-B/turn")
	}
}

// An erasure answers when no file of the data directory has the text any more, also
// on a bot that is quiet afterwards.
func TestAnErasureLeavesNoTextInTheDataDirectory(t *testing.T) {
	t.Parallel()
	s := newSmall(t, t.TempDir(), ordinary)
	post := func(chat, text string) {
		t.Helper()
		require.Equal(t, http.StatusOK, s.Post(chat, text, "Idempotency-Key", "k"+text).Status)
	}
	with := func(text string) (found []string) {
		require.NoError(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if bytes.Contains(raw, []byte(text)) {
				found = append(found, path)
			}
			return err
		}))
		return found
	}
	for i := range 5 {
		post("erased", fmt.Sprint("classified matter ", i))
		post("kept", fmt.Sprint("other matter ", i))
		post("part", fmt.Sprint("partial matter ", i))
	}
	require.NotEmpty(t, with("classified matter"))
	require.Equal(t, http.StatusOK, s.Do("DELETE", "/v1/chats/erased", nil).Status)
	require.Empty(t, with("classified matter"))
	require.NotEmpty(t, with("other matter"))
	tombstones := func(chat string) []string {
		return []string{"{chat_history:" + chat + "}:meta", "{subagent:analytic:" + chat + "}:meta", "{subagent:knowledge:" +
			chat + "}:meta"}
	}
	// A scan sees nothing of what is deflated.
	require.Subset(t, tombstones("erased"), s.Redis.Keys(t.Context(), "*erased*").Val())

	task := "What is known of this: partial matter"
	require.NotEmpty(t, with(task))
	for _, name := range []string{"analytic", "knowledge"} {
		require.Equal(t, http.StatusOK, s.Do("DELETE", "/v1/chats/part/subagents/"+name+"/history", nil).Status)
	}
	require.Equal(t, http.StatusOK, s.Do("DELETE", "/v1/chats/part", nil).Status)
	require.Empty(t, with("partial matter"))
	require.Subset(t, tombstones("part"), s.Redis.Keys(t.Context(), "*:part*").Val())
	require.NotEmpty(t, with("other matter"))
	s.close()
	require.Empty(t, with("classified matter"))
}
