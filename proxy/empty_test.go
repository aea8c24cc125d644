package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy"
)

// emptyAnswers are answers of status 200 that carry nothing, and thoughtOnly are those that have thinking alone, of each
// kind of backend: first the body, then the events of a stream.
var emptyAnswers, thoughtOnly = map[string][][2]string{
	proxy.KindAnthropic: {{
		`{"id":"m","type":"message","role":"assistant","model":"real-1","content":[],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}`,
		frames(`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"real-1","content":[],"usage":{"input_tokens":3}}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`, `{"type":"message_stop"}`),
	}, {
		`{"id":"m","type":"message","role":"assistant","model":"real-1","content":[{"type":"text","text":"","citations":null}],"stop_reason":"end_turn","usage":{}}`,
		frames(`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"real-1","content":[]}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`),
	}},
	proxy.KindOpenAI: {{ // Gemini's
		`{"id":"c","object":"chat.completion","model":"real-1","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant"}}]}`,
		frames(`{"id":"c","object":"chat.completion.chunk","model":"real-1","choices":[{"index":0,"finish_reason":"stop","delta":{"role":"assistant"}}]}`,
			`[DONE]`),
	}, {
		`{"id":"c","object":"chat.completion","model":"real-1","choices":[{"index":0,"finish_reason":"stop",` +
			`"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[],"annotations":[]}}]}`,
		frames(`{"id":"c","object":"chat.completion.chunk","model":"real-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
			`{"id":"c","object":"chat.completion.chunk","model":"real-1","choices":[{"index":0,"finish_reason":"stop","delta":{}}]}`,
			`{"id":"c","object":"chat.completion.chunk","model":"real-1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}`, `[DONE]`),
	}},
	proxy.KindResponses: {{
		`{"id":"r","object":"response","status":"completed","model":"real-1","output":[],"usage":{"input_tokens":3,"output_tokens":0}}`,
		frames(`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"real-1","output":[]}}`,
			`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"real-1","output":[]}}`),
	}, {
		`{"id":"r","object":"response","status":"completed","model":"real-1","output":[{"id":"msg_1","type":"message","role":"assistant","content":[]}]}`,
		frames(`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"real-1","output":[]}}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant",`+
				`"content":[{"type":"output_text","text":""}]}}`,
			`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"real-1",`+
				`"output":[{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":""}]}]}}`),
	}},
}, map[string][2]string{
	proxy.KindAnthropic: {
		`{"id":"m","type":"message","role":"assistant","model":"real-1","content":[{"type":"redacted_thinking","data":"x"}],"stop_reason":"end_turn","usage":{}}`,
		frames(`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"real-1","content":[]}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`),
	},
	proxy.KindOpenAI: {
		`{"id":"c","object":"chat.completion","model":"real-1","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","reasoning_content":"Hm."}}]}`,
		frames(`{"id":"c","object":"chat.completion.chunk","model":"real-1","choices":[{"index":0,"finish_reason":"stop","delta":{"reasoning_content":"Hm."}}]}`,
			`[DONE]`),
	},
	proxy.KindResponses: {
		`{"id":"r","object":"response","status":"completed","model":"real-1","output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}]}`,
		frames(`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"real-1","output":[]}}`,
			`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"real-1",`+
				`"output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}]}}`),
	},
}

// frames are events of a stream.
func frames(events ...string) string {
	return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"
}

// asking are bodies of requests for each endpoint.
var asking = map[string]string{
	"/v1/messages":         `{"model":"asked","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":%t}`,
	"/v1/chat/completions": `{"model":"asked","messages":[{"role":"user","content":"hi"}],"stream":%t}`,
	"/v1/responses":        `{"model":"asked","input":"hi","stream":%t}`,
}

// An answer that carries nothing is counted, by backend and the vendor's name of the model, whatever the dialects; the
// client gets it as it is, after one call. One that was thought about, or broke off, is not counted.
func TestEmptyAnswersAreCounted(t *testing.T) {
	t.Parallel()
	for kind, empties := range emptyAnswers {
		for path, body := range asking {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s to %s, stream=%t", path, kind, stream), func(t *testing.T) {
					var answer string
					v := vendor(t, func(w http.ResponseWriter, r *http.Request) {
						of := map[bool]string{false: "application/json", true: "text/event-stream"}[stream]
						says(of, answer)(w, r)
					})
					c := to(v, kind)
					b := c.Backends["v"]
					b.ModelMap = map[string]string{"asked": "real-1"}
					c.Backends["v"] = b
					url, _ := gateway(t, c)
					counted := func() string {
						const name = `mneme_proxy_empty_answers_total{backend="v",model="real-1"} `
						_, rest, _ := strings.Cut(call(t, http.MethodGet, url+"/metrics", "").body, "\n"+name)
						n, _, _ := strings.Cut(rest, "\n")
						return n
					}
					form := map[bool]int{true: 1}[stream]
					ask := func(text string) answered {
						answer = text
						return post(t, url+path, fmt.Sprintf(body, stream))
					}
					require.Equal(t, 200, ask(thoughtOnly[kind][form]).status)
					if stream {
						ask(firstEvents(empties[1][1], 1))
					}
					require.Empty(t, counted())
					before := v.count()
					for n, empty := range empties {
						got := ask(empty[form])
						require.Equal(t, 200, got.status, got.body)
						require.Equal(t, fmt.Sprint(n+1), counted(), got.body)
						require.Equal(t, before+n+1, v.count(), "it is the client's to ask again")
					}
				})
			}
		}
	}
}

// Clients choose the names of models, so metrics tell a bounded number of them apart.
func TestEmptyAnswersOfManyModels(t *testing.T) {
	t.Parallel()
	url, _ := gateway(t, to(vendor(t, says("application/json", emptyAnswers[proxy.KindOpenAI][0][0])), proxy.KindOpenAI))
	for n := range 70 {
		post(t, url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m-%d","messages":[{"role":"user","content":"hi"}]}`, n))
	}
	shown := call(t, http.MethodGet, url+"/metrics", "").body
	require.Equal(t, 65, strings.Count(shown, "\nmneme_proxy_empty_answers_total{"))
	require.Contains(t, shown, `mneme_proxy_empty_answers_total{backend="v",model="other"} 6`)
}
