// Package testtier says which tests run in which tier of scripts/test.
package testtier

import "testing"

// Slow skips t in the tier for every commit (go test -short). A test calls it first if it takes more than half a second
// alone on an idle machine.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes more than half a second")
	}
}
