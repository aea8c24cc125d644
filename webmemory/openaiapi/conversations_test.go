package openaiapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/webmemorytest"
)

// said returns the texts of a list of items, with their roles.
func said(a webmemorytest.Response) (texts []string) {
	for _, item := range gjson.GetBytes(a.Body, "data").Array() {
		texts = append(texts, item.Get("role").Str+": "+item.Get("content.0.text").Str)
	}
	return texts
}

func TestConversations(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	made := w.Do("POST", "/v1/conversations", `{"items":[]}`)
	require.Equal(t, 200, made.Status, string(made.Body))
	id := gjson.GetBytes(made.Body, "id").Str
	require.Regexp(t, `^conv_[A-Z2-7]{26}$`, id)
	at := "/v1/conversations/" + id
	require.JSONEq(t, `{"object":"list","data":[],"first_id":"","last_id":"","has_more":false}`,
		string(w.Do("GET", at+"/items", nil).Body))
	add := func(items string) webmemorytest.Response {
		got := w.Do("POST", at+"/items", `{"items":[`+items+`]}`)
		require.Equal(t, 200, got.Status, string(got.Body))
		return got
	}
	spoken := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	got := add(spoken("user", "My name is Aliya.") + "," + spoken("assistant", "Hello."))
	require.Equal(t, []string{"user: My name is Aliya.", "assistant: Hello."}, said(got))
	require.Equal(t, []string{"user: My name is Aliya.", "assistant: Hello."}, w.History("chat_history:"+id))

	// A run follows the items. Its messages are not stored again.
	answer := w.Do("POST", "/v1/responses", `{"model":"mneme","conversation":"`+id+`","input":"What is my name?"}`)
	require.Equal(t, 200, answer.Status, string(answer.Body))
	text := gjson.GetBytes(answer.Body, "output.0.content.0.text").Str
	add(spoken("user", "What is my name?") + "," + spoken("assistant", text))
	require.Len(t, w.History("chat_history:"+id), 4)
	calls := `,{"type":"function_call","call_id":"c0","name":"add","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c0","output":"4"},{"type":"reasoning","id":"rs_1","summary":[]},`
	add(spoken("user", "What is my name?") + calls + spoken("assistant", text))
	require.Len(t, w.History("chat_history:"+id), 4)
	for range 2 {
		got := w.Do("POST", at+"/items", `{"items":[`+spoken("user", "twice")+`]}`, "Idempotency-Key", "k")
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	require.Len(t, w.History("chat_history:"+id), 5)
	same := spoken("user", "ok") + "," + spoken("assistant", "ok")
	add(same + "," + same)
	add(same)
	require.Len(t, w.History("chat_history:"+id), 11, "equal items are stored each time")

	// Tools are items of their own.
	add(`{"role":"user","content":"two and two"},{"type":"function_call","call_id":"c1","name":"add","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"c1","output":"4"},` + spoken("assistant", "Four."))
	newest := w.Do("GET", at+"/items?limit=4", nil)
	require.Equal(t, `["message","function_call_output","function_call","message"]`,
		gjson.GetBytes(newest.Body, "data.#.type").Raw)
	require.True(t, gjson.GetBytes(newest.Body, "has_more").Bool())

	// Pages in both orders.
	whole := said(w.Do("GET", at+"/items?order=asc&limit=100", nil))
	require.Len(t, whole, 15)
	for _, order := range []string{"asc", "desc"} {
		var all []string
		for after, more := "", true; more; {
			page := w.Do("GET", at+"/items?limit=3&order="+order+after, nil)
			require.Equal(t, 200, page.Status, string(page.Body))
			if order == "asc" {
				all = append(all, said(page)...)
			} else {
				for _, text := range said(page) {
					all = append([]string{text}, all...)
				}
			}
			after, more = "&after="+gjson.GetBytes(page.Body, "last_id").Str, gjson.GetBytes(page.Body, "has_more").Bool()
		}
		require.Equal(t, whole, all, order)
	}

	// An item that is deleted is not listed.
	last := gjson.GetBytes(newest.Body, "data.0.id").Str
	require.Equal(t, 200, w.Do("DELETE", at+"/items/"+last, nil).Status)
	require.NotContains(t, said(w.Do("GET", at+"/items?order=asc&limit=100", nil)), "assistant: Four.")
	require.NotZero(t, gjson.GetBytes(w.Do("GET", at, nil).Body, "created_at").Int())
	for _, item := range gjson.GetBytes(w.Do("GET", at+"/items?limit=5", nil).Body, "data.#.id").Array() {
		require.Equal(t, 200, w.Do("DELETE", at+"/items/"+item.Str, nil).Status)
	}
	require.Len(t, said(w.Do("GET", at+"/items?limit=3", nil)), 3, "pages go past deleted items")
	large := strings.Repeat("x", 1<<20+1)
	require.Equal(t, 400, w.Do("POST", at+"/items", `{"items":[`+spoken("user", large)+`]}`).Status)

	for path, code := range map[string]string{
		"GET " + at + "/items?limit=0": "bad_request", "GET " + at + "/items?after=x": "item_not_found",
		"GET " + at + "/items?order=up": "bad_request",
		"DELETE " + at + "/items/msg_1": "item_not_found", "GET /v1/conversations/a%20b": "conversation_not_found",
	} {
		method, path, _ := strings.Cut(path, " ")
		require.Equal(t, code, openaiError(t, w.Do(method, path, nil)).Code, path)
	}
	require.Equal(t, 400, w.Do("POST", at+"/items", `{"items":[{"type":"computer_call"}]}`).Status)
	require.Equal(t, 400, w.Do("POST", at+"/items", `{"items":[`+strings.Repeat(spoken("user", "x")+",", 20)+
		spoken("user", "x")+`]}`).Status)
	require.Equal(t, 200, w.Do("DELETE", at, nil).Status)
	require.Empty(t, w.History("chat_history:"+id))
}

// The AI SDK with a conversation sends the question again with the results of its tools, without the calls.
func TestResponsesToolsInAConversation(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(clientCalls)
	tools := `"tools":[{"type":"function","name":"light","parameters":{"type":"object"}}]`
	ask := func(input string) webmemorytest.Response {
		got := w.Do("POST", "/v1/responses", `{"model":"mneme","conversation":"c",`+tools+`,"input":[`+input+`]}`)
		require.Equal(t, 200, got.Status, string(got.Body))
		return got
	}
	question := `{"role":"user","content":[{"type":"input_text","text":"turn it on"}]}`
	call := gjson.GetBytes(ask(question).Body, `output.#(type=="function_call").call_id`).Str
	require.NotEmpty(t, call)
	got := ask(question + `,{"type":"function_call_output","call_id":"` + call + `","output":"it shines"}`)
	require.Equal(t, `approve "it shines"`, gjson.GetBytes(got.Body, `output.#(type=="message").content.0.text`).Str)
	require.Equal(t, []string{"user: turn it on", `assistant: approve "it shines"`}, w.History("chat_history:c"))
	// Messages of the user in a row are messages of their own.
	ask(question + `,{"role":"user","content":"now"}`)
	require.Contains(t, w.History("chat_history:c"), "user: now")
}
