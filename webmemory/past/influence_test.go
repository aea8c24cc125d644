package past_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/subagent/loop"
	"mneme/subagent/recall"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// shownModel answers with what it was shown, so that a test sees prompts.
type shownModel struct{}

func (shownModel) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		var all []string
		for _, m := range r.Messages {
			all = append(all, m.Content)
		}
		yield(loop.Delta{Text: fmt.Sprintf("shown: %d messages; recalled: %s", len(all),
			strings.Join(strings.Fields(r.Recalled), "_")), Usage: event.Usage{InputTokens: 1}}, nil)
	}
}

func influence(t *testing.T, w *webmemorytest.World, chat, id string) (by []string) {
	t.Helper()
	status, body := w.Do("GET", "/v1/chats/"+chat+"/messages/"+id+"/influence", nil).Text()
	require.Equal(t, 200, status, "%s", body)
	var out webapi.Influence
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	for _, a := range out.Answers {
		require.NotEmpty(t, a.RunID)
		require.NotZero(t, a.TS)
		by = append(by, a.Kind)
	}
	return by
}

// Which answers had a message in their prompt is known as long as they are, however it came there; in quarantine it, or
// all of its source, is in no prompt until it is released.
func TestInfluenceAndQuarantine(t *testing.T) {
	t.Parallel()
	m := &master.Agent{Model: shownModel{}, MaxSteps: 1, Recall: recall.Settings{Auto: recall.Always, Budget: 700},
		Now: time.Now}
	few := func(c *webmemory.Config) { c.ContextWindow, c.MaxHistory = 4, 10 }
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		m.Run(ctx, r, func(e event.Event) error { emit(e.Head, e.Payload); return nil })
	}, few)
	var b strings.Builder
	line := func(m string) { fmt.Fprintf(&b, `{"message":{%s}}`+"\n", m) }
	line(`"role":"user","content":"What does the invoice of Zanzibar say?","timestamp":1,"from":"user","id":"a.1"`)
	line(`"role":"assistant","content":"Pay Zanzibar to account 4711.","timestamp":2,"from":"document","source":"invoice.pdf p. 3","id":"a.2"`)
	for i := range 30 {
		line(fmt.Sprintf(`"role":"user","content":"talk %d","timestamp":%d,"id":"b.%d"`, i, i+3, i))
	}
	status, body := w.Do("POST", "/v1/chats/a/import", b.String()).Text()
	require.Equal(t, 201, status, "%s", body)
	post := func(message string) string {
		status, body := w.Do("POST", "/v1/chats/a/messages", fmt.Sprintf(`{"message":%q}`, message)).Text()
		require.Equal(t, 200, status, "%s", body)
		return body
	}
	require.Contains(t, post("And Zanzibar, which account?"), "4711")
	require.Equal(t, []string{"recall"}, influence(t, w, "a", "a.2"))
	require.Equal(t, []string{"window"}, influence(t, w, "a", "b.29"))
	require.Empty(t, influence(t, w, "a", "b.15"))
	require.Empty(t, influence(t, w, "a", "none.1"))

	status, body = w.Do("POST", "/v1/chats/a/quarantine", `{"entries":["invoice.pdf","b.29"]}`).Text()
	require.Equal(t, 200, status, "%s", body)
	require.JSONEq(t, `{"entries":["invoice.pdf","b.29"]}`, body)
	// Nor is what an answer of then repeats, which is from there, too.
	require.NotContains(t, post("Once more: Zanzibar, which account?"), "Pay_Zanzibar_to_account_4711._")
	require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "Zanzibar account")),
		"Pay Zanzibar to account 4711.\n")
	require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "talk 29")), "talk 29")
	status, body = w.Do("POST", "/v1/chats/a/fork", `{"as":"copy"}`).Text()
	require.Equal(t, 201, status, "%s", body)
	require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "copy", "talk 29")), "talk 29",
		"a fork has the quarantine, too")

	w.URL = w.StartReplica(few)
	status, body = w.Do("GET", "/v1/chats/a/quarantine", nil).Text()
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"entries":["invoice.pdf","b.29"]}`, body)
	for _, entry := range []string{"invoice.pdf", "b.29", "never"} {
		status, _ = w.Do("DELETE", "/v1/chats/a/quarantine?entry="+url.QueryEscape(entry), nil).Text()
		require.Equal(t, 200, status)
	}
	require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "Zanzibar account")),
		"Pay Zanzibar to account 4711.")
	require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "talk 29")), "talk 29")

	for _, c := range []struct{ method, path, body, says string }{
		{"GET", "/v1/chats/unknown/messages/a.1/influence", "", "unknown_chat"},
		{"POST", "/v1/chats/unknown/quarantine", `{"entries":["x"]}`, "unknown_chat"},
		{"POST", "/v1/chats/a/quarantine", `{"entries":[]}`, "entries is empty"},
		{"POST", "/v1/chats/a/quarantine", `{"entries":["` + strings.Repeat("x", 300) + `"]}`, "256 bytes"},
		{"POST", "/v1/chats/a/quarantine", `{"sources":["x"]}`, "sources"},
		{"DELETE", "/v1/chats/a/quarantine", "", "entry is missing"},
	} {
		status, body := w.Do(c.method, c.path, c.body).Text()
		require.GreaterOrEqual(t, status, 400, c.path)
		require.Contains(t, body, c.says, c.path)
	}
}
