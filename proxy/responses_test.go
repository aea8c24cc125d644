package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

const askResponses = `{"model":"real-1","input":"hi","tools":[{"type":"function","name":"f"}]`

// What a client of Responses gets says the same from every kind of backend, with a stream and without.
func TestTheResponsesEndpoint(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
		answer := byStream(messagesBody, messagesStream)
		if kind == proxy.KindOpenAI {
			answer = byStream(chatBody, chatStream)
		}
		for _, endpoint := range []string{"/v1/responses", "/teammate/v1/responses", "/teammate/analytic/v1/responses"} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s%s, stream=%t", kind, endpoint, stream), func(t *testing.T) {
					v := vendor(t, func(w http.ResponseWriter, r *http.Request) {
						if stream {
							r.Header.Set("X-Test", "stream")
						}
						answer(w, r)
					})
					c := to(v, kind)
					b := c.Backends["v"]
					b.ModelMap = map[string]string{"*": "vendors-own"}
					c.Backends["v"] = b
					url, _ := gateway(t, c)
					got := post(t, url+endpoint, fmt.Sprintf(`%s,"stream":%t}`, askResponses, stream))
					require.Equal(t, 200, got.status, got.body)
					require.Equal(t, "vendors-own", gjson.Get(v.last(t).body, "model").Str)
					response := got.body
					if stream {
						require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
						require.True(t, strings.HasSuffix(got.body, "\n\ndata: [DONE]\n\n"))
						_, response, _ = strings.Cut(got.body, "event: response.completed\ndata: ")
						response, _, _ = strings.Cut(response, "\n\n")
						response = gjson.Get(response, "response").Raw
						require.Contains(t, got.body, `"delta":"Hel"`)
					}
					require.True(t, strings.HasPrefix(gjson.Get(response, "id").Str, "resp_"), response)
					require.Equal(t, "real-1", gjson.Get(response, "model").Str)
					require.Equal(t, "completed", gjson.Get(response, "status").Str)
					require.Equal(t, "Hello", gjson.Get(response, "output.0.content.0.text").Str)
					require.Equal(t, "toolu_01A09q90qw90lq91", gjson.Get(response, "output.1.call_id").Str)
					require.Equal(t, `{"a":1.0}`, gjson.Get(response, "output.1.arguments").Str)
					require.EqualValues(t, 8, gjson.Get(response, "usage.total_tokens").Int())
				})
			}
		}
	}
}

func TestWhatAChatBackendGetsOfARequestOfResponses(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", chatBody))
	url, _ := gateway(t, to(v, proxy.KindOpenAI))
	got := post(t, url+"/v1/responses", `{"model":"m","input":"x","instructions":"s","temperature":1.5,"reasoning":{"effort":"high"},
		"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}],
		"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","properties":{}}}}}`)
	require.Equal(t, 200, got.status, got.body)
	require.JSONEq(t, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"x"}],"temperature":1.5,
		"reasoning_effort":"high","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],
		"response_format":{"type":"json_schema","json_schema":{"name":"answer_in_json","schema":{"type":"object","properties":{}}}}}`,
		v.last(t).body)
}

// What Responses and chat completions have in common comes to a chat backend: penalties to all, the rest, and files,
// to OpenAI, which alone has them. Elsewhere a file is refused in words that say what to do.
func TestWhatResponsesAndChatCompletionsShare(t *testing.T) {
	t.Parallel()
	const pdf = `{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}`
	v := vendor(t, byStream(chatBody, chatStream))
	for _, vendor := range []string{"openai", "generic"} {
		c := to(v, proxy.KindOpenAI)
		b := c.Backends["v"]
		b.Vendor = vendor
		c.Backends["v"] = b
		url, _ := gateway(t, c)
		got := post(t, url+"/v1/responses", `{"model":"gpt-4.1","input":"hi","frequency_penalty":0.50,"presence_penalty":null,
			"prompt_cache_key":"k","safety_identifier":"s","service_tier":"flex","metadata":{"a":"b"},"truncation":"auto"}`)
		require.Equal(t, 200, got.status, got.body)
		sent := gjson.Parse(v.last(t).body)
		require.Equal(t, "0.50", sent.Get("frequency_penalty").Raw)
		shared := map[string]string{"openai": `["k","s","flex"]`, "generic": `[]`}[vendor]
		require.Equal(t, shared, sent.Get("[prompt_cache_key,safety_identifier,service_tier]").Raw, sent.Raw)
		for _, name := range []string{"presence_penalty", "metadata", "truncation"} {
			require.False(t, sent.Get(name).Exists(), name)
		}
		for path, body := range map[string]string{
			"/v1/responses": `{"model":"gpt-4.1","input":[{"role":"user","content":[{"type":"input_text","text":"Read."},` + pdf + `]}]}`,
			"/v1/messages": `{"model":"gpt-4.1","max_tokens":99,"messages":[{"role":"user","content":[{"type":"text","text":"Read."},` +
				`{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}]}]}`,
		} {
			got = post(t, url+path, body)
			if vendor == "generic" {
				require.Equal(t, 400, got.status, got.body)
				require.Contains(t, gjson.Get(got.body, "error.message").Str, "cannot be sent to this backend: send its text")
				continue
			}
			require.Equal(t, 200, got.status, got.body)
			require.JSONEq(t, `{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}`,
				gjson.Get(v.last(t).body, "messages.0.content.1").Raw, v.last(t).body)
		}
		got = post(t, url+"/v1/responses", `{"model":"gpt-4.1","input":[{"role":"user","content":[{"type":"input_file",
			"file_url":"https://example.org/a.pdf"}]}]}`)
		require.Equal(t, 400, got.status, "no address goes to a chat backend")
	}
}

func TestResponsesThatAreRefused(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"model":`: {400, "the body cannot be read"},
		`{"model":"m","input":[{"role":"robot","content":"x"}]}`:     {400, `input[0]: its role`},
		`{"model":"m","input":[{"role":7}]}`:                         {400, "/input/0/role has the wrong type"},
		`{"model":"m","input":"x","tools":[{"type":"file_search"}]}`: {400, "file_search"},
		`{"model":"m","input":"x","previous_response_id":"resp_1"}`:  {400, "not found"},
		`{"model":"m","input":"x","conversation":"conv_1"}`:          {501, "send the whole input"},
		`{"model":"m","input":"x","background":true}`:                {501, "background"},
	} {
		got := post(t, url+"/v1/responses", body)
		require.Equal(t, want.status, got.status, got.body)
		require.Contains(t, gjson.Get(got.body, "error.message").Str, want.says)
		require.NotEmpty(t, gjson.Get(got.body, "error.type").Str)
	}
	require.Zero(t, v.count(), "none of these reaches a vendor")

	for _, path := range []string{"/v1/responses", "/teammate/analytic/v1/responses"} {
		got := call(t, http.MethodGet, url+path, "", "Connection", "Upgrade", "Upgrade", "websocket")
		require.Equal(t, http.StatusUpgradeRequired, got.status)
		require.Contains(t, gjson.Get(got.body, "error.message").Str, "by POST")
		require.Equal(t, http.StatusMethodNotAllowed, call(t, http.MethodGet, url+path, "").status)
	}
}

