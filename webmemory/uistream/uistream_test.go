package uistream_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
	"mneme/webmemory/uistream"
)

// partMembers are the members that a part may have. The schemas of AI SDK 5, 6 and 7 have them in common, by the sources
// of ai 5.0.277, 6.0.326 and 7.0.173. Versions 5 and 6 reject any other member. Approvals are only in 6 and 7.
var partMembers = map[string]string{
	"start": "messageId messageMetadata", "start-step": "", "finish-step": "", "abort": "",
	"finish": "finishReason messageMetadata", "error": "errorText", "text-start": "id", "text-delta": "id delta", "text-end": "id",
	"tool-input-available":  "toolCallId toolName input providerExecuted providerMetadata dynamic",
	"tool-output-available": "toolCallId output providerExecuted dynamic", "tool-output-denied": "toolCallId",
	"tool-approval-request": "approvalId toolCallId",
	"source-url":            "sourceId url title providerMetadata",
	"source-document":       "sourceId mediaType title filename providerMetadata",
	"data-subagent":         "id data", "data-memory": "id data", "data-tool": "id data",
}

// partsOf are the parts of a stream, with RUN in the place of its run's id. It holds them to what the SDK throws an
// error about; held are the parts of tools that the client has before.
func partsOf(t *testing.T, body []byte, held ...string) (parts []string) {
	t.Helper()
	frames := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
	require.Equal(t, "data: [DONE]", frames[len(frames)-1], string(body))
	open, tools := map[string]bool{}, map[string]bool{}
	for _, id := range held {
		tools[id] = true
	}
	for _, frame := range frames[:len(frames)-1] {
		data, ok := strings.CutPrefix(frame, "data: ")
		if !ok {
			require.True(t, strings.HasPrefix(frame, ":"), frame)
			continue
		}
		p := gjson.Parse(data)
		kind := p.Get("type").Str
		allowed, known := partMembers[kind]
		require.True(t, known, data)
		p.ForEach(func(name, _ gjson.Result) bool {
			require.Contains(t, append(strings.Fields(allowed), "type"), name.Str, data)
			return true
		})
		switch kind {
		case "text-start":
			open[p.Get("id").Str] = true
		case "text-delta":
			require.True(t, open[p.Get("id").Str], data)
		case "text-end":
			require.True(t, open[p.Get("id").Str], data)
			delete(open, p.Get("id").Str)
		case "tool-input-available":
			tools[p.Get("toolCallId").Str] = true
		case "tool-output-available", "tool-output-denied", "tool-approval-request":
			require.True(t, tools[p.Get("toolCallId").Str], data)
		}
		parts = append(parts, regexp.MustCompile(`[A-Z2-7]{26}`).ReplaceAllString(data, "RUN"))
	}
	require.Empty(t, open, "parts of text that have no end")
	return parts
}

// kinds are the types of parts.
func kinds(parts []string) (out []string) {
	for _, p := range parts {
		out = append(out, gjson.Get(p, "type").Str)
	}
	return out
}

// textOf is the text of a stream's parts.
func textOf(parts []string) (text string) {
	for _, p := range parts {
		text += gjson.Get(p, "delta").Str
	}
	return text
}

// userBody is the body of a message of the user; each of the texts is ID=TEXT, and has an answer but for the last.
func userBody(trigger, messageID string, texts ...string) string {
	var messages []any
	for i, text := range texts {
		id, words, _ := strings.Cut(text, "=")
		if i > 0 {
			messages = append(messages, message("assistant", "a"+id, map[string]any{"type": "text", "text": "whatever"}))
		}
		messages = append(messages, message("user", id, map[string]any{"type": "text", "text": words}))
	}
	return bodyOf(trigger, messageID, messages...)
}

func message(role, id string, parts ...any) map[string]any {
	return map[string]any{"id": id, "role": role, "parts": parts}
}

func bodyOf(trigger, messageID string, messages ...any) string {
	body := map[string]any{"id": "page", "messages": messages, "trigger": trigger, "theme": "dark"}
	if messageID != "" {
		body["messageId"] = messageID
	}
	raw, _ := json.Marshal(body)
	return string(raw)
}

