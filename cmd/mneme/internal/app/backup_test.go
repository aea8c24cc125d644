package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
)

var told = regexp.MustCompile(`[Mm]y name is (\w+)`)

// listener is a model that gives every message to the analytic subagent, which
// knows a name only if its history has it. A message with "wait" is answered when
// the returned function was called.
func listener(t *testing.T) (baseURL string, goOn func()) {
	gate := make(chan struct{})
	s := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			master := false
			for _, tool := range r.Tools {
				master = master || tool.Name == "analytic"
			}
			var a upstreamtest.Answer
			switch name := told.FindSubmatch(r.Body); {
			case master && len(r.Results) > 0:
				a = upstreamtest.Reply(upstreamtest.Say(strings.Join(r.Results, " ")))
			case master:
				task, _ := json.Marshal(map[string]string{"task": r.User})
				a = upstreamtest.Reply(upstreamtest.Use("analytic", string(task)))
			case strings.HasSuffix(r.User, "please wait"):
				<-gate
				a = upstreamtest.Reply(upstreamtest.Say("waited"))
			case name != nil:
				a = upstreamtest.Reply(upstreamtest.Say("You are " + string(name[1]) + "."))
			default:
				a = upstreamtest.Reply(upstreamtest.Say("I do not know you."))
			}
			return &a
		}})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL + "/v1", func() { close(gate) }
}

// kept is a stack with a store that is saved and restored.
type kept struct {
	t       *testing.T
	environ []string
}

func (k kept) config(environ ...string) config.Config {
	cfg, err := config.Load("", append(append([]string{}, k.environ...), environ...))
	require.NoError(k.t, err)
	return cfg
}

func (k kept) save(environ ...string) []byte {
	k.t.Helper()
	var file bytes.Buffer
	_, err := app.Backup(context.Background(), k.config(environ...), &file, zerolog.Nop(), func(backup.Summary) {})
	require.NoError(k.t, err)
	return file.Bytes()
}

func (k kept) restore(file []byte, replace bool, environ ...string) (aside string, err error) {
	_, err = backup.Verify(bytes.NewReader(file))
	require.NoError(k.t, err)
	_, aside, err = app.Restore(context.Background(), k.config(environ...), bytes.NewReader(file), replace, zerolog.Nop(),
		func(backup.Summary) {})
	return aside, err
}

// histories are the stored bytes of these histories.
func histories(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range []memory.Key{memory.ChatKey(memory.MustChat("12345")),
		memory.SubagentKey("analytic", memory.MustChat("12345")), memory.ChatKey(memory.MustChat("open")),
		memory.SubagentKey("analytic", memory.MustChat("open"))} {
		all[key.String()] = c.Get(t.Context(), key.String()).Val()
	}
	return all
}

func keysOf(t *testing.T, c *redis.Client) []string {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	return keys
}

// check talks to a stack on what was restored.
func (k kept) check(u *up, want map[string]string, c *redis.Client) {
	k.t.Helper()
	got := histories(k.t, c)
	for _, key := range []string{"chat_history:12345", "subagent:analytic:12345"} {
		require.NotEmpty(k.t, got[key])
		require.Equal(k.t, want[key], got[key])
	}
	require.Equal(k.t, "You are Aliya.", u.say("12345", "What is my name?"))
	require.Equal(k.t, "I do not know you.", u.say("other", "What is my name?"))
	_, documents := u.request("GET", "/v1/collections/docs/documents/ferry.md", "", "")
	require.Contains(k.t, documents, "14 crowns")
	// The run that was open is brought to its end, and the chat goes on.
	require.Eventually(k.t, func() bool {
		return !c.HExists(k.t.Context(), "{chat_history:open}:meta", "open").Val() &&
			c.ZCard(k.t.Context(), "turns:open").Val() == 0
	}, time.Minute, 10*time.Millisecond)
	now := histories(k.t, c)["chat_history:open"]
	require.True(k.t, strings.HasPrefix(now, strings.TrimSuffix(want["chat_history:open"], "]")), "%s then %s",
		want["chat_history:open"], now)
	require.Equal(k.t, "You are Oyuna.", u.say("open", "What is my name?"))
}

