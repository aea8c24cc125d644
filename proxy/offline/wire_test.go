package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
)

func post(t testing.TB, ctx context.Context, method, path, body string) (*http.Response, error) {
	t.Helper()
	return New().RoundTrip(httptest.NewRequestWithContext(ctx, method, "http://offline.invalid"+path,
		strings.NewReader(body)))
}

func TestWrongRequestsGetAnErrorOfTheDialect(t *testing.T) {
	const fine = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		kind, says         string
	}{
		"not JSON":   {"POST", "/v1/messages", `{`, 400, "invalid_request_error", "the body cannot be read"},
		"empty body": {"POST", "/v1/messages", ``, 400, "invalid_request_error", "the body cannot be read"},
		"wrong type": {"POST", "/v1/messages", `{"model":7}`, 400, "invalid_request_error", "model"},
		"no model": {"POST", "/v1/messages", `{"messages":[{"role":"user","content":"hi"}]}`, 400,
			"invalid_request_error", "model and messages are required"},
		"no messages": {"POST", "/v1/messages", `{"model":"m"}`, 400, "invalid_request_error", "at least one message"},
		"content a number": {"POST", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":4}]}`, 400,
			"invalid_request_error", "wrong type"},
		"malformed counted": {"POST", "/v1/messages/count_tokens", `[]`, 400, "invalid_request_error",
			"the body cannot be read"},
		"unknown path": {"POST", "/v1/complete", fine, 404, "not_found_error", "/v1/messages"},
		"wrong method": {"GET", "/v1/messages", "", 404, "not_found_error", "POST"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := post(t, t.Context(), tc.method, tc.path, tc.body)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, tc.status, resp.StatusCode)
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			var e simError
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&e))
			require.Equal(t, "error", e.Type)
			require.Equal(t, tc.kind, e.Error.Type)
			require.Contains(t, e.Error.Message, tc.says)
		})
	}
}