const (
	submits, regenerates = "submit-message", "regenerate-message"
	startPart            = `{"messageId":"RUN","messageMetadata":{"chat":"c","run":"RUN"},"type":"start"}`
)

// post posts to chat c as useChat does.
func post(w *webmemorytest.World, body string, header ...string) webmemorytest.Response {
	w.T.Helper()
	return w.Do("POST", "/v1/chats/c/ui", body, header...)
}

// usesTools is a run with each kind of part: what is recalled, a tool of the master's and of a subagent's, text before
// and behind them, and citations.
func usesTools(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
	of := event.Head{Subagent: "knowledge", CallID: "c"}
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
		Metadata: r.Metadata})
	emit(event.Head{}, &event.Recalled{Messages: []event.RecalledMessage{{ID: "m", TS: 1, Score: 2}}})
	emit(event.Head{}, &event.AssistantDelta{Text: "I look it up."})
	emit(event.Head{}, &event.MasterTool{Tool: "recall", Status: "running", Detail: "{}"})
	emit(event.Head{}, &event.MasterTool{Tool: "recall", Status: "done"})
	emit(of, &event.Delegation{Task: "What does a ferry cost?", Calls: event.Serial})
	emit(of, &event.AssistantWithTools{ToolCalls: []memory.ToolCall{{ID: "1", Type: "function",
		Function: memory.FunctionCall{Name: "documents", Arguments: `{"query":"ferry"}`}}}})
	emit(of, &event.ToolProgress{Tool: "documents", Status: "running", Detail: "ferry"})
	emit(of, &event.ToolResult{ToolCallID: "1", Name: "documents", Content: "14 crowns"})
	emit(of, &event.SubagentDelta{Text: strings.Repeat("long ", 100) + "14"})
	emit(of, &event.Completion{Response: "14 [1]", Status: event.Completed})
	emit(event.Head{}, &event.AssistantDelta{Text: "It <b>costs</b> "})
	emit(event.Head{}, &event.Assistant{Content: "It <b>costs</b> 14 [1][2].", Citations: []event.Citation{
		{N: 1, DocID: "ferry.md", Title: "Ferry", Source: "https://x.y/ferry", Quote: "14 crowns"},
		{N: 2, DocID: "old.pdf", Title: "Prices", Page: 3}}})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed, Usage: event.Usage{InputTokens: 100, OutputTokens: 20,
		CachedTokens: 60, ReasoningTokens: 5}})
}

// Every part in its order, byte for byte.
func TestParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, usesTools)
	got := post(w, userBody(submits, "", "u1=What does it cost?"))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "v1", got.Header.Get("x-vercel-ai-ui-message-stream"))
	require.Equal(t, "text/event-stream", got.Header.Get("Content-Type"))
	require.Regexp(t, `^[A-Z2-7]{26}$`, got.RunID())
	subagent := func(state, text string) string {
		raw, _ := json.Marshal(text)
		return `{"data":{"name":"knowledge","task":"What does a ferry cost?","state":"` + state + `","text":` + string(raw) +
			`},"id":"c","type":"data-subagent"}`
	}
	require.Equal(t, []string{
		startPart, `{"type":"start-step"}`,
		`{"data":{"agent":"master","failed":"","messages":[{"id":"m","ts":1,"score":2}]},"id":"memory-2","type":"data-memory"}`,
		`{"id":"text-1","type":"text-start"}`, `{"delta":"I look it up.","id":"text-1","type":"text-delta"}`,
		`{"id":"text-1","type":"text-end"}`,
		`{"data":{"tool":"recall","status":"running","detail":"{}"},"id":"recall","type":"data-tool"}`,
		`{"data":{"tool":"recall","status":"done"},"id":"recall","type":"data-tool"}`,
		subagent("running", ""),
		`{"dynamic":true,"input":{"query":"ferry"},"providerExecuted":true,"toolCallId":"c/1","toolName":"documents",` +
			`"type":"tool-input-available"}`,
		subagent("running", "\ndocuments, running: ferry\n"),
		`{"dynamic":true,"output":"14 crowns","providerExecuted":true,"toolCallId":"c/1","type":"tool-output-available"}`,
		subagent("running", "ng "+strings.Repeat("long ", 39)+"14"),
		subagent("completed", "14 [1]"),
		`{"id":"text-2","type":"text-start"}`, `{"delta":"It <b>costs</b> ","id":"text-2","type":"text-delta"}`,
		`{"delta":"14 [1][2].","id":"text-2","type":"text-delta"}`, `{"id":"text-2","type":"text-end"}`,
		`{"providerMetadata":{"mneme":{"n":1,"doc_id":"ferry.md","title":"Ferry","source":"https://x.y/ferry",` +
			`"quote":"14 crowns"}},"sourceId":"1","title":"Ferry","type":"source-url","url":"https://x.y/ferry"}`,
		`{"filename":"old.pdf","mediaType":"text/plain","providerMetadata":{"mneme":{"n":2,"doc_id":"old.pdf",` +
			`"title":"Prices","page":3}},"sourceId":"2","title":"Prices p. 3","type":"source-document"}`,
		`{"type":"finish-step"}`,
		`{"finishReason":"stop","messageMetadata":{"outcome":"completed","usage":{"cachedInputTokens":60,"costMicroUSD":null,"inputTokens":100,` +
			`"outputTokens":20,"reasoningTokens":5,"totalTokens":120}},"type":"finish"}`,
	}, partsOf(t, got.Body))
	require.Equal(t, []string{"user: What does it cost?", "assistant: It <b>costs</b> 14 [1][2]."},
		w.History("chat_history:c"))
}

