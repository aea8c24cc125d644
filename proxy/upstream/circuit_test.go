package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// transport is a backend without a network, so that a test can own the time.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is one with a status and a body.
func answer(status int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}
}

// says answers every request with a status.
func says(status int) transport {
	return func(*http.Request) (*http.Response, error) { return answer(status, strings.NewReader("{}")), nil }
}

var (
	errRefused = errors.New("connection refused")
	refuses    = transport(func(*http.Request) (*http.Response, error) { return nil, errRefused })
	// hangs for as long as it may.
	hangs = transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	// breaks off every answer in its middle.
	breaks = transport(func(*http.Request) (*http.Response, error) {
		return answer(200, io.MultiReader(strings.NewReader("half"), broken{})), nil
	})
)

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// backend is a client and the transport that it has at the moment.
type backend struct {
	*upstream.Client
	transport atomic.Pointer[transport]
	tries     atomic.Int32
}

// becomes changes what the backend does.
func (b *backend) becomes(t transport) { b.transport.Store(&t) }

// open gives a backend with calls that are not retried.
func open(t *testing.T, l upstream.Limits, first transport) *backend {
	t.Helper()
	b := &backend{}
	b.becomes(first)
	l.Retries = -1
	client,
		err := upstream.New(upstream.Config{BaseURL: "http://vendor", Limits: l,
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			b.tries.Add(1)
			return (*b.transport.Load())(r)
		})})
	require.NoError(t, err)
	b.Client = client
	return b
}

// call makes a call and reads its answer to the end; the error is of either.
func (b *backend) call(ctx context.Context) (int, error) {
	resp, err := b.Send(ctx, wire.Call{Body: []byte("{}")})
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// trip calls until the circuit is open.
func (b *backend) trip(t *testing.T) {
	t.Helper()
	for range 100 {
		if _, err := b.call(t.Context()); errors.Is(err, upstream.ErrOpen) {
			return
		}
	}
	t.Fatal("the circuit did not open")
}

func TestARunOfFailuresOpensTheCircuit(t *testing.T) {
	for name, fails := range map[string]transport{
		"connections are refused": refuses, "500": says(500), "503": says(503), "overloaded": says(529),
		"silence": hangs, "answers that break off": breaks,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, upstream.Limits{Failures: 4, Cooldown: time.Minute, FirstByte: 10 * time.Second}, fails)
				for range 4 {
					require.False(t, b.Open())
					_, err := b.call(t.Context())
					require.NotErrorIs(t, err, upstream.ErrOpen)
				}
				require.True(t, b.Open())
				time.Sleep(20 * time.Second)
				_, err := b.call(t.Context())
				var open *upstream.OpenError
				require.ErrorAs(t, err, &open)
				require.ErrorIs(t, err, upstream.ErrOpen)
				require.Equal(t, 40*time.Second, open.RetryAfter)
				require.EqualValues(t, 4, b.tries.Load(), "an open circuit sends nothing")
			})
		})
	}
}

func TestAnswersDoNotOpenTheCircuit(t *testing.T) {
	for _, status := range []int{200, 302, 400, 401, 404, 408, 413, 422, 429, 501} {
		b := open(t, upstream.Limits{Failures: 1}, says(status))
		for range 5 {
			got, err := b.call(t.Context())
			require.NoError(t, err)
			require.Equal(t, status, got)
		}
		require.False(t, b.Open(), status)
	}
}

// Four requests that always fail lock no caller out, though each was tried three times.
func TestFewRequestsThatFailLockNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := upstream.New(upstream.Config{
			BaseURL: "http://vendor",
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/bad" {
					return answer(500, strings.NewReader("{}")), nil
				}
				return answer(200, strings.NewReader("{}")), nil
			}),
		})
		require.NoError(t, err)
		send := func(path string) int {
			resp, err := client.Send(t.Context(), wire.Call{Path: path})
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return resp.StatusCode
		}
		for range 4 {
			require.Equal(t, 500, send("/bad"))
		}
		require.Equal(t, 200, send("/good"))
		for range 100 { // nor do any number of them, as long as others are answered
			require.Equal(t, 500, send("/bad"))
			require.Equal(t, 200, send("/good"))
		}
		require.False(t, client.Open())
	})
}

