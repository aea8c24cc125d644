//go:build race

package proxy_test

import (
	"flag"
	"testing"
)

// raced: the race detector makes everything ten times slower.
const raced = true

// Properties are tried on fewer cases, for the same reason; -rapid.checks says otherwise.
var _ = flag.Set("rapid.checks", "40")

func TestConformanceEphemeralPartsChangeNothing(t *testing.T) { ephemeralPartsChangeNothing(t) }
func TestConformanceLostReasoningIsStoodFor(t *testing.T)     { lostReasoningIsStoodFor(t) }
func TestConformanceNoAttemptIsSentTwice(t *testing.T)        { noAttemptIsSentTwice(t) }
func TestConformanceErrorsAboutItems(t *testing.T)            { errorsAboutItems(t) }
