package chat_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/proxy"
	"mneme/proxy/redisstore"
)

// everyWay runs a test once for each dialect, with JSON and with a stream.
func everyWay(t *testing.T, f func(*testing.T, way)) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) { f(t, w) })
	}
}

func TestAConversationIsOneSession(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		cli := fake(t)
		c := start(t, cli).client(w, "conversation-1")
		for i := range 3 {
			tag := fmt.Sprintf("tag%d", i)
			got := c.say("TAG " + tag)
			require.Equal(t, tagged(tag), got.text)
			require.Contains(t, []string{"stop", "end_turn"}, got.finish)
			require.Contains(t, got.usage, "10", "what the CLI counted: %s", got.usage)
			require.Equal(t, "conversation-1", got.conversation)
		}
		sessions := created(t, cli)
		require.Len(t, sessions, 1)
		require.Equal(t, "Be brief.", sessions[0].System.Content)
		require.Equal(t, "m", sessions[0].Model)
		require.Equal(t, c.gateway.url+"/teammate/copilot/v1", sessions[0].Provider.BaseURL)
		require.Equal(t, map[string]string{"X-AG-Conversation-Id": sessions[0].ID}, sessions[0].Provider.Headers)
		require.Equal(t, "0", c.gateway.replayed())
		c.gateway.stop()
		require.Empty(t, cli.Live())
		require.Len(t, cli.Calls("session.delete"), 1)
	})
}

func TestToolsAndTheirResults(t *testing.T) {
	for _, conversation := range []string{"named", ""} {
		everyWay(t, func(t *testing.T, w way) {
			cli := fake(t)
			c := start(t, cli).client(w, conversation, "lookup", "bash")
			got := c.say("CALL bash lookup")
			require.Equal(t, "Let me look.", got.text)
			require.Contains(t, []string{"tool_calls", "tool_use"}, got.finish)
			require.Len(t, got.calls, 2)
			for i, name := range []string{"bash", "lookup"} {
				require.Equal(t, name, got.calls[i].name)
				require.JSONEq(t, fmt.Sprintf(`{"q":%q}`, name), got.calls[i].input)
				require.Regexp(t, `^call_[A-Z2-7]{24}$`, got.calls[i].id)
			}
			require.Equal(t, "They gave: one/success; two/success", c.give(got.calls[0].id, "one", got.calls[1].id, "two").text)
			require.Len(t, created(t, cli), 1)
			require.Equal(t, "0", c.gateway.replayed())
		})
	}
}

// The turn does not wait for ever for what the client left out.
func TestResultsThatAreMissing(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		cli := fake(t)
		c := start(t, cli).client(w, "c", "a", "b")
		got := c.say("CALL a b")
		text := c.give(got.calls[1].id, "two").text
		require.Contains(t, text, "two/success")
		require.Len(t, created(t, cli), 1)
		require.Len(t, cli.Calls("session.tools.handlePendingToolCall"), 2)
	})
}

func TestSeveralRoundsOfTools(t *testing.T) {
	cli := fake(t)
	cli.Script(func(t *copilottest.Turn) {
		for i := range 3 {
			call := t.Use("a", `{}`)
			t.Message(t.NewID("message"), fmt.Sprint("round ", i), call)
			if _, ok := t.Run(call); !ok {
				return
			}
		}
		t.Say("done")
	})
	c := start(t, cli).client(way{}, "c", "a")
	got := c.say("go")
	for i := range 3 {
		require.Equal(t, fmt.Sprint("round ", i), got.text)
		got = c.give(got.calls[0].id, "r")
	}
	require.Equal(t, "done", got.text)
	require.Len(t, created(t, cli), 1)
}

