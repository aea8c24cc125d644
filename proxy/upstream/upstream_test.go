package upstream_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vendor runs a server and a client for it.
func vendor(t *testing.T, c upstream.Config, h http.HandlerFunc) *upstream.Client {
	t.Helper()
	server := httptest.NewServer(h)
	c.BaseURL = server.URL + "/base/"
	client, err := upstream.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client
}

func quick() upstream.Limits { return upstream.Limits{Backoff: time.Nanosecond} }

func TestSendJoinsPathsAndSetsOneCredential(t *testing.T) {
	clients := http.Header{"Authorization": {"Bearer caller"}, "X-Api-Key": {"caller"}, "Anthropic-Beta": {"b"}}
	for name, c := range map[string]struct {
		auth        upstream.Auth
		dialect     wire.Dialect
		bearer, key string
		google      string
		version     string
	}{
		"key, messages":     {upstream.AuthKey, wire.Messages, "", "own", "", "2023-06-01"},
		"key, chat":         {upstream.AuthKey, wire.Chat, "Bearer own", "", "", ""},
		"key, interactions": {upstream.AuthKey, wire.Interactions, "", "", "own", ""},
		"none":              {upstream.AuthNone, wire.Messages, "", "", "", "2023-06-01"},
		"passthrough":       {upstream.AuthPassthrough, wire.Chat, "Bearer caller", "caller", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := vendor(t, upstream.Config{Auth: c.auth, Key: "own"}, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				assert.Equal(t, "/base/v1/x?beta=true", r.URL.String())
				assert.Equal(t, `{"a":1}`, string(body))
				assert.Equal(t, c.bearer, r.Header.Get("Authorization"))
				assert.Equal(t, c.key, r.Header.Get("X-Api-Key"))
				assert.Equal(t, c.google, r.Header.Get("X-Goog-Api-Key"))
				assert.Equal(t, c.version, r.Header.Get("Anthropic-Version"))
				assert.Equal(t, "b", r.Header.Get("Anthropic-Beta"))
				assert.Empty(t, r.Header.Get("Accept-Encoding"))
				w.Header().Set("Request-Id", "v1")
				_, _ = io.WriteString(w, "ok")
			})
			resp, err := client.Send(t.Context(), wire.Call{Dialect: c.dialect, Path: "/v1/x?beta=true", Header: clients.Clone(),
				Body: []byte(`{"a":1}`)})
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "ok", string(body))
			require.Equal(t, "v1", resp.Header.Get("Request-Id"))
		})
	}
}

func TestSendRetriesBeforeTheFirstByte(t *testing.T) {
	for name, c := range map[string]struct {
		statuses   []int
		retryAfter string
		want       int
		calls      int32
	}{
		"503 then fine":            {[]int{503, 200}, "", 200, 2},
		"429 with retry-after":     {[]int{429, 200}, "0", 200, 2},
		"a date in the past":       {[]int{529, 200}, "Mon, 02 Jan 2006 15:04:05 GMT", 200, 2},
		"the budget is two":        {[]int{500, 502, 504, 200}, "", 504, 3},
		"a long retry-after stays": {[]int{429, 200}, "3600", 429, 1},
		"400 is an answer":         {[]int{400, 200}, "", 400, 1},
		"501 is an answer":         {[]int{501, 200}, "", 501, 1},
		"408 then fine":            {[]int{408, 200}, "", 200, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			client := vendor(t, upstream.Config{Limits: quick()}, func(w http.ResponseWriter, r *http.Request) {
				n := calls.Add(1)
				body, _ := io.ReadAll(r.Body)
				assert.Equal(t, "{}", string(body), "every try has the whole body")
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.statuses[n-1])
			})
			resp, err := client.Send(t.Context(), wire.Call{Body: []byte("{}")})
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, resp.StatusCode)
			require.Equal(t, c.calls, calls.Load())
			require.Equal(t, c.retryAfter, resp.Header.Get("Retry-After"))
		})
	}
}

func TestSendRetriesBrokenConnections(t *testing.T) {
	var calls atomic.Int32
	client := vendor(t, upstream.Config{Limits: quick()}, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
	})
	resp, err := client.Send(t.Context(), wire.Call{Body: []byte("{}")})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.EqualValues(t, 3, calls.Load())
}

