package webmemory_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
)

// What a post says beside its message reaches the agents; its metadata is stored with the message and
// given back with it, its instructions are kept nowhere.
func TestInstructionsAndMetadata(t *testing.T) {
	w := newWorld(t, answers("hello"))
	other := w.process()
	posted := w.recordRuns()
	const path = "/v1/chats/1/messages"
	body := `{"message":"hi","instructions":"Answer in rhymes.","metadata":{"from":"web","page":"7"}}`
	got := w.do("POST", path, body, "Idempotency-Key", "k")
	require.Equal(t, 200, got.status, string(got.body))
	var asked api.RunRequest
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.Equal(t, "Answer in rhymes.", asked.Instructions)
	require.Equal(t, map[string]string{"from": "web", "page": "7"}, asked.Metadata)
	require.Equal(t, 200, w.do("POST", path, message{"plain"}).status)

	run := got.header.Get("Mneme-Run-Id")
	for _, url := range []string{w.url, other} {
		w.on(url, func() {
			var page struct {
				Messages []struct {
					Metadata map[string]string
					ID       string
				}
			}
			require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/1/history", nil).body, &page))
			require.Equal(t, asked.Metadata, page.Messages[0].Metadata)
			require.Equal(t, run+".1", page.Messages[0].ID)
			require.Nil(t, page.Messages[2].Metadata)
			again := w.do("POST", path, body, "Idempotency-Key", "k")
			require.JSONEq(t, string(got.body), string(again.body))
			for _, another := range []string{`{"message":"hi"}`, `{"message":"hi","instructions":"Answer in rhymes."}`,
				`{"message":"hi","instructions":"Answer in rhymes.","metadata":{"from":"web","page":"8"}}`} {
				require.Equal(t, 422, w.do("POST", path, another, "Idempotency-Key", "k").status, another)
			}
		})
	}
	// So does the form of the answer, which is for the master's model.
	const form = `{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`
	posting := func(more string) answer {
		return w.do("POST", "/v1/chats/3/messages", `{"message":"hi",`+more+`}`, "Idempotency-Key", "f")
	}
	require.Equal(t, 200, posting(`"response_format":`+form).status)
	<-posted
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.JSONEq(t, form, string(asked.ResponseFormat))
	require.Equal(t, 200, posting(`"response_format":`+form).status)
	for more, status := range map[string]int{
		`"response_format":{"type":"json_object"}`:                                                422,
		`"response_format":{"type":"xml"}`:                                                        400,
		`"response_format":7`:                                                                     400,
		`"response_format":{"type":"json_schema","json_schema":{"schema":[]}}`:                    400,
		`"response_format":` + form + `,"agent_version":"analytic"`:                               400,
		`"response_format":{"type":"json_object","x":"` + strings.Repeat("x", 64<<10) + `"}`:      413,
		`"tool_choice":"f"`:                                                                       400,
		`"tool_choice":"required"`:                                                                400,
		`"tools":[{"name":"f","parameters":{}}],"tool_choice":"g"`:                                400,
		`"tools":[{"name":"f","parameters":{}}],"tool_choice":"f","response_format":` + form + ``: 422,
	} {
		require.Equal(t, status, posting(more).status, more)
	}
	stored := w.look.Get(t.Context(), "chat_history:1").Val()
	require.Contains(t, stored, `"metadata":{"from":"web","page":"7"},"id":"`+run+`.1"}`)
	for _, key := range w.look.Keys(t.Context(), "*").Val() {
		if w.look.Type(t.Context(), key).Val() == "string" {
			require.NotContains(t, w.look.Get(t.Context(), key).Val(), "rhymes", key)
		}
	}
	require.Equal(t, 201, w.do("POST", "/v1/chats/1/fork", `{"as":"2"}`).status)
	require.Equal(t, stored, w.look.Get(t.Context(), "chat_history:2").Val())

	require.Equal(t, 200, w.do("DELETE", "/v1/chats/1/messages/"+run+".1", nil).status)
	require.NotContains(t, w.look.Get(t.Context(), "chat_history:1").Val(), `"page"`, "it goes with the message's text")
}