// Of a subagent that the page asks past the master the text comes as it is written.
func TestSubagent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		of := event.Head{Subagent: "analytic", CallID: "c"}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(of, &event.Delegation{Task: r.Message, Calls: event.Serial})
		emit(of, &event.SubagentDelta{Text: "It is "})
		emit(of, &event.SubagentDelta{Text: "14."})
		emit(of, &event.Completion{Response: "It is 14.", Status: event.Completed})
		emit(event.Head{}, &event.Assistant{Content: "It is 14."})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	parts := partsOf(t, post(w, strings.Replace(userBody(submits, "", "u=hi"), "{", `{"agent_version":"analytic",`, 1)).Body)
	require.Equal(t, "It is 14.", textOf(parts))
	require.Equal(t, []string{"start", "start-step", "data-subagent", "data-subagent", "text-start", "text-delta",
		"data-subagent", "text-delta", "data-subagent", "text-end", "finish-step", "finish"}, kinds(parts))
}

// A message sent again is the same message; one that is regenerated or edited takes its own place, whatever has become
// of the client's other messages.
func TestSubmitsAndReplaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, numberedAnswers())
	says := func(want string, trigger, id string, texts ...string) {
		t.Helper()
		got := post(w, userBody(trigger, id, texts...))
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, want, textOf(partsOf(t, got.Body)))
	}
	says("1: one", submits, "", "u1=one")
	says("1: one", submits, "", "u1=one")
	says("2: two", submits, "", "u1=one", "u2=two")
	says("3: three", submits, "", "u3=three")
	require.Equal(t, "one two three", userTexts(w, "c"))
	says("4: three", regenerates, "au3", "u1=one", "u2=two", "u3=three")
	says("5: three", regenerates, "", "u3=three")
	require.Equal(t, "one two three", userTexts(w, "c"))
	says("6: drei", submits, "u3", "u1=one", "u2=two", "u3=drei")
	require.Equal(t, "one two drei", userTexts(w, "c"))
	says("7: zwei", submits, "u2", "u1=one", "u2=zwei")
	require.Equal(t, "one zwei", userTexts(w, "c"), "what was said since then is taken back")
	says("8: zwei", regenerates, "", "u1=one", "u2=zwei")
	says("9: eins", submits, "u1", "u1=eins")
	require.Equal(t, "eins", userTexts(w, "c"))
	stale := post(w, userBody(regenerates, "", "u9=new"))
	require.Equal(t, 409, stale.Status, "the page does not know the newest message")
	says("10: new", regenerates, "", "u1=eins", "u9=new")
	says("11: new", regenerates, "", "u1=eins", "u9=new")
	require.Equal(t, "eins new", userTexts(w, "c"), "one that never came is new")
	for i := range 30 {
		says(fmt.Sprintf("%d: more", i+12), submits, "", fmt.Sprintf("m%d=more", i))
	}
	says("42: Eins", submits, "u1", "u1=Eins")
	require.Equal(t, "Eins", userTexts(w, "c"), "however long ago")
	first := gjson.GetBytes(w.Do("GET", "/v1/chats/c/export", nil).Body, "..0.message.id").Str
	says("43: EINS", submits, first, first+"=EINS")
	require.Equal(t, "EINS", userTexts(w, "c"), "by the id that the history has")
}

