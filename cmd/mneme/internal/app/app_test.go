package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
)

// up is a whole mneme in this process, on ports of its own.
type up struct {
	t     *testing.T
	addrs app.Addrs
	out   bytes.Buffer
	log   logged // what the services logged
	stop  func()
}

// logged keeps log lines. Safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// together runs all services in one process: each reaches the others in it or, with
// TEST_OVER_SOCKETS=1 in the environment of these tests, over the network.
var together = app.Up

func init() {
	if os.Getenv("TEST_OVER_SOCKETS") != "" {
		together = app.UpOverSockets
	}
}

func start(t *testing.T, environ ...string) *up {
	t.Helper()
	return startOnly(t, together, environ...)
}

// sharePDF has what reads PDFs compiled once, and not for every data directory.
func sharePDF(t *testing.T, dataDir string) {
	cache, err := os.UserCacheDir()
	if !strings.HasPrefix(dataDir, os.TempDir()) || err != nil || os.MkdirAll(filepath.Join(cache, "mneme", "pdfium"),
		0o700) != nil {
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dataDir, "cache"), 0o700))
	err = os.Symlink(filepath.Join(cache, "mneme", "pdfium"), filepath.Join(dataDir, "cache", "pdfium"))
	require.True(t, err == nil || os.IsExist(err), err)
}

// startOnly starts service with environ. Without MNEME_DATA_DIR it gets a temporary folder.
func startOnly(t *testing.T, service func(context.Context, config.Config, app.Options) error, environ ...string) *up {
	t.Helper()
	return startWith(t, service, nil, environ...)
}

// startWith starts service like startOnly and reaches the model vendors through network.
func startWith(t *testing.T, service func(context.Context, config.Config, app.Options) error, network http.RoundTripper,
	environ ...string) *up {
	t.Helper()
	cfg, err := config.Load("", mergeBackends(append([]string{
		"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0",
		"MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0", "MNEME_DATA_DIR=" + t.TempDir(),
	}, environ...)))
	require.NoError(t, err)
	sharePDF(t, cfg.DataDir)
	u := &up{t: t}
	u.addrs, u.stop = running(t, service, cfg, app.Options{Out: &u.out, Transport: network,
		Log: zerolog.New(io.MultiWriter(os.Stderr, &u.log)).Level(zerolog.WarnLevel)})
	return u
}

// backend returns the variable of a model backend. members are more lines of its YAML.
func backend(name, kind, baseURL string, members ...string) string {
	members = append([]string{"kind: " + kind, fmt.Sprintf("base_url: %q", baseURL)}, members...)
	return fmt.Sprintf("%s{%s: {%s}}", backendsVar, name, strings.Join(members, ", "))
}

const backendsVar = "MNEME_PROXY_BACKENDS="

// mergeBackends merges the variables of several backends into one.
func mergeBackends(environ []string) []string {
	var backends, others []string
	for _, v := range environ {
		if text, ok := strings.CutPrefix(v, backendsVar); ok {
			backends = append(backends, text[1:len(text)-1])
			continue
		}
		others = append(others, v)
	}
	if backends == nil {
		return others
	}
	return append(others, backendsVar+"{"+strings.Join(backends, ", ")+"}")
}

// running runs services in this process until stop or the end of the test. It rejects a relative data_dir,
// which would be a folder among the sources.
func running(t *testing.T, service func(context.Context, config.Config, app.Options) error, cfg config.Config,
	o app.Options) (addrs app.Addrs, stop func()) {
	t.Helper()
	require.True(t, filepath.IsAbs(cfg.DataDir), "data_dir is %s: set MNEME_DATA_DIR to t.TempDir()", cfg.DataDir)
	addrs, end, err := app.Start(context.Background(), service, cfg, o)
	require.NoError(t, err)
	stop = sync.OnceFunc(func() { require.NoError(t, end()) })
	t.Cleanup(stop)
	return addrs, stop
}

func (u *up) url(path string) string { return "http://" + u.addrs.Webmemory + path }

// say posts a message and waits for the answer.
func (u *up) say(chat, message string) string {
	u.t.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	require.NoError(u.t, err)
	resp, err := http.Post(u.url("/v1/chats/"+chat+"/messages"), "application/json", bytes.NewReader(body))
	require.NoError(u.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	require.Equal(u.t, http.StatusOK, resp.StatusCode, string(raw))
	var answer struct{ Content string }
	require.NoError(u.t, json.Unmarshal(raw, &answer))
	return answer.Content
}

// transcript are the events of a stream.
func transcript(t *testing.T, stream string) []event.Event {
	t.Helper()
	var events []event.Event
	in := sse.NewReader(strings.NewReader(stream), api.MaxEvent, 0, nil)
	for {
		frame, err := in.Next()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return events
		}
		e, err := event.Decode(frame.Data)
		require.NoError(t, err)
		events = append(events, e)
	}
}

