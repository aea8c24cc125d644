package openaiapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
)

// recites is a run that says what it was asked with.
func recites(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message,
		Metadata: r.Metadata})
	said := "to " + r.AgentVersion
	if r.Bare {
		said += " bare"
	}
	if r.Instructions != "" {
		said += " (" + r.Instructions + ")"
	}
	for _, raw := range r.Context {
		said += ", " + gjson.GetBytes(raw, "role").Str + " " + gjson.GetBytes(raw, "content").Str
	}
	emit(event.Head{}, &event.Assistant{Content: said + ": " + r.Message})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
}

func content(a webmemorytest.Response) string {
	return gjson.GetBytes(a.Body, "choices.0.message.content").Str
}

// Without a chat the transcript is all that is known, and nothing is kept; the log says so once.
func TestOpenAIWithoutAChat(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w := openaiWorld(t, nil, func(c *openaiapi.Config) { c.Log = zerolog.New(&log) })
	w.ScriptApiserver(recites)
	for range 2 {
		got := postCompletion(w, "", transcriptOf("a", "re a", "b"), "X-Chat-Id", "{{CHAT_ID}}")
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "none", got.Header.Get("Mneme-Memory"))
		require.Empty(t, got.Header.Get("Mneme-Chat-Id"))
		require.Equal(t, "to master, user a, assistant re a: b", content(got))
	}
	require.Subset(t, []string{"mneme:epoch", "mneme:processes", "mneme:chats"},
		w.Redis.Keys(context.Background(), "*").Val(), "those of the service itself")
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "/c/{chat}/v1")

	// What another service's tools returned is a part of the transcript.
	for chat, remembered := range map[string]string{"": "none", "c": "mismatch"} {
		got := postCompletion(w, chat, `{"model":"mneme","messages":[{"role":"user","content":"a"},{"role":"assistant",`+
			`"content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]},`+
			`{"role":"tool","tool_call_id":"x","content":"returned"}]}`)
		require.Equal(t, "to master, user a, assistant , tool returned: ", content(got), string(got.Body))
		require.Equal(t, remembered, got.Header.Get("Mneme-Memory"))
		require.Empty(t, w.History("chat_history:c"))
	}
}

// The form of the answer is told to the agent that answers, in a chat, without one, and to a subagent; one that
// cannot be understood is refused.
func TestOpenAIResponseFormat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	s := w.ScriptApiserver(recites)
	ask := func(chat, model, format string) webmemorytest.Response {
		return postCompletion(w, chat, `{"model":"`+model+`","response_format":`+format+`,"messages":[{"role":"system",`+
			`"content":"Be brief."},{"role":"user","content":"a"}]}`)
	}
	const schema = `{"type":"json_schema","json_schema":{"name":"x","strict":true,` +
		`"schema":{"type": "object","required":["city"]}}}`
	for _, to := range [][2]string{{"", "mneme"}, {"c", "mneme"}, {"", "mneme/analytic"}} {
		got := ask(to[0], to[1], schema)
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	for _, r := range s.Requests() {
		require.Contains(t, r.Instructions, "Be brief.\n\nYour answer is one JSON object")
		require.Contains(t, r.Instructions, `JSON schema: {"type":"object","required":["city"]}`)
		require.Equal(t, r.AgentVersion == webapi.Master, len(r.ResponseFormat) > 0, "it is for the master's model")
	}
	require.Contains(t, content(ask("", "mneme", `{"type":"json_object"}`)), "one JSON object and nothing else")
	for _, plain := range []string{`{"type":"text"}`, `null`} {
		require.Equal(t, "to master (Be brief.): a", content(ask("", "mneme", plain)))
	}
	for _, bad := range []string{`{"type":"xml"}`, `{"type":"json_schema"}`, `7`,
		`{"type":"json_schema","json_schema":{"schema":true}}`} {
		require.Equal(t, 400, ask("", "mneme", bad).Status, bad)
	}
}

// With on_mismatch: transcript a transcript that does not end where the chat does is answered as sent, and changes nothing.
func TestOpenAIMismatchIsAnswered(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil, func(c *openaiapi.Config) { c.OnMismatch = openaiapi.Transcript })
	w.ScriptApiserver(recites)
	require.Equal(t, 200, postCompletion(w, "c", users("a")).Status)
	before := w.History("chat_history:c")
	for _, stream := range []bool{false, true} {
		body := transcriptOf("x", "re x", "y", "re y", "z")
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		got := postCompletion(w, "c", body)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "mismatch", got.Header.Get("Mneme-Memory"))
		require.Empty(t, got.Header.Get("Mneme-Chat-Id"))
		require.Contains(t, string(got.Body), "to master, user x, assistant re x, user y, assistant re y: z")
	}
	require.Equal(t, before, w.History("chat_history:c"))
	require.Nil(t, asideSizes(w, "c"))
}

// One turn of the user and four tasks of the page make the history longer by two messages.
func TestOpenAITasks(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	system := `{"model":"mneme","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"`
	require.Equal(t, "to master (Be brief.): hi", content(postCompletion(w, "c", system+`hi"}]}`)))
	for task, header := range map[string][]string{
		"### Task:\\nGenerate a title.\\n<chat_history>hi</chat_history>": nil,
		"Suggest follow-ups":      {"Mneme-Task", "follow_up_generation"},
		"Which queries would do?": {"Mneme-Task", "query_generation"},
	} {
		got := postCompletion(w, "c", system+task+`"}]}`, header...)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "none", got.Header.Get("Mneme-Memory"))
		require.Equal(t, "to master bare (Be brief.): "+strings.ReplaceAll(task, `\n`, "\n"), content(got))
	}
	require.Equal(t, []string{"user: hi", "assistant: to master (Be brief.): hi"}, w.History("chat_history:c"))
	// A placeholder that was not filled in marks nothing, and words inside of a message neither.
	require.Equal(t, 200, postCompletion(w, "c", transcriptOf("What is ### Task: ?"), "Mneme-Task", "{{TASK}}").Status)
	require.Len(t, w.History("chat_history:c"), 4)
}

// Without a chat, another process answers the results of the client's tools from the transcript.
func TestOpenAIToolsWithoutAChat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(clientCalls)
	client := func(url string) *openai.Client {
		cfg := openai.DefaultConfig("no-key")
		cfg.BaseURL = url + "/v1"
		return openai.NewClientWithConfig(cfg)
	}
	other := w.StartOpenAI()
	request := withTools("turn it on", "light", "radio")
	got, err := client(w.URL).CreateChatCompletion(t.Context(), request)
	require.NoError(t, err)
	said := got.Choices[0].Message
	require.Len(t, said.ToolCalls, 2)
	var refused *openai.APIError
	_, err = client(other).CreateChatCompletion(t.Context(), returning(request, said, "one"))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 400, refused.HTTPStatusCode, refused.Message)
	require.Contains(t, refused.Message, said.ToolCalls[1].ID)
	w.ScriptApiserver(recites)
	whole := returning(request, said, "one", "two")
	whole.Tools = nil
	got, err = client(other).CreateChatCompletion(t.Context(), whole)
	require.NoError(t, err)
	require.Equal(t, "to master, user turn it on, assistant I try., tool one, tool two: ", got.Choices[0].Message.Content)
	require.Subset(t, []string{"mneme:chats", "mneme:epoch", "mneme:processes"}, w.Keys(""), "no key is left")
	require.Subset(t, []string{"*filled"}, w.Redis.ZRange(t.Context(), "mneme:chats", 0, -1).Val(), "no chat is listed")
}
