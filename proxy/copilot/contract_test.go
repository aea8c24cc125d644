//go:build unix

package copilot_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
	"mneme/proxy/copilot"
)

// cliVar names a Copilot CLI: the tests of this file then run against it, offline
// and with a fake model behind it, and fail if it does not start.
const cliVar = "COPILOT_CLI_PATH"

// realCLI is a CLI and the model that it asks.
type realCLI struct {
	*copilot.Supervisor
	provider *copilot.Provider
	model    *upstreamtest.Server
	left     chan string // prompts of model calls that were cancelled
	pidFile  string
}

func startCLI(t *testing.T) *realCLI {
	t.Helper()
	path := os.Getenv(cliVar)
	if path == "" {
		t.Skip(cliVar +
			" is not set, so nothing is tested against the real Copilot CLI; npm install @github/copilot@1.0.102 brings one")
	}
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	home := t.TempDir()
	c := &realCLI{left: make(chan string, 10), pidFile: filepath.Join(home, "pid")}
	c.model = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: c.answer,
		Stream: upstreamtest.StreamOptions{Chunk: 16}})
	web := httptest.NewServer(c.model)
	t.Cleanup(web.Close)
	c.provider = &copilot.Provider{Type: "openai", WireAPI: "completions", BaseURL: web.URL + "/v1", APIKey: "k"}
	c.Supervisor, err = copilot.Supervise(copilot.SupervisorConfig{
		Connect: time.Minute,
		Router:  copilot.RouterConfig{Ping: 2 * time.Second},
		// The shell notes the process's id and becomes the CLI.
		Command: &copilot.Command{Path: "/bin/sh", Args: []string{"-c", `echo $$ > "$PID_FILE"; exec "$0" "$@"`, path},
			Dir: home, Env: []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + home, "COPILOT_HOME=" + filepath.Join(home, "copilot"), "PID_FILE=" +
					c.pidFile,
				"COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL=" + web.URL + "/v1", "COPILOT_MODEL=fake-model",
			}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	router, err := c.Router(ctx)
	require.NoError(t, err, "%s is set and names no Copilot CLI that starts", cliVar)
	t.Log("Copilot CLI", router.Version())
	return c
}

// answer is the model: "CALL a b" calls tools, "TAG x" says x many times, "SLOW x"
// says a little and then nothing until the CLI hangs up.
func (c *realCLI) answer(r *upstreamtest.Request) *upstreamtest.Answer {
	_, said, _ := strings.Cut(r.User, "\n\n") // the CLI puts the time before it
	words := strings.Fields(said)
	var a upstreamtest.Answer
	switch {
	case len(r.Results) > 0:
		a = upstreamtest.Reply(upstreamtest.Say("The tools gave: " + strings.Join(r.Results, "; ")))
	case len(words) > 1 && words[0] == "CALL":
		a = upstreamtest.Reply(upstreamtest.Say("Let me look."))
		for _, name := range words[1:] {
			a.Blocks = append(a.Blocks, upstreamtest.Use(name, fmt.Sprintf(`{"q":%q}`, name)))
		}
	case len(words) > 1 && words[0] == "TAG":
		a = upstreamtest.Reply(upstreamtest.Say(taggedText(words[1])))
	case len(words) > 1 && words[0] == "SLOW":
		a = upstreamtest.Reply(upstreamtest.Say(strings.Repeat("slowly ", 100)))
		a.Pause = func(ctx context.Context, event int) {
			if event == 10 {
				<-ctx.Done()
				c.left <- words[1]
			}
		}
	default:
		return nil
	}
	return &a
}

func (c *realCLI) session(t *testing.T, tools ...string) *copilot.Session {
	t.Helper()
	s, err := c.Create(t.Context(), c.config(tools...))
	require.NoError(t, err)
	return s
}

func (c *realCLI) config(tools ...string) copilot.SessionConfig {
	config := copilot.SessionConfig{Model: "fake-model", Provider: c.provider, System: "You are a test."}
	for _, name := range tools {
		tool := lookup
		tool.Name = name
		config.Tools = append(config.Tools, tool)
	}
	return config
}

func TestTheRealCLI(t *testing.T) {
	c := startCLI(t)
	t.Run("a streamed turn", func(t *testing.T) { c.streams(t) })
	t.Run("headers reach the model", func(t *testing.T) { c.carriesHeaders(t) })
	t.Run("tools and their results", func(t *testing.T) { c.runsTools(t) })
	t.Run("a tool that is not ours", func(t *testing.T) { c.deniesTools(t) })
	t.Run("a tool without permission", func(t *testing.T) { c.refusesTools(t) })
	t.Run("a failing model", func(t *testing.T) { c.fails(t) })
	t.Run("cancelled at any moment", func(t *testing.T) { c.cancels(t) })
	t.Run("aborted while parked", func(t *testing.T) { c.abortsParked(t) })
	t.Run("36 sessions", func(t *testing.T) { c.crowd(t) })
	t.Run("deleted", func(t *testing.T) { c.deletes(t) })
	t.Run("killed and resumed", func(t *testing.T) { c.signalled(t, syscall.SIGKILL) })
	t.Run("stopped and resumed", func(t *testing.T) { c.signalled(t, syscall.SIGSTOP) })
	stats := c.Stats()
	t.Logf("%+v", stats)
	require.Zero(t, stats.Routes)
	require.Zero(t, stats.Pending)
	require.Zero(t, stats.Malformed)
	require.Zero(t, stats.Orphans)
}

func (c *realCLI) streams(t *testing.T) {
	s := c.session(t)
	require.NoError(t, s.Send(t.Context(), "TAG one"))
	var pieces []string
	out, err := s.Stream(t.Context(), func(p string) { pieces = append(pieces, p) })
	require.NoError(t, err)
	require.Equal(t, taggedText("one"), out.Text)
	require.Equal(t, out.Text, strings.Join(pieces, ""))
	require.NotZero(t, out.Usage.Output)
	answers(t, s, "TAG two", taggedText("two"))
	require.Contains(t, string(c.model.Last().Body), "TAG one")
	require.Contains(t, string(c.model.Last().Body), "You are a test.")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

func (c *realCLI) carriesHeaders(t *testing.T) {
	config := c.config()
	provider := *c.provider
	provider.Headers = map[string]string{"X-AG-Conversation-Id": "conversation-1"}
	config.Provider, config.System = &provider, ""
	s, err := c.Create(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, s.Send(t.Context(), "TAG x"))
	_, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	last := c.model.Last()
	require.Equal(t, "conversation-1", last.Header.Get("X-AG-Conversation-Id"))
	require.NotContains(t, string(last.Body), `"system"`, "no system prompt is none")
	require.NotContains(t, string(last.Body), `"tools"`, "no tools are none")
	require.NoError(t, s.Close())
}

func (c *realCLI) runsTools(t *testing.T) {
	s := c.session(t, "lookup", "bash") // the CLI has a bash of its own
	require.NoError(t, s.Send(t.Context(), "CALL lookup bash"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "Let me look.", out.Text)
	require.Len(t, out.Calls, 2)
	for i, name := range []string{"lookup", "bash"} {
		require.Equal(t, name, out.Calls[i].Name)
		require.JSONEq(t, fmt.Sprintf(`{"q":%q}`, name), string(out.Calls[i].Arguments))
	}
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[1].ID, copilot.ToolResult{Text: "no such file", Failed: true}))
	require.NoError(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "RESULT-42"}))
	require.ErrorIs(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "again"}),
		copilot.ErrNotPending)
	out, err = s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, out.Text, "RESULT-42")
	require.Contains(t, out.Text, "no such file")
	require.NoError(t, s.Close())
}

