package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// A backend of an unknown kind refuses some roles by name. One retry cures that, and later requests need none.
func TestRolesAreLearned(t *testing.T) {
	t.Parallel()
	const system, user, reply = `{"role":"system","content":"s"}`, `{"role":"user","content":"u"}`, `{"role":"assistant","content":"a"}`
	for name, c := range map[string]struct {
		kind, path, messages, refuses, says, want string
		status, calls                             int
	}{
		"a system message at an imitator of Claude": {"anthropic", "/v1/messages", user + "," + system, `"role":"system"`,
			"messages.1.role: Input should be 'user' or 'assistant'", "user", 422, 2},
		"neighbours": {"openai", "/v1/chat/completions", system + "," + user + "," + user, `"u"},{"role":"user"`,
			"Conversation roles must alternate user/assistant/user/assistant/...", "system,user", 400, 2},
		"no system message at all": {"openai", "/v1/chat/completions", system + "," + user, `"system"`,
			"System role not supported", "user", 400, 2},
		"roles that alternate without a system message": {"openai", "/v1/chat/completions", system + "," + user + "," + user,
			`"system"`, "Conversation roles must alternate user/assistant/user/assistant/...", "user", 400, 3},
		"a last answer": {"openai", "/v1/chat/completions", user + "," + reply, `"content":"a"}]`,
			"This model does not support assistant message prefill.", "user,assistant,user", 400, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := vendor(t, nil)
			v.answer = func(w http.ResponseWriter, r *http.Request) {
				if body := v.last(t).body; strings.Contains(body, c.refuses) {
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(`{"error":{"message":"` + c.says + `"}}`))
					return
				}
				acceptReport(w, r, v.last(t).body)
			}
			config := to(v, c.kind)
			b := config.Backends["v"]
			if b.Vendor = "generic"; c.kind == "anthropic" {
				b.Vendor = "anthropic" // an imitator behind a host of the user's own
			}
			config.Backends["v"] = b
			url, _ := gateway(t, config)
			for _, calls := range []int{c.calls, 1} {
				before := v.count()
				got := post(t, url+c.path, `{"model":"x","max_tokens":9,"messages":[`+c.messages+`]}`)
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.Equal(t, calls, v.count()-before)
			}
			var roles []string
			for _, m := range gjson.Get(v.last(t).body, "messages.#.role").Array() {
				roles = append(roles, m.Str)
			}
			require.Equal(t, c.want, strings.Join(roles, ","))
		})
	}
}

// Items before the first message, and parts that only this dialect has, survive a change of other messages.
func TestRolesOfResponses(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", responsesBody))
	config := to(v, "responses")
	b := config.Backends["v"]
	b.Vendor = "generic"
	config.Backends["v"] = b
	url, _ := gateway(t, config)
	got := post(t, url+"/v1/responses", `{"model":"x","store":false,"input":[{"role":"developer","content":"lead"},`+
		`{"role":"user","content":[{"type":"input_file","file_id":"f"}]},{"role":"developer","content":"later"}]}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.JSONEq(t, `[{"role":"developer","content":"lead"},{"type":"message","role":"user","content":[`+
		`{"type":"input_file","file_id":"f"},{"type":"input_text","text":"later"}]}]`, gjson.Get(v.last(t).body, "input").Raw)
}
