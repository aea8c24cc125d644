package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/proxy"
	"mneme/proxy/redisstore"
)

// BenchmarkGrowth compares turns of a named conversation that is a thousand turns old
// with those of one that has just begun, in one run and by turns, over a real Redis.
// Each turn asks twice, as an agent does: first answered by a call of a tool and then
// by a text; of older turns the agent shows the texts alone, and of those the newest
// eight. It reports the process's CPU of a turn, vendor and client included, and the
// old conversation's divided by the young one's, with one gateway and with two that
// answer every other call.
func BenchmarkGrowth(b *testing.B) {
	for gateways := 1; gateways <= 2; gateways++ {
		b.Run(fmt.Sprintf("gateways=%d", gateways), func(b *testing.B) {
			g := newGrowth(b, gateways)
			old := &growing{conversation: "old", growth: g}
			old.turns(1000)
			var young, late time.Duration
			turns := 0
			for b.Loop() {
				fresh := &growing{conversation: fmt.Sprintf("c%d", turns), growth: g}
				fresh.turns(4)
				young += fresh.turns(10)
				late += old.turns(10)
				turns += 10
			}
			b.ReportMetric(float64(young.Microseconds())/float64(turns), "µs/turn5")
			b.ReportMetric(float64(late.Microseconds())/float64(turns), "µs/turn1000")
			b.ReportMetric(float64(late)/float64(young), "turn1000÷turn5")
		})
	}
}

type growth struct {
	b        *testing.B
	gateways []string
	client   *http.Client
}

// newGrowth starts gateways that share a Redis, before a vendor that answers at once.
func newGrowth(b *testing.B, gateways int) *growth {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last := gjson.GetBytes(body, "messages.@reverse.0.content.@reverse.0.type").Str
		n := gjson.GetBytes(body, "messages.#").Int()
		answer := fmt.Sprintf(`{"type":"tool_use","id":"toolu_%024d","name":"look","input":{"q":"%d"}}`, time.Now().UnixNano(), n)
		if last == "tool_result" {
			answer = fmt.Sprintf(`{"type":"text","text":"The answer of %d."}`, time.Now().UnixNano())
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"end_turn",`+
			`"content":[{"type":"thinking","thinking":"A thought of %d.","signature":"c2lnbmF0dXJl%020d"},%s],`+
			`"usage":{"input_tokens":10,"output_tokens":10}}`, n, time.Now().UnixNano(), answer)
	}))
	b.Cleanup(vendor.Close)
	server := redistest.Start(b)
	g := &growth{b: b, client: &http.Client{}}
	for range gateways {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
		b.Cleanup(func() { _ = client.Close() })
		gateway, err := proxy.New(proxy.Config{
			Active: "claude", TurnsWait: time.Second,
			Backends: map[string]proxy.BackendConfig{
				"claude": {Kind: proxy.KindAnthropic, Vendor: "anthropic", BaseURL: vendor.URL},
			},
			Shared: proxy.Shared{Turns: redisstore.NewTurns(client, redisstore.TurnLimits{})},
		}, zerolog.Nop())
		require.NoError(b, err)
		listener := httptest.NewServer(gateway.Handler())
		b.Cleanup(func() { listener.Close(); _ = gateway.Close() })
		g.gateways = append(g.gateways, listener.URL)
	}
	return g
}

// growing is a conversation of chat completions.
type growing struct {
	*growth
	conversation string
	shown        []string // messages of ended turns
	calls, said  int
}

// turns leads so many turns and gives the CPU that the process took.
func (c *growing) turns(n int) time.Duration {
	began := cpu(c.b)
	for range n {
		c.said++
		asked := fmt.Sprintf(`{"role":"user","content":"Question %d"}`, c.said)
		call := c.ask(append(c.shown, asked))
		id := gjson.Get(call, "tool_calls.0.id").Str
		answer := c.ask(append(c.shown, asked, call,
			fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"found %d"}`, id, c.said)))
		text := gjson.Get(answer, "content").Raw
		c.shown = append(c.shown, asked, `{"role":"assistant","content":`+text+`}`)
		c.shown = c.shown[max(0, len(c.shown)-8):]
	}
	return cpu(c.b) - began
}

// ask makes a call and gives the message that came.
func (c *growing) ask(messages []string) string {
	body := `{"model":"claude-opus-4-8","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}],` +
		`"reasoning_effort":"high","messages":[{"role":"system","content":"You help."},` + strings.Join(messages, ",") + `]}`
	r, err := http.NewRequestWithContext(c.b.Context(), http.MethodPost,
		c.gateways[c.calls%len(c.gateways)]+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(c.b, err)
	c.calls++
	r.Header.Set("X-AG-Conversation-Id", c.conversation)
	resp, err := c.client.Do(r)
	require.NoError(c.b, err)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(c.b, err)
	require.Equal(c.b, http.StatusOK, resp.StatusCode, string(got))
	return gjson.GetBytes(got, "choices.0.message").Raw
}

// cpu is what the process has used of the CPU, in user and system mode.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
