package upstream_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// aboutThinking is a Judge that knows refusals by one word.
func aboutThinking(_ int, body []byte) bool { return strings.Contains(string(body), "signature") }

func TestJudgedAnswersAreReturnedAsTheyAre(t *testing.T) {
	ours, other := `{"error":"signature"}`, `{"error":"slow down"}`
	for name, c := range map[string]struct {
		statuses []int // of one try after the other
		body     string
		want     int
		tries    int32
	}{
		"429, about the request": {[]int{429, 200}, ours, 429, 1},
		"500, about the request": {[]int{500, 200}, ours, 500, 1},
		"with a long body":       {[]int{529, 200}, ours + strings.Repeat(" ", 1<<20) + "end", 529, 1},
		"429, about the limit":   {[]int{429, 200}, other, 200, 2},
		"500, about the backend": {[]int{500, 200}, other, 200, 2},
		"to the end":             {[]int{500, 500, 503}, other, 503, 3},
		"with a long other body": {[]int{500, 500, 503}, other + strings.Repeat(" ", 1<<20) + ours, 503, 3},
		"without a body":         {[]int{500, 200}, "", 200, 2},
		"400 is not judged":      {[]int{400}, other, 400, 1},
		"501 is not judged":      {[]int{501}, other, 501, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			judge := func(status int, body []byte) bool {
				assert.Contains(t, []int{429, 500, 503, 529}, status)
				assert.LessOrEqual(t, len(body), 64<<10)
				return aboutThinking(status, body)
			}
			client := vendor(t, upstream.Config{Limits: quick(), Judge: judge}, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.statuses[tries.Add(1)-1])
				_, _ = io.WriteString(w, c.body)
			})
			resp, err := client.Send(t.Context(), wire.Call{})
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, resp.StatusCode)
			require.Equal(t, c.body, string(body), "byte for byte")
			require.Equal(t, c.tries, tries.Load())
		})
	}
}

// A backend that is slow to begin sends signs of life: they are held back for a while only.
func TestTheHeadOfAStreamIsHeldForAWhileOnly(t *testing.T) {
	early := func(data []byte) (int, bool) { return 0, len(data) == 0 }
	for name, c := range map[string]struct {
		first string
		held  time.Duration
	}{"signs of life": {": alive\n\n", 20 * time.Second}, "the answer": {"data: yes\n\n", 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream, vendor := io.Pipe()
				client, err := upstream.New(upstream.Config{
					BaseURL: "http://vendor", Early: early,
					Transport: transport(func(*http.Request) (*http.Response, error) {
						resp := answer(200, stream)
						resp.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
						return resp, nil
					}),
				})
				require.NoError(t, err)
				go func() {
					for range 4 {
						_, _ = io.WriteString(vendor, c.first)
						time.Sleep(10 * time.Second)
					}
					_ = vendor.Close()
				}()
				began := time.Now()
				resp, err := client.Send(t.Context(), wire.Call{})
				require.NoError(t, err)
				require.Equal(t, c.held, time.Since(began))
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, strings.Repeat(c.first, 4), string(body))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// Nothing of the answer has come, so nothing is said twice.
func TestAStreamThatEndsBeforeItsAnswerIsRepeated(t *testing.T) {
	early := func(data []byte) (int, bool) { return 0, string(data) != "yes" }
	for name, c := range map[string]struct {
		end   func()
		fails int32
	}{
		"cut once": {func() { panic(http.ErrAbortHandler) }, 1}, "over once": {func() {}, 1},
		"cut always": {func() { panic(http.ErrAbortHandler) }, 9}, "over always": {func() {}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			config := upstream.Config{Limits: quick(), Early: early}
			client := vendor(t, config, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: start\n\n")
				_ = http.NewResponseController(w).Flush()
				if tries.Add(1) <= c.fails {
					c.end()
					return
				}
				_, _ = io.WriteString(w, "data: yes\n\n")
			})
			resp, err := client.Send(t.Context(), wire.Call{})
			if c.fails > 1 {
				require.ErrorIs(t, err, upstream.ErrBroken)
				require.Equal(t, int32(3), tries.Load())
				return
			}
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "data: start\n\ndata: yes\n\n", string(body))
		})
	}
}

