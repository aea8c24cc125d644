package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/testtier"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// desk is a service with keys and a subagent that pays money back where a person says yes, and books seats, for which
// its tool asks a person. called counts both.
type desk struct {
	*tenanted
	called              atomic.Int64
	admin, reader, chat string
	paying              func() // what comes before money is paid back; nil for nothing
}

func withDesk(t *testing.T) *desk {
	d := &desk{}
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.paying != nil {
			d.paying()
		}
		d.called.Add(1)
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, `{"paid":%s}`, body)
	}))
	t.Cleanup(shop.Close)
	ferry := mcp.NewServer(&mcp.Implementation{Name: "ferry", Version: "1"}, nil)
	form := &mcp.ElicitParams{Message: "Which seat?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"seat":{"type":"string"}}}`)}
	ferry.AddTool(&mcp.Tool{Name: "book", Description: "Books seats.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.InputResponses == nil {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"seat": form}}, nil
			}
			d.called.Add(1)
			said, err := json.Marshal(r.Params.InputResponses)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(said)}}}, err
		})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return ferry },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(`
mcp: {ferry: {url: "`+web.URL+`"}}
agents:
  subagents:
  - name: desk
    description: It can refund and book.
    tools:
    - http: {name: refund, description: Pays back., method: POST, url: "`+shop.URL+`/refunds",
        parameters: {type: object, properties: {id: {type: integer}}, required: [id]}}
      approve: always
    - {mcp: ferry, allow: [book]}
`), 0o600))
	d.tenanted = withKeys(t)
	d.admin, d.reader = d.key("acme", access.Admin), d.key("acme", access.MemoryRead)
	d.chat = d.key("acme", access.Chat)
	return d
}

// waiting is a run that waits, and where it is answered.
type waiting struct {
	run, wait, chat, resume string
}

// waitFor returns a run of a chat that waits for an answer of a kind.
func (d *desk) waitFor(kind, chat string) waiting {
	d.t.Helper()
	message := map[string]string{event.Approval: `use refund {\"id\":1}`, event.Question: "use book {}",
		event.ClientResult: "use light {}"}[kind]
	status, got := ask(d.t, "POST", d.url("/v1/chats/"+chat+"/messages"), d.chat, `{"message":"`+message+
		`","tools":[{"name":"light","description":"Lights.","parameters":{"type":"object"}}]}`)
	require.Equal(d.t, http.StatusAccepted, status, got)
	require.Equal(d.t, kind, gjson.Get(got, "waits.0.kind").Str, got)
	run := gjson.Get(got, "run_id").Str
	return waiting{run, gjson.Get(got, "waits.0.id").Str, chat, "/v1/chats/" + chat + "/runs/" + run + "/resume"}
}

// waits is after the chat's run waits for what has a text in it; it is shown a moment before it does.
func (d *desk) waits(chat, what string) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		_, info := ask(d.t, "GET", d.url("/v1/chats/"+chat), d.reader, "")
		return strings.Contains(gjson.Get(info, "waiting.waits").Raw, what)
	}, time.Minute, 5*time.Millisecond, "the run of %s waits for %s", chat, what)
}

// audited are the actions in the audit log, about a target that has a text in it.
func (d *desk) audited(target string) (actions []string) {
	d.t.Helper()
	status, got := ask(d.t, "GET", d.url("/v1/audit?limit=1000"), d.admin, "")
	require.Equal(d.t, http.StatusOK, status, got)
	for _, e := range gjson.Get(got, "entries").Array() {
		if strings.Contains(e.Get("target").Str, target) {
			actions = append(actions, e.Get("action").Str)
		}
	}
	return actions
}

