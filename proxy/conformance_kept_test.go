package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// keep asks for a conversation to be kept, as a caller.
func (g *front) keep(id, key, body string) answered {
	g.world.Helper()
	r, err := http.NewRequestWithContext(g.world.Context(), http.MethodPut, g.url+"/v1/conversations/"+id+"/keep",
		strings.NewReader(body))
	require.NoError(g.world, err)
	r.Header.Set("X-Api-Key", key)
	return g.world.do(r)
}

func untilIn(d time.Duration) string { return fmt.Sprintf(`{"until":%d}`, time.Now().Add(d).Unix()) }

// pass is time that passes in Redis alone, with a clock that cannot be set: what would have expired goes, and
// everything else has that much less to live.
func pass(t *testing.T, redis *redistest.Server, d time.Duration) {
	client := redis.Client()
	for _, key := range client.Keys(t.Context(), "proxy:turn*").Val() {
		if left := client.PTTL(t.Context(), key).Val(); left > 0 { // not those that live for ever
			require.NoError(t, client.PExpire(t.Context(), key, left-d).Err())
		}
	}
}

// Fault: a run waits three days for a person's yes in the middle of a tool chain, and goes on at
// another gateway. Its model has forgotten why it made the call, or its vendor refuses the chain.
func TestConformanceAToolChainThatWaitsForDays(t *testing.T) {
	for _, b := range []backendCase{claude, prefixChecking, kimiChat} {
		for _, kept := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, kept: %t", b.name, kept), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, b.told(budgeted))
				redis := redistest.Start(t)
				w.shares(redis)
				v := w.vendors[b.name]
				one := w.gateway()
				master, mate := one.chat("claude-opus-4-8"), one.chat("claude-opus-4-8")
				mate.prefix = "/teammate/analytic"
				for _, c := range []*chatClient{master, mate} {
					c.within("c1")
					v.Queue(upstreamtest.Reply(upstreamtest.Think("Why I look. "+c.prefix), upstreamtest.Use("look", `{"q":"it"}`)))
					c.user("Look it up")
					c.answer(c.step())
				}
				if kept {
					require.Equal(t, 204, one.keep("c1", "caller", untilIn(3*day+time.Hour)).status)
				}
				for _, c := range []*chatClient{mate, master} {
					v.Queue(upstreamtest.Reply(upstreamtest.Think("Why I look again."), upstreamtest.Use("look", `{"q":"more"}`)))
					c.answer(c.step()) // the turns that come after the pin are under it, too
				}
				w.turns.settle(t, 4)
				one.stop()
				pass(t, redis, 3*day)

				two := w.gateway()
				for _, c := range []*chatClient{master, mate} {
					c.gateway = two
					v.Queue(upstreamtest.Reply(upstreamtest.Think("Found."), upstreamtest.Say("Done.")))
					require.Equal(t, "Done.", *c.step().Content)
					body := string(v.Last().Body)
					require.Equal(t, kept, strings.Contains(body, "Why I look. "+c.prefix), body)
					require.Equal(t, kept, strings.Contains(body, "Why I look again."), body)
				}
				counted := two.metrics("conversation_requests_total") + two.metrics("turns_put_back_total")
				t.Log("\n" + counted + two.metrics("sanitizer_changes_total"))
				if kept {
					require.Contains(t, counted, `outcome="hit",pipeline="main"} 1`)
					w.conforms(0)
					return
				}
				require.Contains(t, counted, `outcome="notknown",pipeline="main"} 1`)
				require.NotContains(t, counted, "turns_put_back")
				w.refusedAtMost(0)
			})
		}
	}
}

// answer adds the results of a message's calls.
func (c *chatClient) answer(m chatMessage) {
	for _, call := range m.ToolCalls {
		result := looked(call.Function.Arguments)
		c.history = append(c.history, chatMessage{Role: "tool", Content: &result, ToolCallID: call.ID})
	}
}

// Fault: a conversation is called kept that is not, or for ever.
func TestConformanceWhatCanBeKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	g := w.gateway()
	for body, says := range map[string]string{
		"":                              "must be JSON",
		`{"until":"tomorrow"}`:          "must be JSON",
		`{"until":1.5}`:                 "must be JSON",
		`{}`:                            "8 days",
		`{"until":-1}`:                  "8 days",
		untilIn(-time.Minute):           "8 days",
		untilIn(8*day + time.Minute):    "8 days",
		`{"until":9223372036854775807}`: "8 days",
	} {
		got := g.keep("c1", "caller", body)
		require.Equal(t, 400, got.status, body)
		require.Contains(t, got.body, says)
	}
	require.Equal(t, 400, g.keep("no%20id", "caller", untilIn(day)).status)
	for range 2 {
		require.Equal(t, 204, g.keep("never-seen", "caller", untilIn(8*day)).status)
	}
	w.shares(redistest.Start(t))
	w.config.Shared.Turns = awayTurns{w.turns}
	got := w.gateway().keep("c1", "caller", untilIn(day))
	require.Equal(t, 503, got.status)
	require.Contains(t, got.body, "try again")
	w.conforms(0)
}

const day = 24 * time.Hour
