//go:build unix

package chat_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/copilot"
)

// cliVar names a Copilot CLI, as for the tests of the connection to it: the test of
// this file then runs against it, offline and with a fake model behind it.
const cliVar = "COPILOT_CLI_PATH"

// answerAsTold is the model behind the CLI: "CALL a" calls a tool, anything else is
// said back.
func answerAsTold(r *upstreamtest.Request) *upstreamtest.Answer {
	_, said, _ := strings.Cut(r.User, "\n\n") // the CLI puts the time before it
	a := upstreamtest.Reply(upstreamtest.Say("heard: " + said))
	switch name, calls := strings.CutPrefix(said, "CALL "); {
	case len(r.Results) > 0:
		a = upstreamtest.Reply(upstreamtest.Say("The tool gave: " + strings.Join(r.Results, "; ")))
	case calls:
		a = upstreamtest.Reply(upstreamtest.Say("Let me look."), upstreamtest.Use(name, `{"q":"x"}`))
	}
	return &a
}

// realCLI runs a gateway before the CLI that cliVar names; pid is of the CLI's process group.
func realCLI(t *testing.T, model http.Handler) (g *gateway, home string, pid func() int) {
	t.Helper()
	path := os.Getenv(cliVar)
	if path == "" {
		t.Skip(cliVar +
			" is not set, so nothing is tested against the real Copilot CLI; npm install @github/copilot@1.0.102 brings one")
	}
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	vendor := httptest.NewServer(model)
	t.Cleanup(vendor.Close)
	home = t.TempDir()
	pidFile := filepath.Join(home, "pid")
	g = start(t, copilottest.Start(t), func(c *proxy.Config) {
		c.Backends["gpt"] = proxy.BackendConfig{Kind: proxy.KindOpenAI, BaseURL: vendor.URL + "/v1"}
		c.Backends["cli"] = proxy.BackendConfig{Kind: proxy.KindCopilot, CLI: copilot.SupervisorConfig{
			// The shell notes the process's id and becomes the CLI.
			Command: &copilot.Command{Path: "/bin/sh", Args: []string{"-c", `echo $$ > "$PID_FILE"; exec "$0" "$@"`, path}, Dir: home,
				Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "COPILOT_HOME=" + filepath.Join(home, "copilot"),
					"PID_FILE=" + pidFile}},
		}, ProviderBackend: "gpt"}
	})
	c := g.client(way{}, "start")
	for i := range 100 { // the CLI takes a while to start, the first time
		c.history = []said{{role: "user", text: "hello"}}
		if got := c.post(t.Context()); got.status == 200 || i == 99 {
			require.Equal(t, 200, got.status, "%s is set and names no Copilot CLI that starts: %s", cliVar, got.body)
			break
		}
	}
	return g, home, func() int {
		written, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(written)))
		require.NoError(t, err)
		return pid
	}
}

func TestTheRealCLIBehindTheGateway(t *testing.T) {
	model := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: answerAsTold})
	g, home, pid := realCLI(t, model)
	for name, w := range ways {
		c := g.client(w, strings.ReplaceAll(name, ", ", "-"), "lookup")
		c.history = []said{{role: "user", text: "hello"}}
		require.Equal(t, "heard: hello", c.ask().text)
		got := c.say("CALL lookup")
		require.Len(t, got.calls, 1)
		require.JSONEq(t, `{"q":"x"}`, got.calls[0].input)
		require.Equal(t, "The tool gave: RESULT-42", c.give(got.calls[0].id, "RESULT-42").text)
		require.Contains(t, string(model.Last().Body), "Be brief.")
		replayed, redials := g.replayed(), g.metric("copilot_redials_total")

		require.NoError(t, syscall.Kill(-pid(), syscall.SIGKILL))
		eventually(t, func() bool { return g.metric("copilot_redials_total") != redials }, "another CLI")
		require.Equal(t, "heard: still there?", c.say("still there?").text)
		require.Contains(t, string(model.Last().Body), "RESULT-42", "the CLI remembers")
		require.NotContains(t, string(model.Last().Body), "The conversation has been going on", "by itself")
		require.Equal(t, replayed, g.replayed())

		c.history = append(c.history[:2], said{role: "user", text: "and now?"})
		require.Equal(t, "heard: and now?", c.ask().text)
		require.NotContains(t, string(model.Last().Body), "RESULT-42", "what was taken back")
		require.Contains(t, string(model.Last().Body), "The conversation has been going on")
	}
	g.stop()
	left, err := filepath.Glob(filepath.Join(home, "copilot", "session-state", "[0-9a-f]*")) // sessions
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays on the CLI's disk")
}

// The CLI repeats a model call at most five times, and the gateway adds nothing to that.
func TestTheRealCLIAtARateLimit(t *testing.T) {
	model := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: answerAsTold})
	g, _, _ := realCLI(t, model)
	before := model.Count()
	for range 20 {
		model.Fail(upstreamtest.RateLimited(1))
	}
	c := g.client(way{}, "c")
	c.history = []said{{role: "user", text: "hello"}}
	got := c.post(t.Context())
	require.Equal(t, 429, got.status, got.body)
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.NotContains(t, got.body, "COPILOT_")
	require.LessOrEqual(t, model.Count()-before, 6)
	t.Logf("%d model calls: %s", model.Count()-before, got.body)
}

// A CLI that is stopped costs one request its time. The gateway says so, refuses the next ones at once,
// and runs another CLI.
func TestTheRealCLIHangs(t *testing.T) {
	g, _, pid := realCLI(t, upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: answerAsTold}))
	require.Equal(t, "ready", g.ready())
	require.NoError(t, syscall.Kill(-pid(), syscall.SIGSTOP))
	eventually(t, func() bool { return g.ready() == "degraded" }, "the ping is missed")
	c := g.client(way{}, "c")
	c.history = []said{{role: "user", text: "hello"}}
	got := c.post(t.Context())
	require.Equal(t, 503, got.status, got.body)
	require.Contains(t, got.body, "does not answer")
	require.Equal(t, "10", got.header.Get("Retry-After"))
	require.Eventually(t, func() bool { return c.post(t.Context()).status == 200 }, 60*time.Second, time.Second)
	require.Equal(t, "ready", g.ready())
}
