package event_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory/event"
)

// A failure's sentence says when trying again helps where that is known, and what a version before has stored is read.
func TestFailures(t *testing.T) {
	require.Equal(t, &event.Error{Code: "rate_limited", Retryable: true, RetryAfter: 8,
		Message: "The model's vendor takes no more requests for the moment; try again in 8 s."},
		event.Fail(event.VendorRate, "", 7100*time.Millisecond))
	require.Equal(t,
		&event.Error{Code: "budget_exceeded", Message: "The budget is spent.", Retryable: true, RetryAfter: 60},
		event.Fail(event.OwnBudget, "the budget is spent", time.Minute))
	require.False(t, event.Fail(event.OwnBudget, "the call is larger than the budget", 0).Retryable)
	require.Equal(t,
		&event.Error{Code: "quota_exhausted", Message: "The account at the model's vendor has no credit left."},
		event.Fail(event.VendorQuota, "", time.Hour), "a wait does not help")

	for reason, code := range map[string]string{"key_refused": "model_unauthorized", "rate_limited": "rate_limited",
		"budget_exceeded": "budget_exceeded", "of a newer gateway": "", "": ""} {
		require.Equal(t, code, event.CodeOf(reason), reason)
	}
	for code, status := range map[string]int{"quota_exhausted": 502, "rate_limited": 429, "model_unavailable": 502,
		"upstream_failed": 502, "image_not_supported": 400} {
		require.Equal(t, status, event.FailureOf(code).Status, code)
	}
	e, err := event.Decode([]byte(`{"role":"error","run_id":"r","seq":2,"code":"quota_exhausted","message":"M.",` +
		`"retryable":false}`))
	require.NoError(t, err)
	require.Equal(t, &event.Error{Code: "quota_exhausted", Message: "M."}, e.Payload)
}