func TestJudgedAnswersDoNotOpenTheCircuit(t *testing.T) {
	client := vendor(t, upstream.Config{Limits: upstream.Limits{Failures: 1}, Judge: aboutThinking},
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "Invalid signature")
		})
	for range 5 {
		resp, err := client.Send(t.Context(), wire.Call{})
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.False(t, client.Open())
}

func TestAnErrorBodyThatBreaksOffIsJudgedByWhatCame(t *testing.T) {
	for body, want := range map[string]string{"Invalid signature": "Invalid signature", "overload": "overload"} {
		client := vendor(t, upstream.Config{Limits: upstream.Limits{Retries: -1}, Judge: aboutThinking},
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				_, _ = io.WriteString(w, body)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
		resp, err := client.Send(t.Context(), wire.Call{})
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, upstream.ErrBroken)
		require.Equal(t, want, string(got))
		require.NoError(t, resp.Body.Close())
	}
}

// A circuit that another call opens ends the retries; the client gets what the backend said.
func TestAnOpenCircuitEndsTheRetries(t *testing.T) {
	var tries atomic.Int32
	var client *upstream.Client
	limits := upstream.Limits{Retries: 9, Burst: 100, Failures: 1, Backoff: time.Nanosecond}
	client = vendor(t, upstream.Config{Limits: limits},
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/base/" && tries.Add(1) == 3 {
				resp, err := client.Send(t.Context(), wire.Call{Path: "/other"})
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
				}
			}
			w.WriteHeader(503)
		})
	resp, err := client.Send(t.Context(), wire.Call{Path: "/"})
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 503, resp.StatusCode)
	require.EqualValues(t, 3, tries.Load())
}

func TestRetriesOfADyingBackendAreBounded(t *testing.T) {
	for name, first := range map[string]transport{"503": says(503), "429": says(429), "no connection": refuses} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries atomic.Int32
				client, err := upstream.New(upstream.Config{
					BaseURL: "http://vendor", Limits: upstream.Limits{Failures: -1, Backoff: time.Nanosecond},
					Transport: transport(func(r *http.Request) (*http.Response, error) {
						tries.Add(1)
						return first(r)
					}),
				})
				require.NoError(t, err)
				call := func() int32 {
					tries.Store(0)
					if resp, err := client.Send(t.Context(), wire.Call{}); err == nil {
						require.NoError(t, resp.Body.Close())
					}
					return tries.Load()
				}
				require.EqualValues(t, 3, call(), "the first calls have all their retries")
				total := int32(3)
				for range 999 {
					total += call()
				}
				require.InDelta(t, 1000+10+200, total, 2, "a few at once, then one for every five calls")
				time.Sleep(10 * time.Second)
				require.EqualValues(t, 3, call(), "a backend with few callers gets them back with time")
			})
		})
	}
}

func TestManyRetriesWaitNoLongerThanTheyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		client, err := upstream.New(upstream.Config{
			BaseURL: "http://vendor", Limits: upstream.Limits{Retries: 100, Burst: 100, Failures: -1, Total: time.Hour},
			Transport: transport(func(r *http.Request) (*http.Response, error) { tries++; return refuses(r) }),
		})
		require.NoError(t, err)
		_, err = client.Send(t.Context(), wire.Call{})
		require.ErrorIs(t, err, upstream.ErrUnreachable)
		require.Equal(t, 101, tries)
		require.Less(t, time.Since(began), 100*15*time.Second)
	})
}

// A request that cannot be made does not count as the backend's failure.
func TestACallThatCannotBeMade(t *testing.T) {
	b := open(t, upstream.Limits{Failures: 1}, says(200))
	_, err := b.Send(t.Context(), wire.Call{Path: "/x?\x7f"})
	require.Error(t, err)
	require.NotErrorIs(t, err, upstream.ErrUnreachable)
	require.Zero(t, b.tries.Load())
	require.False(t, b.Open())
}