// With on_mismatch transcript, an edit of an unknown message is answered from the client's transcript, and not stored.
func TestMismatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, numberedAnswers(), func(c *openaiapi.Config) { c.OnMismatch = openaiapi.Transcript })
	require.Equal(t, 200, post(w, userBody(submits, "", "u1=one")).Status)
	got := post(w, userBody(submits, "u9", "u9=nine"))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "2: nine", textOf(partsOf(t, got.Body)))
	require.Equal(t, "one", userTexts(w, "c"))
}

// A client that leaves does not stop its run; it comes back to it by another process, from the beginning, and finds
// nothing once it is over.
func TestResumes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, webmemorytest.AnswersAfter(release))
	const stream = "/v1/chats/c/ui/page/stream"
	require.Equal(t, 204, w.Do("GET", stream, nil).Status, "there is no run")
	ctx, leave := context.WithCancel(t.Context())
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/chats/c/ui",
		userBody(submits, "", "u=hi")).WithContext(ctx))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	lines := bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, "data-subagent"); {
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	leave()
	webmemorytest.Eventually(t, "the stream is over", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "\nmneme_event_streams 0\n")
	})
	w.URL = w.StartOpenAI()
	resp, err = http.DefaultClient.Do(w.NewRequest("GET", stream, nil))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "v1", resp.Header.Get("x-vercel-ai-ui-message-stream"))
	close(release)
	whole, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	parts := partsOf(t, whole)
	require.Equal(t, startPart, parts[0])
	require.Equal(t, []string{"start", "start-step", "data-subagent", "data-subagent", "text-start", "text-delta",
		"text-end", "finish-step", "finish"}, kinds(parts))
	require.Equal(t, "answer to hi", textOf(parts))
	webmemorytest.Eventually(t, "the run is over", func() bool { return w.Do("GET", stream, nil).Status == 204 })
	require.Equal(t, []string{"user: hi", "assistant: answer to hi"}, w.History("chat_history:c"))
}

// A run that is stopped ends as one that was aborted, and the page that sees it is told what it took.
func TestStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, webmemorytest.AnswersAfter(nil))
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/chats/c/ui", userBody(submits, "", "u=hi")))
	require.NoError(t, err)
	defer resp.Body.Close()
	run := resp.Header.Get(webapi.RunID)
	require.Equal(t, 202, w.Do("POST", "/v1/chats/c/runs/"+run+"/stop", nil).Status)
	whole, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	parts := partsOf(t, whole)
	require.Equal(t, []string{"finish-step", "abort", "finish"}, kinds(parts)[len(parts)-3:])
	require.Equal(t, "stopped", gjson.Get(parts[len(parts)-1], "messageMetadata.outcome").Str)
}

// The process that answers dies, and another one has the rest.
func TestProcessDies(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	release := make(chan struct{})
	w := newWorld(t, webmemorytest.AnswersAfter(release))
	first := w.URL
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/chats/c/ui", userBody(submits, "", "u=hi")))
	require.NoError(t, err)
	defer resp.Body.Close()
	second := w.StartOpenAI()
	w.Shutdown(first)
	cut, _ := io.ReadAll(resp.Body)
	require.NotContains(t, string(cut), `"type":"finish"`)
	w.URL = second
	close(release)
	var got webmemorytest.Response
	webmemorytest.Eventually(t, "the run is there or over", func() bool {
		got = w.Do("GET", "/v1/chats/c/ui/page/stream", nil)
		return got.Status == 200 || got.Status == 204
	})
	if got.Status == 200 {
		require.Equal(t, "answer to hi", textOf(partsOf(t, got.Body)))
	}
	webmemorytest.Eventually(t, "the answer is stored", func() bool { return len(w.History("chat_history:c")) == 2 })
	again := post(w, userBody(submits, "", "u=hi"))
	require.Equal(t, "answer to hi", textOf(partsOf(t, again.Body)), "the message sent again has the answer")
	require.Len(t, w.History("chat_history:c"), 2)
}

