package copilot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

func TestKilledMidStream(t *testing.T) {
	for name, kill := range map[string]func(*copilottest.Conn){
		"closed": (*copilottest.Conn).Close, "reset": (*copilottest.Conn).Reset,
	} {
		t.Run(name, func(t *testing.T) {
			server, router := start(t, copilot.RouterConfig{})
			server.Script(endless)
			var streams []*stream
			for range 7 {
				s := begin(t, router)
				require.NoError(t, s.Send(t.Context(), "x"))
				st := streaming(t.Context(), s)
				<-st.first
				streams = append(streams, st)
			}
			kill(server.Conns()[0])
			for _, st := range streams {
				out, err := st.wait()
				require.ErrorIs(t, err, copilot.ErrTransportClosed)
				require.Equal(t, "so far ", out.Text)
				require.Equal(t, "so far ", st.all)
			}
			<-router.Done()
			require.ErrorIs(t, router.Err(), copilot.ErrTransportClosed)
			if name == "closed" {
				require.ErrorIs(t, router.Err(), io.EOF)
			}
			stats := router.Stats()
			require.Zero(t, stats.Routes)
			require.Zero(t, stats.Pending)
			_, err := router.Create(t.Context(), copilot.SessionConfig{})
			require.ErrorIs(t, err, copilot.ErrTransportClosed)
		})
	}
}

// What had arrived before the end is delivered before it.
func TestEventsBeforeTheEndAreDelivered(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		t.Quiet = true
		for range 100 {
			t.Delta("a", "x")
		}
		t.Conn.Close()
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	<-router.Done()
	out, err := s.Stream(t.Context(), nil)
	require.ErrorIs(t, err, copilot.ErrTransportClosed)
	require.Equal(t, strings.Repeat("x", 100), out.Text)
	require.NoError(t, s.Close())
}

func TestAPeerThatFellSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		server.Handle("ping", func(*copilottest.Conn, copilottest.Message) {})
		server.Script(endless)
		s := begin(t, router)
		require.NoError(t, s.Send(t.Context(), "x"))
		_, err := s.Stream(t.Context(), nil)
		require.ErrorIs(t, err, copilot.ErrTransportClosed)
	})
}

func TestAPeerThatOnlyAnswersPings(t *testing.T) {
	inBubble(t, func(t *testing.T, server *copilottest.Server, router *copilot.Router) {
		time.Sleep(time.Hour)
		require.Greater(t, len(server.Calls("ping")), 100)
		require.NoError(t, router.Err())
	})
}

func TestEventsOfUnknownSessions(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	c := server.Conns()[0]
	c.Event("nobody", "assistant.message_delta", map[string]string{"messageId": "1", "deltaContent": "x"})
	c.Event("nobody", "external_tool.requested", map[string]string{"requestId": "tool-1", "toolName": "lookup"})
	c.Event("nobody", "permission.requested", map[string]any{
		"requestId": "permission-1", "permissionRequest": map[string]string{"kind": "custom-tool"},
	})
	c.Event("", "session.idle", struct{}{})
	answered := server.Await(t.Context(), "session.tools.handlePendingToolCall", 1)
	require.JSONEq(t, `{"sessionId":"nobody","requestId":"tool-1","error":"this session is not served here any more"}`,
		string(answered[0].Params))
	denied := server.Await(t.Context(), "session.permissions.handlePendingPermissionRequest", 1)
	require.Contains(t, string(denied[0].Params), `"reject"`)
	answers(t, begin(t, router), "x", "echo: x")
	require.EqualValues(t, 4, router.Stats().Orphans)
}

func TestSessionCreatedTooLate(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	held := make(chan copilottest.Message, 1)
	server.Handle("session.create", func(_ *copilottest.Conn, m copilottest.Message) { held <- m })
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := router.Create(ctx, copilot.SessionConfig{})
		failed <- err
	}()
	m := <-held
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Zero(t, router.Stats().Routes)
	server.Default(server.Conns()[0], m)
	destroyed := server.Await(t.Context(), "session.destroy", 1)
	require.Equal(t, m.Session(), destroyed[0].Session())
	require.EqualValues(t, 1, router.Stats().Late)
	eventually(t, func() bool { return len(server.Live()) == 0 }, "the session is gone from the CLI")
}

func TestARefusedCreateLeavesNothing(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.create", func(c *copilottest.Conn, m copilottest.Message) {
		c.Refuse(m, -32603, "Request session.create failed with message: no such model")
	})
	_, err := router.Create(t.Context(), copilot.SessionConfig{})
	var rpc *copilot.RPCError
	require.ErrorAs(t, err, &rpc)
	require.Equal(t, -32603, rpc.Code)
	require.Equal(t, "session.create", rpc.Method)
	require.Zero(t, router.Stats().Routes)
}

func TestAnotherSessionThanAskedFor(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.create", func(c *copilottest.Conn, m copilottest.Message) {
		c.Reply(m, map[string]string{"sessionId": "mine-instead"})
	})
	_, err := router.Create(t.Context(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrProtocol)
	require.Zero(t, router.Stats().Routes)
	server.Await(t.Context(), "session.destroy", 1)
}

func TestALiveIdIsNotGivenTwice(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	s := begin(t, router)
	_, err := router.Resume(t.Context(), s.ID(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrSessionLive)
	require.Empty(t, server.Calls("session.resume"))
	answers(t, s, "x", "echo: x")
}

func TestUnknownRequestOfTheCLI(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		m, ok := t.Conn.Ask("hooks.invoke", map[string]string{"sessionId": t.Session, "hookType": "sessionStart"})
		if ok && strings.Contains(string(m.Error), "-32601") {
			t.Say("went on")
		}
	})
	answers(t, begin(t, router), "x", "went on")
}