// A model that is down says nothing of the others, nor one caller's credential of another's.
func TestCircuitsAreOfAModelAndACredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := upstream.New(upstream.Config{
			BaseURL: "http://vendor", Auth: upstream.AuthPassthrough,
			Limits: upstream.Limits{Retries: -1, Failures: 3, Cooldown: time.Minute},
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/down" || r.Header.Get("Authorization") == "Bearer blocked" {
					return answer(500, strings.NewReader("{}")), nil
				}
				return answer(200, strings.NewReader("{}")), nil
			}),
		})
		require.NoError(t, err)
		send := func(model, credential string) error {
			resp, err := client.Send(t.Context(), wire.Call{Path: "/" + model, Model: model,
				Header: http.Header{"Authorization": {"Bearer " + credential}}})
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		for range 3 {
			require.NoError(t, send("down", "good"))
			require.NoError(t, send("up", "blocked"))
		}
		require.ErrorIs(t, send("down", "good"), upstream.ErrOpen)
		require.ErrorIs(t, send("up", "blocked"), upstream.ErrOpen)
		require.NoError(t, send("up", "good"))
		require.True(t, client.Open())
		time.Sleep(3 * time.Minute)
		require.False(t, client.Open(), "nobody has asked for long")
	})
}

// Failures are forgotten with time.
func TestOnlyFailuresOfTheLastMinuteCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream.Limits{Failures: 4}, says(503))
		for range 40 {
			_, err := b.call(t.Context())
			require.NoError(t, err)
			time.Sleep(25 * time.Second)
		}
	})
}

func TestARunIsEndedByAnAnswer(t *testing.T) {
	b := open(t, upstream.Limits{Failures: 2}, nil)
	for range 10 {
		b.becomes(says(503))
		_, err := b.call(t.Context())
		require.NoError(t, err)
		b.becomes(says(429))
		_, err = b.call(t.Context())
		require.NoError(t, err)
	}
	require.False(t, b.Open())
}

func TestTheCircuitCanBeSwitchedOff(t *testing.T) {
	b := open(t, upstream.Limits{Failures: -1}, refuses)
	for range 100 {
		_, err := b.call(t.Context())
		require.ErrorIs(t, err, upstream.ErrUnreachable)
	}
	require.EqualValues(t, 100, b.tries.Load())
}

func TestClientsThatLeaveDoNotOpenTheCircuit(t *testing.T) {
	b := open(t, upstream.Limits{Failures: 1}, hangs)
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.call(ctx)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.False(t, b.Open())
}

func TestOneProbeEndsTheOutage(t *testing.T) {
	for name, c := range map[string]struct {
		probe transport
		open  bool
	}{
		"an answer": {says(200), false}, "a refusal": {says(429), false}, "a failure": {says(503), true}, "no connection": {
			refuses, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, upstream.Limits{Failures: 3, Cooldown: time.Minute}, refuses)
				b.trip(t)
				release := make(chan struct{})
				b.becomes(func(r *http.Request) (*http.Response, error) {
					<-release
					return c.probe(r)
				})
				time.Sleep(time.Minute)
				b.tries.Store(0)
				var calls sync.WaitGroup
				var refused atomic.Int32
				for range 20 {
					calls.Go(func() {
						if _, err := b.call(t.Context()); errors.Is(err, upstream.ErrOpen) {
							refused.Add(1)
						}
					})
				}
				synctest.Wait()
				assert.EqualValues(t, 1, b.tries.Load(), "one call asks for all")
				assert.EqualValues(t, 19, refused.Load())
				close(release)
				calls.Wait()
				require.Equal(t, c.open, b.Open())
				_, err := b.call(t.Context())
				require.Equal(t, c.open, errors.Is(err, upstream.ErrOpen))
			})
		})
	}
}