// The model calls a tool of the CLI's own. It does not run, and the model is told.
func (c *realCLI) deniesTools(t *testing.T) {
	s := c.session(t, "lookup")
	text, err := ask(t.Context(), s, "CALL bash")
	require.NoError(t, err)
	require.Contains(t, text, "does not exist")
	require.NoError(t, s.Close())
}

// What the policy does not let through the CLI does not ask for.
func (c *realCLI) refusesTools(t *testing.T) {
	router, err := c.Router(t.Context())
	require.NoError(t, err)
	s, err := router.CreateUnpermitted(t.Context(), c.config("lookup"))
	require.NoError(t, err)
	text, err := ask(t.Context(), s, "CALL lookup")
	require.NoError(t, err)
	require.Contains(t, text, "only the tools that were given with the session may be used")
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, c.Stats().Denied)
}

func (c *realCLI) fails(t *testing.T) {
	s := c.session(t)
	c.model.Fail(upstreamtest.Fault{
		Status: 400, Body: `{"error":{"message":"this model is on holiday","type":"invalid_request_error"}}`,
	})
	_, err := ask(t.Context(), s, "TAG x")
	var failed *copilot.SessionError
	require.ErrorAs(t, err, &failed)
	require.Contains(t, failed.Message, "on holiday")
	require.Equal(t, 400, failed.Status)
	answers(t, s, "TAG y", taggedText("y"))
	require.NoError(t, s.Close())
}

