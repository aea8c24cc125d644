package inprocess_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/cmd/mneme/internal/inprocess"
	"mneme/internal/testtier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// overBoth runs a test in process and over a socket: what a handler and its client see
// of each other is the same. ask sends a request to the handler.
func overBoth(t *testing.T, h http.HandlerFunc,
	test func(t *testing.T, ask func(*http.Request) (*http.Response, error))) {
	t.Run("in process", func(t *testing.T) {
		var hosts inprocess.Hosts
		stop := hosts.Serve("test.local:80", h)
		defer func() { require.NoError(t, stop(context.Background())) }()
		client := &http.Client{Transport: hosts.Transport(&http.Transport{})}
		test(t, func(r *http.Request) (*http.Response, error) {
			r.URL.Host = "test.local:80"
			return client.Do(r)
		})
	})
	t.Run("over a socket", func(t *testing.T) {
		server := httptest.NewServer(h)
		defer server.Close()
		test(t, func(r *http.Request) (*http.Response, error) {
			r.URL.Host = server.Listener.Addr().String()
			return server.Client().Do(r)
		})
	})
}

func request(t *testing.T, method, path string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://host"+path, body)
	require.NoError(t, err)
	return r
}

func TestRequestAndAnswer(t *testing.T) {
	type key struct{}
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case r.Context().Value(key{}) != nil:
			http.Error(w, "the client's context values are its own", http.StatusInternalServerError)
		case err != nil || r.RequestURI != "/a%2Fb?q=1" || r.URL.Path != "/a/b" || r.URL.RawPath != "/a%2Fb" ||
			r.URL.Host != "":
			http.Error(w, "not the request that was sent", http.StatusInternalServerError)
		default:
			r.Header.Set("X-Asked", "changed")
			w.Header().Set("X-Answer", string(body)+r.Method+r.Header.Get("X-Other"))
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusTeapot)
			w.Header().Set("X-Late", "not sent")
			_, _ = io.WriteString(w, "short and stout")
		}
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		for _, method := range []string{http.MethodPost, http.MethodHead} {
			r := request(t, method, "/a%2Fb?q=1", strings.NewReader("hello "))
			r = r.WithContext(context.WithValue(r.Context(), key{}, 1))
			r.Header.Set("X-Asked", "as it was")
			resp, err := ask(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusTeapot, resp.StatusCode)
			require.Equal(t, "418 I'm a teapot", resp.Status)
			require.Equal(t, "hello "+method, resp.Header.Get("X-Answer"))
			require.Empty(t, resp.Header.Get("X-Late"))
			require.Equal(t, "as it was", r.Header.Get("X-Asked"))
			if method == http.MethodHead {
				require.Empty(t, body)
				continue
			}
			require.Equal(t, "short and stout", string(body))
			require.EqualValues(t, len(body), resp.ContentLength)
		}
	})
}

func TestNoContent(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || r.Body == nil {
			panic("a request without a body has one of length 0")
		}
		w.WriteHeader(http.StatusNoContent)
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		resp, err := ask(request(t, http.MethodDelete, "/", nil))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, body)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
	})
}

// What was flushed is read while the handler goes on; the client's closing ends its context.
func TestFlushAndClose(t *testing.T) {
	ended := make(chan error, 1)
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		resp, err := ask(request(t, http.MethodGet, "/", nil))
		require.NoError(t, err)
		first := make([]byte, 5)
		_, err = io.ReadFull(resp.Body, first)
		require.NoError(t, err)
		require.Equal(t, "first", string(first))
		require.EqualValues(t, -1, resp.ContentLength)
		require.NoError(t, resp.Body.Close())
		require.ErrorIs(t, <-ended, context.Canceled)
		_, err = resp.Body.Read(first)
		require.Error(t, err)
	})
}

// The end of the request's context ends the handler's, before the head and after it.
func TestCancel(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{}, 1)
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/headed" {
			_ = http.NewResponseController(w).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		why := errors.New("the client has changed its mind")
		for _, path := range []string{"/", "/headed"} {
			r := request(t, http.MethodGet, path, nil)
			ctx, cancel := context.WithCancelCause(r.Context())
			if path == "/" {
				go func() { <-began; cancel(why) }()
			}
			resp, err := ask(r.WithContext(ctx))
			if path == "/headed" {
				require.NoError(t, err)
				<-began
				cancel(why)
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, why)
			<-ended
			cancel(nil)
		}
	})
}

