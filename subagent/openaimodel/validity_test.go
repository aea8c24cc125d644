package openaimodel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/proxy/chatwire"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

// wiretap is a model with requests that are kept as they arrive.
type wiretap struct {
	model *openaimodel.Model
	body  []byte
}

func newWiretap(t *testing.T) *wiretap {
	w := &wiretap{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.body, _ = io.ReadAll(r.Body)
		streams(delta(`"content":"x"`), finish("stop"), done)(rw, r)
	}))
	client := server.Client()
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	w.model = openaimodel.New(openaimodel.Config{BaseURL: server.URL, Model: "analytic", HTTP: client})
	return w
}

// tools are what the model is offered besides.
var tools = []loop.Spec{{Name: "calculator", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "ask-analytic"}}

// ask sends what a run sends for a new question behind a stored history, without and with
// something that was recalled for it, and checks it in both dialects.
func (w *wiretap) ask(t require.TestingT, h *memory.History, n int) {
	window, err := memory.Decode(h.Window(n))
	require.NoError(t, err)
	messages, _ := memory.Repair(append(window, memory.Message{Role: memory.RoleUser, Content: "and now?"}))
	for _, recalled := range []string{"", "What was said earlier: tea."} {
		_, err = collect(context.Background(), w.model, loop.Request{
			System: "be brief", Messages: messages, Tools: tools, Recalled: recalled,
		})
		require.NoError(t, err)
		require.Contains(t, string(w.body), recalled)
		w.valid(t, h, n)
	}
}

// valid checks what was sent.
func (w *wiretap) valid(t require.TestingT, h *memory.History, n int) {
	require.NoError(t, upstreamtest.ValidateChat(w.body), "stored: %s\nwindow: %d\nsent: %s", h.JSON(), n, w.body)
	translated, err := chatwire.MessagesRequest(w.body, chatwire.Options{})
	require.NoError(t, err, "stored: %s\nwindow: %d\nsent: %s", h.JSON(), n, w.body)
	require.NoError(t, upstreamtest.ValidateMessages(translated.Body), "stored: %s\nwindow: %d\nsent: %s", h.JSON(), n,
		translated.Body)
}

// history reads what is stored, as the memory does.
func history(t require.TestingT, stored []string) *memory.History {
	h, err := memory.ParseHistory(memory.ChatKey(memory.MustChat("12345")), []byte("["+strings.Join(stored, ",")+"]"))
	require.NoError(t, err)
	return h
}

func entry(role, content string) string {
	return string(memory.Message{Role: role, Content: content, Timestamp: 1}.Encode())
}

func callsEntry(content string, ids ...string) string {
	m := memory.Message{Role: memory.RoleAssistant, Content: content, Timestamp: 1}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, memory.ToolCall{ID: id, Type: "function", Function: memory.FunctionCall{
			Name: "calculator", Arguments: `{"x":1}`,
		}})
	}
	return string(m.Encode())
}

func resultEntry(id, content string) string {
	return string(memory.Message{Role: memory.RoleTool, ToolCallID: id, Name: "calculator", Content: content,
		Timestamp: 1}.Encode())
}

// dialogue is a history that nothing has happened to.
var dialogue = rapid.Custom(func(t *rapid.T) []string {
	var stored []string
	id := 0
	for range rapid.IntRange(1, 4).Draw(t, "turns") {
		stored = append(stored, entry(memory.RoleUser, "question"))
		for range rapid.IntRange(0, 2).Draw(t, "steps") {
			var ids []string
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				id++
				ids = append(ids, fmt.Sprint("call", id))
			}
			stored = append(stored, callsEntry(rapid.SampledFrom([]string{"", "let me see"}).Draw(t, "text"), ids...))
			for _, id := range ids {
				stored = append(stored, resultEntry(id, "result"))
			}
		}
		stored = append(stored, entry(memory.RoleAssistant, "answer"))
	}
	return stored
})

// Whatever is left of a dialogue after a crash, a trim or both is sent as a
// request that no vendor refuses.
func TestEveryCutIsValid(t *testing.T) {
	w := newWiretap(t)
	stored := []string{
		entry("user", "one"), entry("assistant", "end"),
		entry("user", "two"), callsEntry("hm", "1", "2", "3"), resultEntry("1", "a"), resultEntry("2", "b"),
		resultEntry("3", "c"),
		callsEntry("", "4"), resultEntry("4", "d"), entry("assistant", "end"),
		entry("user", "three"), callsEntry("", "5", "6"), resultEntry("6", "e"), resultEntry("5", "f"),
		entry("assistant", "end"),
	}
	for from := range stored {
		for to := from; to <= len(stored); to++ {
			for _, n := range []int{1, 3, 10} {
				w.ask(t, history(t, stored[from:to]), n)
			}
		}
	}
}

