package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// chatKeysAndIDs returns the keys in Redis that do not belong to the processes, and the ids of the listed chats.
func chatKeysAndIDs(w *webmemorytest.World) []string {
	own := []string{"mneme:epoch", "mneme:processes", "mneme:chats", "*filled"}
	all := append(w.Redis.Keys(context.Background(), "*").Val(), w.Redis.ZRange(context.Background(), "mneme:chats", 0,
		-1).Val()...)
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(own, name) })
}

// A one-shot is answered as a message is, from what it brings, and nothing is kept of it.
func TestAOneShot(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	posted := w.RecordRuns()
	body := `{"message":"hi","instructions":"Be brief.","user":"ann","context":[{"role":"user","content":"before"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","content":"7","tool_call_id":"t"},{"role":"assistant","content":"ok"}]}`
	got := w.Do("POST", "/v1/oneshot", body, "Prefer", "respond-async", "Last-Event-ID", "3")
	require.Equal(t, 200, got.Status, string(got.Body))
	var out webapi.Result
	require.NoError(t, json.Unmarshal(got.Body, &out))
	require.Equal(t, "hello", out.Content)
	require.Equal(t, got.RunID(), out.RunID)
	var asked api.RunRequest
	require.NoError(t, json.Unmarshal(<-posted, &asked))
	require.Len(t, asked.Context, 4)
	require.Equal(t, "Be brief.", asked.Instructions)
	require.Equal(t, "ann", asked.User)
	require.True(t, asked.Memory.CallsOnly)
	require.NotEmpty(t, asked.ConversationID)

	tr := w.Stream("POST", "/v1/oneshot", `{"message":"hi","agent_version":"analytic","context":[{"role":"user","content":"x"}]}`)
	require.Equal(t, []string{"run_started", "subagent_delegation", "subagent_completion", "assistant_delta", "assistant",
		"run_finished"}, tr.Roles())
	require.Equal(t, "6", tr.LastID)
	var next api.RunRequest
	require.NoError(t, json.Unmarshal(<-posted, &next))
	require.Empty(t, next.Context)
	require.Len(t, next.SubagentContexts["analytic"], 1)
	require.NotEqual(t, asked.ChatID, next.ChatID)
	require.NotEqual(t, asked.ConversationID, next.ConversationID)

	require.Equal(t, 200, w.Do("POST", "/v1/oneshot", `{"message":"hi","bare":true}`).Status)
	require.Contains(t, string(<-posted), `"bare":true`)
	webmemorytest.Eventually(t, "they are over", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), "\nmneme_runs_total{outcome=\"completed\"} 3\n")
	})
	require.Empty(t, chatKeysAndIDs(w))
	webmemorytest.Eventually(t, "what was said to models is erased", func() bool { return len(w.Gateway.Erased()) == 3 })
}

func TestBadOneShots(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	for body, says := range map[string]string{
		`{}`:                               "message is missing",
		`{"message":"hi","chat_id":1}`:     `no member "chat_id"`,
		`{"message":"hi","context":{}}`:    "context must be an array",
		`{"message":"hi","context":["x"]}`: "context[0]: ",
		`{"message":"hi","context":[{"role":"user","content":"x"},{"role":"system","content":"x"}]}`: "context[1]: role is user",
		`{"message":"hi","context":[{"role":"user","content":["x"]}]}`:                               "content must be a string",
		`{"message":"hi","context":[{"role":"tool","content":"x"}]}`:                                 "tool_call_id",
		`{"message":"hi","context":[{"role":"user","tool_calls":[{"id":"t"}]}]}`:                     "only an assistant",
		`{"message":"hi","context":[{"role":"assistant","tool_calls":[{"id":"t"}]}]}`:                "its function's name",
		`{"message":"hi","context":[{"role":"tool","content":"x","tool_call_id":"t1"}]}`:             `the result of a call "t1"`,
		`{"message":"","context":[{"role":"user","content":"x"}]}`:                                   "message is missing",
		`{"message":"hi","bare":true,"agent_version":"analytic"}`:                                    "bare goes with the master",
		`{"message":"hi","bare":true,"tools":[{"name":"f","parameters":{"type":"object"}}]}`:         "bare goes with the master",
		`{"message":"hi","agent_version":"nobody"}`:                                                  "agent_version",
		`{"message":"hi","tools":[{"name":"f"}]}`:                                                    `parameters of the tool "f"`,
	} {
		got := w.Do("POST", "/v1/oneshot", body)
		require.Equal(t, 400, got.Status, "%s: %s", body, got.Body)
		require.Contains(t, got.Problem(t).Message, says, body)
	}
	require.Equal(t, 404, w.Do("POST", "/v1/oneshot/none/resume", webmemorytest.Approve("w")).Status)
	require.Equal(t, 405, w.Do("GET", "/v1/oneshot", nil).Status)
	w.LoseRuns()
	require.Equal(t, "apiserver_unavailable", w.Do("POST", "/v1/oneshot", webmemorytest.Message("hi")).Problem(t).Code)
	require.Empty(t, chatKeysAndIDs(w))
}