// respond is the message of a stream's parts with an answer to each of its approvals.
func respond(parts []string, run string, approved bool, reason string) map[string]any {
	inputs, list := map[string]map[string]any{}, []any{map[string]any{"type": "step-start"}}
	for _, p := range parts {
		id := gjson.Get(p, "toolCallId").Str
		switch gjson.Get(p, "type").Str {
		case "tool-input-available":
			inputs[id] = map[string]any{"type": "dynamic-tool", "toolName": gjson.Get(p, "toolName").Str, "toolCallId": id,
				"state": "input-available", "input": json.RawMessage(gjson.Get(p, "input").Raw)}
		case "tool-approval-request":
			inputs[id]["state"] = "approval-responded"
			inputs[id]["approval"] = map[string]any{"approved": approved, "reason": reason,
				"id": strings.Replace(gjson.Get(p, "approvalId").Str, "RUN", run, 1)}
		case "data-subagent":
			list = append(list, json.RawMessage(p))
		}
	}
	for _, id := range slices.Sorted(func(yield func(string) bool) {
		for id := range inputs {
			if !yield(id) {
				return
			}
		}
	}) {
		list = append(list, inputs[id])
	}
	return message("assistant", run, list...)
}

// What a run waits for is an approval of the page, yes or no; the run goes on in the same message, in another step.
func TestApprovals(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := newWorld(t, nil)
	w.ScriptApiserver(webmemorytest.SuspendOn(func(api.RunRequest) []event.Wait {
		return webmemorytest.Approvals("w1", "w2")
	}))
	user := message("user", "u", map[string]any{"type": "text", "text": "refund me"})
	for _, approved := range []bool{true, false} {
		t.Run(fmt.Sprint(approved), func(t *testing.T) {
			chat := fmt.Sprint("/v1/chats/", approved, "/ui")
			got := w.Do("POST", chat, bodyOf(submits, "", user))
			require.Equal(t, 200, got.Status, string(got.Body))
			run, parts := got.RunID(), partsOf(t, got.Body)
			require.Equal(t, []string{"start", "start-step", "data-subagent", "tool-input-available", "tool-input-available",
				"tool-input-available", "tool-approval-request", "tool-input-available", "tool-approval-request", "finish-step",
				"finish"}, kinds(parts))
			require.Equal(t, `{"approvalId":"call_RUN_w1","toolCallId":"c/t-w1","type":"tool-approval-request"}`, parts[6])
			require.Equal(t, "refund asks", gjson.Get(parts[5], "providerMetadata.mneme.reason").Str)
			require.Equal(t, `{"amount":5}`, gjson.Get(parts[5], "input").Raw)
			require.Equal(t, "tool-calls", gjson.Get(parts[10], "finishReason").Str)

			w.AwaitSuspension(fmt.Sprint(approved))
			shown := partsOf(t, w.Do("GET", chat+"/page/stream", nil).Body)
			require.Equal(t, kinds(parts), kinds(shown), "a page that is loaded anew asks the same")

			answers := respond(parts, run, approved, "too much")
			one := respond(parts[:len(parts)-4], run, approved, "")
			refused := w.Do("POST", chat, bodyOf(submits, run, user, one))
			require.Equal(t, 400, refused.Status, string(refused.Body))
			require.Contains(t, string(refused.Body), "there is none for call_"+run+"_w2")

			got = w.Do("POST", chat, bodyOf(submits, run, user, answers))
			require.Equal(t, 200, got.Status, string(got.Body))
			parts = partsOf(t, got.Body, "c/t-w1", "c/t-w2")
			want := []string{"start", "start-step", "tool-output-available", "tool-output-available", "data-subagent",
				"text-start", "text-delta", "text-end", "finish-step", "finish"}
			if !approved {
				want = slices.Concat([]string{"start", "tool-output-denied", "tool-output-denied", "start-step"}, want[4:])
			}
			require.Equal(t, want, kinds(parts))
			require.Equal(t, run, gjson.GetBytes(got.Body[len("data: "):], "messageId").Str, "it is the same message")
			require.Equal(t, map[bool]string{true: "decided: approve approve", false: "decided: deny deny"}[approved],
				textOf(parts))
			for _, p := range parts {
				if gjson.Get(p, "type").Str == "data-subagent" {
					require.Equal(t, "task", gjson.Get(p, "data.task").Str, "what the page knows of it stays")
				}
			}
			again := w.Do("POST", chat, bodyOf(submits, run, user, answers))
			require.Equal(t, string(got.Body), string(again.Body), "the same answers again join the run")
			late := w.Do("POST", chat, bodyOf(submits, run, user, respond(shown, run, !approved, "")))
			require.Equal(t, 409, late.Status, string(late.Body))
		})
	}
}

