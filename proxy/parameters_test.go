package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// unlisted is OpenAI behind a name that tells nothing, so that it is unknown what its
// models refuse.
var unlisted = backendCase{
	name:   "openai",
	vendor: upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{OpenAI: true}},
	config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: "generic"},
}

// knocked is a world with refusals that a test judges by itself.
func knocked(t *testing.T, backends ...backendCase) *world {
	w := newWorld(t, backends...)
	w.checked = true
	return w
}

// ask posts a body at a path of the gateway.
func (g *front) ask(path, body string, header ...string) answered {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return g.send(g.world.Context(), path, h, []byte(body))
}

const tool = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{}}}}]`

// A parameter that the model refuses is left out, or goes under the name that the
// error gives; the next call does not pay for it again.
func TestARefusedParameterIsCuredOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, parameter, becomes string }{
		"effort where there is none":  {"gpt-4.1", `"reasoning_effort":"medium"`, ``},
		"effort where it has no such": {"gpt-5.1", `"reasoning_effort":"minimal"`, `"reasoning_effort":"low"`},
		"the limit's old name":        {"o3-mini", `"max_tokens":77`, `"max_completion_tokens":77`},
		"temperature":                 {"gpt-5", `"temperature":0.2`, ``},
		"effort beside tools":         {"gpt-5.4", `"reasoning_effort":"low",` + tool, tool + `,"reasoning_effort":"none"`},
		"tools beside its own effort": {"gpt-5.6-terra", tool, tool + `,"reasoning_effort":"none"`},
		"what OpenAI does not know":   {"gpt-4.1", `"top_k":3`, ``},
	} {
		for _, path := range []string{"/v1/chat/completions", "/teammate/v1/chat/completions"} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", path, ", stream=", stream), func(t *testing.T) {
					w := knocked(t, unlisted)
					v, g := w.vendors["openai"], w.gateway()
					body := fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":"hi"}],%s}`, c.model, stream,
						c.parameter)
					want := fmt.Sprintf(`{"model":%q,"stream":%v,"messages":[{"role":"user","content":"hi"}],%s}`, c.model, stream,
						c.becomes)
					if stream {
						want = want[:len(want)-1] + `,"stream_options":{"include_usage":true}}`
					}
					for i := range 3 {
						got := g.ask(path, body)
						require.Equal(t, 200, got.status, got.body)
						require.Equal(t, 2+i, v.Count(), "one refusal in all")
						require.JSONEq(t, strings.NewReplacer(`,}`, `}`, `,,`, `,`).Replace(want), string(v.Last().Body))
					}
					require.Equal(t, 1, w.log.count("[parameter_retry]"))
					require.Contains(t, g.metrics("parameter_retries_total"), `outcome="ok"`)
					require.Contains(t, g.metrics("upstream_refusals_total"), `class="parameter"`)
				})
			}
		}
	}
}

// Another model and another backend do not suffer for one that refuses.
func TestARefusedParameterIsRememberedByModel(t *testing.T) {
	t.Parallel()
	w := knocked(t, unlisted)
	v, g := w.vendors["openai"], w.gateway()
	ask := func(model, effort string) {
		got := g.ask("/v1/chat/completions",
			fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}],"reasoning_effort":%q}`, model, effort))
		require.Equal(t, 200, got.status, got.body)
	}
	ask("gpt-4.1", "low")
	require.Equal(t, 2, v.Count())
	ask("o3", "low")
	require.Equal(t, 3, v.Count())
	require.Contains(t, string(v.Last().Body), `"low"`)
	// Of a level that is refused nothing follows for the others.
	ask("gpt-5.1", "minimal")
	require.Equal(t, 5, v.Count())
	ask("gpt-5.1", "high")
	require.Equal(t, 6, v.Count())
	require.Contains(t, string(v.Last().Body), `"high"`)
	ask("gpt-5.1", "minimal")
	require.Equal(t, 7, v.Count())

	var shown struct{ Learned map[string][]string }
	require.NoError(t, json.Unmarshal([]byte(call(t, "GET", g.url+"/admin/backend", "").body), &shown))
	require.Len(t, shown.Learned["openai"], 2, "each rule is shown, with what the refusal said")
	require.Contains(t, shown.Learned["openai"][0], "model: gpt-4.1, member: reasoning_effort")
	require.Regexp(t, `source: "?Unrecognized request argument`, shown.Learned["openai"][0])
}

