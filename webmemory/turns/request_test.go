package turns_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
)

// What a post says beside its message reaches the agents; its metadata is stored with the message and
// given back with it, its instructions are kept nowhere.
func TestInstructionsAndMetadata(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	other := w.StartReplica()
	posted := w.RecordRuns()
	const path = "/v1/chats/1/messages"
	body := `{"message":"hi","instructions":"Answer in rhymes.","metadata":{"from":"web","page":"7"}}`
	got := w.Do("POST", path, body, "Idempotency-Key", "k")
	require.Equal(t, 200, got.Status, string(got.Body))
	var asked api.RunRequest
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.Equal(t, "Answer in rhymes.", asked.Instructions)
	require.Equal(t, map[string]string{"from": "web", "page": "7"}, asked.Metadata)
	require.Equal(t, 200, w.Do("POST", path, webmemorytest.Message("plain")).Status)

	run := got.RunID()
	for _, url := range []string{w.URL, other} {
		w.Target(url, func() {
			var page struct {
				Messages []struct {
					Metadata map[string]string
					ID       string
				}
			}
			require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/1/history", nil).Body, &page))
			require.Equal(t, asked.Metadata, page.Messages[0].Metadata)
			require.Equal(t, run+".1", page.Messages[0].ID)
			require.Nil(t, page.Messages[2].Metadata)
			again := w.Do("POST", path, body, "Idempotency-Key", "k")
			require.JSONEq(t, string(got.Body), string(again.Body))
			for _, another := range []string{`{"message":"hi"}`, `{"message":"hi","instructions":"Answer in rhymes."}`,
				`{"message":"hi","instructions":"Answer in rhymes.","metadata":{"from":"web","page":"8"}}`} {
				require.Equal(t, 422, w.Do("POST", path, another, "Idempotency-Key", "k").Status, another)
			}
		})
	}
	// So does the form of the answer, which is for the master's model.
	const form = `{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`
	posting := func(more string) webmemorytest.Response {
		return w.Do("POST", "/v1/chats/3/messages", `{"message":"hi",`+more+`}`, "Idempotency-Key", "f")
	}
	require.Equal(t, 200, posting(`"response_format":`+form).Status)
	<-posted
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.JSONEq(t, form, string(asked.ResponseFormat))
	require.Equal(t, 200, posting(`"response_format":`+form).Status)
	for more, status := range map[string]int{
		`"response_format":{"type":"json_object"}`:                                                               422,
		`"response_format":{"type":"xml"}`:                                                                       400,
		`"response_format":7`:                                                                                    400,
		`"response_format":{"type":"json_schema","json_schema":{"schema":[]}}`:                                   400,
		`"response_format":` + form + `,"agent_version":"analytic"`:                                              400,
		`"response_format":{"type":"json_object","x":"` + strings.Repeat("x", 64<<10) + `"}`:                     413,
		`"tool_choice":"f"`:                                                                                      400,
		`"tool_choice":"required"`:                                                                               400,
		`"tools":[{"name":"f","parameters":{"type":"object"}}],"tool_choice":"g"`:                                400,
		`"tools":[{"name":"f","parameters":{"type":"object"}}],"tool_choice":"f","response_format":` + form + ``: 422,
	} {
		require.Equal(t, status, posting(more).Status, more)
	}
	stored := w.Redis.Get(t.Context(), "chat_history:1").Val()
	require.Contains(t, stored, `"metadata":{"from":"web","page":"7"},"id":"`+run+`.1"}`)
	for _, key := range w.Redis.Keys(t.Context(), "*").Val() {
		if w.Redis.Type(t.Context(), key).Val() == "string" {
			require.NotContains(t, w.Redis.Get(t.Context(), key).Val(), "rhymes", key)
		}
	}
	require.Equal(t, 201, w.Do("POST", "/v1/chats/1/fork", `{"as":"2"}`).Status)
	require.Equal(t, stored, w.Redis.Get(t.Context(), "chat_history:2").Val())

	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1/messages/"+run+".1", nil).Status)
	require.NotContains(t, w.Redis.Get(t.Context(), "chat_history:1").Val(), `"page"`, "it goes with the message's text")
}

