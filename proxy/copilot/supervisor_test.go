package copilot_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/proxy/copilot"
)

func supervise(t *testing.T, c copilot.SupervisorConfig) *copilot.Supervisor {
	t.Helper()
	c.MinBackoff = time.Millisecond
	s, err := copilot.Supervise(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// role is this program playing a CLI.
func role(name, addr string) *copilot.Command {
	return &copilot.Command{Path: os.Args[0], Env: []string{roleVar + "=" + name, addrVar + "=" + addr}}
}

func TestRedialAndResume(t *testing.T) {
	server := copilottest.Start(t)
	server.Script(endless)
	sup := supervise(t, copilot.SupervisorConfig{Addr: server.Addr()})
	config := copilot.SessionConfig{Model: "m", Tools: []copilot.Tool{lookup}, Provider: &copilot.Provider{
		Type: "openai", BaseURL: "http://h/v1",
	}}
	s, err := sup.Create(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, s.Send(t.Context(), "first"))
	st := streaming(t.Context(), s)
	<-st.first
	server.Drop()
	_, err = st.wait()
	require.ErrorIs(t, err, copilot.ErrTransportClosed, "half an answer is not begun again behind the caller's back")

	server.Script(copilottest.Echo)
	again, err := sup.Resume(t.Context(), s.ID(), config)
	require.NoError(t, err)
	require.Equal(t, s.ID(), again.ID())
	answers(t, again, "second", "echo: second")
	require.Equal(t, []string{"first", "second", "echo: second"}, server.Transcript(s.ID()))
	resumed := server.Calls("session.resume")[0]
	require.JSONEq(t, string(server.Calls("session.create")[0].Params), string(resumed.Params),
		"provider and tools are given again")
	require.NoError(t, s.Close())
	require.Contains(t, server.Live(), s.ID(), "the end of the old session is not that of the new one")
	require.EqualValues(t, 1, sup.Stats().Redials)
	require.EqualValues(t, 1, sup.Stats().Routes)
}

func TestResumeOfAnUnknownSession(t *testing.T) {
	server := copilottest.Start(t)
	sup := supervise(t, copilot.SupervisorConfig{Addr: server.Addr()})
	_, err := sup.Resume(t.Context(), "never-made", copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrSessionUnknown)
	var rpc *copilot.RPCError
	require.ErrorAs(t, err, &rpc)
	require.Equal(t, -32603, rpc.Code)
	require.Zero(t, sup.Stats().Routes)
}

func TestNobodyListens(t *testing.T) {
	testtier.Slow(t)
	server := copilottest.Start(t)
	server.Stop()
	sup := supervise(t, copilot.SupervisorConfig{Addr: server.Addr()})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := sup.Create(ctx, copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "refused")
	require.NoError(t, sup.Close())
	require.NoError(t, sup.Close())
	_, err = sup.Create(t.Context(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrRouterStopped)
}

// What waiting does not mend is told at once.
func TestLastingFailuresAreToldAtOnce(t *testing.T) {
	server := copilottest.Start(t)
	server.Token = "secret"
	_, err := supervise(t, copilot.SupervisorConfig{Addr: server.Addr()}).Router(t.Context())
	require.ErrorIs(t, err, copilot.ErrUnauthorized)
	_,
		err = supervise(t, copilot.SupervisorConfig{
		Command: &copilot.Command{Path: filepath.Join(t.TempDir(), "no-such-cli")},
	}).Router(t.Context())
	require.ErrorIs(t, err, copilot.ErrStart)
	require.ErrorIs(t, err, os.ErrNotExist)
	old := copilottest.Start(t)
	old.Protocol = 99
	_, err = supervise(t, copilot.SupervisorConfig{Addr: old.Addr()}).Router(t.Context())
	var version *copilot.VersionError
	require.ErrorAs(t, err, &version)
}

func TestAddressOrCommand(t *testing.T) {
	_, err := copilot.Supervise(copilot.SupervisorConfig{})
	require.ErrorContains(t, err, "addr is missing")
	_, err = copilot.Supervise(copilot.SupervisorConfig{Addr: "127.0.0.1:1", Command: &copilot.Command{Path: "x"}})
	require.ErrorContains(t, err, "keep one of them")
}

func TestACLIOfOurOwn(t *testing.T) {
	server := copilottest.Start(t)
	sup := supervise(t, copilot.SupervisorConfig{Command: role("listens", server.Addr())})
	for turn := range 2 {
		s, err := sup.Create(t.Context(), copilot.SessionConfig{})
		require.NoError(t, err)
		answers(t, s, "x", "echo: x")
		if turn == 0 { // the process notices and ends its side, too
			old, err := sup.Router(t.Context())
			require.NoError(t, err)
			server.Drop()
			<-old.Done()
		}
	}
	require.EqualValues(t, 1, sup.Stats().Redials)
	connects := server.Calls("connect")
	require.Len(t, connects, 2)
	require.NotEqual(t, string(connects[0].Params), string(connects[1].Params), "each process has a token of its own")
	require.Contains(t, string(connects[0].Params), `"token":`)
}

func TestACLIThatEndsBeforeItsPort(t *testing.T) {
	for name, says := range map[string]string{"fails": "Offline mode requires a local model provider",
		"leaves": "exit status 0"} {
		t.Run(name, func(t *testing.T) {
			_, err := supervise(t, copilot.SupervisorConfig{Command: role(name, "")}).Router(t.Context())
			require.ErrorIs(t, err, copilot.ErrStart)
			require.ErrorContains(t, err, says)
		})
	}
}

func TestACLIThatNeverSaysItsPort(t *testing.T) {
	_, err := supervise(t, copilot.SupervisorConfig{Command: role("silent", ""), Connect: 50 * time.Millisecond}).Router(
		t.Context(),
	)
	require.ErrorIs(t, err, copilot.ErrStart)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A CLI that hangs costs one caller its time, not each of them; a sign of life ends that.
func TestACLIThatHangs(t *testing.T) {
	testtier.Slow(t)
	t.Run("at once", func(t *testing.T) { hangs(t, func(*copilottest.Conn, copilottest.Message) {}) })
	t.Run("after a last frame", func(t *testing.T) {
		hangs(t, func(c *copilottest.Conn, _ copilottest.Message) { c.Notify("session.lifecycle", struct{}{}) })
	})
}

func hangs(t *testing.T, unanswered copilottest.Handler) {
	server := copilottest.Start(t)
	server.Handle("session.create", unanswered)
	sup := supervise(t, copilot.SupervisorConfig{Addr: server.Addr(), Router: copilot.RouterConfig{
		Ping: time.Hour, Patience: time.Second,
	}})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := sup.Create(ctx, copilot.SessionConfig{Model: "m"})
		first <- err
	}()
	require.Eventually(t, func() bool { return sup.Err() != nil }, waitLimit, waitStep)
	require.ErrorIs(t, sup.Err(), copilot.ErrHangs)
	_, err := sup.Create(t.Context(), copilot.SessionConfig{Model: "m"})
	require.ErrorIs(t, err, copilot.ErrHangs)
	cancel()
	require.ErrorIs(t, <-first, copilot.ErrHangs)

	server.Handle("session.create", server.Default)
	server.Conns()[0].Notify("session.lifecycle", struct{}{})
	require.Eventually(t, func() bool { return sup.Err() == nil }, waitLimit, waitStep)
	s, err := sup.Create(t.Context(), copilot.SessionConfig{Model: "m"})
	require.NoError(t, err)
	answers(t, s, "hello", "echo: hello")
}