// Requests at one time may each pay for it once, and none fails.
func TestARefusedParameterUnderLoad(t *testing.T) {
	t.Parallel()
	w := knocked(t, unlisted)
	v, g := w.vendors["openai"], w.gateway()
	const body = `{"model":"gpt-4.1","messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low"}`
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 4 {
				got := g.ask("/v1/chat/completions", body)
				assert.Equal(t, 200, got.status, got.body)
			}
		})
	}
	all.Wait()
	before := v.Count()
	require.Less(t, before, 2*32*4)
	require.Equal(t, 200, g.ask("/v1/chat/completions", body).status)
	require.Equal(t, before+1, v.Count())
}

// In the messages dialect, and from one dialect to the other.
func TestARefusedParameterOfMessages(t *testing.T) {
	t.Parallel()
	const message = `"max_tokens":9000,"messages":[{"role":"user","content":"hi"}]`
	t.Run("messages all the way", func(t *testing.T) {
		w := knocked(t, claude.with("claude", func(c *upstreamtest.Config) { c.Thinking.NoContextManagement = true }))
		v, g := w.vendors["claude"], w.gateway()
		body := `{"model":"claude-opus-4-8",` + message +
			`,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`
		for i := range 2 {
			got := g.ask("/v1/messages", body, "Anthropic-Beta", "context-management-2025-06-27")
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 2+i, v.Count())
			require.NotContains(t, string(v.Last().Body), "context_management")
		}
	})
	t.Run("an effort of translation's making", func(t *testing.T) {
		w := knocked(t, claude)
		v, g := w.vendors["claude"], w.gateway()
		v.Fail(upstreamtest.Canned(400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"output_config: Extra inputs are not `+
				`permitted"}}`))
		for i := range 2 {
			got := g.ask("/v1/chat/completions",
				`{"model":"claude-opus-4-8","messages":[{"role":"user","content":"hi"}],"reasoning_effort":"high"}`)
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 2+i, v.Count())
			require.NotContains(t, string(v.Last().Body), "output_config")
			require.Contains(t, string(v.Last().Body), `"adaptive"`)
		}
	})
	t.Run("messages to a chat backend", func(t *testing.T) {
		w := knocked(t, unlisted)
		v, g := w.vendors["openai"], w.gateway()
		for i := range 2 {
			got := g.ask("/v1/messages", `{"model":"o3",`+message+`}`)
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 2+i, v.Count())
			require.Contains(t, string(v.Last().Body), `"max_completion_tokens":9000`)
		}
	})
}

// What a request means is never taken out of it, and an error that no cure helps
// against comes as it was.
func TestParametersThatARequestNeeds(t *testing.T) {
	t.Parallel()
	w := knocked(t, unlisted)
	v, g := w.vendors["openai"], w.gateway()
	body := `{"model":"gpt-4.1","messages":[{"role":"user","content":"hi"}],` + tool +
		`,"tool_choice":"auto","response_format":{"type":"json_object"},"stop":["X"],"n":1,"logprobs":true}`
	for _, name := range []string{"model", "messages", "tools", "tool_choice", "response_format", "stop", "n", "logprobs",
		"seed"} {
		before := v.Count()
		said := `{ "error":{"message":"Unsupported parameter: '` + name +
			`' is not supported with this model.","type":"invalid_request_error"} }`
		v.Fail(upstreamtest.Canned(400, said))
		got := g.ask("/v1/chat/completions", body)
		require.Equal(t, 400, got.status)
		require.Equal(t, said, got.body, "byte for byte")
		require.Equal(t, 1, v.Count()-before, name)
	}
	require.Empty(t, v.Pending())
}

