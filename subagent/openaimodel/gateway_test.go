package openaimodel_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access/price"
	"mneme/memory/event"
	"mneme/proxy"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

// through is a model behind a real gateway with one backend, "v", that answers every call with a stream of these
// lines.
func through(t *testing.T, kind string, lines ...string) *openaimodel.Model {
	t.Helper()
	return priced(t, kind, "real-1", nil, lines...)
}

// priced is such a model, which the vendor calls by a name of its own and the gateway knows the price of.
func priced(t *testing.T, kind, named string, prices *price.Table, lines ...string) *openaimodel.Model {
	t.Helper()
	vendor := httptest.NewServer(streams(lines...))
	t.Cleanup(vendor.Close)
	// The vendor has a name: a model without a price costs nothing at an address of this machine.
	far := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, vendor.Listener.Addr().String())
	}}
	t.Cleanup(far.CloseIdleConnections)
	table := func() *price.Table { return prices }
	server, err := proxy.New(proxy.Config{Active: "v", Prices: table, Backends: map[string]proxy.BackendConfig{
		"v": {Kind: kind, BaseURL: "http://vendor.example", ModelMap: map[string]string{"*": named}},
	}, Transport: far}, zerolog.Nop())
	require.NoError(t, err)
	front := httptest.NewServer(server.Handler())
	t.Cleanup(func() { front.Client().CloseIdleConnections(); front.Close(); require.NoError(t, server.Close()) })
	return openaimodel.New(openaimodel.Config{BaseURL: front.URL, Model: "master", HTTP: front.Client()})
}

// What a vendor counts is told alike, whatever it calls that and whichever of it is a part of which.
func TestUsageOfEveryVendor(t *testing.T) {
	const head = `{"type":"message_start","message":{"id":"m","role":"assistant","model":"real-1","content":[],"usage":` +
		`{"input_tokens":10,"cache_read_input_tokens":70,"cache_creation_input_tokens":20,"output_tokens":1}}}`
	chat := func(usage string) []string {
		return []string{delta(`"content":"x"`), finish("stop"), `{"choices":[],"usage":` + usage + `}`, done}
	}
	for name, c := range map[string]struct {
		kind  string
		lines []string
		want  event.Usage
	}{
		"messages": {proxy.KindAnthropic, []string{head,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9,` +
				`"output_tokens_details":{"thinking_tokens":4}}}`, `{"type":"message_stop"}`},
			event.Usage{InputTokens: 100, OutputTokens: 9, CachedTokens: 70, ReasoningTokens: 4}},
		"chat": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,` +
			`"prompt_tokens_details":{"cached_tokens":70},"completion_tokens_details":{"reasoning_tokens":4}}`),
			event.Usage{InputTokens: 100, OutputTokens: 9, CachedTokens: 70, ReasoningTokens: 4}},
		"chat without details": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,` +
			`"prompt_tokens_details":null,"completion_tokens_details":null}`),
			event.Usage{InputTokens: 100, OutputTokens: 9}},
		"Moonshot": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":9,"cached_tokens":70}`),
			event.Usage{InputTokens: 100, OutputTokens: 9, CachedTokens: 70}},
		"DeepSeek": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":9,"prompt_cache_hit_tokens":70}`),
			event.Usage{InputTokens: 100, OutputTokens: 9, CachedTokens: 70}},
		"xAI": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":5,"total_tokens":109,` +
			`"completion_tokens_details":{"reasoning_tokens":4}}`),
			event.Usage{InputTokens: 100, OutputTokens: 9, ReasoningTokens: 4}},
		"Google": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":5,"total_tokens":109}`),
			event.Usage{InputTokens: 100, OutputTokens: 9, ReasoningTokens: 4}},
		"an odd count": {proxy.KindOpenAI, chat(`{"prompt_tokens":100,"completion_tokens":9,"prompt_tokens_details":` +
			`{"cached_tokens":"many"}}`), event.Usage{InputTokens: 100, OutputTokens: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(t.Context(), through(t, c.kind, c.lines...), hello)
			require.NoError(t, err)
			require.Equal(t, c.want, got[len(got)-1].Usage)
		})
	}
}