func TestSendToNobody(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	client, err := upstream.New(upstream.Config{BaseURL: server.URL, Limits: quick()})
	require.NoError(t, err)
	_, err = client.Send(t.Context(), wire.Call{})
	require.ErrorIs(t, err, upstream.ErrUnreachable)
}

func TestABodyThatBreaksOffIsAnError(t *testing.T) {
	client := vendor(t, upstream.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := client.Send(t.Context(), wire.Call{})
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.Equal(t, "half", string(body))
	require.ErrorIs(t, err, upstream.ErrBroken)
}

// stuck answers with some bytes, or none, and then waits for its client to leave.
func stuck(first string, left chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if first != "" {
			_, _ = io.WriteString(w, first)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		close(left)
	}
}

func TestSilentBackendsAreGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		limits upstream.Limits
		first  string
	}{
		"before the answer": {upstream.Limits{FirstByte: time.Millisecond}, ""},
		"inside the answer": {upstream.Limits{Idle: time.Millisecond}, "x"},
		"in all, before":    {upstream.Limits{Total: time.Millisecond}, ""},
		"in all, inside":    {upstream.Limits{Total: 100 * time.Millisecond}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			client := vendor(t, upstream.Config{Limits: c.limits}, stuck(c.first, left))
			resp, err := client.Send(t.Context(), wire.Call{})
			if err == nil { // on a slow machine the time may be over before
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, upstream.ErrTimeout)
		})
	}
}

// slow is a transport that takes its time for the head of an answer and for each
// byte of a body without end.
type slow struct {
	ctx        context.Context // of the body's call
	head, byte time.Duration
	stream     bool
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	if err := s.wait(s.head); err != nil {
		return nil, err
	}
	header := http.Header{}
	if s.stream {
		header.Set("Content-Type", "text/event-stream")
	}
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(s)}, nil
}

func (s slow) Read(p []byte) (int, error) {
	p[0] = 'x'
	return 1, s.wait(s.byte)
}

func (s slow) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func TestLimitsOfTime(t *testing.T) {
	const (
		idle, first   = 3 * time.Minute, 5 * time.Minute
		total, stream = 10 * time.Minute, 6 * time.Hour
		short         = 2 * time.Second
	)
	for name, c := range map[string]struct {
		slow
		idle time.Duration // 0: the default
		away time.Duration // the reader of the answer, between two bytes
		want time.Duration // when it is over
	}{
		"a slow head": {slow{head: 2 * first}, 0, 0, first},
		"a slow byte": {slow{byte: 2 * idle}, 0, 0, idle},
		"a late head, then silence": {slow{head: first - time.Second, byte: time.Hour}, 0, 0, first - time.Second +
			idle},
		"an earlier one":                       {slow{head: idle - time.Second, byte: time.Hour}, 0, 0, 2*idle - time.Second},
		"one that was silent longer than idle": {slow{head: 2 * short, byte: time.Hour}, short, 0, 3 * short},
		"slow to the end":                      {slow{head: first - time.Second, byte: idle - time.Second}, 0, 0, total},
		"fast to the end":                      {slow{byte: 10 * time.Millisecond}, 0, 0, total},
		"the reader is away":                   {slow{byte: time.Second}, 0, 2 * idle, total},
		"away, then silence":                   {slow{byte: short + time.Second}, short, 2 * short, short},
		"each waits for the other":             {slow{byte: idle - time.Second}, 0, idle - time.Second, total},
		"a stream to the end":                  {slow{byte: time.Minute, stream: true}, 0, 0, stream},
		"a stream that falls silent":           {slow{byte: 2 * idle, stream: true}, 0, 0, idle},
		"a stream with a slow head":            {slow{head: 2 * first, stream: true}, 0, 0, first},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := upstream.New(upstream.Config{BaseURL: "http://vendor", Transport: c.slow, Limits: upstream.Limits{
					Retries: -1, Idle: c.idle,
				}})
				require.NoError(t, err)
				began := time.Now()
				resp, err := client.Send(t.Context(), wire.Call{})
				for p := make([]byte, 1); err == nil; {
					if _, err = resp.Body.Read(p); err == nil {
						time.Sleep(c.away)
					}
				}
				require.ErrorIs(t, err, upstream.ErrTimeout)
				// A reader that is away at the end hears of it when it is back.
				require.GreaterOrEqual(t, time.Since(began), c.want)
				require.LessOrEqual(t, time.Since(began), c.want+c.away)
				if resp != nil {
					require.NoError(t, resp.Body.Close())
				}
			})
		})
	}
}