// The gateway cures parameters that are refused one after another in one request. If a cure fails, the client gets the
// first error, and its next request includes the successful cures.
func TestTwoRefusedParameters(t *testing.T) {
	t.Parallel()
	w := knocked(t, unlisted.with("openai", func(c *upstreamtest.Config) {
		c.Chat.NoParameters = []string{"seed", "store", "n"}
	}))
	v, g := w.vendors["openai"], w.gateway()
	body := `{"model":"gpt-4.1","messages":[{"role":"user","content":"hi"}],"store":true,"seed":3}`
	require.Equal(t, 200, g.ask("/v1/chat/completions", body).status)
	require.Equal(t, 3, v.Count())
	require.Equal(t, 200, g.ask("/v1/chat/completions", body).status)
	require.Equal(t, 4, v.Count())

	body = strings.Replace(body, "gpt-4.1", "gpt-4.1-mini", 1)
	got := g.ask("/v1/chat/completions", strings.Replace(body, `"store"`, `"n":1,"store"`, 1))
	require.Equal(t, 400, got.status)
	require.Contains(t, got.body, "'seed'")
	require.Equal(t, 7, v.Count())
	require.Equal(t, 200, g.ask("/v1/chat/completions", body).status)
	require.LessOrEqual(t, v.Count(), 9)
}

// A cure that does not help is not remembered.
func TestAParameterThatWasNotAtFault(t *testing.T) {
	t.Parallel()
	w := knocked(t, unlisted)
	v, g := w.vendors["openai"], w.gateway()
	said := `{"error":{"message":"Unsupported parameter: 'seed' is not supported with this model."}}`
	v.Fail(upstreamtest.Canned(400, said), upstreamtest.Canned(400, `{"error":{"message":"no"}}`))
	body := `{"model":"gpt-4.1","messages":[{"role":"user","content":"hi"}],"seed":3}`
	got := g.ask("/v1/chat/completions", body)
	require.Equal(t, said, got.body)
	require.Equal(t, 200, g.ask("/v1/chat/completions", body).status)
	require.Contains(t, string(v.Last().Body), `"seed":3`)
}

// A refusal is seen whatever its status, and as a stream's first event.
func TestRefusedParametersInOtherClothes(t *testing.T) {
	t.Parallel()
	const said = "Unsupported parameter: 'seed' is not supported with this model."
	for name, fault := range map[string]upstreamtest.Fault{
		"422": upstreamtest.Canned(422,
			`{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":3}]}`),
		"404":   upstreamtest.Canned(404, said),
		"500":   upstreamtest.Canned(500, said),
		"502":   upstreamtest.Canned(502, `{"error":{"message":"`+said+`"}}`),
		"event": upstreamtest.ErrorFirst(wire.Chat, 400, said),
	} {
		t.Run(name, func(t *testing.T) {
			w := knocked(t, unlisted)
			v, g := w.vendors["openai"], w.gateway()
			v.Fail(fault)
			got := g.ask("/v1/chat/completions",
				`{"model":"gpt-4.1","stream":true,"messages":[{"role":"user","content":"hi"}],"seed":3}`)
			require.Equal(t, 200, got.status, got.body)
			require.Contains(t, got.body, "You said: hi")
			require.Equal(t, 2, v.Count())
			require.NotContains(t, string(v.Last().Body), "seed")
		})
	}
}