// A schema that is costly to read is refused before anything reads it, and no run begins.
func TestToolsThatAreNestedTooDeep(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	posted := w.RecordRuns()
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 100) + `{"type":"string"}` + strings.Repeat("}}", 100)
	wide := `{"type":"object","properties":{"a":` + strings.Repeat(`{"anyOf":[`, 25) + "{}" + strings.Repeat(",{}", 7000) +
		strings.Repeat("]}", 25) + "}}"
	for name, c := range map[string]struct {
		schema string
		status int
		says   string
	}{
		"deep": {deep, 400, "nested more than 64 deep"}, "very deep": {strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), 400, "nested more than 256 deep"},
		"wide at its deepest": {wide, 400, "how deep they are nested"},
		"no object":           {`{"type":"string"}`, 400, "JSON schema of an object"},
	} {
		got := w.Do("POST", "/v1/chats/1/messages", `{"message":"hi","tools":[{"name":"t","description":"d","parameters":`+
			c.schema+`}]}`)
		require.Equal(t, c.status, got.Status, name)
		require.Contains(t, string(got.Body), c.says, name)
	}
	require.Empty(t, posted)
}

// What a body costs to decode is bounded by its members, wherever a client sends JSON.
func TestBodiesOfTooManyMembers(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	many := `{"a":[1` + strings.Repeat(",1", 600_000) + `]}`
	deep := strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000)
	for _, route := range []string{"POST /v1/chats/1/messages", "POST /v1/chats/1/notes", "POST /v1/chats/1/runs/r/resume",
		"POST /v1/chats/1/import", "PATCH /v1/chats/1", "POST /v1/chats/1/rewind", "POST /v1/chats/1/fork"} {
		method, path, _ := strings.Cut(route, " ")
		got := w.Do(method, path, many)
		require.Contains(t, []int{400, 413}, got.Status, route)
		require.Contains(t, string(got.Body), "members and elements", route)
		got = w.Do(method, path, deep)
		require.Equal(t, 400, got.Status, route)
		require.Contains(t, string(got.Body), "nested more than 256 deep", route)
	}
	require.Equal(t, 200, w.Post("1", "hi").Status)
}

// At POST /chat instructions have the name that the service had for them which this one replaces.
func TestTheOlderNameOfInstructions(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	posted := w.RecordRuns()
	chat := func(more string) webmemorytest.Response {
		return w.Do("POST", "/chat", `{"message":"hi","chat_id":1`+more+`}`, "Idempotency-Key", "k")
	}
	require.Equal(t, 200, chat(`,"custom_system_prompt":"Answer in rhymes."`).Status)
	var asked api.RunRequest
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.Equal(t, "Answer in rhymes.", asked.Instructions)
	for more, says := range map[string]struct {
		status int
		text   string
	}{
		`,"custom_system_prompt":"Answer in rhymes."`: {200, "hello"},
		`,"instructions":"Answer in rhymes."`:         {200, "hello"},
		`,"custom_system_prompt":"Answer in prose."`:  {422, "another message"},
		``: {422, "another message"},
		`,"custom_system_prompt":"a","instructions":"b"`:                  {400, "custom_system_prompt is instructions by"},
		`,"custom_system_prompt":7`:                                       {400, "custom_system_prompt must be a string"},
		`,"custom_system_prompt":"` + strings.Repeat("x", 64<<10+1) + `"`: {413, "custom_system_prompt has 65537 bytes"},
		`,"custom_system_prompt":"","instructions":"Answer in rhymes."`:   {200, "hello"},
	} {
		got := chat(more)
		require.Equal(t, says.status, got.Status, more)
		require.Contains(t, string(got.Body), says.text, more)
	}
	require.Empty(t, posted, "it was one run")
	elsewhere := w.Do("POST", "/v1/chats/1/messages", `{"message":"hi","custom_system_prompt":"a"}`)
	require.Equal(t, 400, elsewhere.Status)
	require.Equal(t, 200, w.Post("1", "And now?").Status)
	asked = api.RunRequest{}
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.Empty(t, asked.Instructions, "it holds for one run")
	require.NotContains(t, string(w.Do("GET", "/v1/chats/1/export", nil).Body), "rhymes")
}