func TestTheEndOfTheContextEndsTheCall(t *testing.T) {
	for name, first := range map[string]string{"before the answer": "", "inside the answer": "x"} {
		t.Run(name, func(t *testing.T) {
			left, arrived := make(chan struct{}), make(chan struct{})
			client := vendor(t, upstream.Config{}, func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				stuck(first, left)(w, r)
			})
			reason := errors.New("the user left")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-arrived; cancel(reason) }()
			resp, err := client.Send(ctx, wire.Call{})
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, reason)
			<-left
		})
	}
}

func TestClosingTheBodyEndsTheCall(t *testing.T) {
	left := make(chan struct{})
	client := vendor(t, upstream.Config{}, stuck("x", left))
	resp, err := client.Send(t.Context(), wire.Call{})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	<-left
}

func TestUnknownCompressionIsAnError(t *testing.T) {
	client := vendor(t, upstream.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "secret")
	})
	_, err := client.Send(t.Context(), wire.Call{})
	require.ErrorIs(t, err, upstream.ErrEncoding)
}

// A stream that a CDN compresses unasked reaches the reader event by event.
func TestCompressedStreamsArriveByEvents(t *testing.T) {
	for coding, compress := range map[string]func(io.Writer) flusher{
		"gzip": func(w io.Writer) flusher { return gzip.NewWriter(w) },
		"br":   func(w io.Writer) flusher { return brotli.NewWriter(w) },
		"zstd": func(w io.Writer) flusher {
			e, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			require.NoError(t, err)
			return e
		},
	} {
		t.Run(coding, func(t *testing.T) {
			read := make(chan struct{})
			client := vendor(t, upstream.Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Content-Encoding", coding)
				z := compress(w)
				for range 3 {
					_, _ = io.WriteString(z, "data: {}\n\n")
					_ = z.Flush()
					_ = http.NewResponseController(w).Flush()
					<-read
				}
				_ = z.Close()
			})
			resp, err := client.Send(t.Context(), wire.Call{})
			require.NoError(t, err)
			require.Empty(t, resp.Header.Get("Content-Encoding"))
			for range 3 {
				event := make([]byte, len("data: {}\n\n"))
				_, err := io.ReadFull(resp.Body, event)
				require.NoError(t, err)
				require.Equal(t, "data: {}\n\n", string(event))
				read <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Empty(t, rest)
			require.NoError(t, resp.Body.Close())
		})
	}
}

type flusher interface {
	io.WriteCloser
	Flush() error
}

// Azure's v1 API wants "?api-version=preview" behind the path of each call.
func TestTheQueryOfTheBaseURLIsKept(t *testing.T) {
	got := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.String() }))
	defer server.Close()
	client, err := upstream.New(upstream.Config{BaseURL: server.URL + "/openai/v1/?api-version=preview"})
	require.NoError(t, err)
	defer client.Close()
	for path, want := range map[string]string{
		"/chat/completions":   "/openai/v1/chat/completions?api-version=preview",
		"/messages?beta=true": "/openai/v1/messages?beta=true&api-version=preview",
	} {
		resp, err := client.Send(t.Context(), wire.Call{Path: path})
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, <-got)
	}
	_, err = client.Get(t.Context(), wire.Call{Path: "/models"}, 9)
	require.NoError(t, err)
	require.Equal(t, "/openai/v1/models?api-version=preview", <-got)
}

func TestACompressedListIsDecoded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(`{"data":[]}`))
		_ = z.Close()
	}))
	defer server.Close()
	client, err := upstream.New(upstream.Config{BaseURL: server.URL})
	require.NoError(t, err)
	defer client.Close()
	got, err := client.Get(t.Context(), wire.Call{Path: "/models"}, 99)
	require.NoError(t, err)
	require.Equal(t, `{"data":[]}`, string(got))
}

func TestNewRefusesBaseURLs(t *testing.T) {
	for _, u := range []string{"", "example.com", "ftp://x", "http://", "::"} {
		_, err := upstream.New(upstream.Config{BaseURL: u})
		require.ErrorContains(t, err, "base_url must be", u)
	}
}
