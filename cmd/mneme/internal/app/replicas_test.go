package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/subagent/rag"
)

// replica is an apiserver as a process, one of several over a Redis.
type replica struct {
	*stack
	at string
}

func newReplica(t *testing.T, redis *redistest.Server) *replica {
	s := newStack(t, "MNEME_REDIS_URL="+redis.URL())
	r := &replica{s, s.at.Apiserver}
	r.begin()
	return r
}

func (r *replica) begin() { r.start("apiserver") }

// call does one request; the error is that there was no answer.
func (r *replica) call(method, path, body string) (int, string, error) {
	req, err := http.NewRequest(method, "http://"+r.at+"/v1/collections/docs"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

func (r *replica) do(method, path, body string) {
	r.t.Helper()
	status, raw, err := r.call(method, path, body)
	require.NoError(r.t, err)
	require.Equal(r.t, 2, status/100, "%s %s: %s", method, path, raw)
}

func (r *replica) put(id, text string) {
	r.t.Helper()
	r.do("PUT", "/documents/"+id, fmt.Sprintf(`{"text":%q}`, text))
}

// found are the documents that a search gives.
func (r *replica) found(query string) []string {
	r.t.Helper()
	status, raw, err := r.call("POST", "/search", fmt.Sprintf(`{"query":%q,"k":100}`, query))
	require.NoError(r.t, err)
	require.Equal(r.t, http.StatusOK, status, raw)
	var result rag.Result
	require.NoError(r.t, json.Unmarshal([]byte(raw), &result))
	require.False(r.t, result.Degraded)
	return append([]string{}, found(result)...)
}

// What one apiserver answered for, every other one finds or does not find any more
// with its next search, also when the first one was killed at once.
func TestDocumentsOnEveryReplica(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := newReplica(t, redis), newReplica(t, redis)
	a.do("PUT", "", "")
	for round := range 4 {
		old, fresh := fmt.Sprintf("anchor%d", round), fmt.Sprintf("buoy%d", round)
		a.put("x", "Here is "+old+".")
		require.Equal(t, []string{"x"}, b.found(old))
		a.put("x", "Here is "+fresh+".")
		if round == 1 {
			a.kill("apiserver")
		}
		require.Empty(t, b.found(old), "replaced")
		require.Equal(t, []string{"x"}, b.found(fresh))
		if round == 1 {
			a.begin()
			require.Equal(t, []string{"x"}, a.found(fresh), "after its restart")
			require.Empty(t, a.found(old))
		}
		a.do("DELETE", "/documents/x", "")
		if round == 2 {
			a.kill("apiserver")
		}
		require.Empty(t, b.found(fresh), "deleted")
		if round == 2 {
			a.begin()
			require.Empty(t, a.found(fresh), "it stays deleted after a restart")
		}
	}
}

// A process that is killed while it puts documents leaves nothing half done: what
// it had answered for is found by others, and no document is found in part.
func TestAReplicaKilledWhileItPutsDocuments(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := newReplica(t, redis), newReplica(t, redis)
	a.do("PUT", "", "")
	body := func(i int) string { return fmt.Sprintf("Lantern. Number%d lies at quay%d.", i, i) }
	var acknowledged []string
	half, done := make(chan struct{}), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer close(done)
		for i := range 100_000 {
			id := fmt.Sprintf("d%d", i)
			status, _, err := a.call("PUT", "/documents/"+id, fmt.Sprintf(`{"text":%q}`, body(i)))
			if err != nil {
				return // it was killed
			}
			assert.Equal(t, http.StatusCreated, status)
			if acknowledged = append(acknowledged, id); len(acknowledged) == 50 {
				close(half)
			}
		}
	})
	select {
	case <-half:
	case <-done:
	}
	a.kill("apiserver")
	writer.Wait()
	require.GreaterOrEqual(t, len(acknowledged), 50)
	for i, id := range acknowledged {
		require.Equal(t, []string{id}, b.found(fmt.Sprintf("number%d", i)))
		require.Equal(t, []string{id}, b.found(fmt.Sprintf("quay%d", i)))
	}
	next := len(acknowledged) // the one that was under way: whole or not there
	require.Equal(t, b.found(fmt.Sprintf("number%d", next)), b.found(fmt.Sprintf("quay%d", next)))
	a.begin()
	require.Equal(t, b.found("lantern"), a.found("lantern"), "both agree, also on the order")
}
