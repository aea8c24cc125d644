package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// routed is a world whose active route has its backends, in their order.
func routed(t tester, backends ...backendCase) *world {
	w := newWorld(t, backends...)
	var use []string
	for _, b := range backends {
		use = append(use, b.name)
	}
	w.config.Routes, w.config.Active = map[string]proxy.RouteConfig{"main": {Use: use}}, "main"
	return w
}

// calls is how many calls of a model a vendor has got.
func (w *world) calls(name string) int { return len(w.vendors[name].Requests()) }

// A backend that fails is tried once more, and then the next one of the route is asked; what it says of the request
// itself is the client's.
func TestARouteGoesOnToItsNextBackend(t *testing.T) {
	t.Parallel()
	twice := func(f upstreamtest.Fault) []upstreamtest.Fault { return []upstreamtest.Fault{f, f} }
	for name, test := range map[string]struct {
		faults []upstreamtest.Fault
		stream bool
		status int // of the client's answer
		first  int // calls at the first backend
		second int
	}{
		"one overload":            {faults: []upstreamtest.Fault{upstreamtest.Overloaded()}, status: 200, first: 2},
		"overloaded":              {faults: twice(upstreamtest.Overloaded()), status: 200, first: 2, second: 1},
		"rate limited":            {faults: twice(upstreamtest.RateLimited(0)), status: 200, first: 2, second: 1},
		"rate limited for long":   {faults: twice(upstreamtest.RateLimited(600)), status: 200, first: 1, second: 1},
		"an error of the server":  {faults: twice(upstreamtest.Canned(500, "")), status: 200, first: 2, second: 1},
		"no answer":               {faults: twice(upstreamtest.Dropped()), status: 200, first: 2, second: 1},
		"an error as first event": {faults: twice(upstreamtest.ErrorFirst(wire.Messages, 529, "Overloaded")), stream: true, status: 200, first: 2, second: 1},
		"a key that is refused":   {faults: twice(upstreamtest.Canned(401, "")), status: 200, first: 1, second: 1},
		"no credit":               {faults: twice(upstreamtest.Canned(402, "")), status: 200, first: 1, second: 1},
		"a request that is none":  {faults: twice(upstreamtest.Opaque()), status: 400, first: 1},
		"a content that is refused": {faults: twice(upstreamtest.Canned(400,
			`{"error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`)), status: 400,
			first: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := routed(t, claude, kimi)
			c := w.gateway().messages("claude-opus-4-8")
			c.stream = test.stream
			w.vendors["claude"].Fail(test.faults...)
			c.user(textOf("Hello"))
			got := c.post()
			require.Equal(t, test.status, got.status, got.body)
			require.Equal(t, test.first, w.calls("claude"))
			require.Equal(t, test.second, w.calls("kimi"))
			require.Equal(t, []string{"claude", "kimi"}[min(test.second, 1)], got.header.Get("X-AG-Backend"))
			w.refusedAtMost(0)
		})
	}
}

func TestARouteWhoseFirstBackendIsDown(t *testing.T) {
	t.Parallel()
	w := routed(t, claude, kimiChat)
	b := w.config.Backends["claude"]
	b.BaseURL = "http://127.0.0.1:1"
	w.config.Backends["claude"] = b
	g := w.gateway()
	for range 30 { // its circuit opens on the way
		c := g.messages("claude-opus-4-8")
		c.user(textOf("Hello"))
		got := c.post()
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, "kimi-chat", got.header.Get("X-AG-Backend"))
	}
	require.Contains(t, g.metrics("route_moves_total"), `backend="claude",reason="vendor_failed"`)
	w.refusedAtMost(0)
}

