//go:build race

package proxy_test

import "flag"

func init() {
	raced = true
	// Properties are tried on fewer cases, unless -rapid.checks overrides the number.
	_ = flag.Set("rapid.checks", "40")
}
