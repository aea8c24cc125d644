package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/telemetry"
)

func TestTraceparent(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	taken := func(values ...string) bool {
		return telemetry.Take(http.Header{telemetry.Header: values}).Trace == trace
	}
	for _, good := range []string{
		"00-" + trace + "-" + parent + "-01", "00-" + trace + "-" + parent + "-00", "cc-" + trace + "-" + parent +
			"-01-what will be",
	} {
		require.True(t, taken(good), good)
		trail := telemetry.Take(http.Header{telemetry.Header: {good}})
		require.Regexp(t, "^00-"+trace+"-[0-9a-f]{16}-"+good[53:55]+"$", trail.Parent())
		require.NotEqual(t, trail.Parent(), trail.Parent(), "each request is a span of its own")
	}
	for _, bad := range []string{
		"", "00", "00-" + trace + "-" + parent, "ff-" + trace + "-" + parent + "-01", "00-" + trace + "-" + parent +
			"-01-more",
		"cc-" + trace + "-" + parent + "-01more", "00-" + strings.ToUpper(trace) + "-" + parent + "-01", "00-" + trace + "-" +
			parent + "-0g",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01",
		"0x-" + trace + "-" + parent + "-01", "00-" + trace[:31] + "\n-" + parent + "-01",
	} {
		require.False(t, taken(bad), bad)
		made := telemetry.Take(http.Header{telemetry.Header: {bad}})
		require.Regexp(t, "^[0-9a-f]{32}$", made.Trace)
		require.Regexp(t, "^00-"+made.Trace+"-[0-9a-f]{16}-00$", made.Parent())
	}
	good := "00-" + trace + "-" + parent + "-01"
	require.False(t, taken(good, good), "two of them are none")
}

// kept is a log. Safe for concurrent use: lines that repeat are told by timers.
type kept struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(b)
}

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

// lines are those of a log.
func lines(t *testing.T, log *kept) (out []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		out = append(out, line)
	}
	return out
}

// A warning that repeats is written three times, then counted, and its count is told
// within a minute; others are written beside it.
func TestLinesThatRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kept
		s := telemetry.Open("", zerolog.New(&log).Level(zerolog.InfoLevel))
		often := s.Often.With().Str("folder", "x").Logger()
		for i := range 20 {
			often.Warn().Int("try", i).Msg("the disk is full")
			s.Often.Info().Msg("all is well")
		}
		s.Often.Error().Msg("the disk is full")
		s.Log.Warn().Msg("the disk is full")
		counts := func() map[string]int {
			out := map[string]int{}
			for _, l := range lines(t, &log) {
				out[l["level"].(string)+" "+l["message"].(string)]++
			}
			return out
		}
		require.Equal(t, map[string]int{"warn the disk is full": 4, "info all is well": 20, "error the disk is full": 1},
			counts())
		require.Equal(t, "x", lines(t, &log)[0]["folder"])
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, 1, counts()["warn the disk is full (17 more like this in the last minute)"])
		for range 5 {
			often.Warn().Msg("the disk is full")
		}
		require.Equal(t, 7, counts()["warn the disk is full"], "a new minute")
		require.NoError(t, s.Close())
		require.Equal(t, 1, counts()["warn the disk is full (2 more like this in the last minute)"],
			"the end tells what it knows")
	})
}

// Messages without end are written: what is counted is bounded.
func TestManyMessagesAreNotCounted(t *testing.T) {
	var log kept
	s := telemetry.Open("", zerolog.New(&log))
	for i := range 1100 {
		s.Often.Warn().Msg(strings.Repeat("x", i+1))
	}
	require.Len(t, lines(t, &log), 1100)
	require.NoError(t, s.Close())
}

