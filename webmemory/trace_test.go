package webmemory_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// A run can be traced while it goes on and when it is over, on any process, and for no longer than it can be read.
func TestTraces(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		webmemorytest.AnswersAfter(release)(ctx, r, func(h event.Head, p event.Payload) {
			if end, ok := p.(*event.RunFinished); ok {
				end.Calls = []event.ModelCall{{Started: 1, Seconds: 0.5, Model: "m", Backend: "b", Attempts: 2,
					Mended: []string{"thinking_restored"}, Usage: event.Usage{CachedTokens: 7}}}
			}
			emit(h, p)
		})
	})
	here := newClient(t, w)
	there, err := webapi.New(w.StartReplica())
	require.NoError(t, err)
	defer there.Close()
	chat, err := memory.ParseChat("t")
	require.NoError(t, err)
	open := w.PostStream("t", "hello")
	first, err := event.Decode(open.Until("subagent_delegation"))
	require.NoError(t, err)
	run := first.RunID
	kinds := func(tr webapi.Trace) (kinds []string) {
		for _, s := range tr.Steps {
			kinds = append(kinds, s.Kind)
		}
		return kinds
	}
	trace := func(c *webapi.Client, chat memory.Chat, run string) (tr webapi.Trace, err error) {
		err = c.Call(t.Context(), http.MethodGet, webapi.RunPath(chat, run)+"/trace", &tr)
		return tr, err
	}
	for _, c := range []*webapi.Client{here, there} {
		tr, err := trace(c, chat, run)
		require.NoError(t, err)
		require.Equal(t, []string{webapi.StepMessage, webapi.StepDelegation}, kinds(tr))
		require.Equal(t, []any{run, "", 0.0}, []any{tr.RunID, tr.Outcome, tr.Finished})
	}
	close(release)
	open.Until("run_finished")
	for _, c := range []*webapi.Client{here, there} {
		tr, err := trace(c, chat, run)
		require.NoError(t, err)
		require.Equal(t, []string{webapi.StepMessage, webapi.StepModelCall, webapi.StepDelegation, webapi.StepAnswer},
			kinds(tr))
		require.Equal(t, event.Completed, tr.Outcome)
		require.Equal(t, &event.ModelCall{Started: 1, Seconds: 0.5, Model: "m", Backend: "b", Attempts: 2,
			Mended: []string{"thinking_restored"}, Usage: event.Usage{CachedTokens: 7}}, tr.Steps[1].Call)
	}

	other, err := memory.ParseChat("other")
	require.NoError(t, err)
	unknown := func(c *webapi.Client, chat memory.Chat, run string) {
		t.Helper()
		_, err := trace(c, chat, run)
		require.ErrorIs(t, err, &api.Problem{Code: api.ErrUnknownRun.Code})
	}
	unknown(here, other, run)
	unknown(here, chat, "no-such-run")
	require.Equal(t, 200, w.Do("POST", "/v1/chats/t/rewind", map[string]any{"to": nil}).Status)
	unknown(here, chat, run)
	unknown(there, chat, run)
}
