package copilot_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

func TestATurnStreams(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "hello you there"))
	var pieces []string
	out, err := s.Stream(t.Context(), func(p string) { pieces = append(pieces, p) })
	require.NoError(t, err)
	require.Equal(t, "echo: hello you there", strings.Join(pieces, ""))
	require.Equal(t, strings.Join(pieces, ""), out.Text)
	require.Equal(t, copilot.Usage{Input: 10, Output: 5}, out.Usage)
	require.Empty(t, out.Calls)

	answers(t, s, "again", "echo: again")
	_, err = s.Stream(t.Context(), nil)
	require.ErrorIs(t, err, copilot.ErrNoTurn)
	require.NoError(t, s.Close())
	require.Empty(t, server.Live())
}

func TestWhatASessionIsCreatedWith(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	_, err := router.Create(t.Context(), copilot.SessionConfig{
		Model: "m", System: "Be brief.", Tools: []copilot.Tool{lookup, {Name: "bash"}},
		Provider: &copilot.Provider{Type: "openai", WireAPI: "completions", BaseURL: "http://h/v1", APIKey: "k",
			Headers: map[string]string{"X-A": "b"}},
	})
	require.NoError(t, err)
	_, err = router.Create(t.Context(), copilot.SessionConfig{})
	require.NoError(t, err)
	created := server.Calls("session.create")
	require.Len(t, created, 2)
	const same = `"streaming":true,"requestPermission":true,"skipCustomInstructions":true,"enableConfigDiscovery":false,
		"includeSubAgentStreamingEvents":false,"enableSessionTelemetry":false,"infiniteSessions":{"enabled":false}`
	require.JSONEq(t, `{"sessionId":"`+created[0].Session()+
		`","model":"m","systemMessage":{"mode":"replace","content":"Be brief."},
		"provider":{"type":"openai","wireApi":"completions","baseUrl":"http://h/v1","apiKey":"k","headers":{"X-A":"b"}},
		"tools":[{"name":"lookup","description":"Look something up","parameters":{"type":"object"},"overridesBuiltInTool":true},
			{"name":"bash","description":"","overridesBuiltInTool":true}],
		"availableTools":["custom:lookup","custom:bash"],`+same+`}`, string(created[0].Params))
	require.JSONEq(t, `{"sessionId":"`+created[1].Session()+`","systemMessage":{"mode":"replace","content":""},
		"tools":[],"availableTools":[],`+same+`}`, string(created[1].Params), "no tools is said, or the model would have a shell")
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, created[0].Session())
	require.NotEqual(t, created[0].Session(), created[1].Session())
}

func TestWhatATurnIsBegunWith(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	require.JSONEq(t, `{"sessionId":"`+s.ID()+`","prompt":"x"}`, string(server.Calls("session.send")[0].Params))
}

// twoTools calls lookup twice, says what came back, and fails the turn's author if
// permission was needed and not given.
func twoTools(t *copilottest.Turn) {
	a, b := t.Use("lookup", `{"q":1}`), t.Use("lookup", `{"q":2}`)
	id := t.NewID("message")
	t.Delta(id, "Let me look. ")
	t.Message(id, "Let me look. ", a, b)
	results, ok := t.Run(a, b)
	if !ok {
		return
	}
	for _, r := range results {
		t.Say(r.Type, ":", r.Text+r.Error, " ")
	}
}

func TestToolRoundTrip(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(twoTools)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "Let me look. ", out.Text)
	require.Len(t, out.Calls, 2, "parked only when all calls are known")
	require.Equal(t, "lookup", out.Calls[0].Name)
	require.JSONEq(t, `{"q":1}`, string(out.Calls[0].Arguments))
	require.Equal(t, out.Calls, s.Parked())

	require.ErrorIs(t, s.Send(t.Context(), "y"), copilot.ErrBusy)
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[1].ID, copilot.ToolResult{Text: "broken", Failed: true}))
	again, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, out.Calls[:1], again.Calls, "still parked on the other")
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "42"}))
	out, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "success:42 failure:broken ", out.Text)
	require.Empty(t, out.Calls)
	require.Len(t, server.Calls("session.permissions.handlePendingPermissionRequest"), 2)
	require.Zero(t, router.Stats().Denied)
}

// The CLI asks for calls in the order in which they got permission.
func TestCallsComeAsTheModelMadeThem(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		a, b, c := t.Use("lookup", `1`), t.Use("lookup", `2`), t.Use("lookup", `3`)
		t.Message(t.NewID("message"), "", a, b, c)
		t.Run(c, a, b)
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	var order string
	for _, c := range out.Calls {
		order += string(c.Arguments)
	}
	require.Equal(t, "123", order)
	require.NoError(t, s.Close())
}