// What the user edits or takes back never happened: a fresh session is told what
// the request shows, and the one that knows otherwise is gone.
func TestEditsGetAFreshSession(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		for name, edit := range map[string]func(c *client){
			"an edited question":  func(c *client) { c.history[2].text = "hello again" },
			"a step back":         func(c *client) { c.history = c.history[:2] },
			"an edited answer":    func(c *client) { c.history[1].text = "echo: no" },
			"another instruction": func(c *client) { c.system = "Be long." },
			"another model":       func(c *client) { c.model = "n" },
			"another tool":        func(c *client) { c.tools = []string{"a", "b"} },
		} {
			t.Run(name, func(t *testing.T) {
				cli := fake(t)
				c := start(t, cli).client(w, "c", "a")
				require.Equal(t, "echo: hello", c.say("hello").text)
				require.Equal(t, "echo: world", c.say("world").text)
				edit(c)
				require.Equal(t, "echo: and now?", c.say("and now?").text)
				sessions := created(t, cli)
				require.Len(t, sessions, 2)
				require.Contains(t, sessions[1].System.Content, c.system)
				for _, m := range c.history[:len(c.history)-2] {
					require.Contains(t, sessions[1].System.Content, `"role":"`+m.role+`","text":"`+m.text+`"`)
				}
				require.NotContains(t, sessions[1].System.Content, "and now?")
				require.Equal(t, "1", c.gateway.replayed())
				if sessions[0].Model == sessions[1].Model && len(c.tools) == 1 && c.system == "Be brief." {
					cli.Await(t.Context(), "session.delete", 1)
					require.NotContains(t, cli.Live(), sessions[0].ID)
				}
				require.Equal(t, "echo: go on", c.say("go on").text)
				require.Len(t, created(t, cli), 2, "the fresh session is reused")
			})
		}
	})
}

// Layout is no content.
func TestWhatClientsDoToLayout(t *testing.T) {
	cli := fake(t)
	c := start(t, cli, func(c *proxy.Config) { c.Stateless = true }).client(way{}, "c", "a")
	c.say("one  \ntwo")
	c.history[0].text = "one\r\ntwo\n"
	c.history[1].text += "\n"
	got := c.say("CALL a")
	c.history[3].calls[0].input = `{ "q" : "a" }`
	c.give(got.calls[0].id, "r")
	require.Len(t, created(t, cli), 1)
}

// A step back from a parked turn ends that turn.
func TestAParkedTurnThatIsTakenBack(t *testing.T) {
	cli := fake(t)
	c := start(t, cli).client(way{}, "c", "a")
	c.say("hello")
	c.say("CALL a")
	c.history = c.history[:2]
	require.Equal(t, "echo: never mind", c.say("never mind").text)
	cli.Await(t.Context(), "session.abort", 1)
	cli.Await(t.Context(), "session.delete", 1)
	require.Len(t, cli.Live(), 1)
}

// The gateway restarts between the calls and their results.
func TestARestartBetweenCallAndResult(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		for _, conversation := range []string{"named", ""} {
			cli := fake(t)
			first := start(t, cli)
			c := first.client(w, conversation, "lookup")
			got := c.say("CALL lookup")
			first.stop()
			require.Empty(t, cli.Live())
			c.gateway = start(t, cli)
			again := c.give(got.calls[0].id, "RESULT-42")
			require.Contains(t, again.text, "RESULT-42", "the prompt holds the result")
			sessions := created(t, cli)
			require.Len(t, sessions, 2)
			require.Contains(t, sessions[1].System.Content, `"calls":[{"id":"`+got.calls[0].id+`","name":"lookup"`)
			require.Equal(t, "1", c.gateway.replayed())
		}
	})
}

// The CLI dies between turns: the conversation is resumed from its disk. While a
// turn is parked nothing can be resumed, so it is told again.
func TestTheCLIRestarts(t *testing.T) {
	cli := fake(t)
	c := start(t, cli).client(way{stream: true}, "c", "a")
	c.say("hello")
	drop := func() { // noticed here, too
		before := c.gateway.metric("copilot_redials_total")
		cli.Drop()
		eventually(t, func() bool { return c.gateway.metric("copilot_redials_total") != before }, "a new connection")
	}
	drop()
	require.Equal(t, "echo: world", c.say("world").text)
	require.Len(t, cli.Calls("session.resume"), 1)
	require.Len(t, created(t, cli), 1)
	got := c.say("CALL a")
	drop()
	require.Contains(t, c.give(got.calls[0].id, "RESULT-42").text, "RESULT-42")
	require.Len(t, created(t, cli), 2)
	require.Equal(t, "1", c.gateway.replayed())
}