// A request may need both cures, in either order, and gets each once.
func TestParametersAndThinkingAreCuredTogether(t *testing.T) {
	t.Parallel()
	const parameter = `{"type":"error","error":{"type":"invalid_request_error","message":"context_management: Extra ` +
		`inputs are not permitted"}}`
	signature := `{"type":"error","error":{"type":"invalid_request_error","message":` + string(wire.Quote(badSignature)) +
		`}}`
	for name, faults := range map[string][]upstreamtest.Fault{
		"the parameter first": {upstreamtest.Canned(400, parameter), upstreamtest.Canned(400, signature)},
		"the thinking first":  {upstreamtest.Canned(400, signature), upstreamtest.Canned(400, parameter)},
	} {
		t.Run(name, func(t *testing.T) {
			w := knocked(t, claude)
			v, g := w.vendors["claude"], w.gateway()
			body :=
				`{"model":"claude-opus-4-8","max_tokens":900,"context_management":{"edits":[]},"messages":[{"role":"user","content":"a"},
				{"role":"assistant","content":[` + forgedBlock + `,{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`
			header := []string{"Anthropic-Beta", "context-management-2025-06-27", "X-AG-Conversation-Id", "c1"}
			v.Fail(faults...)
			got := g.ask("/v1/messages", body, header...)
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 3, v.Count())
			require.Equal(t, 200, g.ask("/v1/messages", body, header...).status)
			require.Equal(t, 4, v.Count(), "both are remembered")
			for _, gone := range []string{"forged", "context_management"} {
				require.NotContains(t, string(v.Last().Body), gone)
			}
			v.Fail(faults[0], faults[1], upstreamtest.Canned(400, `{"error":{"message":"third"}}`))
			got = g.ask("/v1/messages", strings.ReplaceAll(body, "opus-4-8", "sonnet-4-5"), "X-AG-Conversation-Id", "c2",
				"Anthropic-Beta", "context-management-2025-06-27")
			require.Equal(t, faults[0].Body, got.body, "the first error, as it came")
			require.Equal(t, 7, v.Count())
		})
	}
}

// The recorded refusals, each through the gateway: what a request can do without is
// gone from the second attempt, or has a value that is taken, and anything else is
// refused to the client as it was.
func TestRecordedRefusalsOfParametersOutsideData(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(outsidedata.Path(t, "errors", "parameters.jsonl"))
	require.NoError(t, err)
	w := knocked(t, unlisted)
	v, g := w.vendors["openai"], w.gateway()
	cured := 0
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var e struct {
			Status          int
			Parameter, Body string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		values := map[string]string{
			"metadata": `{}`, "stream": "true", "tools": tool[len(`"tools":`):], "tool_choice": `"auto"`,
			"response_format": `{"type":"text"}`, "max_tokens": "9", "n": "1",
			"reasoning_effort": `"low"`, "store": "true", "temperature": "0.5", "top_p": "0.5", "parallel_tool_calls": "true",
		}
		value := "0"
		if given, ok := values[e.Parameter]; ok {
			value = given
		}
		sent := ""
		if !strings.Contains(e.Parameter, "[]") && !strings.Contains(e.Parameter, ".") {
			sent = fmt.Sprintf(`,%q:%s`, e.Parameter, value)
		}
		before := v.Count()
		fault := upstreamtest.Canned(e.Status, e.Body)
		fault.ContentType = "text/plain"
		v.Fail(fault, upstreamtest.Canned(400, `{"error":{"message":"the second"}}`))
		got := g.ask("/v1/chat/completions",
			fmt.Sprintf(`{"model":"gpt-4.1-%d","messages":[{"role":"user","content":"hi"}]%s}`, i, sent))
		require.Equal(t, e.Body, got.body)
		attempts := v.Requests()[before:]
		if len(attempts) == 1 {
			v.Fail() // the second fault is not had
			continue
		}
		cured++
		require.Len(t, attempts, 2)
		require.NotContains(t, []string{"tools", "tool_choice", "response_format", "stream", "n"}, e.Parameter)
		require.True(t, gjson.GetBytes(attempts[0].Body, e.Parameter).Exists())
		require.NotEqual(t, value, gjson.GetBytes(attempts[1].Body, e.Parameter).Raw, "%s is still in %s", e.Parameter,
			attempts[1].Body)
		require.Contains(t, string(attempts[1].Body), `"messages"`)
	}
	t.Logf("%d refusals were tried again without what they name", cured)
	require.Greater(t, cured, 20)
}

// Errors about thinking stay errors about thinking.
func TestThinkingErrorsAreNoParameterErrors(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		badSignature, "The reasoning_content in the thinking mode must be passed back to the API.",
	} {
		_, ok := thinking.RefusedParameter(400, []byte(said))
		require.False(t, ok)
	}
}