// Some models give the same id to every call.
func TestCallsOfOneId(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		a := t.Use("lookup", `{"q":1}`)
		t.Message(t.NewID("message"), "", a, a)
		if results, ok := t.Run(a, a); ok {
			t.Say(results[0].Text, results[1].Text)
		}
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, out.Calls, 2)
	for _, text := range []string{"first ", "second"} {
		require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: text}))
	}
	out, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "first second", out.Text)
}

func TestToolAnswersThatNobodyWaitsFor(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(twoTools)
	s := begin(t, router)
	require.ErrorIs(t, s.RespondTool(t.Context(), "never", copilot.ToolResult{}), copilot.ErrNotPending)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "1"}))
	require.ErrorIs(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "1"}), copilot.ErrNotPending)
	// The CLI has given up the other one by itself.
	server.Handle("session.tools.handlePendingToolCall", func(c *copilottest.Conn, m copilottest.Message) {
		c.Reply(m, map[string]bool{"success": false})
	})
	require.ErrorIs(t, s.RespondTool(t.Context(), out.Calls[1].ID, copilot.ToolResult{Text: "1"}), copilot.ErrNotPending)
	require.Empty(t, s.Parked())
}

// A tool that the model made up is ended by the CLI; the turn parks on the others,
// or not at all.
func TestToolsThatTheModelMadeUp(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		real, made := t.Use("lookup", `{}`), t.Use("nonsense", `{}`)
		t.Message(t.NewID("message"), "", made)
		t.Done(made, false)
		t.Message(t.NewID("message"), "", real, made)
		t.Done(made, false)
		if _, ok := t.Run(real); ok {
			t.Say("done")
		}
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, out.Calls, 1)
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "1"}))
	out, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "done", out.Text)
}

func TestPermissionIsDeniedByDefault(t *testing.T) {
	for name, c := range map[string]struct{ kind, tool string }{
		"a shell":              {"shell", "lookup"},
		"a tool not ours":      {"custom-tool", "other"},
		"a file":               {"write", ""},
		"an unheard-of kind":   {"teleport", "lookup"},
		"a kind that is empty": {"", "lookup"},
	} {
		t.Run(name, func(t *testing.T) {
			server, router := start(t, copilot.RouterConfig{})
			server.Script(func(t *copilottest.Turn) {
				decision, _ := t.Permit(c.kind, copilottest.Call{ID: "1", Name: c.tool})
				t.Say(decision.Kind)
			})
			answers(t, begin(t, router), "x", "reject")
			require.EqualValues(t, 1, router.Stats().Denied)
		})
	}
}

func TestEventsOfSubAgentsAreNotTheAnswer(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		for _, what := range []string{"assistant.message_delta", "assistant.message", "session.error", "session.idle",
			"session.shutdown"} {
			t.Conn.AgentEvent(t.Session, "agent-1", what, map[string]string{"messageId": "sub", "deltaContent": "secret",
				"content": "secret"})
		}
		t.Say("mine")
	})
	answers(t, begin(t, router), "x", "mine")
}

func TestAbortOfOneOfMany(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	var all []*copilot.Session
	var streams []*stream
	for range 5 {
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		st := streaming(t.Context(), s)
		<-st.first
		all, streams = append(all, s), append(streams, st)
	}
	require.NoError(t, all[2].Abort(t.Context()))
	out, err := streams[2].wait()
	require.ErrorIs(t, err, copilot.ErrAborted)
	require.Equal(t, "so far ", out.Text)
	for _, i := range []int{0, 1, 3, 4} {
		select {
		case <-streams[i].done:
			t.Fatal("another session was aborted, too")
		default:
		}
	}
	require.Len(t, server.Calls("session.abort"), 1)
	server.Script(copilottest.Echo)
	answers(t, all[2], "again", "echo: again")
	require.NoError(t, all[2].Abort(t.Context()), "nothing to abort is fine")
	for _, i := range []int{0, 1, 3, 4} {
		require.NoError(t, all[i].Close())
		_, err := streams[i].wait()
		require.ErrorIs(t, err, copilot.ErrSessionClosed)
	}
}

func TestAbortOfAParkedTurn(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(twoTools)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Abort(t.Context()))
	require.Empty(t, s.Parked())
	require.ErrorIs(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{}), copilot.ErrNotPending)
	server.Script(copilottest.Echo)
	answers(t, s, "again", "echo: again")
}