// A stream that breaks off ends as the dialect says, so that no client waits for the rest or takes it for whole.
func TestAStreamOfResponsesThatBreaksOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, stream, code string }{
		"messages": {proxy.KindAnthropic, firstEvents(messagesStream, 5), "answer_cut"},
		"chat":     {proxy.KindOpenAI, firstEvents(chatStream, 2), "answer_cut"},
		"an error": {proxy.KindAnthropic, firstEvents(messagesStream, 5) +
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
			"overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, says("text/event-stream", c.stream))
			url, _ := gateway(t, to(v, c.kind))
			got := post(t, url+"/v1/responses", askResponses+`,"stream":true}`)
			require.Contains(t, got.body, "event: error\n")
			_, last, _ := strings.Cut(got.body, "event: response.failed\ndata: ")
			require.Equal(t, c.code, gjson.Get(last, "response.error.code").Str, got.body)
			require.Equal(t, "failed", gjson.Get(last, "response.status").Str)
			require.True(t, strings.HasSuffix(got.body, "\n\ndata: [DONE]\n\n"))
			require.NotContains(t, got.body, "response.completed")
		})
	}
}

// responsesClient replays what it got, with reasoning items as they were shown or without.
type responsesClient struct {
	manners
	input  []json.RawMessage
	effort string                                    // "none": thinking is not asked for
	own    bool                                      // the vendor's own ones are shown
	leaves bool                                      // it to others to ask for the encrypted content of those
	any    bool                                      // or not
	damage func([]json.RawMessage) []json.RawMessage // of the input as it is sent
}

func (g *front) responses(model string) *responsesClient {
	c := &responsesClient{manners: newManners(g, model)}
	c.self = c
	c.header = http.Header{"Authorization": {"Bearer caller"}}
	return c
}

func (c *responsesClient) question(text string) {
	c.add(map[string]string{"role": "user", "content": text})
}

func (c *responsesClient) add(v any) { c.input = append(c.input, marshal(v)) }

func (c *responsesClient) post() answered {
	items := chain(c.damage)(slices.Clone(c.input))
	reasoning := `"reasoning":{"effort":"medium","summary":"auto"},`
	if c.effort == "none" {
		reasoning = ""
	}
	include := `"include":["reasoning.encrypted_content"],`
	if c.leaves {
		include = ""
	}
	return c.send("/v1/responses", fmt.Appendf(nil, `{"model":%q,"input":%s,"stream":%t,"store":false,
		%s%s
		"tools":[{"type":"function","name":"look","parameters":%s}]}`,
		c.model, marshal(items), c.stream, reasoning, include, lookSchema))
}

