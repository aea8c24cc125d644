package proxy_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
	"mneme/proxy"
	"mneme/proxy/thinking"
)

// logged starts a gateway with a log that is kept.
func logged(t *testing.T, c proxy.Config) (string, *logLines) {
	t.Helper()
	log := &logLines{}
	c.Active = "v"
	c.Limits.Upstream.Retries = -1
	s, err := proxy.New(c, zerolog.New(log))
	require.NoError(t, err)
	front := httptest.NewServer(s.Handler())
	t.Cleanup(func() { front.Close(); require.NoError(t, s.Close()); http.DefaultClient.CloseIdleConnections() })
	return front.URL, log
}

const (
	ownKey   = "sk-proj-0123456789abcdefGHIJKLMN+/=\"quoted\"-and-a-long-tail-0123456789"
	redisKey = "hunter2-redis-password"
)

// hidden are the forms in which nothing may show a key.
func hidden(key string) []string {
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + key))
	return []string{
		key, url.QueryEscape(key), strings.ReplaceAll(key, `"`, `\"`),
		base64.StdEncoding.EncodeToString([]byte(key))[:len(key)],
		basic[8 : len(basic)-4], base64.URLEncoding.EncodeToString([]byte("Bearer " + key))[12:len(key)],
	}
}

// echoes answers with the credential that it was given, in every place.
func echoes(status int, kind, format string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key") + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		escaped := strings.ReplaceAll(key, `"`, `\"`)
		w.Header().Set("Content-Type", kind)
		w.Header().Set("X-Echo", "Authorization: Bearer "+key)
		w.Header().Add("X-Echo-Basic", base64.StdEncoding.EncodeToString([]byte("user:"+key)))
		w.Header().Add("X-Echo-Url", "/v1?key="+url.QueryEscape(key))
		w.WriteHeader(status)
		basic := base64.URLEncoding.EncodeToString([]byte("Bearer " + key))
		_, _ = io.WriteString(w, strings.NewReplacer("KEY", escaped, "BASIC", basic, "REDIS", redisKey).Replace(format))
	}
}

// A vendor that repeats our credential, in a body, a header, an event or in base64, shows
// it nowhere: to no client, in no log, in no metric.
func TestNoKeyComesBack(t *testing.T) {
	t.Parallel()
	const message = `You sent Authorization: Bearer KEY, that is BASIC, and REDIS`
	thinking := "messages.1.content.0: Invalid `signature` in `thinking` block. " + message
	bodies := map[string]struct {
		status     int
		kind, body string
	}{
		"400": {400, "application/json", `{"error":{"message":"` + message + `"}}`},
		"401": {
			401, "application/json", `{"type":"error","error":{"type":"authentication_error","message":"` + message + `"}}`,
		},
		"429":     {429, "application/json", `{"error":{"message":"` + message + `"}}`},
		"500":     {500, "application/json", `{"error":"` + message + `"}`},
		"no JSON": {502, "text/html", `<p>` + message + `</p>`},
		"about thinking": {400, "application/json", `{"type":"error","error":{"type":"x","message":"` + thinking +
			`"}}`},
		"a redirection": {307, "text/plain", message},
		"an error as an answer": {200, "application/json", `{"type":"error","error":{"type":"api_error","message":"` +
			message + `"}}`},
		"an error as first event": {
			200, "text/event-stream",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" + message + "\"}}\n\n",
		},
		"a comment": {200, "text/event-stream", ": KEY\n\n" + messagesStream},
		"a later error": {200, "text/event-stream", strings.Replace(messagesStream, "event: message_delta",
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\""+message+
				"\"}}\n\nevent: message_delta", 1)},
		"an answer": {200, "application/json", strings.Replace(messagesBody, "Hello", "KEY", 1)},
		"a stream":  {200, "text/event-stream", strings.Replace(messagesStream, `"text":"lo"`, `"text":"lo KEY"`, 1)},
	}
	for name, c := range bodies {
		for _, endpoint := range []string{"/v1/messages", "/v1/chat/completions", "/teammate/x/v1/messages",
			"/v1/messages/count_tokens"} {
			t.Run(name+endpoint, func(t *testing.T) {
				v := vendor(t, echoes(c.status, c.kind, c.body))
				config := to(v, proxy.KindAnthropic)
				b := config.Backends["v"]
				b.APIKey = ownKey
				config.Backends["v"] = b
				config.Secrets = []string{redisKey}
				at, log := logged(t, config)
				request :=
					`{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"Zm9yZ2Vk"},{"type":"text","text":"ok"}]},{"role":"user","content":"hi"}]}`
				if strings.HasSuffix(endpoint, "completions") {
					request = ask + "}"
				}
				got := post(t, at+endpoint, request)
				seen := fmt.Sprint(got.status, got.header, got.body, log, call(t, "GET", at+"/metrics", "").body)
				require.Equal(t, ownKey, v.last(t).header.Get("X-Api-Key"))
				for _, form := range append(hidden(ownKey), redisKey) {
					if strings.Contains(form, "redis") && c.status == 200 && !strings.Contains(c.body, "error") {
						continue
					}
					require.NotContains(t, seen, form)
				}
			})
		}
	}
}