func TestTooLargeBodyIsRefused(t *testing.T) {
	testtier.Slow(t)
	body := io.MultiReader(strings.NewReader(`{"model":"`), io.LimitReader(zeros{}, maxBody), strings.NewReader(`"}`))
	resp, err := New().RoundTrip(httptest.NewRequest(http.MethodPost, "http://offline.invalid/v1/messages", body))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

type simError struct {
	Type  string
	Error struct{ Type, Message string }
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestTheWholeDialectIsAccepted(t *testing.T) {
	body := `{"model":"kimi-k2","max_tokens":1,"temperature":0.5,"metadata":{"user_id":"x"},"unknown":[1],
		"system":[{"type":"text","text":"You are Systemia.","cache_control":{"type":"ephemeral"}}],
		"thinking":{"type":"enabled","budget_tokens":1024},
		"messages":[
		{"role":"system","content":"My name is Systemia."},
		{"role":"user","content":[{"type":"text","text":"My name is Orla."},{"type":"image","source":{"type":"base64","data":"AA=="}}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"My name is Thoughtful.","signature":"s"},{"type":"text","text":"My name is Botley."}]},
		{"role":"user","content":[{"type":"document","source":{"type":"text","data":"My name is Papyra."}},{"type":"text","text":"What is my name?"}]}],
		"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"x","input_schema":{"type":["object"],"properties":{"a":{"type":["string","null"]},"b":{},"c":true}}},{"name":"y","input_schema":true}]}`
	resp, err := post(t, t.Context(), "POST", "/teammate/analytic/v1/messages", body)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	var a simAnswer
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Equal(t, "kimi-k2", a.Model)
	require.Equal(t, "message", a.Type)
	require.Equal(t, "assistant", a.Role)
	require.Equal(t, "end_turn", a.StopReason)
	require.Equal(t, "Your name is Orla.", a.text())
	require.Positive(t, a.Usage.Input)
	require.Positive(t, a.Usage.Output)
}

func TestCountTokensGrowsWithTheText(t *testing.T) {
	count := func(text string) int {
		body, err := json.Marshal(simRequest{Model: "m", Messages: []simMessage{userText(text)}, Tools: simAgents})
		require.NoError(t, err)
		resp, err := post(t, t.Context(), "POST", "/v1/messages/count_tokens", string(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		var n struct {
			InputTokens int `json:"input_tokens"`
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&n))
		return n.InputTokens
	}
	require.Positive(t, count("hi"))
	require.Equal(t, count("one two three"), count("one two three"))
	require.Greater(t, count("one two three four"), count("one two three"))
}

func TestStreamedAndWholeAnswersAreTheSame(t *testing.T) {
	says := []string{"Tell analytic that my name is Aliya and tell knowledge I ski", "Как меня зовут?", "what is 6*7",
		"hi", "My  name   is Aliya \n and\tI ski",
		"Remember: “a  b” <&> \u2028 𝄞", "What is the capital of Veldoria?"}
	rapid.Check(t, func(rt *rapid.T) {
		var messages []simMessage
		for range rapid.IntRange(0, 3).Draw(rt, "earlier") {
			messages = append(messages, userText(rapid.SampledFrom(says).Draw(rt, "told")), simMessage{
				"assistant", []simBlock{{Type: "text", Text: "Noted."}},
			})
		}
		last := rapid.OneOf(rapid.SampledFrom(says), rapid.String()).Draw(rt, "last")
		tools := rapid.SampledFrom([][]simTool{nil, simAgents, {calcTool, dateTool}, {searchTool}}).Draw(rt, "tools")
		r := simRequest{Model: "m", Messages: append(messages, userText(last)), Tools: tools}
		whole := roundTrip(t, r)
		r.Stream = true
		streamed := roundTrip(t, r)
		require.Equal(t, whole, streamed)
		require.NotEmpty(t, whole.Content)
	})
}

func TestTheStreamComesInWordSizedPieces(t *testing.T) {
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"My name is Aliya and I live in Astana"}]}`
	resp, err := post(t, t.Context(), "POST", "/v1/messages", body)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.True(t, strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"))
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.GreaterOrEqual(t, strings.Count(string(data), `"text_delta"`), 8)
}

var toolUseID = regexp.MustCompile(`^toolu_[A-Z2-7]{24}$`)

func TestToolIDsAreStableAndNeverReused(t *testing.T) {
	c := newChat(t)
	seen := map[string]bool{}
	ask := func(messages []simMessage) simAnswer {
		a := c.call(messages, simAgents)
		require.Equal(t, a, c.call(messages, simAgents), "the same request gets the same answer")
		return a
	}
	messages := []simMessage{
		userText("Tell analytic I ski and tell knowledge I swim. Then ask analytic what I do. Then ask knowledge what I do."),
	}
	for range 4 {
		a := ask(messages)
		require.Equal(t, "tool_use", a.StopReason)
		var results []simBlock
		for _, b := range a.Content {
			require.Regexp(t, toolUseID, b.ID)
			require.False(t, seen[b.ID])
			seen[b.ID] = true
			results = append(results, simBlock{Type: "tool_result", ToolUseID: b.ID, Content: "Noted."})
		}
		messages = append(messages, simMessage{"assistant", a.Content}, simMessage{"user", results})
	}
	require.Len(t, seen, 4)
}

func TestACancelledRequestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_,
		err := post(t, ctx, "POST", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"My name is Aliya"}]}`)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheModelIsSafeForConcurrentUse(t *testing.T) {
	m := New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				body := `{"model":"m","messages":[{"role":"user","content":"My name is Aliya."},{"role":"user","content":"What ` +
					`is my name?"}]}`
				resp, err := m.RoundTrip(httptest.NewRequest("POST", "http://offline.invalid/v1/messages", strings.NewReader(body)))
				if err != nil {
					t.Error(err)
					return
				}
				data, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Contains(data, []byte("Your name is Aliya.")) {
					t.Errorf("unexpected answer %s (%v)", data, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestToolChoiceNoneCallsNothing(t *testing.T) {
	for _, tools := range [][]simTool{{calcTool}, simAgents} {
		a := roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText("what is 6*7")}, Tools: tools,
			ToolChoice: map[string]string{"type": "none"}})
		require.Equal(t, "end_turn", a.StopReason)
	}
}

func TestFailuresAreToldHonestly(t *testing.T) {
	first := roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText("ask knowledge where the key is")},
		Tools: simAgents})
	after := func(result simBlock) string {
		result.Type, result.ToolUseID = "tool_result", first.Content[0].ID
		return roundTrip(t, simRequest{Model: "m", Tools: simAgents, Messages: []simMessage{
			userText("ask knowledge where the key is"), {"assistant", first.Content}, {"user", []simBlock{result}},
		}}).text()
	}
	require.Equal(t, "knowledge gave no answer: timeout.", after(simBlock{Content: "(no answer: timeout)"}))
	require.Equal(t, "knowledge gave no answer: boom.", after(simBlock{Content: "boom", IsError: true}))
	require.Equal(t, "knowledge gave no answer: ….", after(simBlock{}))
	require.Equal(t, "It is in the drawer.", after(simBlock{Content: "It is in the drawer."}))
}

