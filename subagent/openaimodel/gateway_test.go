package openaimodel_test

import (
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	"mneme/proxy"
	"mneme/subagent/openaimodel"
)

// through is a model behind a real gateway, whose one backend, "v", answers every call with a stream of these lines.
func through(t *testing.T, kind string, lines ...string) *openaimodel.Model {
	t.Helper()
	vendor := httptest.NewServer(streams(lines...))
	t.Cleanup(vendor.Close)
	server, err := proxy.New(proxy.Config{Active: "v", Backends: map[string]proxy.BackendConfig{
		"v": {Kind: kind, BaseURL: vendor.URL, ModelMap: map[string]string{"*": "real-1"}},
	}}, zerolog.Nop())
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