// A tool of the page's own: its output is the page's, and one that failed is told the model.
func TestClientTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.ScriptApiserver(callTool)
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(userBody(submits, "", "u=light please")), &body))
	body["tools"] = []any{map[string]any{"name": "light", "description": "Lights.",
		"parameters": map[string]any{"type": "object"}}}
	got := w.Do("POST", "/v1/chats/c/ui", body)
	require.Equal(t, 200, got.Status, string(got.Body))
	parts, run := partsOf(t, got.Body), got.RunID()
	call := parts[slices.Index(kinds(parts), "tool-input-available")]
	require.Equal(t, "call_RUN_W0", gjson.Get(call, "toolCallId").Str)
	require.False(t, gjson.Get(call, "providerExecuted").Exists(), "the page is asked to run it")
	done := map[string]any{"type": "dynamic-tool", "toolName": "light", "toolCallId": "call_" + run + "_W0",
		"state": "output-available", "input": map[string]any{}, "output": map[string]any{"on": true}}
	got = post(w, bodyOf(submits, run, message("assistant", run, map[string]any{"type": "step-start"}, done)))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, `approve {"on":true}`, textOf(partsOf(t, got.Body)))
}

// What is wrong is said before the stream, as a status and a sentence, which useChat shows; a run that fails says so
// inside of it.
func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			Metadata: r.Metadata})
		emit(event.Head{}, &event.AssistantDelta{Text: "I"})
		emit(event.Head{}, event.Fail("budget_exceeded", "The budget is spent.", 0))
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	})
	text := func(body string) string { return `{"type":"text","text":"` + body + `"}` }
	user := func(parts string) string {
		return `{"trigger":"submit-message","messages":[{"id":"u","role":"user","parts":[` + parts + `]}]}`
	}
	for name, c := range map[string]struct {
		body       string
		status     int
		code, says string
	}{
		"no JSON":        {`{`, 400, "bad_request", "not valid JSON"},
		"no messages":    {`{"trigger":"submit-message"}`, 400, "bad_request", "messages has to end"},
		"nothing":        {`{}`, 400, "bad_request", "messages has to end"},
		"no parts":       {user(""), 400, "bad_request", "message is missing or empty"},
		"AI SDK 4":       {`{"trigger":"submit-message","messages":[{"role":"user","content":"hi"}]}`, 400, "bad_request", "message is missing"},
		"no answers":     {`{"trigger":"submit-message","messages":[{"role":"assistant","parts":[]}]}`, 400, "bad_request", "no answer"},
		"a system alone": {`{"trigger":"submit-message","messages":[{"role":"system","parts":[]}]}`, 400, "bad_request", "messages has to end"},
		"another agent":  {strings.Replace(user(text("hi")), "{", `{"agent_version":"nobody",`, 1), 400, "unknown_agent", "nobody"},
		"another type":   {strings.Replace(user(text("hi")), "{", `{"user":7,`, 1), 400, "bad_request", "user"},
		"twice":          {strings.Replace(user(text("hi")), "{", `{"trigger":"x",`, 1), 400, "bad_request", "trigger"},
		"a PDF":          {user(`{"type":"file","mediaType":"application/pdf","url":"data:,"}`), 400, "bad_request", "base64"},
		"a bad image":    {user(text("hi") + `,{"type":"file","mediaType":"image/png","url":"blob:x"}`), 400, "bad_request", "image"},
		"too long":       {user(text(strings.Repeat("x", memory.MaxMessage+1))), 413, "too_large", "bytes"},
		"another run": {`{"trigger":"submit-message","messages":[{"role":"assistant","parts":[{"type":"dynamic-tool","state":` +
			`"approval-responded","toolCallId":"t","approval":{"id":"call_` + strings.Repeat("A", 26) + `_w","approved":true}}]}]}`,
			404, "unknown_run", "no such run"},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(w, c.body)
			require.Equal(t, c.status, got.Status, string(got.Body))
			require.Equal(t, "text/plain; charset=utf-8", got.Header.Get("Content-Type"))
			require.Equal(t, c.code, got.Header.Get(uistream.CodeHeader), string(got.Body))
			require.Contains(t, string(got.Body), c.says)
		})
	}
	got := w.Do("POST", "/v1/chats/a%20b/ui", user(text("hi")))
	require.Equal(t, 400, got.Status)
	require.Equal(t, "text/plain; charset=utf-8", got.Header.Get("Content-Type"))
	require.Empty(t, w.History("chat_history:c"), "none of them left anything")

	parts := partsOf(t, post(w, user(text("hi"))).Body)
	require.Equal(t, []string{"start", "start-step", "text-start", "text-delta", "text-end", "error"}, kinds(parts))
	require.Equal(t, `{"errorText":"The budget is spent.","type":"error"}`, parts[5])
	w.URL = w.StartOpenAI(func(o *openaiapi.Config) { o.Heartbeat, o.Hold = time.Millisecond, time.Millisecond })
	require.Equal(t, parts, partsOf(t, post(w, strings.Replace(user(text("ho")), `"u"`, `"v"`, 1)).Body))
}

