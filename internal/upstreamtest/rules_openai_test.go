package upstreamtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// answered is the status and the body that a vendor gives to a body.
func answeredBy(c Config, path, body string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	New(c).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// What OpenAI refuses of a model, in its words; an empty text is no refusal.
func TestOpenAIRefusesByModel(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, c := range []struct{ model, rest, refusal string }{
		{"gpt-4.1", ``, ""},
		{"gpt-4.1", `,"max_tokens":5,"temperature":0`, ""},
		{"gpt-4.1", `,"reasoning_effort":"medium"`, "Unrecognized request argument supplied: reasoning_effort"},
		{"gpt-4o-mini", `,"reasoning_effort":"low"`, "Unrecognized request argument supplied: reasoning_effort"},
		{"gpt-5-chat-latest", `,"reasoning_effort":"low"`, "Unrecognized request argument supplied: reasoning_effort"},
		{"o3-mini", `,"reasoning_effort":"low"` + tools, ""},
		{
			"o3-mini", `,"max_tokens":5`,
			"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
		},
		{"o3", `,"max_completion_tokens":5,"temperature":1`, ""},
		{
			"o3", `,"temperature":0.2`,
			"'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
		},
		{"o3", `,"reasoning_effort":"minimal"`,
			"'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', 'medium', 'high'."},
		{"gpt-5", `,"reasoning_effort":"minimal"`, ""},
		{"gpt-5", `,"reasoning_effort":"none"`, "does not support 'none'"},
		{"gpt-5", `,"max_tokens":5`, "'max_completion_tokens' instead"},
		{"gpt-5.1", `,"reasoning_effort":"none","temperature":0.2`, ""},
		{"gpt-5.1", `,"reasoning_effort":"low","temperature":0.2`, "Only the default"},
		{"gpt-5.4", tools, ""},
		{"gpt-5.4", `,"reasoning_effort":"low"` + tools,
			"Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions."},
		{"gpt-5.6", tools, "set reasoning_effort to 'none'"},
		{"gpt-5.6", `,"reasoning_effort":"none"` + tools, ""},
		{"gpt-4.1", `,"thinking":{"type":"enabled"}`, "Unrecognized request argument supplied: thinking"},
	} {
		body := `{"model":"` + c.model + `","messages":[{"role":"user","content":"hi"}]` + c.rest + `}`
		status, got := answeredBy(Config{Vendor: Chat, Chat: ChatRules{OpenAI: true}}, "/v1/chat/completions", body)
		if c.refusal == "" {
			require.Equal(t, 200, status, "%s: %s", body, got)
			continue
		}
		require.Equal(t, 400, status, body)
		require.Contains(t, got, c.refusal, body)
	}
	status, _ := answeredBy(Config{Vendor: Chat}, "/v1/chat/completions",
		`{"model":"gpt-4.1","messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low"}`)
	require.Equal(t, 200, status, "other vendors take it")
}

func TestGLM(t *testing.T) {
	for _, c := range []struct{ path, model, rest, refusal string }{
		{"/api/anthropic/v1/messages", "glm-4.7", `,"thinking":{"type":"enabled","budget_tokens":2000}`, ""},
		{"/api/anthropic/v1/messages", "glm-4.7", `,"thinking":{"type":"disabled"}`, ""},
		{"/api/anthropic/v1/messages", "glm-4.7", `,"thinking":{"type":"adaptive"}`, "Invalid API parameter"},
		{"/api/paas/v4/chat/completions", "glm-4.6", `,"thinking":{"type":"adaptive"}`, `"1210"`},
		{"/api/paas/v4/chat/completions", "glm-5.3", `,"reasoning_effort":"medium"`, "always engages in thinking"},
		{"/api/paas/v4/chat/completions", "glm-5.3", `,"reasoning_effort":"high"`, ""},
		{"/api/anthropic/v1/messages", "glm-5.3", `,"thinking":{"type":"disabled"}`, "cannot be disabled"},
	} {
		status, got := answeredBy(Config{Vendor: GLM}, c.path, `{"model":"`+c.model+
			`","max_tokens":9000,"messages":[{"role":"user","content":"hi"}]`+c.rest+`}`)
		if c.refusal == "" {
			require.Equal(t, 200, status, got)
			require.Contains(t, got, "You said: hi")
			continue
		}
		require.Equal(t, 400, status, c.rest)
		require.Contains(t, got, c.refusal)
	}
}
