package api_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/apiserver/api"
	"mneme/internal/dnstest"
	"mneme/memory/event"
)

func TestMain(m *testing.M) {
	dnstest.Use()
	goleak.VerifyTestMain(m)
}

const runID = "r1"

func at(seq int64, p event.Payload) event.Event {
	return event.Event{Head: event.Head{RunID: runID, Seq: seq, TS: 1763711157.25}, Payload: p}
}

func delta(seq int64, text string) event.Event { return at(seq, &event.AssistantDelta{Text: text}) }

func finished(seq int64) event.Event { return at(seq, &event.RunFinished{Outcome: event.Completed}) }

// logOf has the events given.
func logOf(t *testing.T, events ...event.Event) *api.Log {
	t.Helper()
	log := api.NewLog(runID, api.Limits{})
	for _, e := range events {
		require.NoError(t, log.Append(e))
	}
	return log
}

// serve makes a server for one log.
func serve(t *testing.T, log *api.Log, pace api.Pace) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeEvents(w, r, log, pace)
	}))
	t.Cleanup(server.Close)
	return server
}

func client(t *testing.T, base string) *api.Client {
	t.Helper()
	c, err := api.NewClient(base, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// read collects a run's events and how reading ended.
func read(ctx context.Context, c *api.Client, url string, after int64) (seqs []int64, err error) {
	for e, err := range eachEvent(ctx, c, url, after) {
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, e.Seq)
	}
	return seqs, nil
}

func from(first, last int64) (seqs []int64) {
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// get is a plain HTTP request for events.
func get(t *testing.T, url, lastEventID string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := h.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var body strings.Builder
	_, err = io.Copy(&body, resp.Body)
	require.NoError(t, err)
	return resp, body.String()
}

// eachEvent reads a run's events one by one.
func eachEvent(ctx context.Context, c *api.Client, url string, after int64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for batch, err := range c.Batches(ctx, url, after, 1) {
			if !yield(append(batch, event.Event{})[0], err) {
				return
			}
		}
	}
}
