package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy"
)

// What OpenAI sends is spaced as in its documentation.
const (
	ownBody = `{
  "id": "resp_1", "object": "response", "status": "completed", "error": null, "model": "real-1",
  "output": [
    {"id": "rs_1", "type": "reasoning",  "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "gAAAA"},
    {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary",
     "content": [{"type": "output_text", "text": "Hello", "annotations": []}]},
    {"id": "ws_1", "type": "web_search_call", "status": "completed"},
    {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "f", "arguments": "{\"a\":1.0}"}
  ], "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}, "odd": 1e2
}`
	ownStream = `event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","error":null,"model":"real-1","output":[]}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gAAAA"}}

event: response.odd
data: {"type": "response.odd", "of": [1e2]}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hello"}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":4,"output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}}

event: response.completed
data: {"type":"response.completed","sequence_number":5,"response":{"id":"resp_1","status":"completed","error":null,"model":"real-1","output":[{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gAAAA"},{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":3,"output_tokens":5,"total_tokens":8}}}

`
)

// Same dialect, same bytes: of requests with members, items, parts and tools that are unknown here, of answers and of
// streams. With a model that is called otherwise only its name differs.
func TestResponsesToResponsesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, mapped := range []bool{false, true} {
		v := vendor(t, byStream(ownBody, ownStream))
		c := to(v, proxy.KindResponses)
		asked := "real-1"
		if mapped {
			asked = "alias"
			b := c.Backends["v"]
			b.ModelMap = map[string]string{"alias": "real-1"}
			c.Backends["v"] = b
		}
		url, _ := gateway(t, c)
		named := func(s string) string { return strings.ReplaceAll(s, "real-1", asked) }
		for _, body := range []string{
			`{"model": "real-1", "input": "hi", "prompt_cache_key": "x",  "odd": 1e2, "store": true}`,
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_audio","x":1}]},
			{"id":"rs_9","type":"reasoning","summary":[],"encrypted_content":"gAAAB","content":null},
			{"type":"web_search_call","id":"ws_1"},{"type":"custom_tool_call","call_id":"call_2","name":"patch","input":"x","id":"ctc_1"},
			{"type":"custom_tool_call_output","call_id":"call_2","output":"done"},
			{"type":"compaction","encrypted_content":"z","id":"cmp_1"}],
			"tools":[{"type":"custom","name":"patch"},{"type":"web_search"},{"type":"mcp","server_url":"x"}],"tool_choice":{"type":"mcp"},
			"include":["message.output_text.logprobs"],"model":"real-1","instructions":"s", "reasoning":{"effort":"high"}}`,
		} {
			got := post(t, url+"/v1/responses", named(body))
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, body, v.last(t).body)
			require.Equal(t, "/responses", v.last(t).url)
			require.Equal(t, named(ownBody), got.body)
		}
		got := call(t, http.MethodPost, url+"/v1/responses", named(`{"model":"real-1","input":"hi","stream":true}`), "X-Test", "stream")
		require.Equal(t, named(ownStream), got.body)
	}
}

// Clients of other dialects see neither what is sealed nor an empty block in its place.
func TestClientsSeeNothingOfWhatIsKeptOfItems(t *testing.T) {
	t.Parallel()
	url, _ := gateway(t, to(vendor(t, says("application/json", ownBody)), proxy.KindResponses))
	streams, _ := gateway(t, to(vendor(t, says("text/event-stream", ownStream)), proxy.KindResponses))
	body := `{"model":"real-1","max_tokens":100,"messages":[{"role":"user","content":"hi"}]`
	got := post(t, url+"/v1/messages", body+"}")
	require.JSONEq(t, `[{"type":"thinking","thinking":"Hm.","signature":""},{"type":"text","text":"Hello"},
		{"type":"tool_use","id":"call_1","name":"f","input":{"a":1.0}}]`, renamed(gjson.Get(got.body, "content").Raw), got.body)
	got = post(t, streams+"/v1/messages", body+`,"stream":true}`)
	blocks, complete := readMessagesStream(t, got.body)
	require.True(t, complete)
	require.Len(t, blocks, 1, got.body)
	require.Equal(t, "Hello", blocks[0].Text)
	for _, path := range []string{"/v1/messages", "/v1/chat/completions"} {
		for _, url := range []string{url, streams} {
			got := post(t, url+path, body+"}")
			require.Equal(t, 200, got.status, got.body)
			require.NotContains(t, got.body, "rsp1_")
			require.NotContains(t, got.body, "gAAAA")
		}
	}
}

// renamed is content with the vendor's id of its call, which the gateway has made unique.
func renamed(content string) string {
	id := gjson.Get(content, `#(type=="tool_use").id`).Str
	return strings.ReplaceAll(content, id, "call_1")
}