// The caller's own credential, where it goes through to the vendor, stays out of the log.
func TestACallersKeyIsNotLogged(t *testing.T) {
	t.Parallel()
	v := vendor(t, echoes(401, "application/json", `{"error":{"message":"Incorrect API key provided: KEY"}}`))
	config := to(v, proxy.KindOpenAI)
	b := config.Backends["v"]
	b.Auth = "passthrough"
	config.Backends["v"] = b
	at, log := logged(t, config)
	got := post(t, at+"/v1/chat/completions", ask+"}", "Authorization", "Bearer callers-own-credential")
	require.Equal(t, 401, got.status)
	require.Equal(t, "Bearer callers-own-credential", v.last(t).header.Get("Authorization"))
	require.NotContains(t, log.String(), "callers-own-credential")
}

// Short values are words: an answer that holds one stays as it is.
func TestWordsAreNoSecrets(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	config := to(v, proxy.KindAnthropic)
	b := config.Backends["v"]
	b.APIKey, config.Secrets = "toolu_01", []string{"Hello", "tool_use"}
	config.Backends["v"] = b
	at, _ := logged(t, config)
	require.Equal(t, messagesBody, post(t, at+"/v1/messages", ask+"}").body)
}

const (
	anthropicLong = `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208732 ` +
		`tokens > 200000 maximum"},"request_id":"req_1"}`
	openAILong = `{"error":{"message":"This model's maximum context length is 4097 tokens. However, your messages ` +
		`resulted in 6988 tokens. Please reduce the length of the ` +
		`messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`
	llamaLong = `{"error":{"code":500,"message":"the request exceeds the available context size. try increasing ` +
		`the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}`
)

// Recorded errors about length, as they come from backends of the dialect of the client: a coding
// agent on messages and a client of chat completions hear the words that they go by.
func TestTooLongInTheClientsWordsOutsideData(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(outsidedata.Path(t, "errors", "context-length.jsonl"))
	require.NoError(t, err)
	known := regexp.MustCompile(`^prompt is too long(: \d+ tokens > \d+ maximum)?$|exceed context limit: \d+ \+ \d+ > \d+`)
	heard := 0
	for line := range bytes.Lines(data) {
		body := gjson.GetBytes(line, "body").Str
		status := int(gjson.GetBytes(line, "status").Int())
		if thinking.ReadLength(status, []byte(body)).Excess != thinking.OverWindow {
			continue
		}
		heard++
		v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
		at, _ := logged(t, to(v, proxy.KindAnthropic))
		got := post(t, at+"/v1/messages", ask+"}")
		require.Equal(t, 400, got.status)
		require.Regexp(t, known, gjson.Get(got.body, "error.message").Str, body)
		at, _ = logged(t, to(v, proxy.KindOpenAI))
		got = post(t, at+"/v1/chat/completions", ask+"}")
		require.Equal(t, 400, got.status)
		require.Equal(t, "context_length_exceeded", gjson.Get(got.body, "error.code").Str, body)
	}
	require.Greater(t, heard, 15)
}