// A backend that hangs is left when its time is over, and all together have the time of one call.
func TestARouteLeavesABackendThatHangs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := routed(t, claude, kimi)
	released := make(chan struct{})
	defer close(released)
	hang := upstreamtest.Canned(500, "")
	hang.Pause = upstreamtest.Until(released)
	w.config.Limits.Upstream.FirstByte = 2 * time.Second // kimi must answer within it
	w.vendors["claude"].Fail(hang, hang)
	c := w.gateway().messages("claude-opus-4-8")
	c.user(textOf("Hello"))
	require.Equal(t, "kimi", c.post().header.Get("X-AG-Backend"))

	w.config.Limits.Upstream = upstream.Limits{FirstByte: time.Minute, Total: 50 * time.Millisecond}
	w.vendors["claude"].Fail(hang, hang)
	w.vendors["kimi"].Fail(hang, hang)
	c = w.gateway().messages("claude-opus-4-8")
	c.user(textOf("Hello"))
	require.Equal(t, 504, c.post().status)
	w.refusedAtMost(0)
}

// The client gets the first choice's error, as it would without the route.
func TestARouteOfWhichAllFail(t *testing.T) {
	t.Parallel()
	w := routed(t, claude, kimiChat)
	w.vendors["claude"].Fail(upstreamtest.Overloaded(), upstreamtest.Overloaded())
	for range 3 {
		w.vendors["kimi-chat"].Fail(upstreamtest.RateLimited(0))
	}
	c := w.gateway().messages("claude-opus-4-8")
	c.user(textOf("Hello"))
	got := c.post()
	require.Equal(t, 529, got.status)
	require.Contains(t, got.body, `"type":"error"`)
	require.Equal(t, "claude", got.header.Get("X-AG-Backend"))
	w.refusedAtMost(0)
}

// Behind the first byte of an answer nothing moves.
func TestARouteStaysWithAnAnswerThatHasBegun(t *testing.T) {
	t.Parallel()
	w := routed(t, claude, kimi)
	c := w.gateway().messages("claude-opus-4-8")
	c.stream = true
	c.user(textOf("Hello"))
	w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Say(strings.Repeat("words ", 50))).CutAfter(4, false))
	got := c.post()
	require.Contains(t, got.body, "event: error")
	require.Equal(t, 0, w.calls("kimi"))
	w.refusedAtMost(0)
}

// A tool loop stays where it went, through whichever gateway; the next question goes to a first choice that is well,
// which gets its own thinking back.
func TestAToolLoopStaysWhereItWent(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, second := range []backendCase{kimi, kimiChat} {
		for _, client := range []string{
			"messages", "chat", "responses", "messages without an id", "chat without an id", "responses without an id",
			"messages with notes", "chat with notes", "responses with notes",
		} {
			kind, nameless := strings.CutSuffix(client, " without an id")
			kind, notes := strings.CutSuffix(kind, " with notes")
			t.Run(second.name+" "+client, func(t *testing.T) {
				w := routed(t, claude, second)
				w.config.Limits.Return = time.Nanosecond
				w.shares(redistest.Start(t))
				left, right := w.gateway(), w.gateway()
				c, m := left.anyClient(kind, "claude-opus-4-8")
				if notes {
					notesResults(c)
				}
				if !nameless {
					m.within("talk")
				}
				m.alternate = []*front{right, left}
				toolTurn(w.vendors["claude"], "first")
				require.Equal(t, "first is done.", c.say("One"))
				w.vendors["claude"].Fail(upstreamtest.Overloaded(), upstreamtest.Overloaded())
				toolTurn(w.vendors[second.name], "second")
				toolTurn(w.vendors["claude"], "third")
				require.Equal(t, "second is done.", c.say("Two"))
				require.Equal(t, 2, w.calls(second.name), "the results went where the call came from")
				require.Equal(t, "third is done.", c.say("Three"))
				require.Equal(t, 2, w.calls(second.name))
				require.Equal(t, 2+2+2, w.calls("claude"))
				w.conforms(0)
			})
		}
	}
}

