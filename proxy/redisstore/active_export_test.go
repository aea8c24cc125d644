package redisstore

import "time"

// SetClock gives an Active the test's time.
func (a *Active) SetClock(now func() time.Time) { a.now = now }
