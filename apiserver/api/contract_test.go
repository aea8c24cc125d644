package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/memory"
)

func TestDecodeBodySaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, body, kind string
		status           int
		says             string
	}{
		{"good", `{"run_id":"r"}`, "application/json", 0, ""},
		{"good, an unknown field", `{"run_id":"r","newer":1}`, "", 0, ""},
		{"good, a chat as a number", `{"chat_id":-100123}`, "application/json; charset=utf-8", 0, ""},
		{
			"good, names of other objects",
			`{"context":[{"role":"user","Role":"x"},{"role":"user"}],"newer":{"a":[1,{"a":2}],"A":"\\\"}"}}`, "", 0, "",
		},
		{"a member twice", `{"message":"a","chat_id":1, "message" : "b"}`, "", 400,
			`The body has the member "message" twice; send it once.`},
		{"a member in other letters", `{"message":"a","Me\u017fSAGE":"b"}`, "", 400, "the nearest one is message"},
		{"a member twice, escaped", `{"message":"a","me\u0073sage":null}`, "", 400, `"message" twice`},
		{"a member twice, inside", `{"context":[{"role":"user","tool_calls":[{"function":{"name":"a","name":"b"}}]}]}`, "",
			400, `"context.0.tool_calls.0.function.name" twice`},
		{"empty", " ", "", 400, "The body is empty: send a JSON object."},
		{"no JSON", `{"run_id":`, "", 400, "not valid JSON"},
		{"two values", `{} {}`, "", 400, "not valid JSON"},
		{"a list", `[]`, "", 400, "The body must be a JSON object, not an array."},
		{"a number for a string", `{"message":5}`, "", 400, "message must be a string, not a number, at byte 11."},
		{"a string for a list", `{"context":"x"}`, "", 400, "context must be an array, not a string, at byte"},
		{"a list for an object", `{"subagent_contexts":[]}`, "", 400,
			"subagent_contexts must be an object, not an array, at byte"},
		{"an object for a list", `{"subagent_contexts":{"analytic":{}}}`, "", 400,
			"subagent_contexts.analytic must be an array, not an object, at byte 33."},
		{"a chat with a space", `{"chat_id":"a b"}`, "", 400, "A chat id is 1 to 128 characters"},
		{"a chat that is a fraction", `{"chat_id":1.0}`, "", 400, "A chat id is a JSON string or an integer"},
		{"too large", `{"message":"` + strings.Repeat("x", 1000) + `"}`, "", 413, "larger than 1000 bytes"},
		{"another type", `<x/>`, "text/xml", 415, "must be application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			if c.kind != "" {
				r.Header.Set("Content-Type", c.kind)
			}
			var into api.RunRequest
			err := api.DecodeBody(httptest.NewRecorder(), r, 1000, &into)
			if c.status == 0 {
				require.NoError(t, err)
				return
			}
			var p *api.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, c.status, p.Status)
			require.Contains(t, p.Message, c.says)
		})
	}
}

func TestValidate(t *testing.T) {
	good := func() api.RunRequest {
		return api.RunRequest{RunID: "AB_c-1", ChatID: memory.MustChat("-100123"), Message: "hi", ConversationID: "c1"}
	}
	require.NoError(t, good().Validate())
	for _, c := range []struct {
		name  string
		spoil func(*api.RunRequest)
		says  string
	}{
		{"no run id", func(r *api.RunRequest) { r.RunID = "" }, "run_id must be"},
		{"a run id with a slash", func(r *api.RunRequest) { r.RunID = "a/b" }, "run_id must be"},
		{"a run id too long", func(r *api.RunRequest) { r.RunID = strings.Repeat("a", 65) }, "run_id must be"},
		{"no chat", func(r *api.RunRequest) { r.ChatID = memory.Chat{} }, "Bad chat_id: a chat id is"},
		{"a blank message", func(r *api.RunRequest) { r.Message = " \n" }, "message is empty"},
		{"a message too long", func(r *api.RunRequest) { r.Message = strings.Repeat("x", memory.MaxMessage+1) },
			"at most 1048576"},
		{"a bad subagent", func(r *api.RunRequest) { r.SubagentContexts = map[memory.Agent][]json.RawMessage{"A": nil} },
			"Bad subagent_contexts: a subagent's name is"},
		{"a header in the conversation", func(r *api.RunRequest) { r.ConversationID = "a\r\nb" }, "conversation_id must be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := good()
			c.spoil(&r)
			require.ErrorContains(t, r.Validate(), c.says)
		})
	}
}

func TestAProblemCrossesTheWire(t *testing.T) {
	sent := &api.Problem{Status: 503, Code: "draining", Message: "Not <now>.", Retryable: true,
		RetryAfter: 1500 * time.Millisecond}
	w := httptest.NewRecorder()
	api.WriteProblem(w, sent)
	require.JSONEq(t, `{"error":{"code":"draining","message":"Not <now>.","retryable":true}}`, w.Body.String())
	got := api.ReadProblem(w.Result())
	require.Equal(t, &api.Problem{Status: 503, Code: "draining", Message: "Not <now>.", Retryable: true,
		RetryAfter: 2 * time.Second}, got)
	require.ErrorIs(t, got, sent)
	require.NotErrorIs(t, got, api.ErrGone)
}

// Histories without messages travel as lists, whatever the sender holds; a
// request of an older version, with null, is the same request.
func TestEmptyHistoriesAreLists(t *testing.T) {
	sent, err := json.Marshal(api.RunRequest{RunID: "r", Message: "<hi>", ChatID: memory.MustChat("1"),
		SubagentContexts: map[memory.Agent][]json.RawMessage{"analytic": nil}})
	require.NoError(t, err)
	require.JSONEq(t,
		`{"run_id":"r","message":"<hi>","chat_id":"1","context":[],"subagent_contexts":{"analytic":[]},"agent_version":""}`,
		string(sent))
	var older api.RunRequest
	require.NoError(t,
		json.Unmarshal(
			[]byte(`{"run_id":"r","message":"<hi>","chat_id":"1","context":null,"subagent_contexts":{"analytic":null}}`), &older,
		))
	require.NoError(t, older.Validate())
	again, err := json.Marshal(older)
	require.NoError(t, err)
	require.Equal(t, string(sent), string(again))
}