// The same of tools whose input is a text, which Responses have.
func TestALoopOfCustomToolsStaysWhereItWent(t *testing.T) {
	t.Parallel()
	w := routed(t, claude, kimi)
	c := w.gateway().responses("claude-opus-4-8")
	c.within("talk")
	ask := func() answered {
		got := c.send("/v1/responses", fmt.Appendf(nil,
			`{"model":"claude-opus-4-8","input":%s,"tools":[{"type":"custom","name":"patch"}]}`, marshal(c.input)))
		require.Equal(t, 200, got.status, got.body)
		return got
	}
	w.vendors["claude"].Fail(upstreamtest.Overloaded(), upstreamtest.Overloaded())
	w.vendors["kimi"].Queue(upstreamtest.Reply(upstreamtest.Use("patch", `{"input":"a line"}`)))
	c.add(map[string]string{"role": "user", "content": "Patch it."})
	called := gjson.Get(ask().body, `output.#(type=="custom_tool_call")`)
	require.True(t, called.Exists())
	c.add(json.RawMessage(called.Raw))
	c.add(map[string]string{"type": "custom_tool_call_output", "call_id": called.Get("call_id").Str, "output": "Done."})
	require.Equal(t, "kimi", ask().header.Get("X-AG-Backend"))
	w.refusedAtMost(0)
}

// notesResults has a client put a note of the system behind the results of tools, as Claude Code does.
func notesResults(c agent) {
	const note = "There are tokens left."
	switch c := c.(type) {
	case *messagesClient:
		c.damage = func(history []message) (noted []message) {
			for _, m := range history {
				if noted = append(noted, m); m.content[0].Type == "tool_result" {
					noted = append(noted, message{role: "system", content: []block{textOf(note)}, plain: true})
				}
			}
			return noted
		}
	case *chatClient:
		c.damage = func(history []chatMessage) (noted []chatMessage) {
			for _, m := range history {
				if noted = append(noted, m); m.Role == "tool" {
					noted = append(noted, chatMessage{Role: "system", Content: new(note)})
				}
			}
			return noted
		}
	case *responsesClient:
		c.damage = func(input []json.RawMessage) (noted []json.RawMessage) {
			for _, item := range input {
				if noted = append(noted, item); strings.Contains(string(item), "_call_output") {
					noted = append(noted, json.RawMessage(`{"type":"message","role":"developer","content":"`+note+`"}`))
				}
			}
			return noted
		}
	}
}

// Keys of a backend: a conversation keeps to one; one that is refused, or is to wait, is left alone for a while.
func TestKeysOfABackend(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	revoked := ""
	observed := claude.with("claude", func(c *upstreamtest.Config) {
		c.Fault = func(r *upstreamtest.Request) *upstreamtest.Fault {
			mu.Lock()
			defer mu.Unlock()
			key := r.Header.Get("X-Api-Key")
			asked[key]++
			if key == revoked {
				f := upstreamtest.Canned(http.StatusUnauthorized, "")
				return &f
			}
			return nil
		}
	})
	w := routed(t, observed)
	w.config.Routes["main"] = proxy.RouteConfig{Use: []string{"claude"}, Keys: map[string][]proxy.Key{
		"claude": {{Name: "KEY_A", Value: "key-a-0123456789"}, {Name: "KEY_B", Value: "key-b-0123456789"},
			{Name: "KEY_C", Value: "key-c-0123456789"}}}}
	g := w.gateway()
	call := func(conversation string) string {
		c := g.messages("claude-opus-4-8")
		c.within(conversation)
		c.user(textOf("Hello"))
		got := c.post()
		require.Equal(t, 200, got.status, got.body)
		return got.header.Get("X-AG-Backend")
	}
	keys := map[string]string{}
	for i := range 60 {
		id := fmt.Sprintf("c%d", i)
		keys[id] = call(id)
		require.Equal(t, keys[id], call(id), "a conversation keeps to its key")
	}
	require.Len(t, asked, 3)
	for key, n := range asked {
		require.Greater(t, n, 10, "key %s", key)
		require.Contains(t, []string{"key-a-0123456789", "key-b-0123456789", "key-c-0123456789"}, key)
	}
	for range 20 { // also one without a name, once it has an answer that is its own
		c := g.messages("claude-opus-4-8")
		c.user(textOf("Hello"))
		w.vendors["claude"].Queue(upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Say("Hello.")))
		got := c.post()
		c.history = append(c.history, message{role: "assistant", content: readMessages(w, got)})
		c.user(textOf("And then?"))
		require.Equal(t, got.header.Get("X-AG-Backend"), c.post().header.Get("X-AG-Backend"))
	}
	mu.Lock()
	revoked, asked = "key-b-0123456789", map[string]int{}
	mu.Unlock()
	for id, before := range keys {
		now := call(id)
		require.NotEqual(t, "claude:KEY_B", now)
		if before != "claude:KEY_B" {
			require.Equal(t, before, now, "other conversations stay")
		}
	}
	require.Equal(t, 1, asked[revoked], "it is not asked again for a while")
	require.NotContains(t, w.log.String(), "0123456789")
	w.refusedAtMost(0)
}

