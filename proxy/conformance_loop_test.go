package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// loopClient shows its newest calls and their results alone, of one round or of all, without the question.
func loopClient(g *front, endpoint, model string, rounds int, stream bool) (agent, *manners) {
	switch endpoint {
	case "messages":
		c := g.messages(model)
		c.stream = stream
		c.damage = func(history []message) []message {
			if !isResult(history[len(history)-1]) {
				return history
			}
			return history[max(1, len(history)-2*rounds):]
		}
		return c, &c.manners
	case "chat":
		c := g.chat(model)
		c.stream = stream
		c.damage = func(history []chatMessage) []chatMessage {
			if history[len(history)-1].Role != "tool" {
				return history
			}
			return history[max(1, len(history)-2*rounds):]
		}
		return c, &c.manners
	}
	c := g.responses(model)
	c.any, c.stream = true, stream
	c.damage = func(items []json.RawMessage) []json.RawMessage {
		if gjson.GetBytes(items[len(items)-1], "type").Str != "function_call_output" {
			return items
		}
		return items[max(1, len(items)-2*rounds):]
	}
	return c, &c.manners
}

// Fault: a client that shows a tool loop without the question that began it has the vendor asked "(no content)".
func TestConformanceAToolLoopWithoutItsQuestion(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for model, of := range map[string]backendCase{"claude-opus-5-5": prefixChecking, "kimi-k2-thinking": kimiChat,
		"gpt-5.1": gpt} {
		for _, endpoint := range []string{"messages", "chat", "responses"} {
			for _, restarts := range []bool{false, true} {
				for _, rounds := range []int{1, 3} {
					t.Run(fmt.Sprintf("%s, %s, restarts=%t, rounds=%d", of.name, endpoint, restarts, rounds), func(t *testing.T) {
						w := newWorld(t, of.told(budgeted))
						w.shares(redistest.Start(t))
						v := w.vendors[of.name]
						for _, q := range []string{"a", "b", "c"} {
							v.Queue(upstreamtest.Reply(upstreamtest.Think("thought "+q), upstreamtest.Use("look", `{"q":"`+q+`"}`)))
						}
						v.Queue(upstreamtest.Reply(upstreamtest.Think("thought d"), upstreamtest.Say("Done.")))
						g := w.gateway()
						c, m := loopClient(g, endpoint, model, rounds, restarts)
						m.within("c1")
						if restarts {
							m.alternate = []*front{w.gateway(), g}
						}
						require.Equal(t, "Done.", c.say("The first question"))
						requests := v.Requests()
						require.Len(t, requests, 4)
						for i, r := range requests {
							body := string(r.Body)
							require.Equal(t, 1, strings.Count(body, "The first question"), body)
							require.NotContains(t, body, "(no content)")
							for j, q := range []string{"a", "b", "c"} {
								require.Equal(t, j < i, strings.Contains(body, `found {\"q\":\"`+q), body)
							}
						}
						w.conforms(0)
					})
				}
			}
		}
	}
}

// What was put in front is told. A call that the conversation does not know, and a request that has a question, be it a
// newer one, go as they are shown.
func TestWhatIsPutBeforeAToolLoopIsTold(t *testing.T) {
	t.Parallel()
	ask := func(first, id, more string) map[string]string {
		return map[string]string{
			"/v1/messages": `{"model":"m","max_tokens":99,"messages":[` + first + `{"role":"assistant","content":[{"type":"tool_use","id":"` +
				id + `","name":"f","input":{"a":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"` + id +
				`","content":"found"}]}` + more + `]}`,
			"/v1/chat/completions": `{"model":"m","messages":[` + first + `{"role":"assistant","content":null,"tool_calls":[{"id":"` + id +
				`","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},{"role":"tool","tool_call_id":"` + id +
				`","content":"found"}` + more + `]}`,
			"/v1/responses": `{"model":"m","input":[` + first + `{"type":"function_call","call_id":"` + id +
				`","name":"f","arguments":"{\"a\":1.0}"},{"type":"function_call_output","call_id":"` + id + `","output":"found"}` + more +
				`]}`,
		}
	}
	const question = `{"role":"user","content":"The question"}`
	for path := range ask("", "", "") {
		t.Run(path, func(t *testing.T) {
			v := vendor(t, byStream(messagesBody, messagesStream))
			url, _ := gateway(t, to(v, "anthropic"))
			in := []string{"X-AG-Conversation-Id", "c1"}
			begin := map[string]string{"/v1/messages": `{"model":"m","max_tokens":99,"messages":[` + question + `]}`,
				"/v1/chat/completions": `{"model":"m","messages":[` + question + `]}`,
				"/v1/responses":        `{"model":"m","input":[` + question + `]}`}[path]
			got := call(t, http.MethodPost, url+path, begin, in...)
			require.Equal(t, 200, got.status, got.body)
			const id = "toolu_01A09q90qw90lq91"
			require.Contains(t, got.body, id)

			got = call(t, http.MethodPost, url+path, ask("", id, "")[path], in...)
			require.Equal(t, 200, got.status, got.body)
			require.Contains(t, strings.Split(got.header.Get("X-AG-Mended"), ","), "history_rebuilt")
			require.Contains(t, gjson.Get(v.last(t).body, "messages.0.content").Raw, "The question", v.last(t).body)
			require.EqualValues(t, 3, gjson.Get(v.last(t).body, "messages.#").Int())

			for name, c := range map[string]struct {
				body   string
				header []string
			}{
				"unknown":        {ask("", "toolu_01B09q90qw90lq92", "")[path], in},
				"no name":        {ask("", id, "")[path], nil},
				"a new question": {ask("", id, `,{"role":"user","content":"Another"}`)[path], in},
			} {
				got = call(t, http.MethodPost, url+path, c.body, c.header...)
				require.Equal(t, 200, got.status, name)
				require.NotContains(t, v.last(t).body, "The question", name)
				require.NotContains(t, strings.Split(got.header.Get("X-AG-Mended"), ","), "history_rebuilt", name)
			}
		})
	}
}
