package loop_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/event"
	"mneme/subagent/loop"
)

func TestCallsAreInTheOrderOfTheirBeginnings(t *testing.T) {
	var calls loop.Calls
	calls.Restore([]event.ModelCall{{Model: "before", Started: 1}})
	first := loop.BeginCall(calls.In(t.Context(), "", ""))
	second := loop.BeginCall(calls.In(t.Context(), "analytic", "c1"))
	loop.BeginCall(calls.In(t.Context(), "", "")) // goes on
	second(event.ModelCall{Model: "b", Started: 3})
	first(event.ModelCall{Model: "a", Started: 2})
	require.Equal(t, []event.ModelCall{{Model: "before", Started: 1}, {Model: "a", Started: 2},
		{Model: "b", Started: 3, Subagent: "analytic", CallID: "c1"}}, calls.List())
}

func TestCallsAreBounded(t *testing.T) {
	var calls loop.Calls
	for i := range event.MaxModelCalls + 10 {
		loop.BeginCall(calls.In(t.Context(), "", ""))(event.ModelCall{Model: strconv.Itoa(i), Started: 1})
	}
	all := calls.List()
	require.Len(t, all, event.MaxModelCalls)
	require.Equal(t, "0", all[0].Model)
	require.Equal(t, strconv.Itoa(event.MaxModelCalls-1), all[event.MaxModelCalls-1].Model)
}

// Outside of a run calls are not noted.
func TestCallsOutsideOfARun(t *testing.T) {
	loop.BeginCall(context.Background())(event.ModelCall{Started: 1})
}