// The share of the prompts that each account of a route has read from its cache is what its metrics say.
func TestTheCachedShareOfEachKey(t *testing.T) {
	t.Parallel()
	type counted struct{ prompt, read float64 }
	var mu sync.Mutex
	told := map[string]*counted{"claude:KEY_A": {}, "claude:KEY_B": {}}
	w := routed(t, claude.with("claude", func(c *upstreamtest.Config) {
		c.PromptCache = true
		c.Observe = func(r upstreamtest.Request) {
			mu.Lock()
			defer mu.Unlock()
			of := told["claude:"+r.Header.Get("X-Api-Key")]
			of.prompt, of.read = of.prompt+float64(r.Prompt), of.read+float64(r.CacheRead)
		}
	}))
	w.config.Routes["main"] = proxy.RouteConfig{Use: []string{"claude"}, Keys: map[string][]proxy.Key{
		"claude": {{Name: "KEY_A", Value: "KEY_A"}, {Name: "KEY_B", Value: "KEY_B"}}}}
	g := w.gateway()
	for n := range 12 {
		c := g.messages("claude-opus-4-8")
		c.within(fmt.Sprint("c", n))
		c.stream = n%2 == 0
		for range 1 + n%3 {
			c.user(block{Type: "text", Text: strings.Repeat(fmt.Sprintf("What is %d? ", n), 600), marked: true})
			c.step()
		}
	}
	counters := map[string]*counted{"claude:KEY_A": {}, "claude:KEY_B": {}}
	for line := range strings.Lines(g.metrics("tokens_total")) {
		var backend, kind string
		var n float64
		_, err := fmt.Sscanf(strings.NewReplacer(`{backend="`, " ", `",kind="`, " ", `"}`, " ").Replace(line),
			"tokens_total %s %s %g", &backend, &kind, &n)
		require.NoError(t, err, line)
		switch kind {
		case "cache_read":
			counters[backend].read += n
			counters[backend].prompt += n
		case "input", "cache_creation":
			counters[backend].prompt += n
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, told, counters)
	for name, of := range counters {
		require.Greater(t, of.read/of.prompt, .2, name)
	}
	w.refusedAtMost(0)
}

// What is wrong with routes is said with the setting's name.
func TestFaultsOfRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude, kimi)
	w.checked = true
	w.config.Routes = map[string]proxy.RouteConfig{
		"claude": {Use: []string{"claude"}},
		"empty":  {},
		"wrong":  {Use: []string{"claude", "gpt", "claude"}, Keys: map[string][]proxy.Key{"kimi": {{Name: "K", Value: "v"}}, "claude": {{Name: "K"}}}},
	}
	_, err := proxy.New(w.config, zerolog.Nop())
	for _, said := range []string{
		"proxy.routes.claude: a backend has this name", "proxy.routes.empty.use is empty",
		`proxy.routes.wrong.use: "gpt" must be one of`, `proxy.routes.wrong.use: "claude" must be one of`,
		`proxy.routes.wrong.keys names "kimi", which is not in its use`, "proxy.routes.wrong.keys.claude has an empty key",
	} {
		require.ErrorContains(t, err, said)
	}
}
