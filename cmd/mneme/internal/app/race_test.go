//go:build race

package app_test

import "testing"

// buildFlags builds service processes with the race detector.
var buildFlags = []string{"-race"}

// With more of them the detector and the processes keep each other from the processors.
func TestABudgetHoldsOverGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("four gateways and hundreds of calls")
	}
	t.Parallel()
	aBudgetHoldsOverGateways(t, 100)
}

// A fourth of them, so that each agent plays some.
func TestNoTrickReachesTheUser(t *testing.T) { noTrickReachesTheUser(t, 4) }
