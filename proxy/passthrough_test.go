package proxy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
	"mneme/proxy"
)

// streaming begins a request for a stream, by the kind of the backend.
var streaming = map[string]string{
	proxy.KindAnthropic: `{"stream":true,`, proxy.KindOpenAI: `{"stream":true,"stream_options":{"include_usage":true},`,
}

func TestPassthroughIsByteExact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ endpoint, kind, body, answer, stream string }{
		"messages": {
			"/v1/messages", proxy.KindAnthropic,
			"{ \"zeta\":1.50e+3 ,\n\t\"model\" : \"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0041\\ud83d\\ude00 " +
				"<&>\"}], \"metadata\":{\"b\":1,\"a\":0.10}}\n",
			messagesBody + "\n", messagesStream,
		},
		"messages with unknown blocks": {
			"/v1/messages", proxy.KindAnthropic,
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"from_the_future","x":1.0}]},` +
				`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},` +
				`{"type":"quantum_thought","state":[1e2]},{"type":"text","text":"so"}]},` +
				`{"role":"user","content":"and?"}],"new_member":{"a":null}}`,
			messagesBody, messagesStream,
		},
		"chat": {
			"/v1/chat/completions", proxy.KindOpenAI,
			"{\"unknown\":{\"x\":[ ]},\"model\":\"m\",\"n\":3,\"messages\":[],\"seed\":12345678901234567890}",
			chatBody, chatStream,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, says("application/json", c.answer))
			url, _ := gateway(t, to(v, c.kind))
			require.Equal(t, c.answer, post(t, url+c.endpoint, c.body).body)
			require.Equal(t, c.body, v.last(t).body)

			v.answer = says("text/event-stream", c.stream)
			body := strings.Replace(c.body, "{", streaming[c.kind], 1)
			require.Equal(t, c.stream, post(t, url+c.endpoint, body).body)
			require.Equal(t, body, v.last(t).body)
		})
	}
}

// A vendor would refuse the conversation for ever.
func TestEscapesThatAreNoTextAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
		v := vendor(t, says("application/json", messagesBody))
		url, _ := gateway(t, to(v, kind))
		for _, endpoint := range []string{"/v1/messages", "/v1/chat/completions"} {
			got := post(t, url+endpoint, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a\ud83d"}]}`)
			require.Equal(t, 400, got.status)
			require.Contains(t, got.body, `/messages/0/content contains \\ud83d (byte 67 of the body)`)
		}
		require.Zero(t, v.count())
	}
}

func TestMappedModelsAreMappedBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ endpoint, kind, body, stream string }{
		"messages": {"/v1/messages", proxy.KindAnthropic, messagesBody, messagesStream},
		"chat":     {"/v1/chat/completions", proxy.KindOpenAI, chatBody, chatStream},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, says("application/json", c.body))
			config := to(v, c.kind)
			b := config.Backends["v"]
			b.ModelMap = map[string]string{"opus": "real-1"}
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			request := `{"x":1.0,"model": "claude-opus-4-8" ,"messages":[]}`
			got := post(t, url+c.endpoint, request)
			require.Equal(t, strings.Replace(request, "claude-opus-4-8", "real-1", 1), v.last(t).body)
			require.Equal(t, strings.Replace(c.body, "real-1", "claude-opus-4-8", 1), got.body)

			v.answer = says("text/event-stream", c.stream)
			got = post(t, url+c.endpoint, strings.Replace(request, "{", streaming[c.kind], 1))
			require.Equal(t, strings.ReplaceAll(c.stream, "real-1", "claude-opus-4-8"), got.body)
		})
	}
}

