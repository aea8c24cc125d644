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
