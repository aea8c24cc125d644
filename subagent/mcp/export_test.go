package mcp

import "time"

// HurryUp shortens the time that programs have to end, and that the store has.
func HurryUp() {
	leaveTime, stopTime, pinsWait = 50*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
}