// A request that is too long is refused in the words that clients of its dialect go
// by; a vendor of the same dialect that uses them is passed on as it is.
func TestTooLongInTheEndpointsWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, endpoint string
		status         int
		body           string
		want           string // the whole body, or "" for what check says
		answered       int
		limit          string
	}{
		"messages, as it is": {proxy.KindAnthropic, "/v1/messages", 400, anthropicLong, anthropicLong, 400, "200000"},
		"chat, as it is":     {proxy.KindOpenAI, "/v1/chat/completions", 400, openAILong, openAILong, 400, "4097"},
		"llama.cpp to chat": {proxy.KindOpenAI, "/v1/chat/completions", 500, llamaLong,
			`{"error":{"type":"invalid_request_error","message":"This model's maximum context length is 256 tokens. ` +
				`However, your messages resulted in 1407 tokens. Please reduce the length of the ` +
				`messages.","param":"messages","code":"context_length_exceeded"}}`, 400, "256"},
		"other words of the messages dialect": {proxy.KindAnthropic, "/v1/messages", 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"Invalid request: Your request exceeded model ` +
				`token limit: 131072 (requested: 140000)"}}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 140000 tokens > 131072 ` +
				`maximum"}}`, 400, "131072"},
		"Bedrock without numbers": {proxy.KindAnthropic, "/v1/messages", 400,
			`{"type":"error","error":{"type":"ValidationException","message":"Input is too long for requested model."}}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`, 400, ""},
		"chat to messages": {proxy.KindOpenAI, "/v1/messages", 400, openAILong,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 6988 tokens > 4097 ` +
				`maximum"}}`, 400, "4097"},
		"llama.cpp to messages": {proxy.KindOpenAI, "/v1/messages", 500, llamaLong,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1407 tokens > 256 ` +
				`maximum"}}`, 400, "256"},
		"messages to chat": {proxy.KindAnthropic, "/v1/chat/completions", 400, anthropicLong,
			`{"error":{"type":"invalid_request_error","message":"This model's maximum context length is 200000 tokens. ` +
				`However, your messages resulted in 208732 tokens. Please reduce the length of the ` +
				`messages.","param":"messages","code":"context_length_exceeded"}}`, 400, "200000"},
		"without numbers, to messages": {proxy.KindOpenAI, "/v1/messages", 400,
			`{"error":{"message":"Please reduce the length of the messages or completion.","code":"context_length_exceeded"}}`,
			`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			at, log := logged(t, to(v, c.kind))
			for range 2 { // the second time the limit is known before
				got := post(t, at+c.endpoint, ask+"}")
				require.Equal(t, c.answered, got.status)
				require.Equal(t, c.want, got.body)
				require.Equal(t, "context_length_exceeded", got.header.Get("X-AG-Error"))
				require.Equal(t, c.limit, got.header.Get("X-AG-Context-Tokens"))
				require.Equal(t, c.limit, got.header.Get("X-AG-Limit-Tokens"))
			}
			require.Equal(t, 2, v.count(), "it is not sent again as it is")
			require.Contains(t, log.String(), `"reason":"context_length_exceeded"`)
			require.Equal(t, c.limit, gjson.Get(call(t, "GET", at+"/v1/models/real-1", "").body, "context_tokens").Raw)
		})
	}
}

// The same as the first event of a stream that began as a success.
func TestTooLongAsTheFirstEvent(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("text/event-stream", "event: error\ndata: "+anthropicLong+"\n\n"))
	at, _ := logged(t, to(v, proxy.KindAnthropic))
	got := post(t, at+"/v1/chat/completions", ask+`,"stream":true}`)
	require.Equal(t, 400, got.status)
	require.Equal(t, "context_length_exceeded", gjson.Get(got.body, "error.code").Str, got.body)
	require.Equal(t, "context_length_exceeded", got.header.Get("X-AG-Error"))
	got = post(t, at+"/v1/messages", ask+`,"stream":true}`)
	require.Contains(t, got.body, anthropicLong)
	require.Equal(t, "context_length_exceeded", got.header.Get("X-AG-Error"))
}

// A prompt that fits is not refused for an answer that would not: max_tokens is lowered.
func TestMaxTokensThatLeaveNoRoomAreLowered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, endpoint, member, request string }{
		"messages": {proxy.KindAnthropic, "/v1/messages", "max_tokens",
			`{"model":"m","max_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
		"chat": {proxy.KindOpenAI, "/v1/chat/completions", "max_tokens",
			`{"model":"m","max_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
		"chat, max_completion": {proxy.KindOpenAI, "/v1/chat/completions", "max_completion_tokens",
			`{"model":"m","max_completion_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
		"chat, the vendor's own": {proxy.KindOpenAI, "/v1/chat/completions", "max_tokens",
			` {"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		"chat to messages": {proxy.KindAnthropic, "/v1/chat/completions", "max_tokens",
			`{"model":"m","max_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
		"messages to chat": {proxy.KindOpenAI, "/v1/messages", "max_tokens",
			`{"model":"m","max_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
		"a teammate, chat to chat": {proxy.KindOpenAI, "/teammate/x/v1/chat/completions", "max_tokens",
			`{"model":"m","max_tokens":64000,"messages":[{"role":"user","content":"hi"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) {
				if n := gjson.Get(v.last(t).body, c.member).Int(); n > 0 && n < 30_000 {
					body := chatBody
					if c.kind == proxy.KindAnthropic {
						body = messagesBody
					}
					says("application/json", body)(w, r)
					return
				}
				w.WriteHeader(400)
				_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"input length and `+
					"`max_tokens`"+` exceed context limit: 178959 + 64000 > 200000, decrease input length or `+"`max_tokens`"+
					` and try again"}}`)
			}
			at, _ := logged(t, to(v, c.kind))
			got := post(t, at+c.endpoint, c.request)
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 2, v.count())
			require.Equal(t, int64(21041-21041/16), gjson.Get(v.last(t).body, c.member).Int())
		})
	}
}

// Where even that fails the client gets what the vendor's first answer says.
func TestMaxTokensAreLoweredOnce(t *testing.T) {
	t.Parallel()
	body := `{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 131134 ` +
		`tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or ` +
		`completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`
	v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, body)
	})
	at, _ := logged(t, to(v, proxy.KindOpenAI))
	got := post(t, at+"/v1/chat/completions", `{"model":"m","max_tokens":8192,"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, 400, got.status)
	require.Equal(t, "context_length_exceeded", gjson.Get(got.body, "error.code").Str)
	require.Equal(t, gjson.Get(body, "error.message").Str, gjson.Get(got.body, "error.message").Str)
	require.Equal(t, 2, v.count())
}

// The allowance of an account is no context window: nothing is learned, and nothing
// is sent again.
func TestAnAllowanceIsNoWindow(t *testing.T) {
	t.Parallel()
	const body = `{"error":{"message":"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): ` +
		`Limit 30000, Requested 31538.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`
	v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, body)
	})
	config := to(v, proxy.KindOpenAI)
	config.Active = "v"
	s, err := proxy.New(config, zerolog.Nop())
	require.NoError(t, err)
	front := httptest.NewServer(s.Handler())
	t.Cleanup(func() { front.Close(); require.NoError(t, s.Close()); http.DefaultClient.CloseIdleConnections() })
	got := post(t, front.URL+"/v1/chat/completions", strings.Replace(ask, "real-1", "gpt-4o", 1)+"}")
	require.Equal(t, 429, got.status)
	require.Equal(t, body, got.body)
	require.Equal(t, 1, v.count())
	require.Equal(t, "request_too_large", got.header.Get("X-AG-Error"))
	require.Equal(t, "30000", got.header.Get("X-AG-Limit-Tokens"))
	require.Equal(t, "31538", got.header.Get("X-AG-Sent-Tokens"))
	require.Equal(t, "128000", got.header.Get("X-AG-Context-Tokens"))
}

// What a vendor says is for an agent one of a few reasons.
func TestReasonsOfRefusals(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		status int
		reason string
	}{
		`{"error":{"message":"Incorrect API key provided: ` +
			`sk-ab***yz.","type":"invalid_request_error","code":"invalid_api_key"}}`: {401, "key_refused"},
		`{"type":"error","error":{"type":"permission_error","message":"no"}}`: {403, "key_refused"},
		`{"error":{"message":"API key not valid. Please pass a valid API ` +
			`key.","code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`: {400, "key_refused"},
		`{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the ` +
			`Anthropic API."}}`: {400, "quota_exhausted"},
		`{"error":{"message":"You exceeded your current quota, please check your plan and billing ` +
			`details.","type":"insufficient_quota","code":"insufficient_quota"}}`: {429, "quota_exhausted"},
		`{"error":{"message":"Insufficient ` +
			`Balance","type":"unknown_error"}}`: {402, "quota_exhausted"},
		`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate ` +
			`limit of 30,000 input tokens per minute."}}`: {429, "rate_limited"},
		`{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management ` +
			`policy.","code":"content_filter"}}`: {400, "content_refused"},
		`{"error":{"message":"The request was rejected because it was considered high ` +
			`risk","type":"content_filter"}}`: {400, "content_refused"},
		`{"error":{"message":"The model ` + "`gpt-9`" +
			` does not exist or you do not have access to it.","type":"invalid_request_error","code":"model_not_found"}}`: {
			404, "model_unknown",
		},
		`{"type":"error","error":{"type":"not_found_error","message":"model: ` +
			`claude-0"}}`: {404, "model_unknown"},
		`{"error":{"message":"model 'llama9' not ` +
			`found"}}`: {404, "model_unknown"},
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`: {529, "vendor_failed"},
		`{"error":{"message":"The server had an error while processing your ` +
			`request."}}`: {500, "vendor_failed"},
		`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use ` +
			`'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}`: {400, "rejected"},
	} {
		v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(want.status)
			_, _ = io.WriteString(w, body)
		})
		config := to(v, proxy.KindOpenAI)
		b := config.Backends["v"]
		b.APIKey, b.KeyName = "a-key-of-no-interest", "OPENAI_API_KEY"
		config.Backends["v"] = b
		at, _ := logged(t, config)
		got := post(t, at+"/v1/chat/completions", ask+"}")
		require.Equal(t, want.reason, got.header.Get("X-AG-Error"), body)
		require.Equal(t, want.reason == "key_refused", got.header.Get("X-AG-Key-Name") == "OPENAI_API_KEY", body)
	}
}

