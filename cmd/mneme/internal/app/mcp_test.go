package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// mcpConnect is a session of the SDK's client.
func mcpConnect(t *testing.T, to mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), to, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mcpOver is one over streamable HTTP.
func mcpOver(t *testing.T, u *up, version string) *mcp.ClientSession {
	return mcpConnect(t, &mcp.StreamableClientTransport{Endpoint: u.url("/mcp"), MaxRetries: -1}, version)
}

// mcpText calls a tool and gives its text.
func mcpText(t *testing.T, s *mcp.ClientSession, tool string, arguments map[string]any) string {
	t.Helper()
	result, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(t, err)
	return result.Content[0].(*mcp.TextContent).Text
}

// mneme as it comes serves its tools at /mcp: what is said through one replica is known to the
// next one, in either era of the protocol, and so are documents.
func TestMCPOverTwoReplicas(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	replica := func() *up {
		return start(t, "MNEME_REDIS_URL="+redis.URL(), "MNEME_DATA_DIR="+t.TempDir())
	}
	a, b := replica(), replica()
	require.Contains(t, a.out.String(), " "+a.url("/mcp")+" ")
	a.load(map[string]string{"ferry.md": "# Ferry\n\nA ferry ticket costs 14 crowns."})
	old, modern := mcpOver(t, a, "2025-06-18"), mcpOver(t, b, "2026-07-28")
	require.Contains(t, mcpText(t, old, "ask", map[string]any{"chat": "c", "message": "My name is Aliya."}), "Aliya")
	require.Contains(t, mcpText(t, modern, "ask", map[string]any{"chat": "c", "message": "What is my name?"}), "Aliya")
	require.Contains(t, mcpText(t, modern, "recall", map[string]any{"chat": "c", "query": "name"}), "My name is Aliya.")
	for _, s := range []*mcp.ClientSession{old, modern} {
		require.Contains(t, mcpText(t, s, "search_documents", map[string]any{"collection": "docs", "query": "ticket"}),
			"[1] Ferry (ferry.md)\nFerry\n\nA ferry ticket costs 14 crowns.")
		require.Contains(t, mcpText(t, s, "search_documents", map[string]any{"collection": "dcos", "query": "ticket"}),
			"There are: docs")
		require.Contains(t, mcpText(t, s, "search_documents", map[string]any{"collection": "../chats", "query": "x"}),
			"(bad_collection)")
		require.Contains(t, mcpText(t, s, "search_documents", map[string]any{"collection": "..", "query": "x"}),
			"(bad_collection)")
	}
	resp, err := http.Get(b.url("/metrics"))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(raw), "\nmneme_mcp_calls_total{outcome=\"answered\",tool=\"ask\"} 1\n")
	require.Contains(t, string(raw), "\nmneme_mcp_calls_total{outcome=\"refused\",tool=\"search_documents\"} 3\n")
}

// Web pages and foreign names are kept from /mcp as from the other routes.
func TestMCPIsGuarded(t *testing.T) {
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	for code, header := range map[string][2]string{
		"host_not_allowed":   {"Host", "mneme.evil.example"},
		"origin_not_allowed": {"Origin", "https://evil.example"},
		"cross_site":         {"Sec-Fetch-Site", "cross-site"},
	} {
		req, err := http.NewRequest("POST", u.url("/mcp"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(header[0], header[1])
		if header[0] == "Host" {
			req.Host = header[1]
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusForbidden, resp.StatusCode, string(raw))
		require.Contains(t, string(raw), code)
	}
}

// gate is a vendor of models that answers once it is opened.
type gate struct {
	url   string
	asked chan struct{} // gets one for each request
	open  func()
}

func newGate(t *testing.T) *gate {
	opened := make(chan struct{})
	g := &gate{asked: make(chan struct{}, 100), open: sync.OnceFunc(func() { close(opened) })}
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			g.asked <- struct{}{}
			<-opened
			a := upstreamtest.Reply(upstreamtest.Say("Noted: the heron nests in May."))
			return &a
		}})
	server := httptest.NewServer(vendor)
	g.url = server.URL + "/v1"
	t.Cleanup(server.Close)
	t.Cleanup(g.open)
	return g
}

// A service that is stopped while a tool waits tells its client so; the tool ends with it.
func TestMCPWhileTheServiceStops(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=slow", backend("slow", "openai", g.url))
	s := mcpOver(t, u, "2026-07-28")
	said := make(chan string, 1)
	go func() {
		result, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{
			"chat": "c", "message": "When does the heron nest?"}})
		if assert.NoError(t, err) {
			said <- result.Content[0].(*mcp.TextContent).Text
		} else {
			close(said)
		}
	}()
	<-g.asked
	stopped := make(chan struct{})
	go func() { defer close(stopped); u.stop() }()
	require.Eventually(t, func() bool { // it drains
		resp, err := http.Get(u.url("/readyz"))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, time.Minute, 10*time.Millisecond)
	g.open()
	require.Equal(t, "Noted: the heron nests in May.", <-said)
	<-stopped
}

// mneme mcp serves the same tools on stdio. When it is killed, the run that it asked for goes on;
// while webmemory is away its tools say so, and it ends with its input.
func TestMCPOnStdio(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=slow", backend("slow", "openai", g.url))
	child := func(url, version string) (*exec.Cmd, *bytes.Buffer, *mcp.ClientSession) {
		cmd := exec.Command(program(t), "mcp", "--url", url)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		said := new(bytes.Buffer)
		cmd.Stderr = said
		return cmd, said, mcpConnect(t, &mcp.CommandTransport{Command: cmd}, version)
	}
	cmd, _, s := child(u.url(""), "2026-07-28")
	failed := make(chan error, 1)
	go func() {
		_, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{
			"chat": "c", "message": "When does the heron nest?"}})
		failed <- err
	}()
	<-g.asked
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, <-failed)
	g.open()
	require.Eventually(t, func() bool {
		resp, err := http.Get(u.url("/v1/chats/c/history"))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return err == nil && bytes.Contains(raw, []byte("nests in May"))
	}, time.Minute, 10*time.Millisecond)

	cmd, said, s := child(u.url(""), "2025-06-18")
	require.Contains(t, mcpText(t, s, "recall", map[string]any{"chat": "c", "query": "heron"}), "nests in May")
	require.NoError(t, s.Close())
	require.Equal(t, 0, cmd.ProcessState.ExitCode(), said.String())
	require.Empty(t, said.String())

	_, _, s = child("http://"+freeport.Addr(t), "2026-07-28")
	for range 2 {
		require.Contains(t, mcpText(t, s, "ask", map[string]any{"chat": "c", "message": "hi"}), "start `mneme up`")
	}
}

// What is no message of the protocol ends mneme mcp with a sentence on stderr, or gets an error;
// nothing else comes on stdout.
func TestMCPOnStdioTakesNoNonsense(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"hello\n", strings.Repeat("x", 3<<20), `{"jsonrpc":"2.0","id":1,"method":"nothing"}` + "\n", ""} {
		cmd := exec.Command(program(t), "mcp")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		cmd.Stdin = strings.NewReader(input)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		_ = cmd.Run()
		if input == "" {
			require.Empty(t, said.String())
		}
		for line := range strings.Lines(out.String()) {
			require.True(t, json.Valid([]byte(line)), line)
		}
		require.NotContains(t, said.String(), "panic")
	}
}
