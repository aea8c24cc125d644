package app_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/memory/event"
)

// liteLLM speaks as LiteLLM's proxy does, after its source (github.com/BerriAI/litellm at 001501fb31dd):
// litellm/proxy/common_request_processing.py (get_custom_headers, create_response, _override_openai_response_model,
// async_streaming_data_generator) and litellm/proxy/_types.py (ProxyException): headers of its own, the model's name as
// it was asked for, null members in every chunk, statuses as texts in the codes of errors, and "None" for what it does
// not know.
type liteLLM struct {
	t      *testing.T
	mu     sync.Mutex
	bodies []string // guarded by mu
	next   []string // guarded by mu: answers that are not the usual one, as "STATUS JSON", or chunks of a stream
}

func (l *liteLLM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	for name, value := range map[string]string{"x-litellm-call-id": "5f1c7c4e", "x-litellm-model-id": "c2b2d5",
		"x-litellm-version": "1.83.0", "x-litellm-model-api-base": "https://api.openai.com",
		"x-litellm-response-cost": "0.00042", "x-litellm-key-spend": "0.1", "x-litellm-key-rpm-limit": "None",
		"llm_provider-x-request-id": "req_1", "llm_provider-retry-after": "7"} {
		w.Header().Set(name, value)
	}
	if r.Header.Get("Authorization") != "Bearer sk-lite" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		_, _ = io.WriteString(w, `{"error":{"message":"Authentication Error, Invalid proxy server token passed. `+
			`Unable to find token in cache or db","type":"token_not_found_in_db","param":"key","code":"401"}}`)
		return
	}
	if r.URL.Path != "/v1/chat/completions" {
		http.NotFound(w, r)
		return
	}
	l.mu.Lock()
	l.bodies = append(l.bodies, string(raw))
	answer := ""
	if len(l.next) > 0 {
		answer, l.next = l.next[0], l.next[1:]
	}
	l.mu.Unlock()
	var status int
	if n, _ := fmt.Sscanf(answer, "%d ", &status); n == 1 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer[4:])
		return
	}
	model := gjson.GetBytes(raw, "model").Str
	if !gjson.GetBytes(raw, "stream").Bool() {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(liteAnswer, "MODEL", model))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if answer == "" {
		answer = liteStream
	}
	_, _ = io.WriteString(w, strings.ReplaceAll(answer, "MODEL", model))
}

// liteAnswer is an answer in one piece.
const liteAnswer = `{"id":"chatcmpl-1","created":1790000000,"model":"MODEL","object":"chat.completion",
"system_fingerprint":null,"choices":[{"finish_reason":"stop","index":0,"message":{"content":"14 crowns.",
"role":"assistant","tool_calls":null,"function_call":null,"reasoning_content":"They asked for the price.",
"thinking_blocks":[{"type":"thinking","thinking":"They asked for the price.","signature":"sig"}],
"provider_specific_fields":{"citations":null},"annotations":[]},
"provider_specific_fields":{}}],"usage":{"completion_tokens":9,"prompt_tokens":40,"total_tokens":49,
"completion_tokens_details":{"reasoning_tokens":5,"text_tokens":4,"audio_tokens":null},"prompt_tokens_details":
{"cached_tokens":30,"audio_tokens":null,"text_tokens":null,"image_tokens":null},"cache_creation_input_tokens":0,
"cache_read_input_tokens":30},"service_tier":null}`

// liteStream is the same as a stream.
var liteStream = liteChunk(`{"content":"","role":"assistant","reasoning_content":"They asked ","thinking_blocks":`+
	`[{"type":"thinking","thinking":"They asked ","signature":""}],"provider_specific_fields":{"thinking_blocks":[]}}`,
	"null", "") +
	liteChunk(`{"content":"","reasoning_content":"for the price.","thinking_blocks":[{"type":"thinking","thinking":`+
		`"for the price.","signature":""}]}`, "null", "") +
	liteChunk(`{"content":"","thinking_blocks":[{"type":"thinking","thinking":"","signature":"sig"}]}`, "null", "") +
	liteChunk(`{"content":"14 ","role":null,"function_call":null,"tool_calls":null,"provider_specific_fields":null}`,
		"null", "") +
	liteChunk(`{"content":"crowns."}`, "null", "") + liteChunk(`{}`, `"stop"`, "") +
	liteChunk(`{}`, "null", `,"usage":{"completion_tokens":9,"prompt_tokens":40,"total_tokens":49,`+
		`"completion_tokens_details":{"reasoning_tokens":5,"text_tokens":null},`+
		`"prompt_tokens_details":{"cached_tokens":30,"audio_tokens":null}}`) +
	"data: [DONE]\n\n"

// liteBroken ends with an error.
var liteBroken = liteChunk(`{"content":"14 ","role":"assistant"}`, "null", "") + `data: {"error": {"message": ` +
	`"litellm.APIError: the connection broke", "type": "None", "param": "None", "code": "500"}}` + "\n\n"

// liteCall is the call of a tool.
var liteCall = liteChunk(`{"content":null,"role":"assistant","tool_calls":[{"id":"call_1","function":{"arguments":"",`+
	`"name":"look"},"type":"function","index":0}],"provider_specific_fields":null}`, "null", "") +
	liteChunk(`{"content":null,"role":null,"tool_calls":[{"id":null,"function":{"arguments":"{\"at\": 1}","name":null},`+
		`"type":"function","index":0}]}`, "null", "") + liteChunk(`{}`, `"tool_calls"`, "") + "data: [DONE]\n\n"