// stream posts a message and reads the transcript to its end.
func (u *up) stream(chat, message string) []event.Event {
	u.t.Helper()
	body, err := json.Marshal(map[string]any{"message": message, "stream": true})
	require.NoError(u.t, err)
	resp, err := http.Post(u.url("/v1/chats/"+chat+"/messages"), "application/json", bytes.NewReader(body))
	require.NoError(u.t, err)
	defer resp.Body.Close()
	require.Equal(u.t, "text/event-stream", resp.Header.Get("Content-Type"))
	raw, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	events := transcript(u.t, string(raw))
	require.NotEmpty(u.t, events)
	require.True(u.t, events[len(events)-1].Terminal(), "the transcript ends with run_finished")
	return events
}

// The three scenarios of the original design, with the offline model as the README
// shows them, over both stores.
func TestScenarios(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	stores := map[string]func(t *testing.T) (environ []string, look *redis.Client){
		"embedded": func(t *testing.T) ([]string, *redis.Client) {
			return []string{"MNEME_DATA_DIR=" + t.TempDir()}, nil
		},
		"redis-server": func(t *testing.T) ([]string, *redis.Client) {
			server := redistest.Start(t)
			return []string{"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_REDIS_URL=" + server.URL()}, server.Client()
		},
	}
	stores["embedded, over sockets"] = stores["embedded"]
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			start := start
			if name == "embedded, over sockets" {
				start = func(t *testing.T, environ ...string) *up {
					return startOnly(t, app.UpOverSockets, environ...)
				}
			}
			environ, look := store(t)
			u := start(t, environ...)

			// Inside one request: the second delegation sees the first.
			require.Contains(t, u.say("12345", "Tell the analytic subagent that my name is Aliya, then ask it what my name is"),
				"Aliya")
			require.Contains(t, u.say("ru", "Скажи подагенту моё имя Алия, а потом спроси у него"), "Вас зовут Алия.")

			// What Redis holds.
			if look == nil {
				look = redis.NewClient(&redis.Options{Addr: u.addrs.Redis})
				t.Cleanup(func() { look.Close() })
			}
			raw, err := look.Get(context.Background(), "subagent:analytic:12345").Bytes()
			require.NoError(t, err)
			var messages []memory.Message
			require.NoError(t, json.Unmarshal(raw, &messages))
			var roles []string
			for _, m := range messages {
				roles = append(roles, m.Role)
			}
			require.Equal(t, []string{"user", "assistant", "user", "assistant"}, roles)

			// Across requests, and across a restart; another chat knows nothing.
			require.Contains(t, u.say("12345", "What is my name?"), "Aliya")
			u.stop()
			u = start(t, environ...)
			require.Contains(t, u.say("12345", "What is my name?"), "Aliya")
			require.Contains(t, u.say("ru", "Как меня зовут?"), "Али")
			require.NotContains(t, u.say("other", "What is my name?"), "Aliya")
		})
	}
}

// The stored histories are what the transcript says, message by message.
func TestTheTranscriptIsWhatIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	model := scriptedModel{otherwise: "knowledge", tasks: map[string][]task{
		"Rex is my dog":  {{"analytic", "My dog is called Rex."}, {"analytic", "What is my dog called?"}},
		"Say this to me": {},
	}}
	u := start(t, model.environ(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+server.URL())...)
	u.load(handbook)
	said := event.Copies{}
	for i, message := range []string{"Rex is my dog", "Say this to me", "What does a ferry ticket cost?"} {
		events := u.stream("7", message)
		require.Equal(t, "run_started", events[0].Role(), i)
		fold := event.NewHistories(memory.MustChat("7"), said)
		for n, e := range events {
			require.EqualValues(t, n+1, e.Seq)
			require.NoError(t, fold.Apply(e))
		}
	}
	look := server.Client()
	for key, want := range said {
		raw, err := look.Get(context.Background(), key.String()).Bytes()
		require.NoError(t, err, key.String())
		var stored []memory.Message
		require.NoError(t, json.Unmarshal(raw, &stored))
		require.Equal(t, want, stored, key.String())
	}
	keys, err := look.Keys(context.Background(), "*[a-z]:*7").Result()
	require.NoError(t, err)
	for _, k := range keys {
		if key, ok := memory.ParseKey(k); ok {
			require.Contains(t, said, key, "nothing is stored that was not told")
		}
	}
}

