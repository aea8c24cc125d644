package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/memory/event"
)

// stream answers every request with these bytes, then lets the handler act.
func stream(t *testing.T, body string, then func(http.ResponseWriter, *http.Request)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, body)
		w.(http.Flusher).Flush()
		if then != nil {
			then(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func frame(e event.Event) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Role(), e.Line())
}

func TestAStreamThatEndsBeforeTheRunIsCut(t *testing.T) {
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	torn := strings.TrimSuffix(frame(delta(2, "b")), "\n\n")
	for _, c := range []struct {
		name, body string
		then       func(http.ResponseWriter, *http.Request)
		seqs       []int64
	}{
		{"cleanly", frame(delta(1, "a")), nil, []int64{1}},
		{"by a hang-up", frame(delta(1, "a")), hangUp, []int64{1}},
		{"inside a frame", frame(delta(1, "a")) + torn[:len(torn)-10], nil, []int64{1}},
		{"at the end of a frame's data", frame(delta(1, "a")) + torn, nil, []int64{1}},
		{"inside a frame by a hang-up", frame(delta(1, "a")) + torn, hangUp, []int64{1}},
		{"with nothing sent", "", nil, nil},
		{"with a gap", frame(delta(1, "a")) + frame(delta(3, "c")), nil, []int64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := stream(t, c.body, c.then)
			seqs, err := read(t.Context(), client(t, url), url, 0)
			require.ErrorIs(t, err, api.ErrCut)
			require.Equal(t, c.seqs, seqs)
		})
	}
}

// A stream that breaks off behind run_waiting may have had more to give.
func TestAStreamBreaksOffWhereARunWaited(t *testing.T) {
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	url := stream(t, frame(at(1, &event.RunWaiting{})), hangUp)
	seqs, err := read(t.Context(), client(t, url), url, 0)
	require.ErrorIs(t, err, api.ErrCut)
	require.Equal(t, []int64{1}, seqs)
}

func TestReadingSkipsWhatItHasAndWhatIsNoEvent(t *testing.T) {
	body := ": hello\n\n" + frame(delta(1, "a")) + "retry: 5\n\n" + frame(delta(2, "b")) +
		strings.ReplaceAll(frame(delta(3, "c")), "\n", "\r\n") +
		"id: 4\ndata: {\"role\":\"newer\",\"run_id\":\"r1\",\ndata: \"seq\":4}\n\n" + frame(finished(5))
	url := stream(t, body, nil)
	seqs, err := read(t.Context(), client(t, url), url, 1)
	require.NoError(t, err)
	require.Equal(t, from(2, 5), seqs)
}

func TestAFinishedStreamLeavesItsConnectionToTheNextOne(t *testing.T) {
	server := serve(t, logOf(t, delta(1, "a"), finished(2)), api.Pace{})
	c := client(t, server.URL)
	var reused []bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { reused = append(reused, got.Reused) },
	})
	for range 3 {
		seqs, err := read(ctx, c, server.URL, 0)
		require.NoError(t, err)
		require.Equal(t, from(1, 2), seqs)
	}
	require.Equal(t, []bool{false, true, true}, reused)
}

func TestASilentStreamCountsAsCut(t *testing.T) {
	testtier.Slow(t)
	url := stream(t, frame(delta(1, "a")), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := client(t, url)
	c.Idle = 2 * time.Second // in which the first event must come
	seqs, err := read(t.Context(), c, url, 0)
	require.ErrorIs(t, err, api.ErrCut)
	require.Equal(t, []int64{1}, seqs)
}

func TestTheCallersContextEndsReadingWithItsCause(t *testing.T) {
	url := stream(t, frame(delta(1, "a")), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("enough")
	var last error
	for _, err := range eachEvent(ctx, client(t, url), url, 0) {
		if last = err; err == nil {
			cancel(why)
		}
	}
	require.ErrorIs(t, last, why)
}

func TestAnswersThatAreNoStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"a problem", func(w http.ResponseWriter, _ *http.Request) { api.WriteProblem(w, api.ErrGone) }, "(events_gone)"},
		{"a page of a load balancer", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>", http.StatusBadGateway)
		}, "(http_502)"},
		{"something else", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
			"instead of an event stream"},
		{"an event that is none", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: 1\ndata: hello\n\n")
		}, "reading an event"},
		{"an event over the limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: 1\ndata: %s\n\n", strings.Repeat("x", api.MaxEvent+8<<10))
		}, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			_, err := read(t.Context(), client(t, server.URL), server.URL, 0)
			require.ErrorContains(t, err, c.want)
			require.NotErrorIs(t, err, api.ErrCut, "asking again would not help")
		})
	}
}

func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c := client(t, server.URL)
	_, err := read(t.Context(), c, server.URL, 0)
	require.ErrorIs(t, err, api.ErrUnreachable)
	require.ErrorIs(t, c.Stop(t.Context(), "r1"), api.ErrUnreachable)
}

func TestClientAddresses(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8081", "ftp://x", "http://", "http://%"} {
		_, err := api.NewClient(bad, nil)
		require.Error(t, err, bad)
	}
	c := client(t, "http://front/base/")
	_, err := c.ForEvents("nonsense")
	require.Error(t, err)

	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	at, err := c.ForEvents(server.URL + "/base/v1/runs/r1/events")
	require.NoError(t, err)
	defer at.Close()
	require.NoError(t, at.Done(t.Context(), "r1", math.MaxInt64))
	require.Equal(t, "DELETE /base/v1/runs/r1", asked)
}

// What came together is given together, at most so much of it, and before more is waited for.
func TestBatches(t *testing.T) {
	first := frame(delta(1, "a")) + frame(delta(2, "b")) + frame(delta(3, "c"))
	given := make(chan struct{})
	url := stream(t, first, func(w http.ResponseWriter, _ *http.Request) {
		<-given
		_, _ = io.WriteString(w, frame(delta(4, "d"))+frame(finished(5)))
	})
	var batches []int
	for events, err := range client(t, url).Batches(t.Context(), url, 0, 2) {
		require.NoError(t, err)
		batches = append(batches, len(events))
		if events[len(events)-1].Seq == 3 {
			close(given)
		}
	}
	require.Equal(t, []int{2, 1, 2}, batches)
}

// Events that came before a cut are given before its error; a caller that leaves is left alone.
func TestBatchesBeforeACut(t *testing.T) {
	url := stream(t, frame(delta(1, "a"))+frame(delta(2, "b"))+"id: 3\ndata: {", nil)
	var seqs []int64
	var cut error
	for events, err := range client(t, url).Batches(t.Context(), url, 0, 9) {
		cut = err
		for _, e := range events {
			seqs = append(seqs, e.Seq)
		}
	}
	require.Equal(t, from(1, 2), seqs)
	require.ErrorIs(t, cut, api.ErrCut)
	for range client(t, url).Batches(t.Context(), url, 0, 1) {
		break
	}
}
