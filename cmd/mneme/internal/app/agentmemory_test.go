package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// coder plays an agent that is not mneme's, as Claude Code speaks: it has tools, marks for the prompt cache, a header for
// its session, and sends all of its transcript each time.
type coder struct {
	t        *testing.T
	url      string // of the gateway
	header   http.Header
	messages []any
}

func newCoder(t *testing.T, gateway, session string, header ...string) *coder {
	c := &coder{t: t, url: "http://" + gateway + "/v1/messages", header: http.Header{"Content-Type": {"application/json"},
		"User-Agent": {"claude-cli/2.1.197 (external, sdk-cli)"}, "X-Claude-Code-Session-Id": {session}}}
	for i := 0; i < len(header); i += 2 {
		c.header.Set(header[i], header[i+1])
	}
	return c
}

func text(s string) map[string]any { return map[string]any{"type": "text", "text": s} }

// call sends the transcript and gives the answer's status and body.
func (c *coder) call() (int, string) {
	c.t.Helper()
	messages := append([]any(nil), c.messages...)
	last := messages[len(messages)-1].(map[string]any)
	blocks := append([]any(nil), last["content"].([]any)...)
	marked := map[string]any{"cache_control": map[string]any{"type": "ephemeral"}}
	for k, v := range blocks[len(blocks)-1].(map[string]any) {
		marked[k] = v
	}
	blocks[len(blocks)-1] = marked
	messages[len(messages)-1] = map[string]any{"role": last["role"], "content": blocks}
	body, err := json.Marshal(map[string]any{"model": "claude-opus-4-8", "max_tokens": 8000, "messages": messages,
		"system": []any{map[string]any{"type": "text", "text": strings.Repeat("You are a careful agent for code. ", 600),
			"cache_control": map[string]any{"type": "ephemeral"}}},
		"thinking": map[string]any{"type": "adaptive"},
		"tools": []any{map[string]any{"name": "Bash", "description": "Runs a command.", "input_schema": map[string]any{
			"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}}}}})
	require.NoError(c.t, err)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(string(body)))
	require.NoError(c.t, err)
	req.Header = c.header.Clone()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp.StatusCode, string(raw)
}

// say adds what the user says, does what the model asks for, and gives its answer.
func (c *coder) say(said string) string {
	c.t.Helper()
	c.messages = append(c.messages, map[string]any{"role": "user", "content": []any{
		text("<system-reminder>\nToday is a day.\n</system-reminder>"), text(said)}})
	for {
		status, body := c.call()
		require.Equal(c.t, http.StatusOK, status, body)
		var content []any
		require.NoError(c.t, json.Unmarshal([]byte(gjson.Get(body, "content").Raw), &content))
		c.messages = append(c.messages, map[string]any{"role": "assistant", "content": content})
		uses := gjson.Get(body, `content.#(type=="tool_use")#.id`).Array()
		if len(uses) == 0 {
			return gjson.Get(body, `content.#(type=="text").text`).Str
		}
		var results []any
		for _, id := range uses {
			results = append(results, map[string]any{"type": "tool_result", "tool_use_id": id.Str, "content": "hi"})
		}
		c.messages = append(c.messages, map[string]any{"role": "user", "content": results})
	}
}

// library is a vendor of the messages dialect. Its model thinks, runs a command for "run", and knows what stands in its
// newest message of the user.
type library struct {
	vendor *upstreamtest.Server
	hold   func() // called for each request, before it is answered; may be nil
}

func (l *library) environ(t *testing.T) []string {
	l.vendor = upstreamtest.New(upstreamtest.Config{PromptCache: true, Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
		if l.hold != nil {
			l.hold()
		}
		a := upstreamtest.Reply(upstreamtest.Think("Let me see."), upstreamtest.Say("Done."))
		switch {
		case strings.Contains(r.User, "run") && len(r.Results) < 2:
			a = upstreamtest.Reply(upstreamtest.Think("I run it."), upstreamtest.Use("Bash", `{"command":"echo hi"}`))
		case strings.Contains(r.User, "licence"):
			a = upstreamtest.Reply(upstreamtest.Say("I cannot know."))
			if strings.Contains(string(r.Body), "Mozilla") {
				a = upstreamtest.Reply(upstreamtest.Say("The Mozilla licence."))
			}
		}
		return &a
	}})
	server := httptest.NewServer(l.vendor)
	t.Cleanup(func() {
		server.Close()
		require.Empty(t, l.vendor.Rejections())
	})
	return []string{"MNEME_PROXY_ACTIVE=claude", "MNEME_PROXY_BACKENDS_CLAUDE_KIND=anthropic",
		"MNEME_PROXY_BACKENDS_CLAUDE_BASE_URL=" + server.URL, "MNEME_DATA_DIR=" + t.TempDir()}
}

// What a user told an agent in one session it knows in the next one, with nothing changed but a header; its tool loops
// keep their thinking, and only what was said and answered is recorded, once.
func TestAnAgentOfAnotherMakerRemembers(t *testing.T) {
	t.Parallel()
	l := &library{}
	s := start(t, l.environ(t)...)
	gateway := s.addrs.Proxy
	first := newCoder(t, gateway, "one", "X-AG-Memory", "laptop")
	first.say("Our licence is the Mozilla licence, and never another one.")
	first.say("Please run it.")
	history := historyOf(s, "agent:laptop")
	require.Equal(t, `["Our licence is the Mozilla licence, and never another one.","The Mozilla licence.","Please run it.","Done."]`,
		gjson.Get(history, "messages.#.content").Raw)
	require.Equal(t, `["user","agent","user","agent"]`, gjson.Get(history, "messages.#.from").Raw)
	require.Equal(t, "I cannot know.", newCoder(t, gateway, "two").say("What licence do we use?"), "without the header")
	require.Equal(t, "I cannot know.", newCoder(t, gateway, "three", "X-AG-Memory", "desk").say("What licence do we use?"),
		"in another chat")
	second := newCoder(t, gateway, "four", "X-AG-Memory", "laptop")
	require.Equal(t, "The Mozilla licence.", second.say("What licence do we use?"))
	second.say("Run it, please run.")
	history = historyOf(s, "agent:laptop")
	require.Equal(t, int64(8), gjson.Get(history, "total").Int())
	require.NotContains(t, history, "recalled", "what was recalled is not recorded again")
	require.NotContains(t, history, "system-reminder")
	status, body := s.request(http.MethodDelete, "/v1/chats/agent:laptop", "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, "I cannot know.", newCoder(t, gateway, "five", "X-AG-Memory", "laptop").say("What licence do we use?"))
}

// A vendor reads as much of the prompts from its cache as without a memory, within .02, though each turn has another
// part: it stands behind all that the turns before it have in common.
func TestAnAgentsMemoryLeavesThePromptCache(t *testing.T) {
	t.Parallel()
	share := func(header ...string) float64 {
		l := &library{}
		s := start(t, l.environ(t)...)
		told := newCoder(t, s.addrs.Proxy, "before", header...)
		for i := range 6 {
			told.say(fmt.Sprintf("Our rule number %d for the deployment of module %d is to run its tests first.", i, i))
		}
		told.say("What were the rules?")
		now := newCoder(t, s.addrs.Proxy, "now", header...)
		for i := range 6 {
			now.say(fmt.Sprintf("Please run the deployment of module %d by our rule. %s", i, strings.Repeat("Mind the gap. ", 100)))
		}
		read, all := 0, 0
		for _, r := range l.vendor.Requests() {
			read, all = read+r.CacheRead, all+r.Prompt
		}
		if len(header) > 0 {
			require.Contains(t, string(l.vendor.Requests()[len(l.vendor.Requests())-1].Body), "<recalled nonce=")
		}
		return float64(read) / float64(all)
	}
	without, with := share(), share("X-AG-Memory", "laptop")
	t.Logf("share of the prompts that was read from the cache: %.3f without, %.3f with", without, with)
	require.Greater(t, without, 0.5)
	require.InDelta(t, without, with, 0.02)
}

func historyOf(s *up, chat string) string {
	status, body := s.request(http.MethodGet, "/v1/chats/"+chat+"/history", "", "")
	require.Equal(s.t, http.StatusOK, status, body)
	return body
}
