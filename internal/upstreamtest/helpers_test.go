package upstreamtest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tester is the part of testing.T that rapid.T has, too.
type tester interface {
	require.TestingT
	Helper()
}

// post sends a request to the vendor and returns its answer.
func post(t tester, v http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	serve(v, w, path, body, header...)
	return w
}

// serve has the vendor answer a request. Headers come in pairs. The anthropic-version header is set.
func serve(v http.Handler, w http.ResponseWriter, path, body string, header ...string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	v.ServeHTTP(w, r)
}

// ok posts a request that must be accepted and returns the body of the answer.
func ok(t tester, v http.Handler, path, body string, header ...string) string {
	t.Helper()
	w := post(t, v, path, body, header...)
	require.Equal(t, 200, w.Code, "%s\n%s", w.Body, body)
	return w.Body.String()
}

// errorText returns the message of an error, in any shape that vendors use.
func errorText(body string) string {
	for _, path := range []string{"error.message", "0.error.message", "message", "detail.0.msg"} {
		if text := gjson.Get(body, path); text.Type == gjson.String {
			return text.Str
		}
	}
	return ""
}

// join writes members, each without braces, and a list as one JSON object.
func join(list string, elements []string, members ...string) string {
	members = append(members, `"`+list+`":[`+strings.Join(elements, ",")+`]`)
	text := "{"
	for _, m := range members {
		if m != "" && len(text) > 1 {
			text += ","
		}
		text += m
	}
	return text + "}"
}

// msg returns a request of the messages dialect. Without messages it has one question, and max_tokens is 9000 by default.
func msg(model, members string, messages ...string) string {
	limit := `"max_tokens":9000`
	if strings.Contains(members, `"max_tokens"`) {
		limit = ""
	}
	return chat(model, strings.Trim(members+","+limit, ","), messages...)
}

// chat returns a request of chat completions. Without messages it has one question.
func chat(model, members string, messages ...string) string {
	if messages == nil {
		messages = []string{ask}
	}
	return join("messages", messages, `"model":"`+model+`"`, members)
}

// resp returns a request of Responses with these items.
func resp(model, members string, items ...string) string {
	return join("input", items, `"model":"`+model+`"`, members)
}

// interact returns a request of Interactions with these steps. Nothing is stored.
func interact(members string, steps ...string) string {
	return join("input", steps, `"model":"gemini-3.8-flash","store":false`, members)
}

// Messages of both dialects. An answer and a question are lists of blocks.
func message(role, content string) string {
	return fmt.Sprintf(`{"role":%q,"content":%s}`, role, content)
}

func answer(blocks ...string) string { return message(assistant, "["+strings.Join(blocks, ",")+"]") }

func question(blocks ...string) string { return message(user, "["+strings.Join(blocks, ",")+"]") }

func toolUse(id string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":"calc","input":{}}`, id)
}

func toolResult(id string) string {
	return fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":"4"}`, id)
}

// loop returns the messages of an unfinished tool loop. The answer has these blocks before its call.
func loop(blocks ...string) []string {
	return []string{ask, answer(append(blocks, toolUse("a"))...), question(toolResult("a"))}
}

func call(id string) string { return callOf(id, "calc", "{}") }

func callOf(id, name, arguments string) string {
	return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, id, name, arguments)
}

// calls returns an answer of chat completions. Its content is null.
func calls(list ...string) string { return beside("null", list...) }

// beside returns an answer of chat completions with calls and this content.
func beside(content string, list ...string) string {
	return `{"role":"assistant","content":` + content + `,"tool_calls":[` + strings.Join(list, ",") + `]}`
}

func result(id string) string {
	return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"4"}`, id)
}

// function returns the tools member of chat completions: one function with these parameters.
func function(parameters string) string {
	return `"tools":[{"type":"function","function":{"name":"f","parameters":` + cmp.Or(parameters, `{"type":"object"}`) + `}}]`
}

// withMember returns an object with a member set to this value.
func withMember(object, member, value string) string {
	return strings.TrimSuffix(withoutMember(object, member), "}") + `,"` + member + `":` + value + `}`
}

func withoutMember(object, member string) string {
	var rest []string
	gjson.Parse(object).ForEach(func(k, v gjson.Result) bool {
		if k.Str != member {
			rest = append(rest, k.Raw+":"+v.Raw)
		}
		return true
	})
	return "{" + strings.Join(rest, ",") + "}"
}

// Models, blocks and members.
const (
	opus48   = "claude-opus-4-8"
	opus46   = "claude-opus-4-6"
	sonnet45 = "claude-sonnet-4-5"
	opus5    = "claude-opus-5"
	fable    = "claude-fable-5"

	text         = `{"type":"text","text":"a"}`
	cachedText   = `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`
	thought      = `{"type":"thinking","thinking":"t","signature":"s"}`
	emptyThought = `{"type":"thinking","thinking":""}`
	blankThought = `{"type":"thinking","thinking":" "}`
	redacted     = `{"type":"redacted_thinking","data":"d"}`

	ask   = `{"role":"user","content":"ask"}`
	reply = `{"role":"assistant","content":"reply"}`

	adaptive = `"thinking":{"type":"adaptive"}`
	disabled = `"thinking":{"type":"disabled"}`
	enabled  = `"thinking":{"type":"enabled","budget_tokens":2000}`
	cleared  = `"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`
	weather  = `"tools":[{"name":"weather","input_schema":{"type":"object","properties":{"city":{"type":"string"},` +
		`"days":{"type":"integer"},"unit":{"enum":["C","F"]}},"required":["city","days","unit"]}}]`

	encrypted = `"store":false,"include":["reasoning.encrypted_content"]`
	offersF   = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]`
)