// A file becomes a document of the chat, once however often its message is sent.
func TestFiles(t *testing.T) {
	t.Parallel()
	w := filesWorld(t)
	file := map[string]any{"type": "file", "mediaType": "text/markdown", "filename": "anchor.md",
		"url": "data:text/markdown;base64," + base64.StdEncoding.EncodeToString([]byte("It weighs 77 pounds."))}
	user := message("user", "u", map[string]any{"type": "text", "text": "How heavy?"}, file)
	for _, body := range []string{bodyOf(submits, "", user), bodyOf(submits, "", user), bodyOf(regenerates, "", user)} {
		got := post(w, body)
		require.Equal(t, 200, got.Status, string(got.Body))
		partsOf(t, got.Body)
		require.Equal(t, []string{"user: How heavy?\n\n[file: anchor.md]", "assistant: hello"}, w.History("chat_history:c"))
		require.EqualValues(t, 1, documentCount(w, "c"))
	}
}

// Images come along, and so do the page's orders and the agent that it chooses; files that the model was shown before
// are no reason to refuse a message.
func TestMessage(t *testing.T) {
	t.Parallel()
	seen := make(chan master.Request, 1)
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		seen <- r
		webmemorytest.Answers("ok")(ctx, r, emit)
	})
	const dot = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	got := post(w, strings.Replace(bodyOf(submits, "", message("system", "s", text("Be brief.")),
		message("user", "u0", text("a"), map[string]any{"type": "file", "mediaType": "application/pdf", "url": "data:,"}),
		message("assistant", "a0", text("b"), map[string]any{"type": "data-x", "id": "x", "data": []int{1}}),
		message("user", "u", text("What"), text("is this?"),
			map[string]any{"type": "file", "mediaType": "image/gif", "url": dot})),
		"{", `{"agent_version":"analytic","instructions":"Be kind.",`, 1))
	require.Equal(t, 200, got.Status, string(got.Body))
	r := <-seen
	require.Equal(t, "analytic", r.AgentVersion)
	require.Equal(t, "Be kind.", r.Instructions)
	require.Contains(t, r.Message, "What\nis this?")
	require.Equal(t, []string{dot}, r.Images.Own)
}
