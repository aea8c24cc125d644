package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// cpu is the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Elements that are all the same cost about what different ones cost, in each endpoint that takes many: no work is
// quadratic in how often an element comes again. It does not run beside other tests, whose time would count.
func TestEqualElementsCostWhatDifferentOnesCost(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const n = 6_000 // pairs; lines of the import
	s := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=offline")
	list := func(element func(i int) string, different bool) string {
		all := make([]string, n)
		for i := range all {
			all[i] = element(map[bool]int{true: i}[different])
		}
		return strings.Join(all, ",")
	}
	turn := func(i int) string {
		return fmt.Sprintf(`{"role":"user","content":"q%d"},{"role":"assistant","content":"a%d"}`, i, i)
	}
	last := `,{"role":"user","content":"And now?"}`
	item := func(i int) string {
		return fmt.Sprintf(`{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"},`+
			`{"type":"function_call_output","call_id":"c%d","output":"o"}`, i, i)
	}
	tool := func(i int) string {
		return fmt.Sprintf(`{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":"f",`+
			`"arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":"o"}`, i, i)
	}
	use := func(i int) string {
		return fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"f","input":{}}]},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"o"}]}`, i, i)
	}
	gateway := "http://" + s.addrs.Proxy
	for name, send := range map[string]func(different bool) (url, body string){
		"import": func(d bool) (string, string) {
			line := func(i int) string { return fmt.Sprintf(`{"message":{"role":"user","content":"m%d"}}`, i) }
			return s.url(fmt.Sprintf("/v1/chats/import-%v/import", d)), strings.ReplaceAll(list(line, d), "},{", "}\n{")
		},
		"completions": func(d bool) (string, string) {
			return s.url("/v1/chat/completions"), `{"model":"mneme","messages":[` + list(turn, d) + last + `]}`
		},
		"completions, tools": func(d bool) (string, string) {
			return s.url("/v1/chat/completions"), `{"model":"mneme","messages":[` + list(tool, d) + last + `]}`
		},
		"responses": func(d bool) (string, string) {
			return s.url("/v1/responses"), `{"model":"mneme","input":[` + list(turn, d) + last + `]}`
		},
		"responses, tools": func(d bool) (string, string) {
			return s.url("/v1/responses"), `{"model":"mneme","input":[` + list(item, d) + last + `]}`
		},
		"gateway, completions": func(d bool) (string, string) {
			return gateway + "/v1/chat/completions", `{"model":"m","messages":[` + list(tool, d) + last + `]}`
		},
		"gateway, messages": func(d bool) (string, string) {
			return gateway + "/v1/messages", `{"model":"m","max_tokens":9,"messages":[` + list(use, d) + last + `]}`
		},
		"gateway, responses": func(d bool) (string, string) {
			return gateway + "/v1/responses", `{"model":"m","input":[` + list(item, d) + last + `]}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			took := map[bool]time.Duration{}
			for _, different := range []bool{true, false} {
				url, body := send(different)
				before := cpu(t)
				resp, err := http.Post(url, "application/json", strings.NewReader(body))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.NotEqual(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
				took[different] = cpu(t) - before
				t.Log(resp.StatusCode, different, took[different])
			}
			require.LessOrEqual(t, took[false], 10*took[true])
		})
	}
}
