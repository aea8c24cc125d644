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

	"mneme/access"
	"mneme/internal/freeport"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// coder plays an agent that is not mneme's, as Claude Code speaks: it has tools, marks for the prompt cache, a header
// for its session, and sends all of its transcript each time.
type coder struct {
	t        *testing.T
	url      string // of the gateway
	header   http.Header
	messages []any
	toolless bool // it sends no tools, as for a title
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
	request := map[string]any{"model": "claude-opus-4-8", "max_tokens": 8000, "messages": messages,
		"system": []any{map[string]any{"type": "text", "text": strings.Repeat("You are a careful agent for code. ", 600),
			"cache_control": map[string]any{"type": "ephemeral"}}},
		"thinking": map[string]any{"type": "adaptive"},
		"tools": []any{map[string]any{"name": "Bash", "description": "Runs a command.", "input_schema": map[string]any{
			"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}}}}}
	if c.toolless {
		delete(request, "tools")
	}
	body, err := json.Marshal(request)
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

	unbound bool // its signatures are not bound to what stands before them
	refuses int  // as often it may
}

func (l *library) environ(t *testing.T) []string {
	answer := func(r *upstreamtest.Request) *upstreamtest.Answer {
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
	}
	l.vendor = upstreamtest.New(upstreamtest.Config{PromptCache: true, Answer: answer,
		Thinking: upstreamtest.ThinkingRules{PrefixCheck: !l.unbound}})
	server := httptest.NewServer(l.vendor)
	t.Cleanup(func() {
		server.Close()
		require.Len(t, l.vendor.Rejections(), l.refuses)
	})
	return []string{"MNEME_PROXY_ACTIVE=claude",
		backend("claude", "anthropic", server.URL), "MNEME_DATA_DIR=" + t.TempDir(),
		"MNEME_PROXY_MEMORY_WAIT=1m"} // on a busy machine, too
}

// What a user told an agent in one session it knows in the next one, with nothing changed but a header; its tool loops
// keep their thinking, and only what was said and answered is recorded, once.
func TestAnAgentOfAnotherMakerRemembers(t *testing.T) {
	t.Parallel()
	l := &library{refuses: 1} // thinking that was given in sight of what is erased in the end
	s := start(t, l.environ(t)...)
	gateway := s.addrs.Proxy
	first := newCoder(t, gateway, "one", "X-AG-Memory", "laptop")
	first.say("Our licence is the Mozilla licence, and never another one.")
	first.say("Please run it.")
	history := historyOf(s, "agent:laptop")
	require.Equal(t,
		`["Our licence is the Mozilla licence, and never another one.","The Mozilla licence.","Please run it.","Done."]`,
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
	open := newCoder(t, gateway, "open", "X-AG-Memory", "laptop")
	require.Equal(t, "The Mozilla licence.", open.say("What licence do we use?"))
	newest := func() string { all := l.vendor.Requests(); return string(all[len(all)-1].Body) }
	require.Contains(t, newest(), "<recalled nonce=")
	status, body := s.request(http.MethodDelete, "/v1/chats/agent:laptop", "", "")
	require.Equal(t, http.StatusOK, status, body)
	open.say("Hello again.")
	require.NotContains(t, newest(), "<recalled nonce=", "an erasure reaches a session that is open")
	fifth := newCoder(t, gateway, "five", "X-AG-Memory", "laptop")
	require.Equal(t, "I cannot know.", fifth.say("What licence do we use?"))
}

// A vendor reads as much of the prompts from its cache as without a memory, within .02, though each turn has another
// part: it stands behind all that the turns before it have in common.
func TestAnAgentsMemoryLeavesThePromptCache(t *testing.T) {
	testtier.Slow(t)
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
			now.say(fmt.Sprintf("Please run the deployment of module %d by our rule. %s", i,
				strings.Repeat("Mind the gap. ", 100)))
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

// The turns of subagents are theirs, calls for a title are nobody's turns, and what an agent of mneme's own says is not
// recorded a second time.
func TestWhatOfAnAgentIsNoTurnOfItsUsers(t *testing.T) {
	t.Parallel()
	l := &library{}
	s := start(t, l.environ(t)...)
	newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop",
		"X-Claude-Code-Agent-Id", "a5de52bc").say("Look for the tests.")
	title := newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop")
	title.toolless = true
	title.say("Give a title to: Look for the tests.")
	newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop", "X-AG-Run-Id", "run1").say("A run of ours.")
	require.Equal(t, int64(0), gjson.Get(historyOf(s, "agent:laptop"), "total").Int())
	status, body := s.request(http.MethodGet, "/v1/chats/agent:laptop/subagents/subagent/history", "", "")
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, `["Look for the tests.","Done."]`, gjson.Get(body, "messages.#.content").Raw)
	require.Equal(t, "agent", gjson.Get(body, "messages.0.from").Str, "a subagent's user is the agent")
}

// What an agent has its transcript summarized by, and the summary from which it goes on, are not words of its user.
func TestACompactionIsNoTurnOfTheUsers(t *testing.T) {
	t.Parallel()
	l := &library{}
	s := start(t, l.environ(t)...)
	agent := newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop")
	agent.say("Look for the tests.")
	agent.say("Your task is to create a detailed summary of the conversation so far, paying close attention to requests.")
	agent.messages = nil
	agent.say("This session is being continued from a previous conversation that ran out of context. It was about tests.")
	agent.messages = agent.messages[:1]
	agent.say("Now run them.")
	require.Equal(t, `["Look for the tests.","Done.","Now run them.","Done."]`,
		gjson.Get(historyOf(s, "agent:laptop"), "messages.#.content").Raw)
}

// With keys a memory is its tenant's, takes the scopes that a chat takes, and is each key's own where the gateway is
// set so; wrong headers are told.
func TestAnAgentsMemoryIsItsTenants(t *testing.T) {
	t.Parallel()
	l := &library{}
	s := withTenantsAnd(t, append(l.environ(t), "MNEME_PROXY_MEMORY_KEYS=true"), "acme", "beta")
	of := func(tenant string, header ...string) *coder {
		return newCoder(t, s.addrs.Proxy, tenant, append(header, "X-Api-Key", s.keys[tenant])...)
	}
	of("acme", "X-AG-Memory", "laptop").say("Our licence is the Mozilla licence.")
	require.Equal(t, "I cannot know.", of("beta", "X-AG-Memory", "laptop").say("What licence do we use?"))
	of("acme").say("Our licence is the Mozilla licence.")
	status, body := ask(t, "GET", s.url("/v1/chats/agent:"+s.ids["acme"]+"/history"), s.keys["acme"], "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, int64(2), gjson.Get(body, "total").Int(), body)

	models, _, err := access.NewStore(s.client).Create(t.Context(), access.Key{Name: "models",
		Scopes: []access.Scope{access.Models}})
	require.NoError(t, err)
	alone := newCoder(t, s.addrs.Proxy, "models", "X-Api-Key", models)
	require.Equal(t, "Done.", alone.say("Hello."), "a key without the scopes is served without a memory")
	for header, want := range map[string]int{"laptop": http.StatusForbidden} {
		refused := newCoder(t, s.addrs.Proxy, "refused", "X-AG-Memory", header, "X-Api-Key", models)
		refused.messages = []any{map[string]any{"role": "user", "content": []any{text("Hello.")}}}
		status, body := refused.call()
		require.Equal(t, want, status, body)
		require.Contains(t, body, "chat and memory:read")
	}
	wrong := of("acme", "X-AG-Memory", "no chat / at all")
	wrong.messages = []any{map[string]any{"role": "user", "content": []any{text("Hello.")}}}
	status, body = wrong.call()
	require.Equal(t, http.StatusBadRequest, status, body)
	require.Contains(t, body, "X-AG-Memory must be the name of a chat")
}

// A webmemory that is away, or that takes a request and never answers, keeps no call from its answer, and what an
// erasure took away meanwhile does not come back by a turn that had begun before.
func TestAnAgentsMemoryFails(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	l := &library{}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that its client leaves
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	for _, url := range []string{silent.URL, "http://" + freeport.Addr(t)} {
		s := start(t, append(l.environ(t), "MNEME_PROXY_MEMORY_URL="+url, "MNEME_PROXY_MEMORY_WAIT=50ms")...)
		require.Equal(t, "Done.", newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop").say("Hello."))
		require.Contains(t, s.log.String(), "the call goes on without what its agent remembers")
		require.Contains(t, s.log.String(), "a turn of an agent is not remembered")
	}
	var s *up
	l.hold = func() {
		l.hold = nil
		status, body := s.request(http.MethodDelete, "/v1/chats/agent:laptop", "", "")
		require.Equal(t, http.StatusOK, status, body)
	}
	s = start(t, l.environ(t)...)
	c := newCoder(t, s.addrs.Proxy, "one", "X-AG-Memory", "laptop")
	c.say("Our licence is the Mozilla licence.")
	require.Equal(t, int64(0), gjson.Get(historyOf(s, "agent:laptop"), "total").Int())
	c.say("And hello.")
	require.Equal(t, int64(2), gjson.Get(historyOf(s, "agent:laptop"), "total").Int())
}

// Another gateway knows nothing of what was recalled in a session, and the session goes on there. A vendor that binds
// signatures to what stands before them refuses one call of it, which the gateway makes again.
func TestAnAgentsMemoryAtAnotherGateway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, l := range map[string]*library{"unbound": {unbound: true}, "bound": {refuses: 1}} {
		t.Run(name, func(t *testing.T) { atAnotherGateway(t, l) })
	}
}

func atAnotherGateway(t *testing.T, l *library) {
	environ := l.environ(t)
	s := withTenantsAnd(t, environ, "acme")
	header := []string{"X-AG-Memory", "laptop", "X-Api-Key", s.keys["acme"]}
	newCoder(t, s.addrs.Proxy, "before", header...).say("Our licence is the Mozilla licence, and we run the tests twice.")
	c := newCoder(t, s.addrs.Proxy, "now", header...)
	require.Equal(t, "The Mozilla licence.", c.say("What licence do we use?"))
	c.say("Please run the tests as we run them.")
	other := s.replica(t, environ...)
	c.url = "http://" + other.addrs.Proxy + "/v1/messages"
	c.say("And run them again, the tests.")
	require.Equal(t, "The Mozilla licence.", c.say("What licence do we use, once more?"))
	status, body := ask(t, "GET", s.url("/v1/chats/agent:laptop/history"), s.keys["acme"], "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, int64(10), gjson.Get(body, "total").Int(), body)
	for _, r := range l.vendor.Requests() {
		require.Zero(t, r.Missing, "thinking of the latest turn came back")
	}
}

// Each door of the gateway has it, whatever dialect the vendor speaks.
func TestAnAgentsMemoryAtEachDoor(t *testing.T) {
	t.Parallel()
	l := &library{}
	s := start(t, l.environ(t)...)
	say := func(path, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addrs.Proxy+path,
			strings.NewReader(body))
		require.NoError(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "X-Ag-Memory": {"laptop"}}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(raw))
		return string(raw)
	}
	const question = "What licence do we use, as I said?"
	say("/v1/chat/completions", `{"model": "m", "messages": [{"role": "user",
		"content": "Our licence is the Mozilla licence."}]}`)
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model": "m", "messages": [{"role": "user", "content": "` + question + `"}]}`,
		"/v1/responses":        `{"model": "m", "input": "` + question + `"}`,
		"/v1/messages": `{"model": "m", "max_tokens": 100,
			"messages": [{"role": "user", "content": "` + question + `"}]}`,
	} {
		require.Contains(t, say(path, body), "The Mozilla licence.", path)
		stream := say(path, strings.Replace(body, "{", `{"stream": true, `, 1))
		require.Contains(t, strings.ReplaceAll(stream, `","`, ""), "Mozilla", path)
	}
	require.Equal(t, "Our licence is the Mozilla licence.",
		gjson.Get(historyOf(s, "agent:laptop"), "messages.0.content").Str)
}

func historyOf(s *up, chat string) string {
	status, body := s.request(http.MethodGet, "/v1/chats/"+chat+"/history", "", "")
	require.Equal(s.t, http.StatusOK, status, body)
	return body
}

// No call shows erased, redacted, rewound or quarantined messages, not even a repeated call of an open session.
func TestWhatWasErasedIsNotRecalledAgain(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	l := &library{unbound: true}
	s := start(t, l.environ(t)...)
	for name, erase := range map[string]func(chat, id string) (method, path, body string){
		"the chat":    func(chat, _ string) (string, string, string) { return "DELETE", chat, "" },
		"the history": func(chat, _ string) (string, string, string) { return "DELETE", chat + "/history", "" },
		"a message":   func(chat, id string) (string, string, string) { return "DELETE", chat + "/messages/" + id, "" },
		"by a rewind": func(chat, _ string) (string, string, string) { return "POST", chat + "/rewind", `{"to":null}` },
		"quarantine": func(chat, id string) (string, string, string) {
			return "POST", chat + "/quarantine", `{"entries":["` + id + `"]}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory := strings.ReplaceAll(name, " ", "-")
			chat := "/v1/chats/agent:" + memory
			newCoder(t, s.addrs.Proxy, "one-"+memory, "X-AG-Memory", memory).say("Our licence is number 4711.")
			first := gjson.Get(historyOf(s, "agent:"+memory), "messages.0.id").Str
			require.NotEmpty(t, first)
			shown := func(c *coder) bool {
				status, body := c.call()
				require.Equal(t, http.StatusOK, status, body)
				requests := l.vendor.Requests()
				return strings.Contains(string(requests[len(requests)-1].Body), "4711")
			}
			open := newCoder(t, s.addrs.Proxy, "two-"+memory, "X-AG-Memory", memory)
			open.say("What licence do we use?")
			open.messages = open.messages[:1]
			require.True(t, shown(open))
			method, path, body := erase(chat, first)
			status, got := ask(t, method, s.url(path), "", body)
			require.Less(t, status, 300, got)
			require.False(t, shown(open), "the same call")
			fresh := newCoder(t, s.addrs.Proxy, "three-"+memory, "X-AG-Memory", memory)
			fresh.messages = open.messages
			require.False(t, shown(fresh), "the same question in another session")
		})
	}
}
