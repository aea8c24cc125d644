package proxy_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// pathReports are the cases about members, values and limits that a refusal names.
var pathReports = map[string]report{
	"beta-refused": {
		refuses: func(r received) bool {
			betas := r.header.Get("Anthropic-Beta")
			return strings.Contains(betas, "prompt-caching-scope") || strings.Contains(betas, "redact-thinking")
		},
		calls: 2,
		check: func(t *testing.T, accepted []received, answers []answered) {
			require.Equal(t, "interleaved-thinking-2025-05-14", accepted[0].header.Get("Anthropic-Beta"))
			require.Contains(t, answers[0].header.Get("X-AG-Mended"), "refused_parameter")
		},
	},
	"defer-third": without("tools.#.eager_input_streaming", func(t *testing.T, r received) {
		require.Equal(t, `[true]`, gjson.Get(r.body, "tools.#.defer_loading").Raw, "which was not refused")
	}),
	"ttl-third": without("messages.#.content.#.cache_control.ttl", func(t *testing.T, r received) {
		require.Equal(t, "ephemeral", gjson.Get(r.body, "messages.0.content.0.cache_control.type").Str)
	}),
	"verbosity-codex": {
		refuses: func(r received) bool { return gjson.Get(r.body, "text.verbosity").Str == "low" },
		calls:   2,
		check: func(t *testing.T, accepted []received, answers []answered) {
			require.Equal(t, "medium", gjson.Get(accepted[0].body, "text.verbosity").Str)
			require.Contains(t, answers[0].header.Get("X-AG-Mended"), "refused_parameter")
		},
	},
	"effort-mimo": without("reasoning_effort", nil),
	"maxt-0":      atMost(8192),
	"maxt-1":      atMost(32768),
	"maxt-3":      atMost(16384),
	"maxt-5":      atMost(40000),
	"maxt-6":      atMost(8192),
	"maxt-claude": atMost(64000),
}

// without is a report about a member that the vendor refuses.
func without(path string, check func(t *testing.T, r received)) report {
	return report{
		refuses: func(r received) bool {
			found := gjson.Get(r.body, path).Raw
			return strings.Trim(found, "[],") != ""
		},
		calls: 2,
		check: func(t *testing.T, accepted []received, answers []answered) {
			require.Contains(t, answers[0].header.Get("X-AG-Mended"), "refused_parameter")
			if check != nil {
				check(t, accepted[0])
			}
		},
	}
}

// atMost returns a report about a max_tokens above the model's limit.
func atMost(most int64) report {
	return report{
		refuses: func(r received) bool { return gjson.Get(r.body, "max_tokens").Int() > most },
		calls:   2,
		check: func(t *testing.T, accepted []received, answers []answered) {
			require.Equal(t, most, gjson.Get(accepted[0].body, "max_tokens").Int())
			require.Equal(t, "refused_length", answers[0].header.Get("X-AG-Mended"))
		},
	}
}

// An imitator refuses the matches of its rules in a request, one after another.
type imitator struct {
	kind  string
	rules []refusing
}

// A refusing rule is a path of a request, a value to match there, and the vendor's error.
type refusing struct {
	path, fits, says string
}

// finds reports whether a request has what the rule refuses. A path of the header begins with Anthropic-Beta.
func (f refusing) finds(r received) bool {
	found := gjson.Get(r.body, f.path).Raw
	if f.path == "Anthropic-Beta" {
		found = r.header.Get(f.path)
	}
	return strings.Trim(found, "[],") != "" && regexp.MustCompile(f.fits).MatchString(found)
}

var imitators = map[string]imitator{
	"messages": {proxy.KindAnthropic, []refusing{
		{"Anthropic-Beta", "thinking-token-count",
			"Unexpected value(s) `thinking-token-count-2026-05-13` for the `anthropic-beta` header."},
		{"context_management", "", "context_management: Extra inputs are not permitted"},
		{"output_config", "", "output_config: Extra inputs are not permitted"},
		{"thinking.type", "adaptive", "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected " +
			"tags: 'disabled', 'enabled'"},
		{"metadata", "", "metadata: Extra inputs are not permitted"},
		{"system.#.cache_control", "", "system.1.cache_control: Extra inputs are not permitted"},
		{"max_tokens", "(32|64)000", "Range of max_tokens should be [1, 16384]"},
	}},
	"betas": {proxy.KindAnthropic, []refusing{
		{"Anthropic-Beta", "", "invalid beta flag"},
		{"context_management", "", "context_management: Extra inputs are not permitted"},
	}},
	"chat": {proxy.KindOpenAI, []refusing{
		{"max_tokens", "(32|64)000", "max_tokens is too large: 64000. This model supports at most 16384 completion tokens"},
		{"stream_options", "", "Unrecognized request argument supplied: stream_options"},
		{"reasoning_effort", "", "property 'reasoning_effort' is unsupported"},
		{"thinking", "", "Unknown parameter: 'thinking'."},
	}},
	"responses": {proxy.KindResponses, []refusing{
		{"max_output_tokens", "(32|64)000", "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= " +
			"16384, but got 64000 instead."},
		{"reasoning", "", "Unsupported parameter: 'reasoning' is not supported with this model."},
		{"include", "", "Encrypted content is not supported with this model."},
		{"store", "", "Unknown parameter: 'store'."},
	}},
}