// The log has the vendor's words, bounded, and not the user's.
func TestTheLogHasNothingOfTheUsers(t *testing.T) {
	t.Parallel()
	const secret = "my doctor said that the lump on my left arm is harmless"
	v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_,
			_ = fmt.Fprintf(w,
			`{"error":{"message":"The content filter was triggered by '%s' (severity high). You wrote: %s. See the `+
				`docs.","code":"content_filter"}}`, secret, secret)
	})
	at, log := logged(t, to(v, proxy.KindOpenAI))
	post(t, at+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Listen: `+secret+`"}]}`)
	// The same where it comes inside a stream and is translated.
	for _, stream := range []string{"event: error\ndata: %s\n\n", firstEvents(messagesStream, 4) +
		"event: error\ndata: %s\n\n"} {
		v := vendor(t,
			says("text/event-stream",
				fmt.Sprintf(stream, `{"type":"error","error":{"type":"api_error","message":"The content filter was triggered by `+
					secret+`."}}`)))
		at, log := logged(t, to(v, proxy.KindAnthropic))
		post(t, at+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"Listen: `+secret+
			`"}]}`)
		require.Contains(t, log.String(), "The content filter was triggered by")
		require.NotContains(t, log.String(), "harmless")
	}
	require.Contains(t, log.String(), "The content filter was triggered by")
	require.Contains(t, log.String(), "See the docs.")
	for _, word := range []string{"doctor", "lump", "harmless"} {
		require.NotContains(t, log.String(), word)
	}
	require.Contains(t, log.String(), `"level":"warn"`)
}

