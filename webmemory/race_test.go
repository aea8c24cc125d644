//go:build race

package webmemory_test

import "testing"

// With the race detector each type is asked in one way, and in another way under another key.
func TestAnyTypeUnderAnyKey(t *testing.T) {
	anyTypeUnderAnyKey(t, func(key, kind int) []string {
		way := (key + kind) % len(waysToAsk)
		return waysToAsk[way : way+1]
	})
}
