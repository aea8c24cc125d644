package redisstore

import "time"

// Later moves a store's clock on.
func Later(s *Store, by time.Duration) {
	now := s.now
	s.now = func() time.Time { return now().Add(by) }
}