// What a call cost is told as the gateway counts it, reads and writes of a vendor's cache at their own prices; and not
// where the model's price is not known.
func TestTheCostOfACallIsTold(t *testing.T) {
	const head = `{"type":"message_start","message":{"id":"m","role":"assistant","model":"real-1","content":[],"usage":` +
		`{"input_tokens":10,"cache_read_input_tokens":70,"cache_creation_input_tokens":20,"output_tokens":1}}}`
	cached, write := price.USD(100_000), price.USD(1_250_000)
	prices, err := price.New(map[string]price.Price{"real-1": {Input: 1_000_000, CachedInput: &cached, CacheWrite: &write,
		Output: 5_000_000}, "free": {}})
	require.NoError(t, err)
	messages := []string{head, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`, `{"type":"message_stop"}`}
	chat := []string{delta(`"content":"x"`), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":100,` +
		`"completion_tokens":5,"total_tokens":109,"prompt_tokens_details":{"cached_tokens":70}}}`, done}
	cost := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		kind, model string
		lines       []string
		want        *int64
	}{
		"messages": {proxy.KindAnthropic, "real-1", messages, cost(10 + 7 + 25 + 45)},
		"chat":     {proxy.KindOpenAI, "real-1", chat, cost(30 + 7 + 45)},
		"free":     {proxy.KindOpenAI, "free", chat, cost(0)},
		"unknown":  {proxy.KindOpenAI, "real-2", chat, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := priced(t, c.kind, c.model, prices, c.lines...)
			call := calls(t, t.Context(), m, -1)
			require.Empty(t, call.Error)
			require.Equal(t, c.want, call.Usage.CostMicroUSD)
		})
	}
}

// calls makes a call, as far as to a part of its answer, and gives what is noted of it.
func calls(t *testing.T, ctx context.Context, m *openaimodel.Model, parts int) event.ModelCall {
	t.Helper()
	var noted loop.Calls
	for range m.Generate(noted.In(ctx, "analytic", "R-1"), hello) {
		if parts--; parts == 0 {
			break
		}
	}
	all := noted.List()
	require.Len(t, all, 1)
	require.Positive(t, all[0].Started)
	require.GreaterOrEqual(t, all[0].Seconds, 0.0)
	all[0].Started, all[0].Seconds = 0, 0
	return all[0]
}

// Each call is noted with the backend that answered it and what that took, however it ends.
func TestACallIsNoted(t *testing.T) {
	whole := []string{delta(`"content":"x"`), delta(`"content":"y"`), finish("stop"), usageChunk, done}
	used := event.Usage{InputTokens: 11, OutputTokens: 5}
	noted := event.ModelCall{Subagent: "analytic", CallID: "R-1", Model: "real-1", Backend: "v", Attempts: 1, Usage: used}
	with := func(change func(*event.ModelCall)) event.ModelCall {
		c := noted
		change(&c)
		return c
	}
	canceled := with(func(c *event.ModelCall) { c.Usage, c.Error = event.Usage{}, "canceled" })
	t.Run("answered", func(t *testing.T) {
		require.Equal(t, noted, calls(t, t.Context(), through(t, proxy.KindOpenAI, whole...), 0))
	})
	t.Run("nobody listens to its end", func(t *testing.T) {
		require.Equal(t, canceled, calls(t, t.Context(), through(t, proxy.KindOpenAI, whole...), 1))
	})
	t.Run("refused by the model", func(t *testing.T) {
		m := through(t, proxy.KindOpenAI, finish("content_filter"), usageChunk, done)
		require.Equal(t, with(func(c *event.ModelCall) { c.Error = event.Refused }), calls(t, t.Context(), m, 0))
	})
	t.Run("cut off", func(t *testing.T) {
		require.Equal(t, with(func(c *event.ModelCall) { c.Usage, c.Error = event.Usage{}, event.AnswerCut }),
			calls(t, t.Context(), through(t, proxy.KindOpenAI, whole[:2]...), 0))
	})
	t.Run("ended with the run", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, event.ModelCall{Subagent: "analytic", CallID: "R-1", Model: "master", Error: "canceled"},
			calls(t, ctx, through(t, proxy.KindOpenAI, whole...), 0))
	})
}

// What a gateway says of itself is believed within bounds.
func TestOddHeadersOfTheGateway(t *testing.T) {
	m := gateway(t, openaimodel.Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-AG-Model", strings.Repeat("m", 1000))
		w.Header().Set("X-AG-Backend", "\xff")
		w.Header().Set("X-AG-Attempts", "-1")
		w.Header().Set("X-AG-Mended", strings.Repeat("tool_ids,,", 100)+strings.Repeat("m", 1000))
		streams(delta(`"content":"x"`), finish("stop"), done)(w, r)
	})
	got := calls(t, t.Context(), m, 0)
	require.Equal(t, []any{"analytic", "", 0}, []any{got.Model, got.Backend, got.Attempts})
	require.Equal(t, slices.Repeat([]string{"tool_ids"}, 32), got.Mended)
}