// A client that hangs up stops its run, a process that stops says so, and one-shots count among what is in hand.
func TestAOneShotThatIsLeft(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{}, 10)
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		<-ctx.Done()
		stopped <- struct{}{}
		emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
	}, func(c *webmemory.Config) { c.MaxChats = 1 })
	tr := w.Stream("POST", "/v1/oneshot", webmemorytest.Message("hi"))
	tr.Until("run_started")
	require.Equal(t, "too_many_chats", w.Do("POST", "/v1/oneshot", webmemorytest.Message("more")).Problem(t).Code)
	require.NoError(t, tr.Response.Body.Close())
	<-stopped
	var second *webmemorytest.Stream
	webmemorytest.Eventually(t, "there is room again", func() bool {
		resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/oneshot", webmemorytest.Message("two"), "Accept",
			"text/event-stream"))
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		second = webmemorytest.NewStream(t, resp)
		return resp.StatusCode == http.StatusOK
	})
	second.Until("run_started")
	w.Shutdown(w.URL)
	require.Contains(t, string(second.Until("error")), `"shutting_down"`)
	<-stopped
	require.Empty(t, chatKeysAndIDs(w))
}

// light is a wait for a tool of the client's.
func light(api.RunRequest) []event.Wait {
	return []event.Wait{{ID: "w1", Kind: event.ClientResult, ToolCallID: "t1", Tool: "light", Arguments: json.RawMessage(`{}`),
		Reason: "light asks", ExpiresAt: event.Seconds(time.Now().Add(24 * time.Hour))}}
}

// A one-shot ends with the calls of its client's tools. The client sends the results with the transcript in a new one.
func TestAOneShotCallsItsClientsTools(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	s := w.ScriptApiserver(webmemorytest.SuspendOn(light))
	const tools = `"tools":[{"name":"light","parameters":{"type":"object"}}]`
	got := w.Do("POST", "/v1/oneshot", `{"message":"on",`+tools+`}`)
	require.Equal(t, 202, got.Status, string(got.Body))
	var waiting webapi.Waiting
	require.NoError(t, json.Unmarshal(got.Body, &waiting))
	require.Len(t, waiting.Pending, 1)
	require.Equal(t, "light", waiting.Pending[0].Tool)
	require.True(t, s.Requests()[0].CanWait)
	require.Empty(t, chatKeysAndIDs(w))

	transcript := `"context":[{"role":"user","content":"on"},{"role":"assistant","tool_calls":[{"id":"t1","type":"function",` +
		`"function":{"name":"light","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":"lit"}]`
	w.Target(w.StartReplica(), func() {
		require.Equal(t, 202, w.Do("POST", "/v1/oneshot", `{"message":"",`+transcript+`,`+tools+`}`).Status, "it calls the tool again")
	})
	require.Len(t, s.Requests()[1].Context, 3)
	require.NotEqual(t, s.Requests()[0].ConversationID, s.Requests()[1].ConversationID)
	old := w.Do("POST", "/v1/oneshot/"+waiting.RunID+"/resume", webmemorytest.Approve("w1")).Problem(t)
	require.Contains(t, old.Message, "send the transcript with the tool's result as context to POST /v1/oneshot")

	// A wait for a person is denied.
	w.ScriptApiserver(webmemorytest.SuspendOn(webmemorytest.OneApproval))
	tr := w.Stream("POST", "/v1/oneshot", `{"message":"refund me",`+tools+`}`)
	require.Contains(t, string(tr.Until("subagent_completion")), "denied")
	require.Contains(t, string(tr.Until("run_finished")), `"stopped"`)
	require.Empty(t, chatKeysAndIDs(w))
}

