package mcp

import "time"

// HurryUp shortens the time that programs have to end.
func HurryUp() { leaveTime, stopTime = 50*time.Millisecond, 200*time.Millisecond }