// The turn is cancelled in its middle and right after the prompt; the CLI hangs up
// on its model, and the session goes on.
func (c *realCLI) cancels(t *testing.T) {
	s := c.session(t)
	require.NoError(t, s.Send(t.Context(), "SLOW middle"))
	ctx, cancel := context.WithCancel(t.Context())
	st := streaming(ctx, s)
	<-st.first // the model has not ended, so this is a piece
	cancel()
	out, err := st.wait()
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, out.Text, "slowly")
	require.NoError(t, s.Err())
	require.Equal(t, "middle", <-c.left)
	answers(t, s, "TAG x", taggedText("x"))

	require.NoError(t, s.Send(t.Context(), "SLOW beginning"))
	_, err = s.Stream(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Err())
	answers(t, s, "TAG y", taggedText("y"))
	require.NoError(t, s.Close())
}

func (c *realCLI) abortsParked(t *testing.T) {
	s := c.session(t, "lookup")
	require.NoError(t, s.Send(t.Context(), "CALL lookup"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, out.Calls, 1)
	require.NoError(t, s.Abort(t.Context()))
	require.ErrorIs(t, s.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "late"}),
		copilot.ErrNotPending)
	answers(t, s, "TAG x", taggedText("x"))
	require.NoError(t, s.Close())
}

func (c *realCLI) crowd(t *testing.T) {
	failures := make([]error, 36)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() {
			failures[i] = func() error {
				s, err := c.Create(t.Context(), c.config())
				if err != nil {
					return err
				}
				for turn := range 2 {
					tag := fmt.Sprintf("tag%d.%d", i, turn)
					if text, err := ask(t.Context(), s, "TAG "+tag); err != nil || text != taggedText(tag) {
						return fmt.Errorf("%s heard %q: %w", tag, text, err)
					}
				}
				return s.Close()
			}()
		})
	}
	all.Wait()
	for _, err := range failures {
		require.NoError(t, err)
	}
}

func (c *realCLI) deletes(t *testing.T) {
	s := c.session(t)
	answers(t, s, "TAG x", taggedText("x"))
	require.NoError(t, s.Close())
	again, err := c.Resume(t.Context(), s.ID(), c.config())
	require.NoError(t, err, "a closed session can be resumed")
	require.NoError(t, again.Close())
	require.NoError(t, c.Delete(t.Context(), s.ID()))
	_, err = c.Resume(t.Context(), s.ID(), c.config())
	require.ErrorIs(t, err, copilot.ErrSessionUnknown)
}

// The CLI dies, or lives and does nothing, in the middle of an answer. Another one
// is started, and the conversation goes on there.
func (c *realCLI) signalled(t *testing.T, signal syscall.Signal) {
	before := c.Stats().Redials
	s := c.session(t, "lookup")
	answers(t, s, "TAG remembered", taggedText("remembered"))
	require.NoError(t, s.Send(t.Context(), "SLOW killed"))
	st := streaming(t.Context(), s)
	<-st.first
	pid, err := os.ReadFile(c.pidFile)
	require.NoError(t, err)
	leader, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-leader, signal))
	out, err := st.wait()
	require.ErrorIs(t, err, copilot.ErrTransportClosed)
	require.Contains(t, out.Text, "slowly")
	require.NoError(t, s.Close())

	again, err := c.Resume(t.Context(), s.ID(), c.config("lookup"))
	require.NoError(t, err)
	require.NoError(t, again.Send(t.Context(), "CALL lookup"))
	out, err = again.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, out.Calls, 1, "tools were given again")
	require.Contains(t, string(c.model.Last().Body), "TAG remembered")
	require.NoError(t, again.RespondTool(t.Context(), out.Calls[0].ID, copilot.ToolResult{Text: "R"}))
	_, err = again.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.Equal(t, before+1, c.Stats().Redials)
}

// A path that names no CLI is a failure, not a reason to skip.
func TestACLIThatCannotStart(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestTheRealCLI$")
	cmd.Env = append(os.Environ(), cliVar+"="+filepath.Join(t.TempDir(), "absent"))
	out, err := cmd.CombinedOutput()
	require.Error(t, err, string(out))
	require.Contains(t, string(out), "names no Copilot CLI that starts")
}