// Each call of an outside tool by a one-shot is granted once.
func TestCallsOfAOneShot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := webmemorytest.NewWorld(t, nil)
	accesses := make(chan api.MemoryAccess)
	over := make(chan struct{})
	w.ScriptApiserver(func(ctx context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message})
		accesses <- *r.Memory
		select {
		case <-over:
		case <-ctx.Done():
			return
		}
		emit(event.Head{}, &event.Assistant{Content: "done"})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	claim := func(at api.MemoryAccess, r memory.ClaimRequest) memory.Claimed {
		t.Helper()
		got, err := at.Claim(ctx, r)
		require.NoError(t, err)
		return got
	}
	settle := func(at api.MemoryAccess, id string) {
		t.Helper()
		require.NoError(t, at.Settle(ctx, id, "paid", false))
	}
	w.Stream("POST", "/v1/oneshot", webmemorytest.Message("hi"))
	at := <-accesses
	first := claim(at, refund(1))
	require.Equal(t, memory.CallGranted, first.State)
	require.Equal(t, memory.CallUnknown, claim(at, refund(1)).State)
	repeatable := refund(1)
	repeatable.Repeatable = true
	require.Equal(t, memory.CallGranted, claim(at, repeatable).State)
	settle(at, first.CallID)
	require.Equal(t, memory.Claimed{CallID: first.CallID, State: memory.CallDone, Result: "paid"}, claim(at, repeatable))
	require.ErrorIs(t, at.Settle(ctx, "none", "", false), &api.Problem{Code: "unknown_call"})
	found, err := at.Recall(ctx, memory.RecallRequest{Query: "hi"})
	require.NoError(t, err)
	require.Empty(t, found.Hits)
	_, err = at.Remember(ctx, memory.RememberRequest{Quote: "hi"})
	require.ErrorContains(t, err, "without a chat")
	stranger := at
	stranger.Token = "other"
	_, err = stranger.Claim(ctx, refund(1))
	require.ErrorIs(t, err, &api.Problem{Code: "run_not_held"})
	over <- struct{}{}
	webmemorytest.Eventually(t, "no calls after the end", func() bool {
		_, err := at.Claim(ctx, refund(1))
		return err != nil
	})
	require.Empty(t, chatKeysAndIDs(w))
}

// The client posts all that a message may say, and one-shots.
func TestTheClientPosts(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, nil)
	w.ScriptApiserver(webmemorytest.SuspendOn(light))
	c, err := webapi.New(w.URL)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	walk := func(events iter.Seq2[event.Event, error]) (last event.Event, err error) {
		for e, err := range events {
			if err != nil {
				return last, err
			}
			last = e
		}
		return last, nil
	}
	chat, none := memory.MustChat("1"), ""
	last, err := walk(c.Post(t.Context(), chat, placed("plain one", &none, &none), ""))
	require.NoError(t, err)
	require.True(t, last.Terminal())
	_, err = walk(c.Post(t.Context(), chat, placed("plain two", nil, &none), ""))
	require.ErrorIs(t, err, &api.Problem{Code: webapi.CodeMessagesSince})
	last, err = walk(c.OneShot(t.Context(), webapi.OneShotRequest{Message: "on"}))
	require.NoError(t, err)
	require.True(t, last.Blocking())
}

// A process that is killed leaves nothing of its one-shots.
func TestAOneShotWhoseProcessIsKilled(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil))
	url, process := w.StartChild(w.ChildConfig())
	w.Target(url, func() { w.Stream("POST", "/v1/oneshot", webmemorytest.Message("hi")).Until("subagent_delegation") })
	process.Kill()
	require.Empty(t, chatKeysAndIDs(w))
	require.Equal(t, 200, w.Do("GET", "/readyz", nil).Status, fmt.Sprint(chatKeysAndIDs(w)))
}