// serve is a gateway with the imitator as its only backend. Refused counts the refusals.
func (m imitator) serve(t *testing.T) (url string, v *script, refused *atomic.Int64) {
	t.Helper()
	refused = new(atomic.Int64)
	v = vendor(t, nil)
	v.answer = func(w http.ResponseWriter, r *http.Request) {
		got := v.last(t)
		for _, rule := range m.rules {
			if rule.finds(got) {
				refused.Add(1)
				says := rule.says
				if !strings.HasPrefix(says, "{") {
					says = `{"type":"error","error":{"type":"invalid_request_error","message":` + string(wire.Quote(says)) + `}}`
				}
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(says))
				return
			}
		}
		acceptReport(w, r, got.body)
	}
	config := to(v, m.kind)
	b := config.Backends["v"]
	b.Vendor, b.ModelMap = "generic", map[string]string{"*": "m"}
	config.Backends["v"] = b
	url, _ = gateway(t, config)
	return url, v, refused
}

// Claude Code's requests teach the gateway an imitator's rules once. Then none is refused.
func TestClaudeCodeAtStrictImitatorsOutsideData(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for name, imitator := range imitators {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _, refused := imitator.serve(t)
			for round := range 2 {
				for i, file := range files {
					raw, err := os.ReadFile(file)
					require.NoError(t, err)
					before := refused.Load()
					got := post(t, url+gjson.GetBytes(raw, "url").Str, gjson.GetBytes(raw, "body").Raw, "Anthropic-Beta",
						gjson.GetBytes(raw, "headers.anthropic-beta").Str, "Anthropic-Version", "2023-06-01")
					require.Equal(t, http.StatusOK, got.status, "%s: %s", file, got.body)
					if n := refused.Load() - before; round > 0 || i > 0 {
						require.Zero(t, n, "%s, %d", file, round)
					} else {
						t.Logf("%d refusals of the first request", n)
					}
				}
			}
		})
	}
}