// liteChunk is a chunk of a stream.
func liteChunk(delta, finish, more string) string {
	return `data: {"id":"chatcmpl-1","created":1790000000,"model":"MODEL","object":"chat.completion.chunk",` +
		`"system_fingerprint":null,"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish +
		`,"logprobs":null}],"provider_specific_fields":null,"citations":null,"stream_options":{"include_usage":true}` +
		more + "}\n\n"
}

// answerWith has the next requests answered so.
func (l *liteLLM) answerWith(next ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

func (l *liteLLM) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies[len(l.bodies)-1]
}

const liteLimited = `{"error":{"message":"litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit ` +
	`reached for gpt-5.1. Received Model Group=openai/gpt-5.1\nAvailable Model Group Fallbacks=None",` +
	`"type":"throttling_error","param":null,"code":"429"}}`

// mneme works behind LiteLLM as docs/beside.md configures it.
func TestBehindLiteLLM(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	lite := &liteLLM{t: t}
	server := httptest.NewServer(lite)
	t.Cleanup(server.Close)
	with := func(key string) *up {
		return start(t, "MNEME_DATA_DIR="+t.TempDir(), "LITELLM_KEY="+key, "MNEME_PROXY_ACTIVE=litellm",
			backend("litellm", "openai", server.URL+"/v1", "vendor: generic", "api_key_env: LITELLM_KEY",
				`model_map: {"*": openai/gpt-5.1}`))
	}
	u := with("sk-lite")

	require.Equal(t, "14 crowns.", u.say("lite", "What does the ferry cost?"))
	require.Equal(t, "openai/gpt-5.1", gjson.Get(lite.last(), "model").Str)
	events := u.stream("lite", "And back?")
	finished := events[len(events)-1].Payload.(*event.RunFinished)
	require.EqualValues(t, 40, finished.Usage.InputTokens)
	require.EqualValues(t, 30, finished.Usage.CachedTokens)
	require.EqualValues(t, 9, finished.Usage.OutputTokens)
	require.EqualValues(t, 5, finished.Usage.ReasoningTokens)
	require.Contains(t, lite.last(), "What does the ferry cost?", "the memory is mneme's")
	require.Contains(t, lite.last(), `"14 crowns."`)
	require.JSONEq(t, `[{"type":"thinking","thinking":"They asked for the price.","signature":"sig"}]`,
		gjson.Get(lite.last(), "messages.2.thinking_blocks").Raw, "what a model thought comes back to it whole")

	// Clients of the gateway get what LiteLLM answered, and from its headers which vendor's model it was.
	gateway := func(path, body string) (int, http.Header, string) {
		resp, err := http.Post("http://"+u.addrs.Proxy+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, resp.Header, string(raw)
	}
	const hi = `"messages":[{"role":"user","content":"Hi."}]`
	status, header, body := gateway("/v1/chat/completions", `{"model":"master","metadata":{"team":"7"},`+hi+`}`)
	require.Equal(t, 200, status, body)
	require.Equal(t, "14 crowns.", gjson.Get(body, "choices.0.message.content").Str)
	require.Equal(t, "7", gjson.Get(lite.last(), "metadata.team").Str, "what LiteLLM reads reaches it")
	require.Equal(t, "c2b2d5", header.Get("x-litellm-model-id"))
	require.Equal(t, "0.00042", header.Get("x-litellm-response-cost"))
	const tool = `"tools":[{"name":"look","description":"Looks.","input_schema":{"type":"object"}}]`
	lite.answerWith(liteCall)
	status, _, body = gateway("/v1/messages", `{"model":"master","max_tokens":100,"stream":true,`+tool+`,`+hi+`}`)
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"name":"look"`)
	require.Contains(t, body, `"stop_reason":"tool_use"`)

	// A limit of its vendor's is told as such, though the code is a text and there is no Retry-After; and a stream that
	// breaks off with an error and no [DONE] is no answer, nor is the next one that does.
	lite.answerWith(slices.Repeat([]string{"429 " + liteLimited}, 9)...)
	code, said := u.post("/v1/chats/limited/messages", map[string]any{"message": "Hi."})
	require.Equal(t, 429, code, said)
	require.Equal(t, "rate_limited", gjson.Get(said, "error.code").Str)
	require.True(t, gjson.Get(said, "error.retryable").Bool())
	lite.answerWith(slices.Repeat([]string{"429 " + liteLimited}, 9)...)
	status, _, body = gateway("/v1/messages", `{"model":"master","max_tokens":100,`+hi+`}`)
	require.Equal(t, 429, status, body)
	require.Equal(t, "rate_limit_error", gjson.Get(body, "error.type").Str)
	require.Contains(t, body, "Rate limit reached for gpt-5.1")
	lite.answerWith(liteBroken, liteBroken)
	events = u.stream("broken", "Hi.")
	require.Equal(t, event.Failed, events[len(events)-1].Payload.(*event.RunFinished).Outcome)
	require.Equal(t, "model_unavailable", events[len(events)-2].Payload.(*event.Error).Code)
	lite.answerWith(liteBroken)
	_, _, body = gateway("/v1/messages", `{"model":"master","max_tokens":100,"stream":true,`+hi+`}`)
	require.Contains(t, body, "event: error\n")
	require.NotContains(t, body, "message_stop")

	// A key that LiteLLM does not know is the operator's to mend, and no 401 to the user.
	code, said = with("sk-wrong").post("/v1/chats/wrong/messages", map[string]any{"message": "Hi."})
	require.Equal(t, 502, code, said)
	require.Equal(t, "model_unauthorized", gjson.Get(said, "error.code").Str)
	require.Contains(t, said, "LITELLM_KEY")
	require.NotContains(t, said, "sk-wrong")
}
