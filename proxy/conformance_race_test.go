//go:build race

package proxy_test

import "flag"

// raced: the race detector makes everything ten times slower.
const raced = true

// Properties are tried on fewer cases, for the same reason; -rapid.checks says otherwise.
var _ = flag.Set("rapid.checks", "40")
