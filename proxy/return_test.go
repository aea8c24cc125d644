package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// A client's session has one key, so that its prompts are cached there. A conversation that the client names goes by
// its own name, and no history is shared by a session.
func TestSessionsHaveOneKey(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	c := to(v, proxy.KindAnthropic)
	c.Active, c.Routes = "r", map[string]proxy.RouteConfig{"r": {Use: []string{"v"}, Keys: map[string][]proxy.Key{"v": {
		{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "C", Value: "c"}}}}}
	url, _ := gateway(t, c)
	n := 0
	ask := func(members string, header ...string) (key, conversation string) {
		n++ // another conversation each time
		got := post(t, url+"/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":9,"messages":[{"role":"user",`+
			`"content":"%d"}]%s}`, n, members), header...)
		require.Equal(t, 200, got.status, got.body)
		return v.last(t).header.Get("X-Api-Key"), got.header.Get("X-Ag-Conversation-Id")
	}
	for _, named := range []struct{ header, members string }{
		{"X-Claude-Code-Session-Id", ""}, {"Session-Id", ""}, {"session_id", ""}, {"X-Session-Affinity", ""},
		{"X-Session-Id", ""}, {"X-Opencode-Session", ""}, {"Thread-Id", ""}, {"X-None", `,"prompt_cache_key":"%s"`}, {"X-None", `,"user":"%s"`},
		{"X-None", `,"metadata":{"user_id":"%s"}`},
	} {
		used := map[string]bool{}
		for i := range 12 {
			session := fmt.Sprint("session-", i)
			members := strings.ReplaceAll(named.members, "%s", session)
			first, one := ask(members, named.header, session)
			second, other := ask(members, named.header, session)
			require.Equal(t, first, second, named)
			require.NotEqual(t, one, other, "conversations")
			used[first] = true
		}
		require.Greater(t, len(used), 1, named)
	}
	used := map[string]bool{}
	for i := range 12 {
		conversation := fmt.Sprint("c", i)
		first, _ := ask("", "X-Session-Id", "s", "X-AG-Conversation-Id", conversation)
		second, got := ask("", "X-Session-Id", fmt.Sprint("s", i), "X-AG-Conversation-Id", conversation)
		require.Equal(t, first, second, "the conversation decides")
		require.Equal(t, conversation, got)
		used[first] = true
	}
	require.Greater(t, len(used), 1, "not the session")
}

// A conversation that a failure has moved stays where it went until the first choice has not failed for a while, whichever
// conversation it failed, and then returns. One that the first choice answers stays there, and a new one begins there.
func TestAConversationReturnsOnceTheFirstChoiceIsWell(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, client := range []string{
		"messages", "chat", "responses", "messages without an id", "chat without an id", "responses without an id",
	} {
		t.Run(client, func(t *testing.T) {
			w := routed(t, claude, kimi)
			w.shares(redistest.Start(t))
			w.config.Limits.Return = time.Hour
			g := w.gateway()
			kind, nameless := strings.CutSuffix(client, " without an id")
			talk := func(id string) (agent, *manners) {
				c, m := g.anyClient(kind, "claude-opus-4-8")
				if !nameless {
					m.within(id)
				}
				return c, m
			}
			fail := func() { w.vendors["claude"].Fail(upstreamtest.Overloaded(), upstreamtest.Overloaded()) }
			turns := 0
			ask := func(c agent, backend string) {
				t.Helper()
				before := w.calls(backend)
				turns++
				toolTurn(w.vendors[backend], fmt.Sprint("turn ", turns))
				require.Equal(t, fmt.Sprintf("turn %d is done.", turns), c.say("And then?"))
				require.Equal(t, before+2, w.calls(backend), "both calls of the turn go to %s", backend)
			}
			stayed, _ := talk("stayed")
			ask(stayed, "claude")
			moved, m := talk("moved")
			ask(moved, "claude")
			fail()
			ask(moved, "kimi")
			ask(moved, "kimi")
			ask(stayed, "claude")
			fresh, _ := talk("fresh")
			ask(fresh, "claude")
			ask(moved, "kimi")

			w.config.Limits.Return = time.Nanosecond // as if that had passed
			m.gateway = w.gateway()
			ask(moved, "claude")
			fail()
			ask(moved, "kimi")
			ask(moved, "claude")
			w.conforms(0)
		})
	}
}

// The same goes for the keys of a backend.
func TestAConversationReturnsToItsKey(t *testing.T) {
	t.Parallel()
	var failing atomic.Value // a key
	failing.Store("")
	w := routed(t, claude.with("claude", func(c *upstreamtest.Config) {
		c.Fault = func(r *upstreamtest.Request) *upstreamtest.Fault {
			if r.Header.Get("X-Api-Key") != failing.Load() {
				return nil
			}
			f := upstreamtest.Canned(500, "")
			return &f
		}
	}))
	w.config.Routes["main"] = proxy.RouteConfig{Use: []string{"claude"}, Keys: map[string][]proxy.Key{
		"claude": {{Name: "KEY_A", Value: "key-a-0123456789"}, {Name: "KEY_B", Value: "key-b-0123456789"}}}}
	w.shares(redistest.Start(t))
	other := map[string]string{"claude:KEY_A": "claude:KEY_B", "claude:KEY_B": "claude:KEY_A"}
	values := map[string]string{"claude:KEY_A": "key-a-0123456789", "claude:KEY_B": "key-b-0123456789"}
	for n := range 8 {
		w.config.Limits.Return = time.Hour
		c := w.gateway().messages("claude-opus-4-8")
		c.within(fmt.Sprintf("talk-%d", n))
		ask := func() string {
			c.user(textOf("And then?"))
			got := c.post()
			require.Equal(t, 200, got.status, got.body)
			c.history = append(c.history, message{role: "assistant", content: readMessages(w, got)})
			return got.header.Get("X-AG-Backend")
		}
		own := ask()
		failing.Store(values[own])
		require.Equal(t, other[own], ask())
		failing.Store("")
		require.Equal(t, other[own], ask())
		require.Equal(t, other[own], ask())
		w.config.Limits.Return = time.Nanosecond
		c.gateway = w.gateway()
		require.Equal(t, own, ask())
	}
	w.refusedAtMost(0)
}

// The choices of a route are named in their order: to an operator who asks, and in the log.
func TestTheChoicesOfARouteAreNamed(t *testing.T) {
	t.Parallel()
	w := routed(t, claude, kimi)
	w.config.Routes["main"] = proxy.RouteConfig{Use: []string{"kimi", "claude"}, Keys: map[string][]proxy.Key{
		"kimi": {{Name: "KEY_B", Value: "key-b-0123456789"}, {Name: "KEY_A", Value: "key-a-0123456789"}}}}
	g := w.gateway()
	require.JSONEq(t, `{"active":"main","backends":["claude","kimi"],"routes":["main"],"choices":`+
		`{"main":["kimi:KEY_B","kimi:KEY_A","claude"]}}`, g.call(t.Context(), http.MethodGet, "/admin/backend", nil, nil).body)
	require.Contains(t, w.log.String(), `"route":"main","choices":["kimi:KEY_B","kimi:KEY_A","claude"]`)
	w.conforms(0)
}