func TestStartErrorsAreOneClearSentence(t *testing.T) {
	t.Parallel()
	taken := start(t, "MNEME_DATA_DIR="+t.TempDir())
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"a taken port": {[]string{"MNEME_WEBMEMORY_LISTEN=" + taken.addrs.Webmemory}, taken.addrs.Webmemory +
			" is taken"},
		"a taken redis port": {[]string{"MNEME_REDIS_EMBEDDED_LISTEN=" + taken.addrs.Redis},
			"redis.embedded_listen"},
		"a data folder that is a file": {[]string{"MNEME_DATA_DIR=" + file}, file},
	} {
		t.Run(name, func(t *testing.T) {
			environ := append([]string{
				"MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_PROXY_LISTEN=127.0.0.1:0",
				"MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0", "MNEME_DATA_DIR=" + t.TempDir(),
			}, test.environ...)
			cfg, err := config.Load("", environ)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err = app.Up(ctx, cfg, app.Options{Log: zerolog.Nop()})
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestTheWelcomeNamesThreeCommands(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	for _, want := range []string{"curl -N http://" + u.addrs.Webmemory, "redis-cli", "mneme chat --chat 12345",
		"offline"} {
		require.Contains(t, u.out.String(), want)
	}
}

// The backends of the route that answers are named, also those behind its first choice.
func TestTheWelcomeNamesARoute(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), backend("far", "openai", "http://127.0.0.1:1/v1"),
		backend("near", "offline", ""), "MNEME_PROXY_ROUTES={main: {use: [far, near]}}")
	require.Contains(t, u.out.String(), "Model: master, of backend far, the first choice of route main (far, near).\n")
}

// A subagent with isolated calls remembers nothing, and nothing of it is stored.
func TestIsolatedCallsEndToEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	u := start(t, introduction("Oyuna").environ(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+server.URL(),
		"MNEME_AGENTS_SUBAGENTS=[{name: analytic, calls: isolated}, {name: knowledge}]")...)
	events := u.stream("1", "Introduce me")
	var responses []string
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *event.Delegation:
			require.Equal(t, event.Isolated, p.Calls)
		case *event.Completion:
			responses = append(responses, p.Response)
		}
	}
	require.Len(t, responses, 2)
	require.NotContains(t, responses[1], "Oyuna")
	require.ErrorIs(t, server.Client().Get(context.Background(), "subagent:analytic:1").Err(), redis.Nil)
}

// What is configured for the master comes behind the built-in prompt, or in its place.
func TestTheMastersPromptReachesTheModel(t *testing.T) {
	t.Parallel()
	fake := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat})
	vendor := httptest.NewServer(fake)
	t.Cleanup(vendor.Close)
	for variable, builtIn := range map[string]bool{
		"MNEME_AGENTS_MASTER_SYSTEM": true, "MNEME_AGENTS_MASTER_SYSTEM_REPLACE": false,
	} {
		u := start(t, "MNEME_DATA_DIR="+t.TempDir(), variable+"=You are Ada.",
			backend("real", "openai", vendor.URL+"/v1"))
		u.say("1", "Hello")
		body := string(fake.Last().Body)
		require.Contains(t, body, "You are Ada.", variable)
		require.Equal(t, builtIn, strings.Contains(body, "You have subagents, each offered to you as a tool"), variable)
		u.stop()
	}
}

// Vendors of either dialect answer with no other change.
func TestOtherKindsOfBackends(t *testing.T) {
	t.Parallel()
	for kind, vendor := range map[string]upstreamtest.Vendor{
		"openai": upstreamtest.Chat, "anthropic": upstreamtest.Anthropic,
	} {
		t.Run(kind, func(t *testing.T) {
			model := upstreamtest.New(upstreamtest.Config{Vendor: vendor, Answer: introduction("Oyuna").answer})
			server := httptest.NewServer(model)
			defer server.Close()
			base := server.URL
			if kind == "openai" {
				base += "/v1"
			}
			u := start(t, "MNEME_DATA_DIR="+t.TempDir(),
				backend("real", kind, base, `model_map: {"*": claude-opus-5-5}`))
			require.NotContains(t, u.out.String(), "offline")
			require.Contains(t, u.say("1", "Introduce me"), "My name is Oyuna. What is my name?")
			events := u.stream("1", "What is my name?")
			require.Equal(t, "run_finished", events[len(events)-1].Role())
			require.Empty(t, model.Rejections())
		})
	}
}
