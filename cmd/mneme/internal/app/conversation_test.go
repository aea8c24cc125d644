package app_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// A model that binds its thinking to everything before it is the master and a
// subagent. What either thought comes back to it whole: within a run after the
// call of a tool, and in the next run, though the memory holds what was said only.
// Erasing the chat erases that, too.
func TestThinkingLivesAcrossRunsAndDiesWithTheChat(t *testing.T) {
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	server := httptest.NewServer(vendor)
	defer server.Close()
	redis := redistest.Start(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+redis.URL(),
		"MNEME_PROXY_ACTIVE=claude", backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_AGENTS_MASTER_REASONING_EFFORT=medium")
	think, say := upstreamtest.Think, upstreamtest.Say
	turn := func(n string) {
		vendor.Queue(
			upstreamtest.Reply(think("master thinks before "+n), upstreamtest.Use("analytic", `{"task":"Count `+n+`"}`)),
			upstreamtest.Reply(think("analytic thinks of "+n), say("There are "+n+".")),
			upstreamtest.Reply(think("master thinks after "+n), say("So: "+n+".")),
		)
		require.Equal(t, "So: "+n+".", u.say("7", "How many? ("+n+")"))
	}
	turn("one")
	turn("two")
	turn("three")
	require.Empty(t, vendor.Rejections(), "no call was refused")
	seen := vendor.Requests()
	require.Len(t, seen, 9)
	for i, wanted := range map[int][]string{
		2: {"master thinks before one"},
		5: {"master thinks before one", "master thinks after one", "master thinks before two"},
		7: {"analytic thinks of one", "analytic thinks of two"},
		8: {"master thinks before one", "master thinks after one", "master thinks before two", "master thinks after two",
			"master thinks before three"},
	} {
		for _, thought := range wanted {
			require.Contains(t, string(seen[i].Body), thought, "call %d", i)
		}
		require.Zero(t, seen[i].Missing)
	}
	for _, r := range seen {
		require.False(t, strings.Contains(string(r.Body), "analytic thinks") &&
			strings.Contains(string(r.Body), "master thinks"))
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, u.url("/v1/chats/7"), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for _, key := range redis.Client().Keys(t.Context(), "*").Val() {
		kind := redis.Client().Type(t.Context(), key).Val()
		if kind == "hash" {
			for _, value := range redis.Client().HVals(t.Context(), key).Val() {
				require.NotContains(t, value, "thinks", key)
				require.NotContains(t, value, "How many", key)
			}
		}
	}
	vendor.Queue(upstreamtest.Reply(say("Hello.")))
	require.Equal(t, "Hello.", u.say("7", "Hi"))
	require.NotContains(t, string(vendor.Last().Body), "How many")
}