func TestASubagentTellsWhatItsToolsCouldNotDo(t *testing.T) {
	call := func(tools []simTool, text, result string, failed bool) simAnswer {
		first := roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText(text)}, Tools: tools})
		require.Equal(t, "tool_use", first.StopReason)
		return roundTrip(t,
			simRequest{Model: "m", Tools: tools, Messages: []simMessage{userText(text), {"assistant", first.Content},
				{"user", []simBlock{{Type: "tool_result", ToolUseID: first.Content[0].ID, Content: result, IsError: failed}}}}})
	}
	a := call([]simTool{calcTool}, "what is 6*7", "out of paper", true)
	require.Equal(t, "end_turn", a.StopReason)
	require.Contains(t, a.text(), "calculator gave no answer: out of paper")
	require.Contains(t, call([]simTool{searchTool}, "Where is the moon base?", `{"passages":[]}`, false).text(),
		"I don't know")
	require.Equal(t, "42", call([]simTool{calcTool}, "what is 6*7", "42", false).text())
}

func TestTextAfterToolResultsIsANewRequest(t *testing.T) {
	first := roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText("tell analytic I ski")},
		Tools: simAgents})
	merged := simMessage{
		"user", []simBlock{{Type: "tool_result", ToolUseID: first.Content[0].ID, Content: "(no answer: stopped)"},
			{Type: "text", Text: "tell knowledge I swim"}},
	}
	a := roundTrip(t, simRequest{Model: "m", Tools: simAgents, Messages: []simMessage{
		userText("tell analytic I ski"), {"assistant", first.Content}, merged,
	}})
	require.Equal(t, "knowledge", a.Content[0].Name)
}

// The model's own words are no evidence, and neither are questions or system prompts.
func TestOnlyTheUsersStatementsAreFacts(t *testing.T) {
	ask := func(messages ...simMessage) string {
		return roundTrip(t, simRequest{Model: "m", System: "The user's name is Sysop.", Messages: messages}).text()
	}
	said := func(s string) simMessage { return simMessage{"assistant", []simBlock{{Type: "text", Text: s}}} }
	require.Contains(t, ask(userText("Is my name Rolf?"), said("Your name is Rolf."), userText("What is my name?")),
		"I don't know")
	require.Contains(t, ask(userText("hello"), said("My name is Botley."), userText("What is my name?")), "I don't know")
	require.Equal(t, "Your name is Rolf.", ask(userText("My name is Rolf"), said("Noted."), userText("What is my name?")))
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"((((1+2 \" « “ 's -- @ . ? ` +
		`!"}],"tools":[{"name":"","input_schema":{"properties":{"task":{"type":"string"}},"required":["task"]}}]}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":null}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		resp, err := New().RoundTrip(httptest.NewRequest(http.MethodPost, "http://offline.invalid/v1/messages",
			bytes.NewReader(body)))
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		requireDialect(t, resp, data)
	})
}

// FuzzTalk puts arbitrary text where a user's words stand, in every role.
func FuzzTalk(f *testing.F) {
	f.Fuzz(func(t *testing.T, told, asked string, tools uint8) {
		kit := [][]simTool{nil, simAgents, {calcTool, dateTool, searchTool}}[int(tools)%3]
		body, err := json.Marshal(simRequest{Model: "m", Messages: []simMessage{userText(told), userText(asked)}, Tools: kit})
		require.NoError(t, err)
		resp, err := New().RoundTrip(httptest.NewRequest(http.MethodPost, "http://offline.invalid/v1/messages",
			bytes.NewReader(body)))
		require.NoError(t, err)
		data, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		requireDialect(t, resp, data)
	})
}

func requireDialect(t *testing.T, resp *http.Response, data []byte) {
	t.Helper()
	switch {
	case resp.StatusCode != http.StatusOK:
		var e simError
		require.NoError(t, json.Unmarshal(data, &e))
		require.Equal(t, "error", e.Type)
		require.NotEmpty(t, e.Error.Message)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		requireComplete(t, assemble(t, data))
	default:
		var a simAnswer
		require.NoError(t, json.Unmarshal(data, &a))
		requireComplete(t, a)
	}
}

func requireComplete(t *testing.T, a simAnswer) {
	t.Helper()
	require.NotEmpty(t, a.Content)
	for _, b := range a.Content {
		if b.Type == "tool_use" {
			require.Regexp(t, toolUseID, b.ID)
			require.True(t, json.Valid(b.Input))
			require.Equal(t, "tool_use", a.StopReason)
			continue
		}
		require.NotEmpty(t, b.Text)
		require.Equal(t, "end_turn", a.StopReason)
	}
}
