package upstreamtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

func TestPromptCache(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	long := strings.Repeat("word ", 1200) // 1,500 tokens
	read := func(v *upstreamtest.Server, path, body, key, member string) int64 {
		t.Helper()
		w := post(t, v, path, body, "X-Api-Key", key)
		require.Equal(t, 200, w.Code, w.Body)
		told := gjson.Get(w.Body.String(), "usage."+member)
		require.True(t, told.Exists() || v.Last().CacheRead == 0, w.Body)
		require.EqualValues(t, v.Last().CacheRead, told.Int())
		return told.Int()
	}
	marked := fmt.Sprintf(`{"type":"text","text":%q,"cache_control":{"type":"ephemeral"}}`, long)
	for name, c := range map[string]struct {
		config             upstreamtest.Config
		path, member       string
		first, more, other string
		exact              int64 // what a prefix has that ends where it was marked; 0: in steps
	}{
		"anthropic": {upstreamtest.Config{}, "/v1/messages", "cache_read_input_tokens",
			messages(says("user", "["+marked+"]")), messages(says("user", "["+marked+"]"), reply, says("user", "["+cached+"]")),
			messages(says("user", "["+strings.Replace(marked, "word", "worse", 1)+"]")), 1507},
		"openai": {upstreamtest.Config{Vendor: upstreamtest.OpenAI}, "/v1/chat/completions",
			"prompt_tokens_details.cached_tokens", chat(says("user", `"`+long+`"`)), chat(says("user", `"`+long+`"`), reply, ask),
			chat(says("user", `"other `+long+`"`)), 0},
		"responses": {upstreamtest.Config{Vendor: upstreamtest.OpenAI}, "/v1/responses", "input_tokens_details.cached_tokens",
			`{"model":"m","input":[` + says("user", `"`+long+`"`) + `]}`,
			`{"model":"m","input":[` + says("user", `"`+long+`"`) + `,` + reply + `,` + ask + `]}`,
			`{"model":"m","input":[` + says("user", `"other `+long+`"`) + `]}`, 0},
		"kimi": {upstreamtest.Config{Vendor: upstreamtest.Kimi}, "/v1/chat/completions", "cached_tokens",
			chat(says("user", `"`+long+`"`)), chat(says("user", `"`+long+`"`), reply, ask),
			chat(says("user", `"other `+long+`"`)), 0},
		"kimi, messages": {upstreamtest.Config{Vendor: upstreamtest.Kimi}, "/anthropic/v1/messages", "cache_read_input_tokens",
			messages(says("user", `"`+long+`"`)), messages(says("user", `"`+long+`"`), reply, ask),
			messages(says("user", `"other `+long+`"`)), 0},
		"gemini": {upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{ThoughtSignatures: true}},
			"/v1/chat/completions", "prompt_tokens_details.cached_tokens", chat(says("user", `"`+long+`"`)),
			chat(says("user", `"`+long+`"`), reply, ask), chat(says("user", `"other `+long+`"`)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.PromptCache, c.config.Clock = true, func() time.Time { return now }
			v := upstreamtest.New(c.config)
			require.Zero(t, read(v, c.path, c.first, "a", c.member))
			if c.exact > 0 {
				require.InDelta(t, c.exact, v.Last().CacheWritten, 10)
			} else {
				require.Zero(t, v.Last().CacheWritten)
			}
			got := read(v, c.path, c.more, "a", c.member)
			require.Greater(t, got, int64(1400))
			require.Less(t, int(got), v.Last().Prompt)
			if c.exact == 0 {
				require.Zero(t, got%128)
			}
			require.Zero(t, read(v, c.path, c.more, "b", c.member), "another account has its own")
			require.Zero(t, read(v, c.path, c.other, "a", c.member))
			now = now.Add(4 * time.Minute)
			require.Positive(t, read(v, c.path, c.first, "a", c.member))
			now = now.Add(4 * time.Minute)
			require.Positive(t, read(v, c.path, c.first, "a", c.member), "it was kept for longer when it was read")
			now = now.Add(5 * time.Minute)
			require.Zero(t, read(v, c.path, c.first, "a", c.member))
		})
	}
	v := upstreamtest.New(upstreamtest.Config{PromptCache: true})
	unmarked := messages(says("user", `"`+long+`"`))
	for range 2 {
		require.Zero(t, read(v, "/v1/messages", unmarked, "a", "cache_read_input_tokens"), "Anthropic keeps what is marked")
	}
	short := messages(says("user", "["+cached+"]"))
	for range 2 {
		require.Zero(t, read(v, "/v1/messages", short, "a", "cache_read_input_tokens"), "and nothing that is short")
	}
}
