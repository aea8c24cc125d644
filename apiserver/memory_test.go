package apiserver_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/recall"
)

// What the agents of a run look for goes to the webmemory that holds the run, by the address and
// the token that came with it. A run that came without has no memory to search.
func TestARunSearchesWhereItCameFrom(t *testing.T) {
	var path, token string
	var asked memory.RecallRequest
	holder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, token = r.URL.Path, r.Header.Get("Authorization")
		raw, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(raw, &asked)
		api.WriteJSON(w, http.StatusOK, memory.Recalled{Partial: true, Hits: []memory.RecallHit{
			{ID: "r.1", TS: 2, Role: "user", Name: "Ann", Subagent: "analytic", Score: 3, Text: "tea",
				Messages: []string{"r.1"}},
		}})
	}))
	defer holder.Close()
	type outcome struct {
		has   bool
		found recall.Result
		err   error
	}
	got := make(chan outcome, 1)
	q := recall.Query{Subagent: "analytic", Query: "tea?", From: "2024-01-01T00:00:00Z", To: "2025-01-01T00:00:00Z",
		Budget:   700,
		Overhead: 9, Automatic: true, Needed: true}
	s := start(t, apiserver.Config{Memory: holder.Client()}, agent(func(ctx context.Context, r master.Request,
		say func(event.Payload)) {
		var o outcome
		if o.has = r.Memory != nil; o.has {
			o.found, o.err = r.Memory.Recall(ctx, q)
		}
		got <- o
		say(done)
	}))
	r := request("R1")
	r.Memory = &api.MemoryAccess{URL: holder.URL + "/internal/v1/runs/R1", Token: "secret"}
	s.post(t, r)
	o := <-got
	require.NoError(t, o.err)
	require.Equal(t, recall.Result{Partial: true, Hits: []recall.Hit{{ID: "r.1", TS: 2, Role: "user", Name: "Ann",
		Subagent: "analytic", Score: 3, Text: "tea", Messages: []string{"r.1"}}}}, o.found)
	require.Equal(t, []string{"/internal/v1/runs/R1/recall", "Bearer secret"}, []string{path, token})
	require.Equal(t, memory.RecallRequest{Subagent: "analytic", Query: "tea?", From: q.From, To: q.To, Budget: 700,
		Overhead: 9, Automatic: true, Needed: true}, asked)

	s.post(t, request("R2"))
	require.Equal(t, outcome{}, <-got)
	holder.Close()
	r.RunID = "R3"
	s.post(t, r)
	require.ErrorIs(t, (<-got).err, api.ErrUnreachable)
	require.NoError(t, s.Server.Close())
	require.NotContains(t, s.log.String(), "secret")
}