// Nor where the vendor refuses a request as wrong, in words that the gateway does not know.
func TestARejectionThatQuotesTheUserIsLoggedWithoutHisWords(t *testing.T) {
	t.Parallel()
	const secret = "my doctor said that the lump on my left arm is harmless"
	for _, said := range []string{
		"messages[0].content: '" + secret + "' is not acceptable here (x7)",
		"Value " + secret + " is not acceptable here (x7)",
	} {
		v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, said)
		})
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"Listen: ` + secret + `"}]}`,
			"/v1/messages": `{"model":"m","max_tokens":9,"system":"` + secret +
				`","messages":[{"role":"user","content":"hi"}]}`,
			"/v1/responses": `{"model":"m","instructions":"` + secret + `","input":"hi"}`,
		} {
			at, log := logged(t, to(v, proxy.KindOpenAI))
			got := post(t, at+path, body)
			require.Equal(t, 400, got.status)
			require.Contains(t, got.body, "not acceptable", "the client is told all of it")
			require.Contains(t, log.String(), "not acceptable here (x7)")
			for _, word := range []string{"doctor", "lump", "harmless"} {
				require.NotContains(t, log.String(), word, path)
			}
		}
	}
}

// Every answer tells the window of its model, and so does the list of models.
func TestContextTokensAreTold(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", chatBody))
	config := to(v, proxy.KindOpenAI)
	b := config.Backends["v"]
	b.ModelMap = map[string]string{"master": "gpt-4.1", "mini": "my-model", "family": "claude-opus-4-8"}
	config.Backends["v"] = b
	at, _ := logged(t, config)
	request := strings.Replace(ask, "real-1", "master", 1) + "}"
	require.Equal(t, "1047576", post(t, at+"/v1/chat/completions", request).header.Get("X-AG-Context-Tokens"))
	require.Empty(t, post(t, at+"/v1/chat/completions", strings.Replace(ask, "real-1", "mini", 1)+
		"}").header.Get("X-AG-Context-Tokens"))

	list := call(t, "GET", at+"/v1/models", "").body
	require.Equal(t, int64(1047576), gjson.Get(list, `data.#(id=="master").context_tokens`).Int())
	require.False(t, gjson.Get(list, `data.#(id=="mini").context_tokens`).Exists())
	list = call(t, "GET", at+"/v1/models", "", "Anthropic-Version", "2023-06-01").body
	require.Equal(t, `[200000,200000,128000]`,
		gjson.Get(list, `data.#(id=="family").[context_tokens,max_input_tokens,max_tokens]`).Raw)

	require.JSONEq(t, `{"id":"master","object":"model","created":0,"owned_by":"mneme","context_tokens":1047576}`,
		call(t, "GET", at+"/v1/models/master", "").body)
	require.JSONEq(t, `{"id":"a-family-name","object":"model","created":0,"owned_by":"mneme","context_tokens":200000}`,
		call(t, "GET", at+"/teammate/x/v1/models/a-family-name", "").body)
	require.JSONEq(t, `{"id":"mini","object":"model","created":0,"owned_by":"mneme"}`,
		call(t, "GET", at+"/v1/models/mini", "").body)
	require.JSONEq(t,
		`{"type":"model","id":"master","display_name":"master","created_at":"1970-01-01T00:00:00Z","context_tokens":1047576,
		"max_input_tokens":1047576}`,
		call(t, "GET", at+"/v1/models/master", "", "Anthropic-Version", "2023-06-01").body)
	missing := call(t, "GET", at+"/v1/models/nothing/like-it", "")
	require.Equal(t, 404, missing.status)
	require.Contains(t, missing.body, `there is no model \"nothing/like-it\" here`)
	require.Equal(t, 404, call(t, "GET", at+"/v1/models/", "").status)
}