// Every set of the results of parallel calls is valid, in every order, with
// nothing, an answer or the next question behind it.
func TestPartialParallelResultsAreValid(t *testing.T) {
	w := newWiretap(t)
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"1", "2", "3", "4"}[:rapid.IntRange(1, 4).Draw(t, "calls")]
		there := rapid.Permutation(ids).Draw(t, "order")[:rapid.IntRange(0, len(ids)).Draw(t, "results")]
		stored := []string{entry("user", "question"), callsEntry("", ids...)}
		for _, id := range there {
			stored = append(stored, resultEntry(id, "result"))
		}
		switch rapid.SampledFrom([]string{"nothing", "answer", "question", "calls"}).Draw(t, "behind") {
		case "answer":
			stored = append(stored, entry("assistant", "answer"))
		case "question":
			stored = append(stored, entry("user", "well?"))
		case "calls":
			stored = append(stored, callsEntry("", ids...), resultEntry(ids[0], "again"))
		}
		w.ask(t, history(t, stored), rapid.IntRange(1, 10).Draw(t, "window"))
	})
}

// What other programs may have put into a field.
var (
	roles = rapid.SampledFrom([]string{"user", "assistant", "assistant", "tool", "tool", "system", "developer",
		"function", "USER", "model"})
	contents = rapid.SampledFrom([]string{`""`, `" "`, `"\n\t"`, `"\u00a0"`, `"\u0000"`, `"text"`, `" text "`, `"\ud83d"`,
		`null`, `7`, `{}`, `[]`, `[{"type":"text","text":""}]`, `[{"type":"text","text":"part"}]`, `[{"type":"image_url"}]`})
	ids = rapid.SampledFrom([]string{`""`, `" "`, `"call1"`, `"call2"`, `"call1_2"`, `"call"`,
		`"functions.calculator:0"`, `"идентификатор"`, `null`, `7`, `"` + strings.Repeat("x", 40) + `"`, `"` +
			strings.Repeat("x", 70) + `"`})
	names = rapid.SampledFrom([]string{`""`, `"calculator"`, `"my tool"`, `"mcp.tool"`, `"поиск"`, `null`, `7`, `"` +
		strings.Repeat("n", 70) + `"`})
	arguments = rapid.SampledFrom([]string{`""`, `" "`, `"{}"`, `" {\"x\":1} "`, `"{\"x\":"`, `"{}{}"`, `"[]"`, `"null"`,
		`"7"`, `"{\"x\":1,\"x\":2}"`, `"{\"x\":\"\\ud83d\"}"`, `{"x":1}`, `[1]`, `null`, `7`})
)

// foreign is a message as another program may have stored it.
var foreign = rapid.Custom(func(t *rapid.T) string {
	m := fmt.Sprintf(`{"role":%q,"content":%s`, roles.Draw(t, "role"), contents.Draw(t, "content"))
	if rapid.Bool().Draw(t, "calls something") {
		var list []string
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			list = append(list, fmt.Sprintf(`{"id":%s,"function":{"name":%s,"arguments":%s}}`, ids.Draw(t, "id"),
				names.Draw(t, "name"), arguments.Draw(t, "arguments")))
		}
		m += `,"tool_calls":[` + strings.Join(list, ",") + `]`
	}
	if rapid.Bool().Draw(t, "answers something") {
		m += `,"tool_call_id":` + ids.Draw(t, "answers")
	}
	return m + `}`
})

// edit does to a history what other programs and accidents do.
func edit(t *rapid.T, stored []string) []string {
	at := rapid.IntRange(0, len(stored)).Draw(t, "at")
	if at == len(stored) {
		return append(stored, foreign.Draw(t, "message"))
	}
	to := rapid.IntRange(0, len(stored)-1).Draw(t, "to")
	switch rapid.SampledFrom([]string{"insert", "replace", "delete", "repeat", "move", "cut the end",
		"cut the front"}).Draw(t, "edit") {
	case "insert":
		return slices.Insert(stored, at, foreign.Draw(t, "message"))
	case "replace":
		stored[at] = foreign.Draw(t, "message")
		return stored
	case "delete":
		return slices.Delete(stored, at, at+1)
	case "repeat":
		return slices.Insert(stored, to, stored[at])
	case "move":
		m := stored[at]
		return slices.Insert(slices.Delete(stored, at, at+1), to, m)
	case "cut the end":
		return stored[:at]
	default:
		return stored[at:]
	}
}

func TestForeignEditsAreValid(t *testing.T) {
	w := newWiretap(t)
	rapid.Check(t, func(t *rapid.T) {
		stored := dialogue.Draw(t, "dialogue")
		for range rapid.IntRange(0, 8).Draw(t, "edits") {
			stored = edit(t, stored)
		}
		w.ask(t, history(t, stored), rapid.IntRange(1, 12).Draw(t, "window"))
	})
}
