package webmemorytest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	webapi "mneme/webmemory/api"
)

// ExportLines returns an export of a chat's own history of n exchanges and a subagent's of m.
func ExportLines(n, m int) string {
	var b strings.Builder
	for who, count := range map[string]int{"": n, "analytic": m} {
		name := ""
		if who != "" {
			name = fmt.Sprintf(`"subagent":%q,`, who)
		}
		var part strings.Builder
		for i := range count {
			fmt.Fprintf(&part, `{%s"message":{"role":"user","content":"question %d — ё <b>","timestamp":%d,"name":"Anna","id":"s1:%d"}}`+"\n",
				name, i, i, i)
			fmt.Fprintf(&part, `{%s"message":{"role":"assistant","content":"answer %d","timestamp":%d.5,"id":"x.%d"}}`+"\n", name, i, i, i)
		}
		if who == "" {
			rest := b.String()
			b.Reset()
			b.WriteString(part.String() + rest)
		} else {
			b.WriteString(part.String())
		}
	}
	fmt.Fprintf(&b, `{"messages":%d}`+"\n", 2*(n+m))
	return b.String()
}

// RecallChat searches a chat.
func RecallChat(t *testing.T, w *World, chat, query string, more ...string) webapi.Recalled {
	t.Helper()
	q := url.Values{"query": {query}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	status, body := w.Do("GET", "/v1/chats/"+chat+"/recall?"+q.Encode(), nil).Text()
	require.Equal(t, 200, status, "%s", body)
	var out webapi.Recalled
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	return out
}

// HitTexts returns the texts of hits, one per line.
func HitTexts(r webapi.Recalled) string {
	var all []string
	for _, h := range r.Hits {
		all = append(all, h.Text)
	}
	return strings.Join(all, "\n")
}

// AwaitQueued waits until n messages wait in the process at w.URL.
func AwaitQueued(w *World, n int) {
	w.T.Helper()
	Eventually(w.T, "messages wait", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), fmt.Sprintf("\nmneme_waiting_messages %d\n", n))
	})
}
