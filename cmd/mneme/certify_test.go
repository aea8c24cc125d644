package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// Vendors with three rules that no table of ours has: each is found and named, and no key is written.
func TestProxyCertify(t *testing.T) {
	const key = "sk-certify-0123456789abcdef"
	rules := []struct{ of, says, mended string }{
		{"metadata", "metadata: Extra inputs are not permitted", "refused_parameter"},
		{"tools.0.input_schema.properties.city.minLength",
			"tools.0.custom.input_schema: JSON schema is invalid: minLength is not supported", "refused_schema"},
		{`output_config.effort`, "output_config.effort: Input should be 'low', 'medium' or 'high'", "refused_parameter"},
	}
	vendor := func() string {
		fake := upstreamtest.New(upstreamtest.Config{APIKey: key,
			Fault: func(r *upstreamtest.Request) *upstreamtest.Fault {
				for _, rule := range rules {
					got := gjson.GetBytes(r.Body, rule.of)
					if got.Exists() && (rule.of != "output_config.effort" || got.Str == "max") {
						body, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]any{
							"type": "invalid_request_error", "message": rule.says + " (key " + key + ")"}})
						f := upstreamtest.Canned(http.StatusBadRequest, string(body))
						return &f
					}
				}
				return nil
			},
			Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
				last := gjson.GetBytes(r.Body, "messages.@reverse.0.content.0.type").Str
				a := upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Say("ok"))
				if gjson.GetBytes(r.Body, "tools").Exists() && last != "tool_result" {
					a = upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Use("weather", `{"city":"Paris"}`))
				}
				return &a
			}})
		s := httptest.NewServer(fake)
		t.Cleanup(s.Close)
		return s.URL
	}
	dir := t.TempDir()
	file, out := filepath.Join(dir, "mneme.yaml"), filepath.Join(dir, "refusals.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(`
proxy:
  active: claude
  backends:
    claude: {kind: anthropic, vendor: anthropic, base_url: "`+vendor()+`", api_key_env: CERTIFY_KEY}
    other: {kind: anthropic, vendor: anthropic, base_url: "`+vendor()+`", api_key_env: CERTIFY_KEY}
agents: {master: {model: claude-opus-4-8}}
`), 0o600))
	certify := func(args ...string) result {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"proxy", "certify", "--config", file, "--out", out}, args...),
			&console{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, environ: []string{"CERTIFY_KEY=" + key}})
		return result{code, stdout.String(), stderr.String()}
	}
	r := certify("claude", "other", "--ceiling", "2.00")
	require.Zero(t, r.code, r)
	for _, row := range []string{"tool loop with thinking", "effort off", "highest effort", "another vendor's history",
		"an answer that breaks off", "structured output", "too long a prompt", "there and back"} {
		require.Contains(t, r.stdout, row)
	}
	written, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NotContains(t, string(written)+r.stdout, key)
	for _, rule := range rules {
		found := false
		for line := range strings.Lines(string(written)) {
			if strings.Contains(gjson.Get(line, "body").Str, rule.says) {
				found = true
				require.Contains(t, gjson.Get(line, "mended").Str, rule.mended)
				require.Equal(t, "mended", gjson.Get(line, "label").Str)
			}
		}
		require.True(t, found, "%s\n%s\n%s", rule.says, written, r.stdout)
		require.Contains(t, r.stdout, rule.mended)
	}

	// Nothing that could cost more than the ceiling is sent.
	r = certify("claude", "--ceiling", "0.01")
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "left out: it may cost")
	require.Contains(t, r.stdout, "about 0 of 0.01 USD are spent")
	require.Contains(t, certify("claude", "--model", "unheard-of").stdout, `there is no price of the model "unheard-of"`)
	r = certify("nobody")
	require.Contains(t, r.stderr, `there is no backend "nobody" in proxy.backends (claude, other)`)
	require.Contains(t, certify("--ceiling", "much").stderr, "--ceiling is an amount of USD")
}