func TestToolCallAsRequest(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(func(t *copilottest.Turn) {
		call := t.Use("lookup", `{"q":1}`)
		t.Message(t.NewID("message"), "", call)
		params := map[string]any{"sessionId": t.Session, "toolCallId": call.ID, "toolName": "lookup",
			"arguments": call.Arguments}
		m, _ := t.Conn.Ask("tool.call", params)
		t.Say(string(m.Result))
		params["toolName"] = "other"
		m, _ = t.Conn.Ask("tool.call", params)
		t.Say(string(m.Error))
		params["sessionId"] = "nobody"
		m, _ = t.Conn.Ask("tool.call", params)
		t.Say(string(m.Error))
		m, _ = t.Conn.Ask("tool.call", "nonsense")
		t.Say(string(m.Error))
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, out.Calls, 1)
	require.JSONEq(t, `{"q":1}`, string(out.Calls[0].Arguments))
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "42"}))
	out, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, out.Text, `{"result":{"textResultForLlm":"42","resultType":"success"}}`)
	require.Contains(t, out.Text, "this tool is not served here")
	require.Contains(t, out.Text, "this session is not served here any more")
	require.Contains(t, out.Text, "-32602")
}

func TestTheRouterIsClosed(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Script(endless)
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	st := streaming(t.Context(), s)
	<-st.first
	require.NoError(t, router.Close())
	require.NoError(t, router.Close())
	_, err := st.wait()
	require.ErrorIs(t, err, copilot.ErrRouterStopped)
	require.NotErrorIs(t, err, copilot.ErrTransportClosed)
	require.NoError(t, s.Close())
	_, err = router.Create(t.Context(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrRouterStopped)
}

func TestAStormOfCreates(t *testing.T) {
	server, router := start(t, patient)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			s, err := router.Create(t.Context(), copilot.SessionConfig{})
			if err == nil {
				err = s.Close()
			}
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Zero(t, router.Stats().Routes)
	require.Zero(t, router.Stats().Pending)
	require.Empty(t, server.Live())
}

func TestAStormOfCreatesAndAKill(t *testing.T) {
	server, router := start(t, patient)
	var once sync.Once
	server.Handle("session.create", func(c *copilottest.Conn, m copilottest.Message) {
		if len(server.Calls("session.create")) > 100 {
			once.Do(c.Reset)
		}
		server.Default(c, m)
	})
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, err := router.Create(t.Context(), copilot.SessionConfig{}); err != nil {
				require.ErrorIs(t, err, copilot.ErrTransportClosed)
			}
		})
	}
	all.Wait()
	<-router.Done()
	require.Zero(t, router.Stats().Routes)
	require.Zero(t, router.Stats().Pending)
}

func TestTheConnectionToken(t *testing.T) {
	server := copilottest.Start(t)
	server.Token = "right"
	for token, want := range map[string]error{"": copilot.ErrUnauthorized, "wrong": copilot.ErrUnauthorized,
		"right": nil} {
		r, err := copilot.Dial(t.Context(), server.Addr(), copilot.RouterConfig{Token: token})
		require.ErrorIs(t, err, want)
		if want == nil {
			require.Equal(t, "1.0.102", r.Version())
			require.NoError(t, r.Close())
		}
	}
}

func TestAnotherProtocolVersion(t *testing.T) {
	server := copilottest.Start(t)
	for protocol, ok := range map[int]bool{1: false, 2: true, 3: true, 99: false} {
		server.Protocol = protocol
		r, err := copilot.Dial(t.Context(), server.Addr(), copilot.RouterConfig{})
		if ok {
			require.NoError(t, err)
			require.NoError(t, r.Close())
			continue
		}
		var version *copilot.VersionError
		require.ErrorAs(t, err, &version)
		require.Equal(t, protocol, version.Protocol)
		require.ErrorContains(t, err, fmt.Sprintf("speaks protocol %d, and this program 2 to 3", protocol))
	}
}

func TestACLIWithoutConnect(t *testing.T) {
	server := copilottest.Start(t)
	server.Handle("connect", func(c *copilottest.Conn, m copilottest.Message) {
		c.Refuse(m, -32601, "Unhandled method connect")
	})
	server.Protocol = 2
	router := dial(t, server, copilot.RouterConfig{})
	answers(t, begin(t, router), "x", "echo: x")
}

func TestAListenerThatIsNoCLI(t *testing.T) {
	server := copilottest.Start(t)
	server.Handle("connect", func(c *copilottest.Conn, _ copilottest.Message) {
		c.Raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	_, err := copilot.Dial(t.Context(), server.Addr(), copilot.RouterConfig{})
	require.ErrorIs(t, err, copilot.ErrProtocol)
	server.Handle("connect", func(*copilottest.Conn, copilottest.Message) {})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = copilot.Dial(ctx, server.Addr(), copilot.RouterConfig{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The frame with a session's answer is too long: that ends the connection, not
// the process.
func TestAnAnswerAboveTheBound(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{MaxFrame: 64 << 10})
	server.Script(func(t *copilottest.Turn) { t.Message("a", strings.Repeat("x", 64<<10)) })
	_, err := ask(t.Context(), begin(t, router), "x")
	require.ErrorIs(t, err, copilot.ErrFrameTooLarge)
	require.True(t, errors.Is(err, copilot.ErrTransportClosed))
}
