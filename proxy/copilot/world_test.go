package copilot_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/proxy/copilot"
)

// dial connects to a server; the test ends the Router.
func dial(t testing.TB, s *copilottest.Server, c copilot.RouterConfig) *copilot.Router {
	t.Helper()
	r, err := copilot.Dial(context.Background(), s.Addr(), c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// start is a server and a Router to it.
func start(t testing.TB, c copilot.RouterConfig) (*copilottest.Server, *copilot.Router) {
	t.Helper()
	s := copilottest.Start(t)
	return s, dial(t, s, c)
}

// inBubble runs a test with time that passes as soon as nothing else happens.
func inBubble(t *testing.T, f func(*testing.T, *copilottest.Server, *copilot.Router)) {
	synctest.Test(t, func(t *testing.T) {
		server := copilottest.New(t)
		router, err := copilot.NewRouter(t.Context(), server.Pipe(), copilot.RouterConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = router.Close() })
		f(t, server, router)
	})
}

var lookup = copilot.Tool{Name: "lookup", Description: "Look something up",
	Parameters: jsontext.Value(`{"type":"object"}`)}

// begin makes a session that may use lookup.
func begin(t testing.TB, r *copilot.Router) *copilot.Session {
	t.Helper()
	s, err := r.Create(context.Background(), copilot.SessionConfig{Model: "m", System: "Be brief.", Tools: []copilot.Tool{
		lookup,
	}})
	require.NoError(t, err)
	return s
}

// ask makes a whole turn without tools.
func ask(ctx context.Context, s *copilot.Session, prompt string) (string, error) {
	if err := s.Send(ctx, prompt); err != nil {
		return "", err
	}
	var text strings.Builder
	_, err := s.Stream(ctx, func(piece string) { text.WriteString(piece) })
	return text.String(), err
}

// answers makes a turn that must succeed.
func answers(t testing.TB, s *copilot.Session, prompt, want string) {
	t.Helper()
	got, err := ask(context.Background(), s, prompt)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// stream is a Stream in a goroutine.
type stream struct {
	first chan struct{}
	done  chan struct{}
	all   string
	out   copilot.Outcome
	err   error
}

func streaming(ctx context.Context, s *copilot.Session) *stream {
	st := &stream{first: make(chan struct{}), done: make(chan struct{})}
	var once sync.Once
	go func() {
		defer close(st.done)
		st.out, st.err = s.Stream(ctx, func(piece string) {
			st.all += piece
			once.Do(func() { close(st.first) })
		})
	}()
	return st
}

func (s *stream) wait() (copilot.Outcome, error) {
	<-s.done
	return s.out, s.err
}

// endless says a piece and then nothing until the turn is aborted.
func endless(t *copilottest.Turn) {
	t.Delta(t.NewID("message"), "so far ")
	<-t.Context().Done()
}

// eventually waits for something that has no event of its own to wait for.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, waitLimit, waitStep, what)
}
