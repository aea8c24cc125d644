package secrets_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/secrets"
)

const key = `s3same+open/now?"1`

// A secret is struck however it is written, and all else stays as it is.
func TestAllFormsAreStruck(t *testing.T) {
	inJSON, err := json.Marshal(key)
	require.NoError(t, err)
	escaped := ""
	for _, r := range key {
		escaped += fmt.Sprintf(`\u%04x`, r)
	}
	bytewise := "%" + strings.ReplaceAll(fmt.Sprintf("% x", "s3same-open-now"), " ", "%")
	set := secrets.New("Bearer "+key, "s3same-open-now")
	for name, form := range map[string]string{
		"as it is": key, "with its scheme": "Bearer " + key, "JSON": string(inJSON),
		"JSON of PHP": strings.ReplaceAll(string(inJSON), "/", `\/`), "JSON of characters": escaped,
		"query": url.QueryEscape(key), "path": url.PathEscape(key),
		"in lower case": strings.NewReplacer("%2B", "%2b", "%2F", "%2f", "%3F", "%3f").Replace(url.QueryEscape(key)),
		"each byte":     bytewise, "each byte, upper case": strings.ToUpper(bytewise),
		"base64":           base64.StdEncoding.EncodeToString([]byte(key)),
		"base64url":        base64.RawURLEncoding.EncodeToString([]byte(key)),
		"base64 of Basic":  base64.StdEncoding.EncodeToString([]byte("user:" + key)),
		"base64 of Bearer": base64.StdEncoding.EncodeToString([]byte("Bearer " + key + "\n")),
		"base64 in a URL":  url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(key))),
	} {
		got := set.Text("<" + form + "> 100% \\u0041")
		require.Contains(t, got, "***", name)
		require.Less(t, len(got), len("<***> 100% \\u0041")+12, "%s: %s", name, got)
	}
	const clean = `{"a":"\u0041 %41 \/"}`
	require.Equal(t, clean, set.Text(clean))
	require.Equal(t, clean, secrets.New("short", "").Text(clean))
}

// What has the form of a key is told by its prefix, and of ours by its id, in a log too; nothing else is changed.
func TestTextsWithoutKeys(t *testing.T) {
	long := strings.Repeat("aB3-_", 8)
	for text, want := range map[string]string{
		"/v1/chats/mn_ops-1_" + long + "/history": "/v1/chats/mn_ops-1_***/history",
		"no model sk-proj-" + long + ".":          "no model sk-***.",
		`{"path":"/AIza` + long + `"}`:            `{"path":"/AIza***"}`,
		"/v1/chats/sk-1234/task-" + long:          "/v1/chats/sk-1234/task-" + long,
		"mn_ops":                                  "mn_ops",
	} {
		require.Equal(t, want, secrets.Keyless(text))
		var log strings.Builder
		n, err := secrets.Log{Writer: &log}.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.Equal(t, want, log.String())
	}
	for _, prefix := range strings.Fields("mn_ops-1_ AIza sk- sk_ pk- pk_ rk- rk_ gsk- gsk_ hf- hf_ " +
		"r8- r8_ xai- xai_ glpat- glpat_ ghp- ghp_ gho- gho_ github_pat- github_pat_") {
		var log strings.Builder
		_, err := secrets.Log{Writer: &log}.Write([]byte("a key: " + prefix + long))
		require.NoError(t, err)
		require.Equal(t, "a key: "+prefix+"***", log.String())
	}
}