// Some servers spread the JSON of an event over several data lines.
func TestEventsOfSeveralLinesAreEdited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ endpoint, kind, stream, model, id string }{
		"messages": {"/v1/messages", proxy.KindAnthropic, messagesStream, "message.model", "content_block.id"},
		"chat": {"/v1/chat/completions", proxy.KindOpenAI, chatStream, "model",
			"choices.0.delta.tool_calls.0.id"},
	} {
		t.Run(name, func(t *testing.T) {
			spread := strings.NewReplacer(`,"`, ",\ndata:\"", "toolu_01A09q90qw90lq91", "f:0").Replace(c.stream)
			v := vendor(t, says("text/event-stream", spread))
			config := to(v, c.kind)
			b := config.Backends["v"]
			b.ModelMap = map[string]string{"*": "real-1"}
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			got := post(t, url+c.endpoint, `{"model":"mine","stream":true,"messages":[{"role":"user","content":"x"}]}`)
			require.NotContains(t, got.body, "real-1")
			require.NotContains(t, got.body, "f:0")
			var models, ids []string
			for event := range strings.SplitSeq(got.body, "\n\n") {
				var lines []string
				for line := range strings.Lines(event) {
					if data, ok := strings.CutPrefix(line, "data:"); ok {
						lines = append(lines, data)
					}
				}
				data := strings.Join(lines, "")
				if data := strings.TrimSpace(data); data != "" && data != "[DONE]" {
					require.True(t, gjson.Valid(data), event)
				}
				if v := gjson.Get(data, c.model); v.Exists() {
					models = append(models, v.Str)
				}
				if v := gjson.Get(data, c.id); v.Exists() {
					ids = append(ids, v.Str)
				}
			}
			require.NotEmpty(t, models)
			require.Equal(t, []string{"mine"}, slices.Compact(models))
			require.Len(t, ids, 1)
			require.Regexp(t, "^call_[0-9A-Za-z]{24}$", ids[0])
		})
	}
}

func TestModelMap(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	config := to(v, proxy.KindAnthropic)
	b := config.Backends["v"]
	b.ModelMap = map[string]string{"master": "exact", "opus": "family", "opus-4-8": "longer", "*": "any"}
	config.Backends["v"] = b
	url, _ := gateway(t, config)
	for asked, sent := range map[string]string{
		"master": "exact", "claude-opus-4-1": "family", "claude-opus-4-8-2026": "longer", "claude-opusx": "any",
		"else": "any",
	} {
		for _, endpoint := range []string{"/v1/messages", "/v1/chat/completions"} {
			got := post(t, url+endpoint, `{"model":"`+asked+`","messages":[{"role":"user","content":"x"}]}`)
			require.Equal(t, sent, gjson.Get(v.last(t).body, "model").Str, asked)
			require.Equal(t, asked, gjson.Get(got.body, "model").Str, asked)
		}
	}
}

func TestHeadersOfRequests(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	url, _ := gateway(t, to(v, proxy.KindAnthropic))
	sent := []string{
		"Anthropic-Beta", "b1,b2", "Anthropic-Version", "2099-01-01", "X-Stainless-Lang", "js", "User-Agent", "agent/1",
		"Authorization", "Bearer callers", "X-Api-Key", "callers", "Cookie", "a=b", "Accept-Encoding", "br",
		"Connection", "X-Hop", "X-Hop", "1", "Te", "trailers", "X-Forwarded-For", "10.0.0.1",
		"X-AG-Conversation-Id", "conv.1:a_b-c",
	}
	got := post(t, url+"/v1/messages?beta=true", ask+`}`, sent...)
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, "conv.1:a_b-c", got.header.Get("X-AG-Conversation-Id"))
	r := v.last(t)
	require.Equal(t, "/v1/messages?beta=true", r.url)
	for name, want := range map[string]string{
		"Anthropic-Beta": "b1,b2", "Anthropic-Version": "2099-01-01", "X-Stainless-Lang": "js", "User-Agent": "agent/1",
		"X-Api-Key": "own-key", "Authorization": "", "Cookie": "", "Accept-Encoding": "", "X-Hop": "", "Te": "",
		"X-Forwarded-For": "", "X-Ag-Conversation-Id": "",
	} {
		require.Equal(t, want, r.header.Get(name), name)
	}

	got = post(t, url+"/v1/chat/completions?x=1", ask+`}`, sent...)
	require.Equal(t, "conv.1:a_b-c", got.header.Get("X-AG-Conversation-Id"))
	r = v.last(t)
	require.Equal(t, "/v1/messages", r.url)
	require.Equal(t, "agent/1", r.header.Get("User-Agent"))
	require.Empty(t, r.header.Get("Anthropic-Beta"))
	require.Empty(t, r.header.Get("X-Stainless-Lang"))
}