// A handler that breaks off is an error, never a whole answer.
func TestAbort(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		if r.URL.Path == "/shown" {
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		_, err := ask(request(t, http.MethodPost, "/", strings.NewReader("x")))
		require.Error(t, err)
		resp, err := ask(request(t, http.MethodGet, "/shown", nil))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.Error(t, err)
		require.Equal(t, "half", string(body))
		require.NoError(t, resp.Body.Close())
	})
}

// A body that fails is the error of its request, whatever the handler makes of it.
func TestABodyThatFails(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil {
			panic("it has ended early")
		}
		w.WriteHeader(http.StatusRequestTimeout)
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		from, to := io.Pipe()
		why := errors.New("there is no more of it")
		go func() { _, _ = io.WriteString(to, "half"); _ = to.CloseWithError(why) }()
		_, err := ask(request(t, http.MethodPost, "/", from))
		require.ErrorIs(t, err, why)
	})
}

// A handler waits for a client that does not read, until its deadline; then the answer is
// broken for the client too. In process it is never more than 64 KiB ahead.
func TestBackpressureAndDeadline(t *testing.T) {
	testtier.Slow(t)
	wrote := make(chan int, 1)
	overBoth(t, func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		if err := control.Flush(); err != nil {
			panic(err)
		}
		if err := control.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			panic(err)
		}
		sum := 0
		for piece := make([]byte, 1<<10); ; {
			n, err := w.Write(piece)
			if sum += n; err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					sum = -1
				}
				wrote <- sum
				return
			}
		}
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		resp, err := ask(request(t, http.MethodGet, "/", nil))
		require.NoError(t, err)
		sum := <-wrote
		require.Positive(t, sum)
		if strings.HasSuffix(t.Name(), "in_process") {
			require.LessOrEqual(t, sum, 64<<10)
		}
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err)
		require.NoError(t, resp.Body.Close())
	})
}

// Both bodies are under way at once.
func TestFullDuplex(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.EnableFullDuplex(), control.Flush()); err != nil {
			panic(err)
		}
		for line := make([]byte, 4); ; {
			if _, err := io.ReadFull(r.Body, line); err != nil {
				return
			}
			_, _ = w.Write(line)
			_ = control.Flush()
		}
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		from, to := io.Pipe()
		resp, err := ask(request(t, http.MethodPost, "/", from))
		require.NoError(t, err)
		echo := make([]byte, 4)
		for _, line := range []string{"ping", "pong"} {
			_, err = io.WriteString(to, line)
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, echo)
			require.NoError(t, err)
			require.Equal(t, line, string(echo))
		}
		require.NoError(t, to.Close())
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, resp.Body.Close())
	})
}

func TestMany(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body) // an HTTP/1 server does not take what it has not read before it answers
		_, _ = w.Write(all)
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		sent := strings.Repeat("0123456789abcdef", 10<<10)
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				body := sent[:i*len(sent)/64]
				resp, err := ask(request(t, http.MethodPost, "/", io.MultiReader(strings.NewReader(body))))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != body {
					t.Error(i, len(got), err)
				}
			})
		}
		all.Wait()
	})
}

// A stop waits for the requests that are being answered, for the time that it is given.
func TestStop(t *testing.T) {
	var hosts inprocess.Hosts
	stop := hosts.Serve("h:1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	network := &http.Transport{}
	client := &http.Client{Transport: hosts.Transport(network)}
	resp, err := client.Get("http://h:1/")
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, stop(over), context.Canceled)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, stop(t.Context()))
	client.CloseIdleConnections()
}

// What a handler says behind its answer is there at the answer's end.
func TestTrailer(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "b")
		w.Header().Set(http.TrailerPrefix+"X-Cost", "12")
	}, func(t *testing.T, ask func(*http.Request) (*http.Response, error)) {
		resp, err := ask(request(t, http.MethodGet, "/", nil))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "ab", string(body))
		require.Equal(t, http.Header{"X-Cost": {"12"}}, resp.Trailer)
		require.Empty(t, resp.Header.Get(http.TrailerPrefix+"X-Cost"))
	})
}