// An error at the beginning of a stream is one with a status, for every client.
func TestAResponseThatFailsAtItsBeginning(t *testing.T) {
	t.Parallel()
	created, _, _ := strings.Cut(ownStream, "event: response.output_item.added")
	for name, event := range map[string]string{
		"failed": `{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded",` +
			`"message":"Slow down."}}}`,
		"error": `{"type":"error","error":{"type":"tokens","code":"rate_limit_exceeded","message":"Slow down."}}`,
		"flat":  `{"type":"error","code":"rate_limit_exceeded","message":"Slow down.","param":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, says("text/event-stream", created+"data: "+event+"\n\n"))
			url, _ := gateway(t, to(v, proxy.KindResponses))
			for path, body := range map[string]string{
				"/v1/responses":        `{"model":"m","input":"hi","stream":true}`,
				"/v1/messages":         `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}`,
				"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`,
			} {
				got := post(t, url+path, body)
				require.Equal(t, 429, got.status, got.body)
				require.Equal(t, "Slow down.", gjson.Get(got.body, "error.message").Str, got.body)
			}
		})
	}
}

// A stream that breaks off never looks complete.
func TestAStreamOfAResponsesBackendThatBreaksOff(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("text/event-stream", firstEvents(ownStream, 6)))
	url, _ := gateway(t, to(v, proxy.KindResponses))
	got := post(t, url+"/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}`)
	require.Contains(t, got.body, "event: error\n")
	require.NotContains(t, got.body, "message_stop")
	got = post(t, url+"/v1/responses", `{"model":"m","input":"hi","stream":true}`)
	require.NotContains(t, got.body, "response.completed")
	require.Contains(t, got.body, "event: error\n")
	var last gjson.Result
	for data := range events(got.body) {
		if e := gjson.ParseBytes(data); e.Get("sequence_number").Exists() {
			require.True(t, !last.Exists() || e.Get("sequence_number").Int() > last.Get("sequence_number").Int(),
				"the numbers go on: %s", data)
			last = e
		}
	}
	require.Equal(t, "response.failed", last.Get("type").Str)
	require.Equal(t, "answer_cut", last.Get("response.error.code").Str)
	require.Equal(t, "failed", last.Get("response.status").Str)
	require.Equal(t, gjson.Get(ownBody, "id").Str, last.Get("response.id").Str, "it is the response that was begun")
}

// What the vendor gets of a request of another dialect.
func TestWhatAResponsesBackendGets(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", ownBody))
	c := to(v, proxy.KindResponses)
	b := c.Backends["v"]
	b.Vendor = "openai"
	c.Backends["v"] = b
	url, _ := gateway(t, c)
	for path, body := range map[string]string{
		"/v1/messages": `{"model":"gpt-5.1","max_tokens":20000,"thinking":{"type":"enabled","budget_tokens":9000},` +
			`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"foreign"},` +
			`{"type":"tool_use","id":"call_9","name":"f","input":{}}]}]}`,
		"/v1/chat/completions": `{"model":"gpt-5.1","reasoning_effort":"high","messages":[{"role":"user","content":"hi"},` +
			`{"role":"assistant","reasoning_content":"x","tool_calls":[{"id":"call_9","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
	} {
		got := post(t, url+path, body)
		require.Equal(t, 200, got.status, got.body)
		sent := gjson.Parse(v.last(t).body)
		require.Equal(t, `{"effort":"high","summary":"auto"}`, sent.Get("reasoning").Raw, path)
		require.Equal(t, "false", sent.Get("store").Raw)
		require.Equal(t, `["reasoning.encrypted_content"]`, sent.Get("include").Raw)
		require.Equal(t, strings.Contains(body, "max_tokens"), sent.Get("max_output_tokens").Exists())
		require.Equal(t, `["message","function_call","function_call_output"]`, sent.Get("input.#.type").Raw, "calls are closed")
		require.Equal(t, "Bearer own-key", v.last(t).header.Get("Authorization"))
	}
	got := post(t, url+"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, "true", got.header.Get("X-AG-Estimated"))
}

// Some vendors leave the items out of the last event; those that came before count.
func TestReasoningOfAStreamWhoseEndHasNoItems(t *testing.T) {
	t.Parallel()
	head, end, _ := strings.Cut(ownStream, "event: response.completed")
	_, end, _ = strings.Cut(end, `"usage"`)
	v := vendor(t, says("text/event-stream", head+"event: response.completed\ndata: "+
		`{"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"model":"real-1","output":[],"usage"`+end))
	url, _ := gateway(t, to(v, proxy.KindResponses))
	call(t, http.MethodPost, url+"/v1/responses", `{"model":"m","stream":true,"input":[{"role":"user","content":"hi"}]}`,
		"X-AG-Conversation-Id", "c1")
	call(t, http.MethodPost, url+"/v1/responses", `{"model":"m","stream":true,"input":[{"role":"user","content":"hi"},
		{"role":"assistant","content":"Hello"},{"role":"user","content":"go on"}]}`, "X-AG-Conversation-Id", "c1")
	require.Equal(t, `{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gAAAA"}`,
		gjson.Get(v.last(t).body, "input.1").Raw, v.last(t).body)
}