// A limit of answers that a refusal names is that of the model.
func TestTheLimitOfAnswersIsLearned(t *testing.T) {
	t.Parallel()
	url, _, _ := imitator{proxy.KindOpenAI, []refusing{
		{"max_tokens", "16000", "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for m"},
		{"max_tokens", "8192", "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for m"},
		{"max_tokens", "4096", "Requests with max_tokens > 2048 must have stream=true"},
	}}.serve(t)
	for _, n := range []string{"16000", "8192", "4096"} { // the last limit is of answers without a stream alone
		require.Equal(t, 200, post(t, url+"/v1/messages", `{"model":"m","max_tokens":`+n+`,"messages":[{"role":"user",`+
			`"content":"hi"}]}`).status)
	}
	got := call(t, "GET", url+"/v1/models/m", "", "Anthropic-Version", "2023-06-01").body
	require.EqualValues(t, 4096, gjson.Get(got, "max_tokens").Int(), got)
}

// Of an error above 1 MiB, the client gets the status and the beginning.
func TestAnEndlessErrorIsReadUpToABound(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"", strconv.Itoa(50 << 20)} {
		sent := make(chan int, 1)
		v := vendor(t, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			n, _ := io.WriteString(w, `{"error":{"message":"the tool is wrong `)
			piece := bytes.Repeat([]byte("x"), 64<<10)
			for n < 50<<20-len(piece) {
				more, err := w.Write(piece)
				if n += more; err != nil {
					break
				}
			}
			sent <- n
		})
		url, _ := logged(t, to(v, proxy.KindOpenAI))
		got := call(t, "POST", url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			"Content-Type", "application/json")
		require.Equal(t, http.StatusBadRequest, got.status, got.body[:min(len(got.body), 500)])
		require.Contains(t, gjson.Get(got.body, "error.message").Str, "the tool is wrong")
		require.Less(t, len(got.body), 4<<10)
		require.Less(t, <-sent, 20<<20, "what the kernel's buffers take is sent as well")
	}
}

// A key that a client puts where the model's name belongs does not come back.
func TestAKeyAsAModelIsNotShown(t *testing.T) {
	t.Parallel()
	const key = "mn_abc_0123456789abcdefghijklmnopqrstuvwxyz01234567"
	v := vendor(t, says("application/json", chatBody))
	url, _ := gateway(t, to(v, proxy.KindOpenAI))
	for _, header := range []string{"", "2023-06-01"} {
		got := call(t, "GET", url+"/v1/models/"+key, "", "anthropic-version", header)
		require.Equal(t, http.StatusNotFound, got.status)
		require.NotContains(t, got.body, key)
	}
}
