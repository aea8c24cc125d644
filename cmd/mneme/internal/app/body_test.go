package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// trickle sends a request with a body that comes byte by byte and never ends, until the
// connection is closed, and gives the status of the answer, 0 if none came.
func trickle(t *testing.T, addr, method, path, kind string, chunked bool) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	length, piece := "Content-Length: 1000000", "{"
	if chunked {
		length, piece = "Transfer-Encoding: chunked", "1\r\n{\r\n"
	}
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n%s\r\n\r\n", method, path, addr, kind,
		length)
	require.NoError(t, err)
	status, closed := 0, make(chan struct{})
	go func() {
		defer close(closed)
		reader := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(reader, nil); err == nil {
			status = resp.StatusCode
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		_, _ = io.Copy(io.Discard, reader)
	}()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-closed:
			return status
		case <-deadline:
			t.Errorf("%s %s is still open", method, path)
			return -1
		case <-time.After(50 * time.Millisecond):
			_, _ = io.WriteString(conn, piece)
		}
	}
}

// Bodies that come byte by byte are given up on every service, also where no handler
// reads them.
func TestABodyThatNeverEnds(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	x := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_HTTP_BODY_TIMEOUT=3s")
	x.load(map[string]string{"lion.md": "the key is under the lion"})
	var all sync.WaitGroup
	for _, c := range []struct {
		addr, method, path, kind string
		status                   int
	}{
		{x.addrs.Webmemory, "POST", "/v1/chats/1/messages", "application/json", 408},
		{x.addrs.Webmemory, "POST", "/chat", "application/json", 408},
		{x.addrs.Webmemory, "PUT", "/v1/collections/docs/documents/a", "application/json", 408},
		{x.addrs.Webmemory, "PUT", "/v1/collections/docs/documents/a.md", "text/markdown", 408},
		{x.addrs.Webmemory, "POST", "/v1/collections/docs/documents", "application/x-ndjson", 408},
		{x.addrs.Webmemory, "POST", "/v1/collections/docs/search", "application/json", 408},
		{x.addrs.Webmemory, "POST", "/v1/chats/1/messages", "image/png", 415},
		{x.addrs.Webmemory, "POST", "/nowhere", "application/json", 404},
		{x.addrs.Webmemory, "GET", "/v1/chats", "application/json", 408},
		{x.addrs.Webmemory, "DELETE", "/v1/chats/1", "application/json", 200},
		{x.addrs.Apiserver, "POST", "/v1/runs", "application/json", 408},
		{x.addrs.Apiserver, "PUT", "/v1/collections/docs/documents/a.md", "text/markdown", 408},
		{x.addrs.Proxy, "POST", "/v1/messages", "application/json", 408},
		{x.addrs.Proxy, "POST", "/v1/chat/completions", "application/json", 408},
		{x.addrs.Proxy, "POST", "/teammate/analytic/v1/chat/completions", "application/json", 408},
		{x.addrs.Proxy, "PUT", "/admin/backend", "application/json", 0}, // refused, in whatever words
	} {
		for _, chunked := range []bool{false, true} {
			all.Go(func() {
				status := trickle(t, c.addr, c.method, c.path, c.kind, chunked)
				if c.status != 0 && status != c.status {
					t.Errorf("%s %s %s (chunked: %v) was answered with %d, not %d", c.method, c.path, c.kind, chunked, status,
						c.status)
				}
			})
		}
	}
	all.Wait()
}

// A line that is slow but goes on is given the time that its body takes, and an
// answer takes as long as it takes.
func TestASlowBodyAndASlowAnswer(t *testing.T) {
	t.Parallel()
	testtier.Slow(t)
	const wait = 3 * time.Second
	vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			time.Sleep(2 * wait) // the model thinks for longer than a body may take
			a := upstreamtest.Reply(upstreamtest.Say("It was a long story."))
			return &a
		}})
	server := httptest.NewServer(vendor)
	defer server.Close()
	x := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_HTTP_BODY_TIMEOUT="+wait.String(), "MNEME_PROXY_ACTIVE=slow",
		backend("slow", "openai", server.URL+"/v1"))
	body := `{"message":"` + strings.Repeat("a", 255<<10) + `"}`
	for _, path := range []string{"/v1/chats/1/messages", "/v1/chats/2/messages?last_event_id=0"} {
		reader, writer := io.Pipe()
		go func() {
			for rest := body; rest != ""; { // 32 KiB every half second
				n := min(32<<10, len(rest))
				_, _ = io.WriteString(writer, rest[:n])
				if rest = rest[n:]; rest != "" {
					time.Sleep(wait / 4)
				}
			}
			_ = writer.Close()
		}()
		req, err := http.NewRequest("POST", x.url(path), reader)
		require.NoError(t, err)
		if strings.Contains(path, "?") {
			req.ContentLength = int64(len(body))
			req.Header.Set("Accept", "text/event-stream")
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode, string(raw))
		require.Contains(t, string(raw), "It was a long story.")
	}
	// A stream after a request with a body that no handler reads goes on, too.
	run := make(chan string, 1)
	go func() {
		resp, err := http.Post(x.url("/v1/chats/3/messages"), "application/json",
			strings.NewReader(`{"message":"hi","stream":true}`))
		if err != nil {
			t.Error(err)
			close(run)
			return
		}
		run <- resp.Header.Get("Mneme-Run-Id")
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	req, err := http.NewRequest("GET", x.url("/v1/chats/3/runs/"+<-run+"/events"), strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(raw), "run_finished")
}
