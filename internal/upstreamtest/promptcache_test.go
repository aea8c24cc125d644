package upstreamtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func TestPromptCache(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	words := strings.Repeat("word ", 1200) // 1,500 tokens
	read := func(v *Server, path, body, key, member string) int64 {
		t.Helper()
		usage := gjson.Get(ok(t, v, path, body, "X-Api-Key", key), "usage."+member)
		require.True(t, usage.Exists() || v.Last().CacheRead == 0)
		require.EqualValues(t, v.Last().CacheRead, usage.Int())
		return usage.Int()
	}
	plain := func(text string) string { return message(user, fmt.Sprintf("%q", text)) }
	marked := func(text string) string {
		return question(fmt.Sprintf(`{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}`, text))
	}
	const chats = "/v1/chat/completions"
	for name, c := range map[string]struct {
		config       Config
		path, member string
		request      func(model, members string, messages ...string) string
		say          func(text string) string
		exact        int64 // tokens of a prefix that ends at its mark; 0 if prefixes come in steps
	}{
		"anthropic":      {Config{}, "/v1/messages", "cache_read_input_tokens", msg, marked, 1507},
		"openai":         {Config{Vendor: OpenAI}, chats, "prompt_tokens_details.cached_tokens", chat, plain, 0},
		"responses":      {Config{Vendor: OpenAI}, "/v1/responses", "input_tokens_details.cached_tokens", resp, plain, 0},
		"kimi":           {Config{Vendor: Kimi}, chats, "cached_tokens", chat, plain, 0},
		"kimi, messages": {Config{Vendor: Kimi}, "/anthropic/v1/messages", "cache_read_input_tokens", msg, plain, 0},
		"gemini": {Config{Vendor: Chat, Chat: ChatRules{ThoughtSignatures: true}}, chats,
			"prompt_tokens_details.cached_tokens", chat, plain, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.PromptCache, c.config.Clock = true, func() time.Time { return now }
			v := New(c.config)
			first := c.request("m", "", c.say(words))
			more, other := c.request("m", "", c.say(words), reply, c.say("and")), c.request("m", "", c.say("other "+words))
			require.Zero(t, read(v, c.path, first, "a", c.member))
			require.InDelta(t, c.exact, v.Last().CacheWritten, 10)
			got := read(v, c.path, more, "a", c.member)
			require.Greater(t, got, int64(1400))
			require.Less(t, int(got), v.Last().Prompt)
			require.True(t, c.exact > 0 || got%cacheStep == 0)
			require.Zero(t, read(v, c.path, more, "b", c.member), "the cache belongs to one account")
			require.Zero(t, read(v, c.path, other, "a", c.member))
			for _, later := range []time.Duration{4 * time.Minute, 4 * time.Minute} { // reading extends the time
				now = now.Add(later)
				require.Positive(t, read(v, c.path, first, "a", c.member))
			}
			now = now.Add(5 * time.Minute)
			require.Zero(t, read(v, c.path, first, "a", c.member))
		})
	}
	v := New(Config{PromptCache: true})
	for _, uncached := range []string{plain(words), marked("short")} { // not marked, too short
		for range 2 {
			require.Zero(t, read(v, "/v1/messages", msg("m", "", uncached), "a", "cache_read_input_tokens"))
		}
	}
}