func TestCancelEndsTheTurnOnTheCLI(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	ctx, cancel := context.WithCancel(t.Context())
	st := streaming(ctx, s)
	<-st.first
	cancel()
	out, err := st.wait()
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "so far ", out.Text)
	require.Len(t, server.Calls("session.abort"), 1)
	require.NoError(t, s.Err())
	server.Script(copilottest.Echo)
	answers(t, s, "again", "echo: again")
}

// Nothing is told any more after the end of the context, however much is there.
func TestCancelComesBeforeWhatIsQueued(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		for range 100 {
			t.Say("piece")
		}
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	eventually(t, func() bool { return router.Stats().QueueDepth > 300 }, "all of it is there")
	ctx, cancel := context.WithCancel(t.Context())
	pieces := 0
	_, err := s.Stream(ctx, func(string) { pieces++; cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, pieces)
	require.NoError(t, s.Err())
}

// The CLI loses an abort that overtakes the prompt, so the prompt's answer is
// waited for.
func TestCancelWhileThePromptIsOnItsWay(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	ctx, cancel := context.WithCancel(t.Context())
	server.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) {
		cancel()
		server.Default(c, m)
	})
	s := begin(t, router)
	require.ErrorIs(t, s.Send(ctx, "x"), context.Canceled)
	require.NoError(t, s.Err())
	require.Len(t, server.Calls("session.abort"), 1)
	server.Handle("session.send", server.Default)
	server.Script(copilottest.Echo)
	answers(t, s, "again", "echo: again")
	require.ErrorIs(t, s.Send(ctx, "x"), context.Canceled)
	require.Len(t, server.Calls("session.send"), 2, "an ended context sends nothing")
}

func TestOneReaderAtATime(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	st := streaming(t.Context(), s)
	<-st.first
	_, err := s.Stream(t.Context(), nil)
	require.ErrorIs(t, err, copilot.ErrBusy)
	require.ErrorIs(t, s.Send(t.Context(), "y"), copilot.ErrBusy)
	require.NoError(t, s.Abort(t.Context()))
	_, err = st.wait()
	require.ErrorIs(t, err, copilot.ErrAborted)
}

func TestTextIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		script func(*copilottest.Turn)
		want   string
	}{
		"pieces only":      {func(t *copilottest.Turn) { t.Delta("a", "one "); t.Delta("a", "two") }, "one two"},
		"whole only":       {func(t *copilottest.Turn) { t.Message("a", "one two") }, "one two"},
		"pieces and whole": {func(t *copilottest.Turn) { t.Say("one ", "two") }, "one two"},
		"a lost end":       {func(t *copilottest.Turn) { t.Delta("a", "one "); t.Message("a", "one two") }, "one two"},
		"whole twice":      {func(t *copilottest.Turn) { t.Message("a", "one"); t.Message("a", "one") }, "one"},
		"a piece behind":   {func(t *copilottest.Turn) { t.Message("a", "one"); t.Delta("a", "one") }, "one"},
		"two messages":     {func(t *copilottest.Turn) { t.Say("one ", "two "); t.Say("three") }, "one two three"},
		"mixed": {func(t *copilottest.Turn) {
			t.Delta("a", "1")
			t.Delta("b", "2")
			t.Message("a", "1")
			t.Message("b", "2")
		}, "12"},
		"another whole":       {func(t *copilottest.Turn) { t.Delta("a", "told"); t.Message("a", "other") }, "told"},
		"nothing":             {func(t *copilottest.Turn) {}, ""},
		"runes of many bytes": {func(t *copilottest.Turn) { t.Say("при", "вет", "🙂") }, "привет🙂"},
	} {
		t.Run(name, func(t *testing.T) {
			server, router := start(t, copilot.RouterConfig{})
			server.Script(c.script)
			answers(t, begin(t, router), "x", c.want)
		})
	}
}

func TestDeleteForgets(t *testing.T) {
	_, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	answers(t, s, "x", "echo: x")
	require.NoError(t, s.Close())
	require.NoError(t, router.Delete(t.Context(), s.ID()))
	_, err := router.Resume(t.Context(), s.ID(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrSessionUnknown)
	require.Zero(t, router.Stats().Routes)
}

// Fields of the wire that the fake does not look at itself.
func TestToolResultsOnTheWire(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(twoTools)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "r"}))
	var p struct {
		SessionID string            `json:"sessionId"`
		RequestID string            `json:"requestId"`
		Result    map[string]string `json:"result"`
	}
	require.NoError(t, json.Unmarshal(server.Calls("session.tools.handlePendingToolCall")[0].Params, &p))
	require.Equal(t, map[string]string{"textResultForLlm": "r", "resultType": "success"}, p.Result)
	require.Equal(t, s.ID(), p.SessionID)
	require.NotEmpty(t, p.RequestID)
}