// A refusal that names a place, a value or a number is cured once, and then is not to be had again.
func TestRefusalsByPath(t *testing.T) {
	t.Parallel()
	const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	const says = `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct {
		kind, path, body string
		refusing
		sent, want string // a path of what is sent in the end, and its value; the mends
		mends      string
	}{
		"the gateway's own limit": {proxy.KindAnthropic, chat, says,
			refusing{"max_tokens", "8192", "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for " +
				"m"},
			"max_tokens", "4096", "refused_length"},
		"a limit without its number": {proxy.KindOpenAI, chat, says + `,"max_tokens":20000`,
			refusing{"max_tokens", "", `{"error":{"code":"1214","message":"max_tokens参数非法。请检查文档。"}}`},
			"max_tokens", "", "refused_parameter"},
		"a limit of whole answers": {proxy.KindOpenAI, chat, says + `,"max_tokens":8000`,
			refusing{"max_tokens", "8000", "Requests with max_tokens > 4096 must have stream=true"},
			"max_tokens", "4096", "refused_length"},
		"more stops than are taken": {proxy.KindOpenAI, messages, says + `,"max_tokens":9,"stop_sequences":["a","b","c","d","e"]`,
			refusing{"stop.4", "", "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array " +
				"with length 5 instead."},
			"stop", `["a","b","c","d"]`, "refused_parameter"},
		"an extra of all tools": {proxy.KindOpenAI, chat, says + `,"tools":[{"type":"function","function":{"name":"a","strict":` +
			`true,"parameters":{"type":"object","properties":{}}}},{"type":"function","function":{"name":"b","strict":true}}]`,
			refusing{"tools.#.function.strict", "", "Unknown parameter: 'tools[0].function.strict'."},
			"tools.#.function.strict", "[]", "refused_parameter"},
		"an extra of a block": {proxy.KindAnthropic, messages, `"max_tokens":9,"messages":[{"role":"user","content":[{"type":` +
			`"text","text":"hi","citations":{}}]}]`,
			refusing{"messages.0.content.0.citations", "",
				"messages.0.content.0.text.citations: Extra inputs are not permitted"},
			"messages.0.content", `[{"type":"text","text":"hi"}]`, "refused_parameter"},
		"an extra of messages": {proxy.KindOpenAI, chat, `"messages":[{"role":"user","content":"hi","id":"m1"}]`,
			refusing{"messages.0.id", "", "'messages.0' : for 'role:user' the following must be satisfied[('messages.0' : " +
				"property 'id' is unsupported)]"},
			"messages.0", `{"role":"user","content":"hi"}`, "refused_parameter"},
		"a value in place of another": {proxy.KindOpenAI, chat, says + `,"verbosity":"low"`,
			refusing{"verbosity", "low", "Unsupported value: 'verbosity' does not support 'low' with this model. Supported " +
				"values are: 'medium'."},
			"verbosity", `"medium"`, "refused_parameter"},
		"a marker's duration": {proxy.KindAnthropic, messages, `"max_tokens":9,"system":[{"type":"text","text":"s","cache_control":` +
			`{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",` +
			`"content":[{"type":"text","text":"r","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}]`,
			refusing{"@this", `"ttl"`, "system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"},
			"system.0.cache_control", `{"type":"ephemeral"}`, "refused_parameter"},
		"an extra of items": {proxy.KindResponses, responses, `"input":[{"role":"user","content":"hi","turn":"t1"}]`,
			refusing{"input.0.turn", "", "Unknown parameter: 'input[0].turn'."},
			"input.0.role", `"user"`, "refused_parameter"},
		"a member of Responses": {proxy.KindResponses, responses, `"input":"hi","text":{"verbosity":"high"}`,
			refusing{"text.verbosity", "", "Unsupported parameter: 'text.verbosity' is not supported with this model."},
			"text", "", "refused_parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, v, refused := imitator{c.kind, []refusing{c.refusing}}.serve(t)
			for range 2 {
				got := post(t, url+c.path, `{"model":"m",`+c.body+`}`, "Anthropic-Version", "2023-06-01")
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.EqualValues(t, 1, refused.Load())
				require.Equal(t, c.want, gjson.Get(v.last(t).body, c.sent).Raw)
				require.Contains(t, got.header.Get("X-AG-Mended"), c.mends)
			}
		})
	}
}

// The gateway removes nothing that changes the request's meaning. The client gets the vendor's own words.
func TestRefusalsOfWhatARequestMeans(t *testing.T) {
	t.Parallel()
	const tools = `"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"a","description":"d"}}]`
	for body, rule := range map[string]refusing{
		tools + ` `: {"tools", "", "Invalid 'tools': array too long. Expected an array with maximum length 0, but got an array " +
			"with length 1 instead."},
		tools: {"tools.0.function.description", "", "Unknown parameter: 'tools[0].function.description'."},
		`"messages":[{"role":"user","content":"hi"}],"max_tokens":200`: {"max_tokens", "200",
			"max_tokens is too large: 200. This model supports at most 9 completion tokens"},
	} {
		url, v, _ := imitator{proxy.KindOpenAI, []refusing{rule}}.serve(t)
		got := post(t, url+"/v1/chat/completions", `{"model":"m",`+body+`}`)
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Contains(t, got.body, string(wire.Quote(rule.says)))
		require.Equal(t, 1, v.count())
	}
}

// Thinking is taken out once, if the vendor doubts it in any words, and only if there is some.
func TestBareDoubtsOfThinking(t *testing.T) {
	t.Parallel()
	for _, says := range []string{
		"Invalid thinking block", "Thinking verification failed", "Unrecognized thinking block", "thinking signature mismatch",
		"thinking block mismatch", "The signature of the thinking block is invalid", "redacted_thinking could not be verified",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			url, v, refused := imitator{proxy.KindAnthropic, []refusing{{"messages.#.content.#.thinking", "[a-z]", says},
				{"metadata", "", says}}}.serve(t)
			got := post(t, url+"/v1/messages", `{"model":"m","max_tokens":900,"messages":[{"role":"user","content":"a"},`+
				`{"role":"assistant","content":[`+forgedBlock+`,{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`)
			require.Equal(t, http.StatusOK, got.status, got.body)
			require.EqualValues(t, 1, refused.Load())
			require.Contains(t, got.header.Get("X-AG-Mended"), "refused_thinking")
			got = post(t, url+"/v1/messages", `{"model":"m","max_tokens":900,"metadata":{"user_id":"u"},"messages":[{"role":`+
				`"user","content":"a"}]}`)
			require.Equal(t, http.StatusBadRequest, got.status)
			require.Equal(t, 3, v.count())
		})
	}
}