// A server of the operator's own is told what a call belongs to, in both dialects; a vendor never is.
func TestRunsAreToldToABackendOfOnesOwn(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", messagesBody))
	for _, own := range []bool{false, true} {
		c := to(v, proxy.KindAnthropic)
		b := c.Backends["v"]
		b.PassRun = own
		c.Backends["v"] = b
		url, _ := gateway(t, c)
		for _, path := range []string{"/v1/messages", "/v1/chat/completions"} {
			post(t, url+path, ask+`}`, "Mneme-Run-Id", "run1", "Mneme-Call-Id", "run1-2", "Mneme-Chat-Id", "7", "X-AG-Chat-Id", "7")
			h := v.last(t).header
			told := map[bool][]string{true: {"run1", "run1-2"}, false: {"", ""}}[own]
			require.Equal(t, told, []string{h.Get("Mneme-Run-Id"), h.Get("Mneme-Call-Id")}, path)
			require.Empty(t, h.Get("Mneme-Chat-Id")+h.Get("X-AG-Chat-Id"))
		}
	}
}

func TestTheCallersCredentialPassesOnlyWhereConfigured(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", chatBody))
	c := to(v, proxy.KindOpenAI)
	c.Backends["v"] = proxy.BackendConfig{Kind: proxy.KindOpenAI, BaseURL: v.server.URL, Auth: "passthrough"}
	url, _ := gateway(t, c)
	post(t, url+"/v1/chat/completions", ask+`}`, "Authorization", "Bearer mine")
	require.Equal(t, "Bearer mine", v.last(t).header.Get("Authorization"))
	post(t, url+"/v1/messages", ask+`}`, "X-Api-Key", "mine")
	require.Equal(t, "Bearer mine", v.last(t).header.Get("Authorization"), "the other dialect's place for it")
	require.Empty(t, v.last(t).header.Get("X-Api-Key"))
	post(t, url+"/v1/chat/completions", ask+`}`, "X-Api-Key", "mine")
	require.Equal(t, "Bearer mine", v.last(t).header.Get("Authorization"), "where a vendor of chat looks for it")

	c.Backends["v"] = proxy.BackendConfig{Kind: proxy.KindOpenAI, BaseURL: v.server.URL}
	url, _ = gateway(t, c)
	post(t, url+"/v1/chat/completions", ask+`}`, "Authorization", "Bearer mine", "X-Api-Key", "mine")
	require.Empty(t, v.last(t).header.Get("Authorization"))
	require.Empty(t, v.last(t).header.Get("X-Api-Key"))
}

// Requests of a real coding agent reach an Anthropic backend unchanged.
func TestCodingAgentRequestsPassOutsideData(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	v := vendor(t, says("application/json", messagesBody))
	config := to(v, proxy.KindAnthropic)
	b := config.Backends["v"]
	b.ModelMap = map[string]string{"opus": "mapped-model"}
	config.Backends["v"] = b
	url, _ := gateway(t, config)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var recorded struct {
				URL     string            `json:"url"`
				Headers map[string]string `json:"headers"`
				Body    json.RawMessage   `json:"body"`
			}
			require.NoError(t, json.Unmarshal(raw, &recorded))
			var header []string
			for name, value := range recorded.Headers {
				if !strings.EqualFold(name, "connection") {
					header = append(header, name, value)
				}
			}
			body := string(bytes.TrimSpace(recorded.Body))
			got := post(t, url+recorded.URL, body, header...)
			require.Equal(t, 200, got.status, got.body)
			model := gjson.Get(body, "model").Raw
			want := body
			if strings.Contains(model, "opus") {
				want = strings.Replace(body, `"model": `+model, `"model": "mapped-model"`, 1)
			}
			r := v.last(t)
			if strings.HasPrefix(filepath.Base(file), "17-") {
				// Its vendor refused it: a tool loop that does not begin with thinking.
				require.NotEqual(t, "enabled", gjson.Get(r.body, "thinking.type").Str)
				require.NotContains(t, r.body, "clear_thinking")
				want = gjson.Get(want, "messages").Raw
				r.body = gjson.Get(r.body, "messages").Raw
			}
			require.Equal(t, want, r.body)
			require.Equal(t, recorded.URL, r.url)
			require.Equal(t, recorded.Headers["anthropic-beta"], r.header.Get("Anthropic-Beta"))
			require.Equal(t, recorded.Headers["user-agent"], r.header.Get("User-Agent"))
			require.Equal(t, "own-key", r.header.Get("X-Api-Key"))

			// The same request must also be sayable in the other dialect.
			other := vendor(t, says("application/json", chatBody))
			chatURL, _ := gateway(t, to(other, proxy.KindOpenAI))
			got = post(t, chatURL+"/v1/messages", body)
			require.Equal(t, http.StatusOK, got.status, got.body)
		})
	}
}
