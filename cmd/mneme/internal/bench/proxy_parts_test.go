package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask sends a prepared request as a load does.
func ask(t *testing.T, h http.Handler, c calls, n int64) string {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(newTemplate(c.request).numbered(nil, n))))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

func TestTheStreamSaysWhatTheWholeAnswerSays(t *testing.T) {
	v := newVendor()
	var whole answer
	require.NoError(t, json.Unmarshal([]byte(ask(t, v, smallCalls("c"), 1)), &whole))
	require.Len(t, whole.Content, 2)
	v = newVendor() // so that the answer has the same number
	thinking, signature, text, deltas := "", "", "", 0
	for frame := range strings.SplitSeq(strings.TrimSpace(ask(t, v, streamCalls("c"), 1)), "\n\n") {
		name, data, ok := strings.Cut(frame, "\ndata: ")
		require.True(t, ok, frame)
		var e streamEvent
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		require.Equal(t, "event: "+e.Type, name)
		if e.Type == "content_block_delta" {
			thinking, signature, text = thinking+e.Delta.Thinking, signature+e.Delta.Signature, text+e.Delta.Text
			if e.Delta.Type != "signature_delta" {
				deltas++
			}
		}
	}
	require.Equal(t, streamDeltas, deltas)
	require.Equal(t, whole.Content[0], part{Type: "thinking", Thinking: thinking, Signature: signature})
	require.Equal(t, whole.Content[1], part{Type: "text", Text: text})
}

func TestNoTwoCallsAndNoTwoAnswersAreTheSame(t *testing.T) {
	v := newVendor()
	for _, c := range []calls{smallCalls("c"), streamCalls("c")} {
		first, second := ask(t, v, c, 1), ask(t, v, c, 2)
		require.NotContains(t, first, callMark)
		require.Len(t, first, c.length)
		require.Len(t, second, c.length)
		require.True(t, strings.HasSuffix(first, c.ends))
		require.NotEqual(t, first, second)
		require.NotEqual(t, signatureIn(first), signatureIn(second))
	}
	for _, c := range []calls{smallCalls("c"), streamCalls("c"), translatedCalls("c"), historyCalls("c")} {
		one := newTemplate(c.request)
		require.NotEqual(t, one.numbered(nil, 1), one.numbered(nil, 2))
	}
}

func signatureIn(answer string) string {
	_, rest, _ := strings.Cut(answer, `"signature":"E`)
	signature, _, _ := strings.Cut(rest, `"`)
	return signature
}

func TestTheHistoryIsOneThatAVendorWouldTake(t *testing.T) {
	whole := history()
	require.InDelta(t, 115_000, len(encode(whole)), 2_000)
	require.Len(t, whole.Messages, historyLength)
	require.Equal(t, encode(whole), encode(history()), "the vendor and the client have the same")
	pending := ""
	for i, u := range whole.Messages {
		require.Equal(t, []string{"user", "assistant"}[i%2], u.Role)
		if u.Role == "assistant" {
			require.Equal(t, "thinking", u.Content[0].Type)
			require.NotEmpty(t, u.Content[0].Signature)
			pending = u.Content[len(u.Content)-1].ID
			continue
		}
		require.Equal(t, pending, u.Content[0].ToolUseID)
	}

	v := newVendor()
	before := historySoFar("c")
	require.Len(t, before, historyLength/2)
	for k, c := range before {
		var said answer
		body := ask(t, v, c, 1)
		require.NoError(t, json.Unmarshal([]byte(body), &said))
		require.Equal(t, whole.Messages[2*k+1].Content, said.Content)
		require.Len(t, body, c.length)
	}
}

func TestTheVendorEndsWithItsInput(t *testing.T) {
	in, hold := io.Pipe()
	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Vendor(t.Context(), in, w) }()
	var addr string
	require.NoError(t, json.NewDecoder(out).Decode(&addr))
	l, err := openLoad(t.Context(), addr, smallCalls("c"), 2, 0)
	require.NoError(t, err)
	_, err = l.run(10)
	require.NoError(t, err)
	require.NoError(t, hold.Close())
	require.NoError(t, <-ended)
	_, err = l.run(10)
	require.Error(t, err, "the vendor is gone")
	l.close()
	_, err = openLoad(t.Context(), addr, smallCalls("c"), 2, 0)
	require.Error(t, err)
}

func TestALoadRefusesWhatIsNoAnswer(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		`503 Service Unavailable: busy`: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
		`does not end as it should`:     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"cut`)) },
		`has 2 bytes instead of`:        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`}}`)) },
	} {
		server := httptest.NewServer(h)
		_, err := openLoad(t.Context(), server.Listener.Addr().String(), smallCalls("c"), 2, 0)
		require.ErrorContains(t, err, want)
		server.Close()
	}
}