func (c *responsesClient) round() (calls int, text string) {
	w := c.gateway.world
	got := c.answer()
	output := gjson.Get(got.body, "output").Array()
	if c.stream {
		output = nil
		for data := range events(got.body) {
			if e := gjson.ParseBytes(data); e.Get("type").Str == "response.output_item.done" {
				output = append(output, gjson.Parse(e.Get("item").Raw))
			}
		}
		require.Contains(w, got.body, "event: response.completed\n")
	}
	var results []any
	for _, item := range output {
		switch item.Get("type").Str {
		case "reasoning":
			require.True(w, c.any || c.own == item.Get("encrypted_content").Exists())
			c.seen = append(c.seen, item.Get("summary.0.text").Str)
			if !c.keeps {
				continue
			}
		case "message":
			text += item.Get("content.0.text").Str
		case "function_call":
			results = append(results, map[string]string{"type": "function_call_output", "call_id": item.Get("call_id").Str,
				"output": looked(item.Get("arguments").Str)})
		}
		c.input = append(c.input, json.RawMessage(item.Raw))
	}
	for _, r := range results {
		c.add(r)
	}
	return len(results), text
}

// Fault: thinking that a client of Responses cannot send back is lost inside a tool loop.
func TestConformanceThinkingIsRestoredForClientsOfResponses(t *testing.T) {
	t.Parallel()
	for _, b := range []backendCase{claude, kimi, deepSeek, kimiChat, deepSeekChat} {
		for _, keeps := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, keeps=%t", b.name, keeps), func(t *testing.T) {
				w := newWorld(t, b.told(budgeted))
				v := w.vendors[b.name]
				v.Queue(
					upstreamtest.Reply(upstreamtest.Think("deep thought one"), upstreamtest.Say("Let me see."),
						upstreamtest.Use("look", `{"q":"a"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought two"), upstreamtest.Use("look", `{"q":"b"}`)),
					upstreamtest.Reply(upstreamtest.Think("deep thought three"), upstreamtest.Say("Done.")),
				)
				model := "some-reasoner"
				if b.name == "claude" {
					model = "claude-opus-4-8"
				}
				c := w.gateway().responses(model)
				c.keeps, c.stream = keeps, keeps
				c.header.Set("Thread-Id", "c1") // as codex has it
				require.Equal(t, "Done.", c.say("Go"))
				require.Equal(t, []string{"deep thought one", "deep thought two", "deep thought three"}, c.seen)
				c.say("Thanks")
				for _, thought := range c.seen[:3] { // of the turn without a call, too
					require.Contains(t, string(v.Last().Body), thought)
				}
				w.conforms(0)
			})
		}
	}
}

// Fault: what the user said in two messages is one text for a chat backend; after it the first vendor's thinking of
// turns without a call was not known again. codex begins so.
func TestConformanceTwoTextsOfTheUserThroughASwitchAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude.told(budgeted), kimiChat)
	for _, v := range w.vendors {
		for range 2 {
			v.Queue(upstreamtest.Reply(upstreamtest.Think("thought A"), upstreamtest.Use("look", `{"q":"a"}`)),
				upstreamtest.Reply(upstreamtest.Think("thought B"), upstreamtest.Say("Done.")))
		}
	}
	g := w.gateway()
	c := g.responses("claude-opus-4-8")
	c.keeps = true
	c.header.Set("Thread-Id", "c1")
	c.add(map[string]string{"role": "user", "content": "The folder is /a."})
	for i, backend := range []string{"claude", "kimi-chat", "claude"} {
		g.use(backend)
		c.say("Go " + string(rune('a'+i)))
	}
	require.Equal(t, 3, strings.Count(string(w.vendors["claude"].Last().Body), `"type":"thinking"`),
		"two of the first turn, one of this")
	w.conforms(0)
}

// Fault: after a switch in the middle of a tool loop and back, the first vendor's own thinking is gone.
func TestConformanceClientsOfResponsesThroughASwitchAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude.told(budgeted), deepSeekChat)
	for _, v := range w.vendors {
		v.Queue(upstreamtest.Reply(upstreamtest.Think("thought A"), upstreamtest.Use("look", `{"q":"a"}`)),
			upstreamtest.Reply(upstreamtest.Think("thought B"), upstreamtest.Use("look", `{"q":"b"}`)))
	}
	g := w.gateway()
	c := g.responses("claude-opus-4-8")
	c.keeps = true
	c.within("c1")
	c.add(map[string]string{"role": "user", "content": "Go"})
	for _, backend := range []string{"claude", "deepseek-chat", "claude", "deepseek-chat", "claude"} {
		g.use(backend)
		c.round()
	}
	own := 0
	for _, m := range gjson.GetBytes(w.vendors["claude"].Last().Body, "messages").Array() {
		for _, b := range m.Get("content").Array() {
			if b.Get("type").Str == "thinking" {
				own++
			}
		}
	}
	require.Equal(t, 2, own, "its own thinking is there on return")
	w.conforms(0)
}