// Two gateways over one Redis: the one that is asked takes the conversation over,
// and the other frees its session.
func TestAnotherReplicaTakesOver(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	shared := func(c *proxy.Config) {
		client := server.Client()
		c.Shared.Owners = redisstore.NewOwners(client, time.Hour)
	}
	for _, conversation := range []string{"named", ""} {
		cli := fake(t)
		one, two := start(t, cli, shared), start(t, cli, shared)
		c := one.client(way{}, conversation, "lookup")
		got := c.say("CALL lookup")
		old := created(t, cli)[0].ID
		c.gateway = two
		require.Contains(t, c.give(got.calls[0].id, "RESULT-42").text, "RESULT-42")
		require.Equal(t, "1", two.replayed())
		eventually(t, func() bool { return one.metric(`copilot_sessions{backend="cli",state="parked"} `) == "0" },
			"the first frees its session")
		eventually(t, func() bool { return !slices.Contains(cli.Live(), old) }, "and ends it")
		require.Equal(t, "echo: more", c.say("more").text)
		one.stop()
		two.stop()
		require.Empty(t, cli.Live())
	}
}

// A conversation that is erased is erased in the CLI, too.
func TestErasing(t *testing.T) {
	cli := fake(t)
	g := start(t, cli)
	c, other := g.client(way{}, "c"), g.client(way{}, "c")
	other.key = "somebody else"
	c.say("hello")
	other.say("hello")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, g.url+"/v1/conversations/c", nil)
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", "caller")
	resp, err := g.http.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 204, resp.StatusCode)
	gone := cli.Await(t.Context(), "session.delete", 1)
	require.Len(t, gone, 1)
	require.Equal(t, created(t, cli)[0].ID, gone[0].Session())
	other.say("world")
	require.Len(t, created(t, cli), 2, "another caller's conversation of that name is another one")
}

// Without a conversation an answered session could not be found again.
func TestWithoutAConversation(t *testing.T) {
	cli := fake(t)
	c := start(t, cli).client(way{}, "")
	c.say("hello")
	cli.Await(t.Context(), "session.delete", 1)
	require.Empty(t, cli.Live())
	require.Equal(t, "echo: world", c.say("world").text)
	require.Contains(t, created(t, cli)[1].System.Content, "echo: hello")
	require.Equal(t, "1", c.gateway.replayed())
}

// One client leaves; its turn alone is aborted, and its session is gone.
func TestAClientThatLeaves(t *testing.T) {
	for _, w := range []way{{stream: true}, {}} {
		cli := fake(t)
		g := start(t, cli)
		stays, leaves := g.client(way{stream: true}, "stays"), g.client(w, "leaves")
		stays.history = []said{{role: "user", text: "SLOW one"}}
		leaves.history = []said{{role: "user", text: "SLOW two"}}
		body, err := stays.open(t.Context())
		require.NoError(t, err)
		_, err = io.ReadAtLeast(body.Body, make([]byte, 1000), 1) // it has begun
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			resp, err := leaves.open(ctx)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			gone <- err
		}()
		cli.Await(t.Context(), "session.send", 2)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		deleted := cli.Await(t.Context(), "session.delete", 1)
		require.Equal(t, created(t, cli)[1].ID, deleted[0].Session())
		require.Equal(t, []string{created(t, cli)[0].ID}, cli.Live())
		require.NoError(t, body.Body.Close())
		cli.Await(t.Context(), "session.delete", 2)
		g.stop()
	}
}

// Many conversations at once, each with its own words: no byte crosses.
func TestManyConversationsAtOnce(t *testing.T) {
	testtier.Slow(t)
	cli := fake(t)
	g := start(t, cli)
	var all sync.WaitGroup
	failures := make([]error, 36)
	w := []way{{}, {stream: true}, {messages: true}, {true, true}}
	for i := range failures {
		c := g.client(w[i%4], fmt.Sprintf("conversation-%d", i), "a")
		if i%3 == 0 {
			c.conversation = "shared" // branches of one
		}
		all.Go(func() {
			for turn := range 3 {
				tag := fmt.Sprintf("tag%d.%d", i, turn)
				if got := c.say("TAG " + tag); got.text != tagged(tag) {
					failures[i] = fmt.Errorf("%s heard %q", tag, got.text)
					return
				}
			}
			got := c.say("CALL a")
			if got = c.give(got.calls[0].id, fmt.Sprint("result", i)); got.text != fmt.Sprintf("They gave: result%d/success",
				i) {
				failures[i] = fmt.Errorf("%d heard %q", i, got.text)
			}
		})
	}
	all.Wait()
	for _, err := range failures {
		require.NoError(t, err)
	}
	g.stop()
	require.Empty(t, cli.Live())
}

