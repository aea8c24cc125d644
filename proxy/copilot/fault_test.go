package copilot_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

func TestSilenceInTheMiddleOfATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(endless)
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		out, err := s.Stream(t.Context(), nil)
		require.ErrorIs(t, err, copilot.ErrInactive)
		require.Equal(t, "so far ", out.Text)
		require.Len(t, server.Calls("session.abort"), 1)
		server.Script(copilottest.Echo)
		answers(t, s, "again", "echo: again")
	})
}

// Events without a reader still show that the CLI is at work.
func TestNoiseIsASignOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(func(t *copilottest.Turn) {
			for range 20 {
				t.Event("model.thinking_hard", struct{}{})
				time.Sleep(4 * time.Minute)
			}
			t.Say("done")
		})
		answers(t, begin(t, router), "x", "done")
	})
}

// The inactivity time-out rests while a turn is parked.
func TestAParkedTurnMayTakeLong(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(twoTools)
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		out, err := s.Stream(t.Context(), nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		for _, c := range out.Calls {
			require.NoError(t, s.RespondTool(t.Context(), c.ID, copilot.ToolResult{Text: "1"}))
		}
		_, err = s.Stream(t.Context(), nil)
		require.NoError(t, err)
	})
}

func TestOnTextMayCallTheRouter(t *testing.T) {
	_, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "a b c"))
	var inner []string
	_, err := s.Stream(t.Context(), func(string) {
		other := begin(t, router)
		text, err := ask(t.Context(), other, "inner")
		require.NoError(t, err)
		inner = append(inner, text)
		require.NoError(t, other.Close())
	})
	require.NoError(t, err)
	require.NotEmpty(t, inner)
	for _, text := range inner {
		require.Equal(t, "echo: inner", text)
	}
}

// Events that a session's end overtook are no news.
func TestLateEventsOfAClosedSession(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	require.NoError(t, s.Close())
	server.Conns()[0].Event(s.ID(), "assistant.message_delta", map[string]string{"messageId": "1", "deltaContent": "x"})
	server.Conns()[0].Event(s.ID(), "external_tool.requested", map[string]string{
		"requestId": "tool-1", "toolName": "lookup",
	})
	server.Await(t.Context(), "session.tools.handlePendingToolCall", 1)
	require.Zero(t, router.Stats().Orphans)
}

func TestEventsOfAnotherShape(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		t.Event("assistant.message_delta", []int{1})
		t.Event("assistant.message_delta", map[string]any{"messageId": 7, "deltaContent": "x"})
		t.Event("assistant.message", "text")
		t.Conn.Notify("session.event", "no params")
		t.Conn.Notify("session.event", map[string]any{"sessionId": t.Session, "event": nil})
		t.Conn.Notify("session.lifecycle", map[string]any{"type": "session.updated"})
		t.Conn.Notify("host.event", nil)
		t.Conn.Notify("never.heard.of", nil)
		t.Event("assistant.usage", map[string]any{"inputTokens": 1.0, "outputTokens": 2, "cost": "free"})
		t.Say("fine")
	})
	answers(t, begin(t, router), "x", "fine")
	require.EqualValues(t, 3, router.Stats().Malformed)
}

