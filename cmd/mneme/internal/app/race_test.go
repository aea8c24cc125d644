//go:build race

package app_test

import "testing"

// A fourth of them, so that each agent plays some.
func TestNoTrickReachesTheUser(t *testing.T) { noTrickReachesTheUser(t, 4) }