// Two requests of one conversation at once: the second is a branch.
func TestTwoRequestsOfOneConversation(t *testing.T) {
	cli := fake(t)
	g := start(t, cli)
	c := g.client(way{stream: true}, "c")
	c.say("hello")
	slow := *c
	slow.history = append(slow.history[:2:2], said{role: "user", text: "SLOW one"})
	resp, err := slow.open(t.Context())
	require.NoError(t, err)
	_, err = io.ReadAtLeast(resp.Body, make([]byte, 1000), 1)
	require.NoError(t, err)
	require.Equal(t, "echo: world", c.say("world").text)
	require.Len(t, created(t, cli), 2)
	require.Equal(t, "echo: again", c.say("again").text)
	require.Len(t, created(t, cli), 2)
	require.NoError(t, resp.Body.Close())
}

// The connection ends while a request comes: whatever the moment, the answer is
// right, and the prompt is there once.
func TestAConnectionThatEndsAtAnyMoment(t *testing.T) {
	testtier.Slow(t)
	cli := fake(t)
	c := start(t, cli).client(way{}, "c")
	c.say("hello")
	for i := range 3 { // more would be met by longer and longer pauses
		cli.Drop()
		require.Equal(t, fmt.Sprint("echo: ", i), c.say(fmt.Sprint(i)).text)
	}
}

// A client that says that no request goes on from the answer leaves no session behind, and may go on nevertheless.
func TestAConversationThatIsOver(t *testing.T) {
	everyWay(t, func(t *testing.T, w way) {
		cli := fake(t)
		c := start(t, cli).client(w, "c", "a")
		c.over = true
		require.Equal(t, "echo: hello", c.say("hello").text)
		cli.Await(t.Context(), "session.delete", 1)
		require.Empty(t, cli.Live(), "a turn that has ended")
		got := c.say("CALL a")
		cli.Await(t.Context(), "session.delete", 2)
		require.Empty(t, cli.Live(), "a turn whose results never come")
		for _, state := range []string{"busy", "idle", "parked", "dormant"} {
			require.Equal(t, "0", c.gateway.metric(`copilot_sessions{backend="cli",state="`+state+`"} `), state)
		}
		require.Contains(t, c.give(got.calls[0].id, "RESULT-42").text, "RESULT-42")
		require.Equal(t, "2", c.gateway.replayed())
	})
}

// What a client adds to one request alone is in the prompt, and in nothing that later sessions
// are told.
func TestEphemeralParts(t *testing.T) {
	cli := fake(t)
	g := start(t, cli)
	ask := func(messages string, header http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-5","messages":[`+messages+`]}`))
		require.NoError(t, err)
		r.Header = header
		resp, err := g.http.Do(r)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, string(body))
	}
	named := http.Header{"X-Ag-Conversation-Id": {"c1"}}
	first := `{"role":"user","content":"TAG one"},`
	ask(`{"role":"user","content":[{"type":"text","text":"(recalled)"},{"type":"text","text":"TAG one"}]}`,
		http.Header{"X-Ag-Conversation-Id": {"c1"}, "X-Ag-Ephemeral-Parts": {"1"}})
	ask(first+`{"role":"assistant","content":"`+tagged("one")+`"},{"role":"user","content":"TAG two"}`, named)
	sent := cli.Calls("session.send")
	require.Contains(t, string(sent[0].Params), `(recalled)\n\nTAG one`)
	require.NotContains(t, string(sent[1].Params), "recalled")
	sessions := created(t, cli)
	require.Len(t, sessions, 2, "the first has a prompt that nobody shows")
	require.Contains(t, sessions[1].System.Content, "TAG one")
	require.NotContains(t, sessions[1].System.Content, "recalled")
	g.stop()
}