// What an answer takes follows from what the run waits for, whatever the answer has: its decision, arguments and result
// in all their combinations, by each kind of wait, by OpenAI's endpoint and by useChat's.
func TestAnAnswerTakesTheRightOfItsWait(t *testing.T) {
	testtier.Slow(t)
	d := withDesk(t)
	keys := map[string]string{"chat": d.chat, "chat,approve": d.key("acme", access.Chat, access.Approve),
		"memory:read": d.reader}
	type answer struct{ decision, arguments, result string }
	// What each kind takes: whether it has the tool go on, and whether it is a person's word.
	takes := map[string]map[answer]struct{ calls, person bool }{
		event.Approval: {
			{"approve", "", ""}: {true, true}, {"edit", `{"id":2}`, ""}: {true, true}, {"deny", "", ""}: {},
		},
		event.Question:     {{"approve", "", `{"seat":"7a"}`}: {true, true}, {"deny", "", ""}: {}},
		event.ClientResult: {{"approve", "", `{"seat":"7a"}`}: {}, {"deny", "", ""}: {}},
	}
	n := 0
	try := func(kind, place string, a answer, scopes string) {
		n++
		chat := fmt.Sprintf("c%d", n)
		w := d.waitFor(kind, chat)
		name := fmt.Sprintf("%s of a wait %s/%s with %+v by %s", w.run, place, kind, a, scopes)
		path, body := w.resume, `{"answers":[{"id":"`+w.wait+`","decision":"`+a.decision+`"`
		if a.arguments != "" {
			body += `,"arguments":` + a.arguments
		}
		if a.result != "" {
			body += `,"result":` + a.result
		}
		body += "}]}"
		if place == "openai" {
			path = "/c/" + chat + "/v1/chat/completions"
			body = fmt.Sprintf(`{"model":"mneme","messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":%q,`+
				`"content":%q}]}`, "call_"+w.run+"_"+w.wait, a.result)
		}
		if place == "ui" {
			path = "/v1/chats/" + chat + "/ui"
			state := `"state":"output-available","output":` + a.result
			if kind == event.Approval {
				state = fmt.Sprintf(`"state":"approval-responded","approval":{"id":"call_%s_%s","approved":%v}`, w.run, w.wait,
					a.decision == event.Approve)
			} else if a.decision == event.Deny {
				state = `"state":"output-error","errorText":"no"`
			}
			body = fmt.Sprintf(`{"trigger":"submit-message","messages":[{"id":%q,"role":"assistant","parts":[{"type":"dynamic-tool",`+
				`"toolCallId":"call_%s_%s",%s}]}]}`, w.run, w.run, w.wait, state)
		}
		want, fits := takes[kind][a]
		status, action := http.StatusOK, []string(nil)
		switch {
		case scopes == "memory:read":
			status = http.StatusForbidden
		case !fits:
			status = http.StatusBadRequest
		case want.person && scopes == "chat":
			status = http.StatusForbidden
		case kind != event.ClientResult:
			action = []string{kind + "." + a.decision}
		}
		calls := d.called.Load()
		if status == http.StatusOK && want.calls {
			calls++
		}
		got, said := ask(t, "POST", d.url(path), keys[scopes], body)
		require.Equal(t, status, got, "%s: %s", name, said)
		require.Equal(t, calls, d.called.Load(), name)
		require.Equal(t, action, d.audited("chats/"+chat+"/"), name)
		if status == http.StatusOK {
			if a.result != "" && (place != "openai" || kind == event.ClientResult) { // where all results are texts, and no forms
				require.Contains(t, said, "7a", name)
			}
			again, said := ask(t, "POST", d.url(path), keys[scopes], body)
			require.Equal(t, http.StatusOK, again, "%s, once more: %s", name, said)
			require.Equal(t, calls, d.called.Load(), name)
			require.Equal(t, action, d.audited("chats/"+chat+"/"), "%s: the action is logged once", name)
			return
		}
		if status == http.StatusForbidden && scopes == "chat" {
			require.Contains(t, said, "it needs the scope approve", name)
		}
		d.waits(chat, w.wait)
	}
	for _, kind := range []string{event.Approval, event.Question, event.ClientResult} {
		for _, decision := range []string{event.Approve, event.Edit, event.Deny} {
			for _, arguments := range []string{"", `{"id":2}`} {
				for _, result := range []string{"", `{"seat":"7a"}`} {
					for _, scopes := range []string{"chat", "chat,approve"} {
						try(kind, "chat", answer{decision, arguments, result}, scopes)
					}
				}
			}
		}
		for scopes := range keys {
			try(kind, "openai", answer{event.Approve, "", `{"seat":"7a"}`}, scopes)
			yes := answer{event.Approve, "", `{"seat":"7a"}`}
			if kind == event.Approval {
				yes.result = ""
			}
			try(kind, "ui", yes, scopes)
			try(kind, "ui", answer{event.Deny, "", ""}, scopes)
		}
		try(kind, "chat", answer{event.Deny, "", ""}, "memory:read")
	}
}

