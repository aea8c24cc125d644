//go:build !race

// What takes long under the race detector and has it look at a part of the cases is here with all of them.

package webmemory_test

import "testing"

func TestAnyTypeUnderAnyKey(t *testing.T) {
	anyTypeUnderAnyKey(t, func(int, int) []string {
		if testing.Short() {
			return waysToAsk[:1]
		}
		return waysToAsk
	})
}