func TestALoadEndsWithItsContext(t *testing.T) {
	asked, done := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-done }))
	defer server.Close()
	defer close(done)
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-asked; stop() }()
	_, err := openLoad(ctx, server.Listener.Addr().String(), smallCalls("c"), 1, 0)
	require.Error(t, err)
}

func TestWhatAProcessUses(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("needs /proc of Linux:", err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	pids, err := family(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, pids, child.Process.Pid)

	first, err := cpuTime(pids[1:])
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the child does nothing else
		second, err := cpuTime(pids[1:])
		return err == nil && second > first
	}, patience, 1)
	bytes, err := resident(pids)
	require.NoError(t, err)
	require.Greater(t, bytes, 1e6)

	nobody, err := cpuTime(nil)
	require.NoError(t, err)
	require.Zero(t, nobody)
	_, err = cpuTime([]int{1 << 30})
	require.ErrorContains(t, err, "the process has ended")
}

// relayed starts a relay in front of a vendor; it ends with the test.
func relayed(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	vendor := httptest.NewServer(h)
	t.Cleanup(vendor.Close)
	port, err := freePort()
	require.NoError(t, err)
	addr := net.JoinHostPort("127.0.0.1", port)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Relay(ctx, addr, vendor.Listener.Addr().String()) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	require.NoError(t, (&child{}).ready(t.Context(), addr))
	return "http://" + addr
}

func TestTheSmallestProxyChangesNothing(t *testing.T) {
	url := relayed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Request-Id", r.Header.Get("X-Api-Key"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+string(body))
	}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	do := func(body io.Reader) (*http.Response, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/a%2Fb?beta=true", body)
		require.NoError(t, err)
		r.Header.Set("X-Api-Key", "sk-of-the-caller")
		resp, err := client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp, string(answer)
	}
	resp, answer := do(strings.NewReader("question"))
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	require.Equal(t, "POST /v1/a%2Fb?beta=true question", answer)
	require.Equal(t, "sk-of-the-caller", resp.Header.Get("Request-Id"))

	resp, _ = do(io.MultiReader(strings.NewReader("question")))
	require.Equal(t, http.StatusLengthRequired, resp.StatusCode)
}

func TestTheSmallestProxySendsEachEventAtOnce(t *testing.T) {
	seen := make(chan struct{})
	defer close(seen)
	url := relayed(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-seen
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "second\n")
	}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/whole", "/cut"} {
		resp, err := client.Get(url + path)
		require.NoError(t, err)
		lines := bufio.NewReader(resp.Body)
		first, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "first\n", first)
		seen <- struct{}{}
		rest, err := io.ReadAll(lines)
		if path == "/cut" {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		} else {
			require.NoError(t, err)
			require.Equal(t, "second\n", string(rest))
		}
		require.NoError(t, resp.Body.Close())
	}
}

func TestRatiosAreTakenWithinEachRound(t *testing.T) {
	of := func(micros ...float64) (taken []usage) {
		for _, m := range micros {
			taken = append(taken, usage{micros: m})
		}
		return taken
	}
	row := &proxyRow{ways: []string{wayNginx, wayNetHTTP, wayMneme}, metrics: []proxyMetric{{what: "CPU", unit: "µs", of: cpuOf, atMost: 100}}}
	m := row.report(map[string][]usage{wayNginx: of(10, 20, 20), wayNetHTTP: of(60, 20, 50), wayMneme: of(120, 100, 200)})[0]
	require.Equal(t, &Spread{Median: 10, Min: 5, Max: 12}, m.Ways[2].OverNginx)
	require.Equal(t, &Spread{Median: 4, Min: 2, Max: 5}, m.Ways[2].OverNetHTTP)
	var text bytes.Buffer
	m.write(&text)
	require.Contains(t, text.String(), "  net/http        50 µs (20–60)\n  mneme          120 µs (100–200), 10× nginx, 4× net/http   reach ≤ 100: no\n")

	m = row.report(map[string][]usage{wayNginx: of(10), wayMneme: of(120)})[0]
	require.Nil(t, m.Ways[2].OverNetHTTP)
}

func TestNginxGoesWithItsWorkers(t *testing.T) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip(nginxMissing)
	}
	server := httptest.NewServer(newVendor())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := launcher{dir: t.TempDir(), vendor: server.Listener.Addr().String()}
	for _, end := range []func(*gateway){func(g *gateway) { g.stop() }, func(g *gateway) { cancel(); g.stop() }} {
		g, err := l.nginx(ctx, program)
		require.NoError(t, err)
		pids, err := g.processes()
		require.NoError(t, err)
		require.Greater(t, len(pids), 1)
		load, err := openLoad(ctx, g.addr, smallCalls("c"), 1, 0)
		require.NoError(t, err)
		load.close()
		end(g)
		_, err = cpuTime(pids[:1])
		require.Error(t, err)
		for _, pid := range pids[1:] {
			require.NoDirExists(t, "/proc/"+strings.TrimSpace(string(encode(pid))))
		}
	}
}