// An agent that speaks MCP has runs wait, and answers none, whatever its key may: that is a person's.
func TestNoToolOfMCPAnswersAWait(t *testing.T) {
	d := withDesk(t)
	for name, key := range map[string]string{"a": d.chat, "b": d.key("acme", access.Chat, access.Approve)} {
		s := mcpConnect(t, mcpKeyed(d.up, key), "2026-07-28")
		said := mcpText(t, s, "ask", map[string]any{"chat": name, "message": `use refund {"id": 1}`})
		require.Contains(t, said, "refund")
		list, err := s.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, list.Tools, 3)
		for _, beside := range []string{"answers", "decision", "after", "on_busy", "result"} {
			said = mcpText(t, s, "ask", map[string]any{"chat": name, "message": "x", beside: "approve"})
			require.Contains(t, said, beside, "it is refused by its name")
		}
		_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "resume", Arguments: map[string]any{"chat": name}})
		require.Error(t, err)
		d.waits(name, "refund")
	}
	require.Zero(t, d.called.Load())
}

// A caller that may chat takes back the newest exchange, as by regenerating its answer, and nothing before it, by
// whichever parameter of a request.
func TestTakingBackMoreThanTheNewestExchangeTakesItsRight(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := withKeys(t)
	chat, writer := s.key("acme", access.Chat), s.key("acme", access.Chat, access.MemoryWrite)
	reader, admin := s.key("acme", access.MemoryRead), s.key("acme", access.Admin)
	said := func(c string) (texts, ids []string) {
		t.Helper()
		status, got := ask(t, "GET", s.url("/v1/chats/"+c+"/history"), reader, "")
		require.Equal(t, http.StatusOK, status, got)
		for _, m := range gjson.Get(got, "messages").Array() {
			ids = append(ids, m.Get("id").Str)
			if m.Get("role").Str == "user" {
				texts = append(texts, m.Get("content").Str)
			}
		}
		return texts, ids
	}
	post := func(key, c, text string, after *string, beside string) (int, string) {
		t.Helper()
		body, err := json.Marshal(webapi.MessageRequest{Message: text, ParentID: after})
		require.NoError(t, err)
		return ask(t, "POST", s.url("/v1/chats/"+c+"/messages"), key, strings.TrimSuffix(string(body), "}")+beside+"}")
	}
	must := func(key, c, text string, after *string) {
		t.Helper()
		status, got := post(key, c, text, after, "")
		require.Equal(t, http.StatusOK, status, got)
	}
	rewinds := func(c string) int {
		t.Helper()
		_, got := ask(t, "GET", s.url("/v1/audit?limit=1000"), admin, "")
		return strings.Count(got, `"action":"chat.rewind","target":"chats/`+c+`/runs/`)
	}
	start := ""
	must(chat, "1", "one", &start)
	must(chat, "1", "one again", &start)
	must(chat, "1", "two", nil)
	must(chat, "1", "three", nil)
	_, ids := said("1")
	require.Len(t, ids, 6)
	for _, after := range []string{"", ids[0], ids[1]} {
		for _, beside := range []string{"", `,"on_busy":"interrupt"`, `,"on_busy":"reject"`, `,"if_last":"` + ids[5] + `"`} {
			status, got := post(chat, "1", "x", &after, beside)
			require.Equal(t, http.StatusForbidden, status, got)
			require.Contains(t, got, "More than the newest exchange", got)
			require.Contains(t, got, "it needs the scope memory:write", got)
		}
	}
	must(chat, "1", "three again", &ids[3])
	texts, _ := said("1")
	require.Equal(t, []string{"one again", "two", "three again"}, texts)
	_, got := ask(t, "GET", s.url("/v1/chats/1/set-aside"), reader, "")
	require.Len(t, gjson.Get(got, "set_aside").Array(), 2)
	require.Zero(t, rewinds("1"), "the newest exchange")
	must(writer, "1", "all anew", &start)
	texts, _ = said("1")
	require.Equal(t, []string{"all anew"}, texts)
	require.Equal(t, 1, rewinds("1"))

	t.Run("of a subagent, whose words are older than the chat's own", func(t *testing.T) {
		must(chat, "2", "Tell the analytic subagent to remember 4711.", nil)
		status, got := ask(t, "DELETE", s.url("/v1/chats/2/history"), writer, "")
		require.Equal(t, http.StatusOK, status, got)
		must(chat, "2", "hello", nil)
		status, got = post(chat, "2", "x", &start, "")
		require.Equal(t, http.StatusForbidden, status, got)
		_, got = ask(t, "GET", s.url("/v1/chats/2/subagents/analytic/history"), reader, "")
		require.Contains(t, got, "4711")
	})

	t.Run("by OpenAI's endpoint", func(t *testing.T) {
		complete := func(key, id, parent, text, more string) answered {
			return keyed{"POST", s.url("/c/3/v1/chat/completions"), key,
				`{"model":"mneme","messages":[{"role":"user","content":"` + text + `"}]` + more + `}`,
				[]string{"Mneme-Message-Id", id, "Mneme-Parent-Id", parent}}.do(t)
		}
		for _, text := range []string{"one", "two", "three"} {
			require.Equal(t, http.StatusOK, complete(chat, text, "", text, "").status)
		}
		_, ids := said("3")
		for _, stream := range []string{"", `,"stream":true`} {
			got := complete(chat, "new", "one", "other", stream)
			require.Equal(t, http.StatusForbidden, got.status, got.body)
			require.Equal(t, "permission_error", gjson.Get(got.body, "error.type").Str)
			require.Contains(t, gjson.Get(got.body, "error.message").Str, "it needs the scope memory:write")
		}
		got := complete(chat, "new", "two", "the last, changed", "")
		require.Equal(t, http.StatusOK, got.status, got.body)
		texts, after := said("3")
		require.Equal(t, []string{"one", "two", "the last, changed"}, texts)
		require.Equal(t, ids[:4], after[:4], "nothing before it went")
		require.Zero(t, rewinds("3"))
		got = complete(writer, "newer", "one", "other", "")
		require.Equal(t, http.StatusOK, got.status, got.body)
		texts, _ = said("3")
		require.Equal(t, []string{"one", "other"}, texts)
		require.Equal(t, 1, rewinds("3"))
	})
}

