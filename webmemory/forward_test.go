package webmemory_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"mneme/internal/webmemorytest"

	"github.com/stretchr/testify/require"
)

// before is a webmemory with a handler as its apiserver.
func before(t *testing.T, h http.HandlerFunc, guard func(http.Handler) http.Handler) *webmemorytest.World {
	t.Helper()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	w.Apiserver = httptest.NewServer(h)
	t.Cleanup(func() { w.Apiserver.CloseClientConnections(); w.Apiserver.Close() })
	w.Middleware = guard
	w.URL = w.StartReplica()
	return w
}

// An answer that the apiserver does not finish is visibly broken, never a short one
// that looks complete.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	w := before(t, func(rw http.ResponseWriter, r *http.Request) {
		length, _ := strconv.Atoi(r.URL.Query().Get("length"))
		sent, _ := strconv.Atoi(r.URL.Query().Get("sent"))
		if length > 0 {
			rw.Header().Set("Content-Length", strconv.Itoa(length))
		}
		_, _ = io.Copy(rw, io.LimitReader(endless('x'), int64(sent)))
		_ = http.NewResponseController(rw).Flush()
		if sent < size {
			panic(http.ErrAbortHandler)
		}
	}, nil)
	for _, length := range []int{0, size} {
		for _, sent := range []int{0, 1, 4000, 100_000, size - 1, size} {
			path := fmt.Sprintf("/v1/collections/c?length=%d&sent=%d", length, sent)
			resp, err := http.DefaultClient.Do(w.NewRequest("GET", path, nil))
			if err != nil {
				require.Zero(t, sent, "the head is sent with the first byte: %v", err)
				continue
			}
			raw, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, sent, len(raw), "what came is passed on")
			if sent == size {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "length %d, %d bytes sent", length, sent)
			}
		}
	}
	const counted = `mneme_http_requests_total{method="GET",route="/v1/collections/*rest",status="`
	metrics := string(w.Do("GET", "/metrics", nil).Body)
	require.True(t, strings.Contains(metrics, counted+`200"} 2`) && strings.Contains(metrics, counted+`500"} 1`),
		"ten and more are counted as broken")
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// lateReader is a request's body that is asked once more behind its end, when the
// answer has begun: net/http's Transport does that now and then.
type lateReader struct {
	io.ReadCloser
	begun <-chan struct{} // closed when the answer has
	ended bool
}

func (l *lateReader) Read(p []byte) (int, error) {
	if l.ended {
		<-l.begun
	}
	n, err := l.ReadCloser.Read(p)
	l.ended = l.ended || err == io.EOF
	return n, err
}

// That the transport looks for the end of the request's body while the answer is
// passed on does not cost the answer.
func TestABodyThatIsReadWhileItIsAnswered(t *testing.T) {
	t.Parallel()
	const rest = 64 << 20 // more than is on its way at one time
	begun := make(chan struct{})
	w := before(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = rw.Write([]byte("half "))
		_ = http.NewResponseController(rw).Flush()
		_, _ = io.Copy(rw, io.LimitReader(endless('x'), rest))
	}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			r.Body = &lateReader{ReadCloser: r.Body, begun: begun}
			h.ServeHTTP(rw, r)
		})
	})
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/v1/collections/c/search", `{"query":"x"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	half := make([]byte, 5)
	_, err = io.ReadFull(resp.Body, half)
	require.NoError(t, err)
	close(begun)
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.EqualValues(t, rest, n)
}

// A client that leaves takes its request to the apiserver along.
func TestAClientThatLeavesItsAnswer(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	w := before(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write([]byte("half "))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		close(left)
	}, nil)
	resp, err := http.DefaultClient.Do(w.NewRequest("GET", "/v1/collections/c", nil))
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, 5))
	require.NoError(t, err)
	_ = resp.Body.Close()
	<-left
	webmemorytest.Eventually(t, "the request is counted as left", func() bool {
		return strings.Contains(string(w.Do("GET", "/metrics", nil).Body), `route="/v1/collections/*rest",status="499"} 1`)
	})
}

// An answer under way when the service stops is served to its end.
func TestAnAnswerWhileTheServiceDrains(t *testing.T) {
	t.Parallel()
	rest := make(chan struct{})
	w := before(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write([]byte("half "))
		_ = http.NewResponseController(rw).Flush()
		<-rest
		_, _ = rw.Write(bytes.Repeat([]byte("x"), 1<<20))
	}, nil)
	resp, err := http.DefaultClient.Do(w.NewRequest("GET", "/v1/collections/c", nil))
	require.NoError(t, err)
	defer resp.Body.Close()
	w.Shutdown(w.URL)
	require.Equal(t, "shutting_down", w.Do("GET", "/v1/collections/c", nil).Problem(t).Code)
	close(rest)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Len(t, raw, 5+1<<20)
}

// What is between two machines only is not passed on; what is said of the answer is.
func TestHeadersThatPass(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got http.Header
	w := before(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = r.Header.Clone()
		rw.Header().Set("Keep-Alive", "timeout=1")
		rw.Header().Set("Connection", "X-Between")
		rw.Header().Set("X-Between", "us")
		rw.Header().Set("Etag", `"7"`)
		switch r.URL.Query().Get("status") {
		case "204":
			rw.WriteHeader(http.StatusNoContent)
		case "304":
			rw.WriteHeader(http.StatusNotModified)
		default:
			rw.Header().Set("Content-Length", "100000")
			if r.Method != http.MethodHead {
				_, _ = rw.Write(bytes.Repeat([]byte("x"), 100_000))
			}
		}
	}, nil)
	for _, tt := range []struct {
		method, query string
		status        int
		length        int64
		body          int
	}{
		{"GET", "", 200, 100_000, 100_000},
		{"HEAD", "", 200, 100_000, 0},
		{"GET", "?status=304", 304, 0, 0},
		{"DELETE", "?status=204", 204, 0, 0},
		{"GET", "", 200, 100_000, 100_000}, // on the connection of those before
	} {
		req := w.NewRequest(tt.method, "/v1/collections/c"+tt.query, nil,
			"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "elsewhere", "Forwarded", "for=1.2.3.4",
			"Connection", "X-Mine", "X-Mine", "1", "Te", "gzip", "Keep-Alive", "timeout=9", "X-Yours", "2", "If-None-Match",
			`"7"`)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		require.NoError(t, err)
		require.Equal(t, tt.status, resp.StatusCode)
		require.Equal(t, tt.length, resp.ContentLength, "%s %s", tt.method, tt.query)
		require.Len(t, raw, tt.body)
		require.Equal(t, `"7"`, resp.Header.Get("Etag"))
		require.Empty(t, resp.Header.Get("X-Between")+resp.Header.Get("Keep-Alive"))
		mu.Lock()
		require.Equal(t, "2", got.Get("X-Yours"))
		require.Equal(t, `"7"`, got.Get("If-None-Match"))
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Mine", "Te", "Keep-Alive",
			"Connection"} {
			require.Empty(t, got.Get(name), name)
		}
		mu.Unlock()
	}
}

// Documents that come as a stream and that the apiserver cannot take are refused, and
// the connection on which they came is not left in a state that costs the next request.
func TestAStreamThatIsNotRead(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hi"))
	w.Apiserver.CloseClientConnections()
	w.Apiserver.Close()
	for range 20 {
		for _, path := range []string{"/v1/collections/c/documents?stream=true", "/v1/collections/c/documents"} {
			got := w.Do("POST", path, strings.Repeat(`{"id":"a","text":"b"}`+"\n", 1000))
			require.Equal(t, "apiserver_unavailable", got.Problem(t).Code)
		}
	}
}