// service is a service of a few routes.
func service(t *testing.T, log io.Writer) (*telemetry.Service, http.Handler) {
	s := telemetry.Open("v9", zerolog.New(log))
	e := s.Edge(func(c *gin.Context, err error) { c.String(http.StatusNotFound, err.Error()) })
	e.GET("/v1/chats/:chat/runs/:run", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	e.POST("/v1/runs", func(c *gin.Context) {
		telemetry.Concerns(c.Request.Context(), "7", "RUN")
		_ = c.Error(errors.New("the disk is full"))
		c.Status(http.StatusServiceUnavailable)
	})
	e.POST("/told", func(c *gin.Context) { telemetry.MarkLogged(c.Request.Context()) })
	e.GET("/readyz", func(c *gin.Context) { c.Status(http.StatusServiceUnavailable) })
	return s, e
}

func TestRequestsAreCountedAndLogged(t *testing.T) {
	var log kept
	s, h := service(t, &log)
	do := func(method, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Body.String()
	}
	do("GET", "/v1/chats/tg:1/runs/R1")
	do("GET", "/v1/chats/tg:2/runs/R2")
	do("POST", "/v1/runs")
	do("POST", "/told")
	do("GET", "/readyz")
	do("BREW", "/coffee")
	do("GET", "/"+strings.Repeat("x", 1000))
	s.Count("(refused)", "GET", 403, 0)

	written := lines(t, &log)
	require.Len(t, written, 6, "what has a line of its own gets no second one")
	for i, want := range []map[string]any{
		{"level": "info", "chat": "tg:1", "run": "R1", "status": 204.0, "path": "/v1/chats/tg:1/runs/R1"},
		{"chat": "tg:2", "run": "R2"},
		{"level": "error", "chat": "7", "run": "RUN", "status": 503.0, "causes": []any{"the disk is full"}},
		{"level": "debug", "path": "/readyz"},
	} {
		for name, value := range want {
			require.Equal(t, value, written[i][name], name)
		}
		require.Regexp(t, "^[0-9a-f]{32}$", written[i]["trace_id"])
	}
	metrics := do("GET", "/metrics")
	for _, line := range []string{
		`mneme_http_requests_total{method="GET",route="/v1/chats/:chat/runs/:run",status="204"} 2`,
		`mneme_http_requests_total{method="POST",route="/v1/runs",status="503"} 1`,
		`mneme_http_requests_total{method="(other)",route="(none)",status="404"} 1`,
		`mneme_http_requests_total{method="GET",route="(none)",status="404"} 1`,
		`mneme_http_requests_total{method="GET",route="(refused)",status="403"} 1`,
		`mneme_http_request_duration_seconds_count{method="GET",route="/v1/chats/:chat/runs/:run"} 2`,
		"mneme_http_requests_in_flight 1", `version="v9"} 1`, "go_goroutines ",
	} {
		require.Contains(t, metrics, line)
	}
	require.NotContains(t, metrics, "tg:1", "no path is a label")
}

// Requests that went well are most of them, and need no line; they are counted all the same.
func TestWhichRequestsHaveALine(t *testing.T) {
	for requests, want := range map[string]int{"": 2, telemetry.RequestsErrors: 1, telemetry.RequestsOff: 0} {
		var log kept
		s, h := service(t, &log)
		s.Requests = requests
		for _, path := range []string{"/v1/chats/1/runs/R1", "/nothing"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		}
		require.Len(t, lines(t, &log), want, requests)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		require.Contains(t, w.Body.String(), `route="/v1/chats/:chat/runs/:run",status="204"} 1`)
	}
}

// A handler that panics is answered for before its answer has begun. Afterwards the
// connection breaks, so that no client takes the part for the whole.
func TestRecovery(t *testing.T) {
	var log kept
	s := telemetry.Open("", zerolog.New(&log))
	const secret = "what the user said"
	e := s.Edge(func(c *gin.Context, err error) { c.String(http.StatusInternalServerError, err.Error()) },
		func(c *gin.Context) { c.Header("X-Id", "req_7") })
	e.IDHeader = "X-Id"
	e.GET("/:kind/:begun", func(c *gin.Context) {
		if c.Param("begun") == "begun" {
			c.String(http.StatusOK, "half")
			c.Writer.Flush()
		}
		if c.Param("kind") == "abort" {
			panic(http.ErrAbortHandler)
		}
		panic(secret)
	})
	server := httptest.NewServer(e)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // else net/http tries again
	get := func(path string) (status int, body string, err error) {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw), err
	}
	status, body, err := get("/mistake/not")
	require.NoError(t, err)
	require.Equal(t, 500, status)
	require.Equal(t, "a request panicked", body)
	for _, path := range []string{"/mistake/begun", "/abort/begun"} {
		_, body, err = get(path)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, path)
		require.Equal(t, "half", body)
	}
	_, _, err = get("/abort/not")
	require.ErrorIs(t, err, io.EOF)
	written := lines(t, &log)
	panics := 0
	for _, l := range written {
		require.Equal(t, "error", l["level"], l)
		if l["message"] != telemetry.ErrPanicked.Error() {
			require.Equal(t, 500.0, l["status"], l)
			continue
		}
		panics++
		require.Equal(t, "req_7", l["request_id"])
		require.Equal(t, "/:kind/:begun", l["route"])
		require.Contains(t, l["stack"], "telemetry_test.go")
	}
	require.Equal(t, 2, panics)
	require.Len(t, written, 4+panics)
	require.NotContains(t, log.String(), secret)
}

// A request to another service carries the trace of the one that it is made for, and
// its own header stays as it was.
func TestTransport(t *testing.T) {
	got := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get(telemetry.Header)
		w.WriteHeader(http.StatusTeapot)
	}))
	s := telemetry.Open("", zerolog.Nop())
	client := &http.Client{Transport: s.Transport("other", nil)}
	trail := telemetry.New()
	r, err := http.NewRequestWithContext(trail.In(context.Background()), http.MethodGet, other.URL, nil)
	require.NoError(t, err)
	resp, err := client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, <-got, "00-"+trail.Trace+"-")
	require.Empty(t, r.Header)
	client.CloseIdleConnections()
	other.Close()
	_, err = client.Get(other.URL)
	require.Error(t, err)
	w := httptest.NewRecorder()
	s.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, w.Body.String(), `mneme_client_requests_total{status="418",to="other"} 1`)
	require.Contains(t, w.Body.String(), `mneme_client_requests_total{status="error",to="other"} 1`)
}
