package app_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// led is what a vendor saw of a long chat with a master and a subagent.
type led struct {
	outcomes map[string]string // of the gateway's conversations and retries, by metric
	recalled int               // calls with recalled messages
	common   int               // bytes at the front of a call's messages that its agent's call before had, too
	size     int
}

// blockIntro begins what is recalled in a prompt.
const blockIntro = "What was said earlier in this chat, outside of the other messages here."

// lead leads a chat of so many turns, each of a delegation and an answer, with a vendor that
// binds thinking to everything before it. In some the subagent looks things up itself.
func lead(t *testing.T, turns int, auto string) (l led) {
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true},
		Remember: 4 * turns})
	server := httptest.NewServer(vendor)
	defer server.Close()
	redis := redistest.Start(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_REDIS_URL="+redis.URL(),
		"MNEME_PROXY_ACTIVE=claude", backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_AGENTS_MASTER_REASONING_EFFORT=medium", "MNEME_WEBMEMORY_MAX_HISTORY=20",
		"MNEME_WEBMEMORY_SUBAGENT_CONTEXT_WINDOW=10", "MNEME_RECALL_AUTO="+auto)
	calls := 0
	for i := range turns {
		replies := []upstreamtest.Answer{
			upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("before %d.", i)),
				upstreamtest.Use("analytic", fmt.Sprintf(`{"task":"Count the violets of day %d"}`, i))),
			upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("of %d.", i)),
				upstreamtest.Say(fmt.Sprintf("There are %d.", 7*i))),
			upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("after %d.", i)), upstreamtest.Say(fmt.Sprintf("So: %d.", 7*i))),
		}
		if i%5 == 3 {
			replies = slices.Insert(replies, 1, upstreamtest.Reply(upstreamtest.Think(fmt.Sprintf("looking at %d.", i)),
				upstreamtest.Use("recall", fmt.Sprintf(`{"query":"violets of day %d"}`, i-1))))
		}
		vendor.Queue(replies...)
		calls += len(replies)
		require.Equal(t, fmt.Sprintf("So: %d.", 7*i), u.say("7", fmt.Sprintf("How many violets are there on day %d?", i)))
	}
	require.Empty(t, vendor.Rejections())
	seen := vendor.Requests()
	require.Len(t, seen, calls, "no call is made twice")
	before, turn := map[bool]string{}, -1
	for _, r := range seen {
		messages := gjson.GetBytes(r.Body, "messages")
		subagent := !gjson.GetBytes(r.Body, `tools.#(name=="analytic")`).Exists()
		results := strings.Contains(messages.Get("@reverse.0").Raw, "tool_result")
		switch {
		case !results && !subagent:
			turn++
		case subagent && results:
			require.Contains(t, messages.Raw, fmt.Sprintf("looking at %d.", turn), "the thinking of its own turn")
		case results:
			require.Contains(t, messages.Raw, fmt.Sprintf("before %d.", turn), "the thinking of its own turn")
		}
		blocks := strings.Count(messages.Raw, blockIntro)
		require.LessOrEqual(t, blocks, 1)
		l.recalled += blocks
		text := strings.TrimSuffix(messages.Raw, "]")
		n := 0
		for n < min(len(text), len(before[subagent])) && text[n] == before[subagent][n] {
			n++
		}
		if before[subagent] != "" {
			l.common, l.size = l.common+n, l.size+len(text)
		}
		before[subagent] = text
	}
	l.outcomes = map[string]string{}
	for line := range strings.Lines(metrics(t, u.addrs.Proxy)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "mneme_proxy_conversation_") || strings.HasPrefix(name, "mneme_proxy_thinking_retries") {
			l.outcomes[name] = value
		}
	}
	for _, key := range []string{"chat_history:7", "subagent:analytic:7"} {
		stored := redis.Client().Get(t.Context(), key).Val()
		require.Contains(t, stored, "violets")
		require.NotContains(t, stored, blockIntro)
	}
	return l
}

// wantedTurns is read before the tests' settings are cleared.
var wantedTurns = os.Getenv("MNEME_TURNS")

// What is recalled for every question changes nothing else at the gateway: the same requests
// are recognised, the same rounds put back, nothing is refused or made twice.
// MNEME_TURNS=1000 leads longer chats.
func TestRecalledMessagesChangeNothingElse(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	turns := 30
	if n, err := strconv.Atoi(wantedTurns); err == nil {
		turns = n
	}
	off, always := lead(t, turns, "off"), lead(t, turns, "always")
	require.NotEmpty(t, off.outcomes)
	require.Equal(t, off.outcomes, always.outcomes)
	require.Zero(t, off.recalled)
	require.Greater(t, always.recalled, turns)
	t.Logf("%d turns: the messages of a call begin with the bytes of its agent's call before: %.1f %%, "+
		"with recall %.1f %%; %v", turns, 100*float64(off.common)/float64(off.size), 100*float64(always.common)/float64(always.size), off.outcomes)
}