// A backup is made while mneme runs, one run open, and restored into an embedded
// store and into a Redis, and from there into an embedded one again: histories are
// the same bytes, and what was said is known.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	model, goOn := listener(t)
	k := kept{t, []string{"MNEME_PROXY_ACTIVE=m", backend("m", "openai", model),
		// The same port for all of them: on it the next process knows nothing of the open run.
		"MNEME_APISERVER_LISTEN=" + freeport.Addr(t)}}
	data := "MNEME_DATA_DIR=" + t.TempDir()
	u := start(t, append(k.environ, data)...)
	require.Equal(t, "You are Aliya.", u.say("12345", "My name is Aliya"))
	require.Equal(t, "You are Oyuna.", u.say("open", "My name is Oyuna"))
	u.load(map[string]string{"ferry.md": "A ferry ticket costs 14 crowns."})
	ended := make(chan struct{})
	go func() { defer close(ended); u.say("open", "please wait") }()
	port := redis.NewClient(&redis.Options{Addr: u.addrs.Redis})
	defer port.Close()
	require.Eventually(t, func() bool { // the subagent was asked
		return strings.Contains(histories(t, port)["subagent:analytic:open"], "please wait")
	}, time.Minute, 10*time.Millisecond)

	want, keys := histories(t, port), keysOf(t, port)
	file := k.save(data, "MNEME_REDIS_EMBEDDED_LISTEN="+u.addrs.Redis)
	_, err := k.restore(file, true, data)
	require.ErrorContains(t, err, "data is in use by process")
	goOn()
	<-ended
	u.stop()

	t.Run("embedded, wiped", func(t *testing.T) {
		k := kept{t, k.environ}
		fresh := "MNEME_DATA_DIR=" + filepath.Join(t.TempDir(), "new")
		require.NoError(t, os.Mkdir(strings.TrimPrefix(fresh, "MNEME_DATA_DIR="), 0o700))
		aside, err := k.restore(file, false, fresh)
		require.NoError(t, err)
		require.Empty(t, aside)
		u := start(t, append(k.environ, fresh)...)
		port := redis.NewClient(&redis.Options{Addr: u.addrs.Redis})
		defer port.Close()
		k.check(u, want, port)
	})
	t.Run("embedded, replaced", func(t *testing.T) {
		k := kept{t, k.environ}
		_, err := k.restore(file, false, data)
		require.ErrorContains(t, err, "the store is not empty, it holds chat_history:")
		aside, err := k.restore(file, true, data)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(aside, "journal"))
		require.NotEqual(t, k.save(data), file)
		u := start(t, append(k.environ, data)...)
		port := redis.NewClient(&redis.Options{Addr: u.addrs.Redis})
		defer port.Close()
		k.check(u, want, port)
	})
	t.Run("a Redis, and back", func(t *testing.T) {
		k := kept{t, k.environ}
		server := redistest.Start(t, "--appendonly", "yes")
		at := "MNEME_REDIS_URL=" + server.URL()
		_, err := k.restore(file, false, at)
		require.NoError(t, err)
		require.Subset(t, append(keysOf(t, server.Client()), "proxy:turns:born", "{chat_history:open}:turn",
			"mneme:chats"), keys,
			"whatever a running mneme keeps is saved or known to be left out")
		u := start(t, append(k.environ, at, "MNEME_DATA_DIR="+t.TempDir())...)
		k.check(u, want, server.Client())
		_, err = k.restore(file, true, at)
		require.ErrorContains(t, err, "this Redis is in use: a service of mneme is connected to it from ")
		again := k.save(at) // while it runs
		want := histories(t, server.Client())
		u.stop()
		_, err = k.restore(again, false, at)
		require.ErrorContains(t, err, "the store is not empty")

		back := "MNEME_DATA_DIR=" + t.TempDir()
		_, err = k.restore(again, false, back)
		require.NoError(t, err)
		u = start(t, append(k.environ, back)...)
		port := redis.NewClient(&redis.Options{Addr: u.addrs.Redis})
		defer port.Close()
		k.check(u, want, port)
	})
}

func TestABackupNeedsAStore(t *testing.T) {
	t.Parallel()
	k := kept{t: t}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	_, err := app.Backup(t.Context(), k.config("MNEME_DATA_DIR="+nowhere), &bytes.Buffer{}, zerolog.Nop(),
		func(backup.Summary) {})
	require.ErrorContains(t, err, "there is no store in "+filepath.Join(nowhere, "redis"))
	require.NoDirExists(t, nowhere)

	data := "MNEME_DATA_DIR=" + t.TempDir()
	start(t, data)
	for listen, want := range map[string]string{
		"":                      "which has no port to read it through (redis.embedded_listen): stop it first",
		"127.0.0.1:1":           "its store cannot be read on 127.0.0.1:1 (redis.embedded_listen)",
		redistest.Start(t).Addr: "but another one listens on",
	} {
		cfg := k.config(data)
		cfg.Redis.EmbeddedListen = listen
		_, err = app.Backup(t.Context(), cfg, &bytes.Buffer{}, zerolog.Nop(), func(backup.Summary) {})
		require.ErrorContains(t, err, want)
	}
}
