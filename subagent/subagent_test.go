package subagent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// Run reports every task as one delegation and one completion, however it ends.
func TestATaskIsOneDelegationAndOneCompletion(t *testing.T) {
	for name, c := range map[string]struct {
		result   loop.Result
		err      error
		stopped  bool
		roles    []string // between the delegation and the completion
		response string
		status   string
	}{
		"done":      {result: loop.Result{Text: "42"}, response: "42", status: event.Completed},
		"exhausted": {result: loop.Result{Exhausted: true}, response: "(no answer: max_steps)", status: event.MaxSteps},
		"failed": {err: loop.ErrModel, roles: []string{"error"}, response: "(no answer: model_failed)",
			status: event.Failed},
		"stopped": {err: errors.New("interrupted"), stopped: true, response: "(no answer: stopped)", status: event.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			s := subagent.Subagent{Calls: event.Serial, Work: func(context.Context, subagent.Task, func(event.Payload) error) (
				loop.Result, error,
			) {
				if c.stopped {
					stop(subagent.ErrStopped)
				}
				return c.result, c.err
			}}
			var roles []string
			out, err := s.Run(ctx, subagent.Kit{}, subagent.Task{Text: "x"}, func(p event.Payload) error {
				roles = append(roles, event.Event{Payload: p}.Role())
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, append(append([]string{"subagent_delegation"}, c.roles...), "subagent_completion"), roles)
			require.Equal(t, c.response, out.Response)
			require.Equal(t, c.status, out.Status)
		})
	}
}
