//go:build race

package proxy_test

import "flag"

// raced reports whether the race detector is on. It makes everything ten times slower.
const raced = true

// Properties are tried on fewer cases for the same reason. -rapid.checks overrides the number.
var _ = flag.Set("rapid.checks", "40")