// The answer to session.send and the events of the whole turn lie in one packet.
func TestAnswerDirectlyFollowedByItsEvents(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) {
		event := func(what, data string) []byte {
			return copilottest.Frame(
				fmt.Sprintf(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":%q,"event":{"type":%q,"data":%s}}}`,
					m.Session(), what, data),
			)
		}
		packet := event("assistant.message_delta", `{"messageId":"a","deltaContent":"before "}`)
		packet = append(packet,
			copilottest.Frame(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"messageId":"p"}}`, *m.ID))...)
		for i := range 50 {
			packet = append(packet,
				event("assistant.message_delta", fmt.Sprintf(`{"messageId":"a","deltaContent":"%d "}`, i))...)
		}
		c.Raw(append(packet, event("session.idle", `{}`)...))
	})
	want := "before "
	for i := range 50 {
		want += fmt.Sprintf("%d ", i)
	}
	s := begin(t, router)
	answers(t, s, "x", want)
	answers(t, s, "y", want)
}

func TestEventsBeforeTheCreateAnswer(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.create", func(c *copilottest.Conn, m copilottest.Message) {
		c.Event(m.Session(), "session.start", struct{}{})
		c.Event(m.Session(), "session.shutdown", struct{}{})
		server.Default(c, m)
	})
	s := begin(t, router)
	require.Zero(t, router.Stats().Orphans)
	require.ErrorIs(t, s.Send(t.Context(), "x"), copilot.ErrSessionClosed)
}

func TestAFailedTurnAndTheNext(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		t.Delta("a", "so far ")
		t.Fail("query", "the model is overloaded", 529)
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	var failed *copilot.SessionError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, copilot.SessionError{Type: "query", Message: "the model is overloaded", Status: 529}, *failed)
	require.Equal(t, "so far ", out.Text)
	server.Script(copilottest.Echo)
	answers(t, s, "again", "echo: again")
}

// Behind the error no idle comes: it might come in the next turn.
func TestAFailedTurnThatDoesNotEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(func(t *copilottest.Turn) {
			t.Quiet = true
			t.Fail("query", "no", 0)
		})
		s := begin(t, router)
		_, err := ask(t.Context(), s, "x")
		var failed *copilot.SessionError
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, s.Err(), copilot.ErrSessionClosed)
		require.ErrorIs(t, s.Send(t.Context(), "again"), copilot.ErrSessionClosed)
		require.NoError(t, s.Close())
	})
}

func TestShutdownWithoutIdle(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		t.Quiet = true
		t.Delta("a", "so far ")
		t.Event("session.shutdown", struct{}{})
	})
	s := begin(t, router)
	text, err := ask(t.Context(), s, "x")
	require.ErrorIs(t, err, copilot.ErrSessionClosed)
	require.Equal(t, "so far ", text)
	require.ErrorIs(t, s.Send(t.Context(), "again"), copilot.ErrSessionClosed)
}

// Neither the turn nor its abort comes to an end.
func TestIdleThatNeverComes(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(func(t *copilottest.Turn) {
			t.Quiet = true
			t.Delta("a", "so far ")
		})
		s := begin(t, router)
		_, err := ask(t.Context(), s, "x")
		require.ErrorIs(t, err, copilot.ErrInactive)
		require.ErrorIs(t, s.Err(), copilot.ErrSessionClosed)
		require.Greater(t, len(server.Calls("session.abort")), 1, "an abort may be lost, so it is repeated")
		server.Script(copilottest.Echo)
		answers(t, begin(t, router), "x", "echo: x")
	})
}

// The CLI loses an abort that comes too early, and the turn goes on at full speed.
func TestALostAbortIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Script(func(t *copilottest.Turn) {
			for t.Context().Err() == nil {
				t.Delta("a", "x")
				time.Sleep(time.Millisecond)
			}
		})
		server.Handle("session.abort", func(c *copilottest.Conn, m copilottest.Message) {
			if len(server.Calls("session.abort")) == 1 {
				c.Reply(m, map[string]bool{"success": true})
				return
			}
			server.Default(c, m)
		})
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Stream(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, s.Err())
		require.Len(t, server.Calls("session.abort"), 2)
		server.Script(copilottest.Echo)
		answers(t, s, "again", "echo: again")
	})
}

func TestCloseWhileStreaming(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	st := streaming(t.Context(), s)
	<-st.first
	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() { require.NoError(t, s.Close()) })
	}
	closers.Wait()
	_, err := st.wait()
	require.ErrorIs(t, err, copilot.ErrSessionClosed)
	require.Len(t, server.Calls("session.destroy"), 1)
	require.Zero(t, router.Stats().Routes)

	require.ErrorIs(t, s.Send(t.Context(), "x"), copilot.ErrSessionClosed)
	_, err = s.Stream(t.Context(), nil)
	require.ErrorIs(t, err, copilot.ErrSessionClosed)
	require.ErrorIs(t, s.RespondTool(t.Context(), "1", copilot.ToolResult{}), copilot.ErrSessionClosed)
	require.ErrorIs(t, s.Abort(t.Context()), copilot.ErrSessionClosed)
}

func TestCloseWhileEventsArrive(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		for range 300 {
			t.Delta("a", "x")
		}
	})
	for range 20 {
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		st := streaming(t.Context(), s)
		require.NoError(t, s.Close())
		if _, err := st.wait(); err != nil { // it may have been over
			require.ErrorIs(t, err, copilot.ErrSessionClosed)
		}
	}
	require.Zero(t, router.Stats().Routes)
	require.Zero(t, router.Stats().Orphans)
}

// A CLI that does not answer does not hold up Close.
func TestCloseIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		s := begin(t, router)
		server.Handle("session.destroy", func(*copilottest.Conn, copilottest.Message) {})
		require.ErrorIs(t, s.Close(), context.DeadlineExceeded)
		require.Zero(t, router.Stats().Routes)
	})
}

func TestSendToASessionThatTheCLIHasForgotten(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	server.Conns()[0].Forget(s.ID())
	require.ErrorIs(t, s.Send(t.Context(), "x"), copilot.ErrSessionUnknown)
	require.ErrorIs(t, s.Err(), copilot.ErrSessionUnknown)
}

func TestARefusedPromptLeavesTheSessionUsable(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	server.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) { c.Refuse(m, -32603, "too long") })
	var rpc *copilot.RPCError
	require.ErrorAs(t, s.Send(t.Context(), "x"), &rpc)
	server.Handle("session.send", server.Default)
	answers(t, s, "x", "echo: x")
}