// The head of an answer is enough: a probe may stream for minutes.
func TestAStreamEndsTheOutageWithItsHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream.Limits{Failures: 3}, refuses)
		b.trip(t)
		time.Sleep(time.Minute)
		b.becomes(says(200))
		resp, err := b.Send(t.Context(), wire.Call{})
		require.NoError(t, err)
		require.False(t, b.Open())
		require.NoError(t, resp.Body.Close())
	})
}

func TestAProbeThatTellsNothingLeavesItToTheNext(t *testing.T) {
	for name, wait := range map[string]time.Duration{"its client leaves": 0, "it takes its time": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, upstream.Limits{Failures: 3, Cooldown: time.Minute}, refuses)
				b.trip(t)
				b.becomes(hangs)
				time.Sleep(time.Minute)
				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan struct{})
				go func() {
					defer close(left)
					_, err := b.call(ctx)
					assert.ErrorIs(t, err, context.Canceled)
				}()
				synctest.Wait()
				_, err := b.call(t.Context())
				require.ErrorIs(t, err, upstream.ErrOpen)
				if wait == 0 {
					cancel()
					<-left
				}
				time.Sleep(wait)
				b.becomes(says(200))
				_, err = b.call(t.Context())
				require.NoError(t, err)
				cancel()
				<-left
				require.False(t, b.Open())
			})
		})
	}
}

// What began before the outage says nothing of the backend as it is now.
func TestAnswersFromBeforeDoNotEndTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream.Limits{Failures: 3}, says(200))
		before, err := b.Send(t.Context(), wire.Call{})
		require.NoError(t, err)
		b.becomes(refuses)
		b.trip(t)
		_, err = io.ReadAll(before.Body)
		require.NoError(t, err)
		require.NoError(t, before.Body.Close())
		require.True(t, b.Open())
	})
}

// Calls of all kinds at once, for the race detector; at the end, with a backend
// that is well, every circuit closes.
func TestManyCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream.Limits{Failures: 5, Cooldown: time.Millisecond, FirstByte: time.Millisecond}, nil)
		var n atomic.Int32
		kinds := []transport{says(200), refuses, says(500), hangs, breaks, says(429), says(503)}
		b.becomes(func(r *http.Request) (*http.Response, error) { return kinds[int(n.Add(1))%len(kinds)](r) })
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				for range 50 {
					_, _ = b.call(t.Context())
				}
			})
		}
		calls.Wait()
		b.becomes(says(200))
		time.Sleep(time.Millisecond)
		_, err := b.call(t.Context())
		require.NoError(t, err)
		require.False(t, b.Open())
	})
}

// Calls of one tenant that fail hold back no other tenant's; what fails for two is held back for all.
func TestTenantsHaveCircuitsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream.Limits{Failures: 4, Cooldown: time.Minute}, says(500))
		call := func(tenant string) error {
			resp, err := b.Send(t.Context(), wire.Call{Body: []byte("{}"), Tenant: tenant})
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		fails := func(tenant string) {
			for range 4 {
				require.NoError(t, call(tenant))
			}
			require.ErrorIs(t, call(tenant), upstream.ErrOpen)
		}
		fails("a")
		require.True(t, b.Open(), "it fails for the only one that calls")
		b.becomes(says(200))
		require.NoError(t, call("b"))
		require.False(t, b.Open())
		require.ErrorIs(t, call("a"), upstream.ErrOpen)
		b.becomes(says(500))
		time.Sleep(2 * time.Minute) // what b was answered is forgotten
		fails("b")
		require.NoError(t, call("c"), "it fails for one alone, since nobody asks for a any more")
		require.NoError(t, call("a"), "the probe")
		require.True(t, b.Open())
		tries := b.tries.Load()
		require.ErrorIs(t, call("d"), upstream.ErrOpen, "it fails for a and for b")
		require.Equal(t, tries, b.tries.Load())
		b.becomes(says(200))
		time.Sleep(2 * time.Minute)
		require.NoError(t, call("d"), "both may be asked again, and so may the others")
		require.NoError(t, call("a"))
		require.False(t, b.Open())
	})
}
