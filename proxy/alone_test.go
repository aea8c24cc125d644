package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/ledger"
	"mneme/proxy/redisstore"
)

// aloneBeside lists configurations that use only the backend claude: without routes, beside a route, and as a
// route of one.
var aloneBeside = []func(*proxy.Config){
	func(*proxy.Config) {},
	func(c *proxy.Config) {
		c.Routes = map[string]proxy.RouteConfig{"main": {Use: []string{"claude", "kimi"}}}
	},
	func(c *proxy.Config) {
		c.Routes, c.Active = map[string]proxy.RouteConfig{"main": {Use: []string{"claude"}}}, "main"
	},
}

// requestTurns sends to Redis only the commands that requests cause. A gateway also asks for erasures each second.
type requestTurns struct{ ledger.Remote }

func (r requestTurns) Load(ctx context.Context, q ledger.Query) (ledger.Loaded, error) {
	if !q.ErasedSince.IsZero() {
		return ledger.Loaded{}, nil
	}
	return r.Remote.Load(ctx, q)
}

// Routes are free for requests to a single backend: the vendor gets the same bytes, and Redis the same commands.
func TestABackendAloneCostsTheSameBesideARoute(t *testing.T) {
	t.Parallel()
	random := regexp.MustCompile(`"signature":"[^"]*"|(toolu|call)_[A-Za-z0-9]+`)
	command := regexp.MustCompile(`cmdstat_(\w+):calls=\d+`)
	play := func(change func(*proxy.Config)) (sent, commands []string) {
		w := newWorld(t, claude, kimi)
		change(&w.config)
		redis := redistest.Start(t).Client()
		require.NoError(t, redis.ConfigResetStat(t.Context()).Err()) // the start of a server polls it
		w.config.Shared.Turns = requestTurns{redisstore.NewTurns(redis, redisstore.TurnLimits{})}
		w.config.TurnsWait = time.Minute // an answer ends after Redis has its turn
		for _, kind := range []string{"messages", "chat", "responses"} {
			c, m := w.gateway().anyClient(kind, "claude-opus-4-8")
			m.within("talk-" + kind)
			for range 2 {
				toolTurn(w.vendors["claude"], "it")
				require.Equal(t, "it is done.", c.say("And then?"))
			}
		}
		for _, r := range w.vendors["claude"].Requests() {
			sent = append(sent, random.ReplaceAllString(string(r.Body), "$1"))
		}
		stats, err := redis.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		for _, m := range command.FindAllStringSubmatch(stats, -1) {
			if !slices.Contains([]string{"hello", "client", "info"}, m[1]) { // of connections
				commands = append(commands, m[0])
			}
		}
		slices.Sort(commands)
		w.conforms(0)
		return sent, commands
	}
	sent, commands := play(aloneBeside[0])
	require.Len(t, sent, 12)
	require.NotEmpty(t, commands)
	for _, change := range aloneBeside[1:] {
		sentToo, commandsToo := play(change)
		require.Equal(t, sent, sentToo)
		require.Equal(t, commands, commandsToo)
	}
}

// Nor do they cost it allocations.
func TestABackendAloneAllocatesTheSameBesideARoute(t *testing.T) {
	if raced {
		t.Skip("the race detector drops what is pooled at random")
	}
	const body = `{"model":"claude-opus-4-8","max_tokens":2000,"messages":[{"role":"user","content":"Hello"}]}`
	fake := upstreamtest.New(upstreamtest.Config{})
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(body))
		r.Header.Set("Anthropic-Version", "2023-06-01")
		return r
	}
	said := httptest.NewRecorder()
	fake.ServeHTTP(said, request())
	require.Equal(t, 200, said.Code, said.Body)
	allocations := func(change func(*proxy.Config)) float64 {
		c := proxy.Config{Active: "claude", Backends: map[string]proxy.BackendConfig{
			"claude": {Kind: proxy.KindAnthropic, BaseURL: "http://vendor.test"},
			"kimi":   {Kind: proxy.KindAnthropic, BaseURL: "http://other.test"},
		}, Transport: answering{said.Result().Header, said.Body.Bytes()}}
		change(&c)
		gateway, err := proxy.New(c, zerolog.New(io.Discard))
		require.NoError(t, err)
		defer func() { require.NoError(t, gateway.Close()) }()
		handler := gateway.Handler()
		return testing.AllocsPerRun(2000, func() {
			w := discarding{header: http.Header{}}
			if handler.ServeHTTP(&w, request()); w.status != http.StatusOK {
				t.Fatal(w.status)
			}
		})
	}
	want := allocations(aloneBeside[0])
	for _, change := range aloneBeside[1:] {
		// What grows by itself, such as maps of turns, may be an allocation here or there.
		require.InDelta(t, want, allocations(change), 1)
	}
}

// An answer that is no stream and breaks off has given its client nothing yet: it is asked for once more.
func TestAWholeAnswerThatBreaksOffIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	for _, backend := range []backendCase{claude, kimiChat, gpt} {
		t.Run(backend.name, func(t *testing.T) {
			w := newWorld(t, backend)
			v, g := w.vendors[backend.name], w.gateway()
			half := upstreamtest.Reply(upstreamtest.Say("Half of this is not enough.")).CutAfter(1, false)
			v.Queue(half, upstreamtest.Reply(upstreamtest.Say("All of it.")), half, half)
			ask := func() answered {
				return g.ask("/v1/chat/completions", `{"model":"m","max_tokens":2000,"messages":[{"role":"user","content":"hi"}]}`)
			}
			got := ask()
			require.Equal(t, 200, got.status, got.body)
			require.Contains(t, got.body, "All of it.")
			require.Equal(t, "2", got.header.Get("X-AG-Attempts"))
			require.Equal(t, 502, ask().status)
			require.Equal(t, 4, v.Count(), "once more, and no more than that")
			w.conforms(0)
		})
	}
}