// An approver answers for a person without the scope chat, and a key with only chat sees no pending arguments.
func TestAPendingRunNeedsOnlyTheScopeOfItsAct(t *testing.T) {
	d := withDesk(t)
	approver := d.key("acme", access.Approve)
	answer := func(w waiting, key, rest string) int {
		t.Helper()
		status, _ := ask(t, "POST", d.url(w.resume), key, `{"answers":[{"id":"`+w.wait+`",`+rest+`}]}`)
		return status
	}
	for i, c := range []struct {
		kind, rest    string
		status, calls int
	}{
		{event.Approval, `"decision":"approve"`, 200, 1}, {event.Approval, `"decision":"deny"`, 200, 0},
		{event.Question, `"decision":"approve","result":{"seat":"7a"}`, 200, 1}, {event.Question, `"decision":"deny"`, 200, 0},
		{event.ClientResult, `"decision":"approve","result":{"x":1}`, 403, 0},
	} {
		before := d.called.Load()
		w := d.waitFor(c.kind, fmt.Sprintf("approver-%d", i))
		require.Equal(t, c.status, answer(w, approver, c.rest), "%+v", c)
		require.EqualValues(t, c.calls, d.called.Load()-before, "%+v", c)
	}
	for kind, want := range map[string]int{event.Approval: 204, event.ClientResult: 200} {
		w := d.waitFor(kind, "stream-"+kind)
		d.waits(w.chat, w.wait) // any key with chat may follow the stream of a live run
		for _, c := range []struct {
			key    string
			status int
		}{
			{d.chat, want}, {d.key("acme", access.Chat, access.Approve), 200},
			{d.key("acme", access.Chat, access.MemoryRead), 200},
		} {
			status, got := ask(t, "GET", d.url("/v1/chats/"+w.chat+"/ui/x/stream"), c.key, "")
			require.Equal(t, c.status, status, kind)
			require.Equal(t, c.status == 200, strings.Contains(got, w.wait), kind)
		}
	}
}
