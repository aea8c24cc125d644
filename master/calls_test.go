package master_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/proxy"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
)

// throughGateway makes models that a real gateway answers by its offline model.
func throughGateway(t *testing.T) (of func(path string) loop.Model) {
	t.Helper()
	server, err := proxy.New(proxy.Config{Active: "off", Backends: map[string]proxy.BackendConfig{
		"off": {Kind: proxy.KindOffline},
	}}, zerolog.Nop())
	require.NoError(t, err)
	front := httptest.NewServer(server.Handler())
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); front.Close(); require.NoError(t, server.Close()) })
	return func(path string) loop.Model {
		return openaimodel.New(openaimodel.Config{BaseURL: front.URL + path, Model: "m", HTTP: client})
	}
}

// sums are the usage of calls.
func sums(calls []event.ModelCall) (u event.Usage) {
	for _, c := range calls {
		u = u.Add(c.Usage)
	}
	return u
}

// A run that is over has all its calls of models, with the agent of each and the backend that answered.
func TestARunHasItsModelCalls(t *testing.T) {
	of := throughGateway(t)
	a := agent(of(""), sub("analytic", of("/teammate/analytic")))
	r := ask(master.Version)
	r.Message = "Tell the analytic subagent that my name is Vera"
	l := until(t, a, r)
	end := last[*event.RunFinished](l)
	require.Equal(t, event.Completed, end.Outcome)
	require.Len(t, end.Calls, 3, "%s", l.events[len(l.events)-1].Line())
	for i, who := range []memory.Agent{"", "analytic", ""} {
		c := end.Calls[i]
		require.Equal(t, who, c.Subagent)
		require.Equal(t, who != "", c.CallID == "RUN-1")
		require.Equal(t, []any{"m", "off", 1, ""}, []any{c.Model, c.Backend, c.Attempts, c.Error})
		require.Positive(t, c.Started)
		if i > 0 {
			require.LessOrEqual(t, end.Calls[i-1].Started, c.Started)
		}
	}
	require.Equal(t, end.Usage, sums(end.Calls))
}

// What was called before a wait is still there when the run has gone on in another process.
func TestARunThatWaitedHasItsModelCalls(t *testing.T) {
	of := throughGateway(t)
	r := kept(master.Version)
	r.Message = "use light {}"
	r.Tools = []external.Definition{{Name: "light", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}}
	all := toTheEnd(t, func() *master.Agent { return agent(of("")) }, r)
	require.Contains(t, all.roles(), "run_waiting")
	end := last[*event.RunFinished](all)
	require.Len(t, end.Calls, 2)
	require.Equal(t, end.Usage, sums(end.Calls))
}

// Calls that fail are there too, and those of a run that fails.
func TestAFailedRunHasItsModelCalls(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	a := agent(openaimodel.New(openaimodel.Config{BaseURL: gone.URL, Model: "m", HTTP: gone.Client()}))
	end := last[*event.RunFinished](until(t, a, ask(master.Version)))
	require.Equal(t, event.Failed, end.Outcome)
	require.Len(t, end.Calls, 1)
	require.Equal(t, []any{"m", "model_unavailable"}, []any{end.Calls[0].Model, end.Calls[0].Error})
}
