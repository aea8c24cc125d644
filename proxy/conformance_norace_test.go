//go:build !race

package proxy_test

import "testing"

// raced: the race detector makes everything ten times slower.
const raced = false

// scripts/test runs what stands here beside the tests with the race detector, which try a part of it.
func TestConformanceEphemeralPartsChangeNothing(t *testing.T) { ephemeralPartsChangeNothing(t) }
func TestConformanceLostReasoningIsStoodFor(t *testing.T)     { lostReasoningIsStoodFor(t) }
func TestConformanceNoAttemptIsSentTwice(t *testing.T)        { noAttemptIsSentTwice(t) }
func TestConformanceErrorsAboutItems(t *testing.T)            { errorsAboutItems(t) }
