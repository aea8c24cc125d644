package embedded

import (
	"errors"
	"time"

	"mneme/memory/journal"
)

const syncEvery = time.Second

// tend is the store's background loop until Close: it syncs the journal every second, compacts it
// in quiet moments, notices that it failed or was removed, and accepts writes again once it works.
func (s *Server) tend() {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	var lastWrites int64  // writes at the last tick
	var retryAt time.Time // the earliest time of the next attempt to resume
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		err := s.journal.Sync()
		if err == nil {
			err = s.journal.Check()
		}
		if errors.Is(err, journal.ErrClosed) {
			return
		}
		s.mu.Lock()
		switch {
		case err != nil || s.broken != nil:
			s.refuseWrites(err)
			if started := time.Now(); started.After(retryAt) {
				s.resume()
				retryAt = started.Add(10 * time.Since(started)) // back off in proportion, since rewriting much data takes long
			}
		case s.writes == lastWrites:
			s.compactIfLarge(true)
		}
		lastWrites = s.writes
		s.mu.Unlock()
	}
}

// refuseWrites makes the store read-only, for cause, until resume succeeds.
func (s *Server) refuseWrites(cause error) {
	if cause == nil || s.broken != nil && s.broken.Error() == cause.Error() {
		return
	}
	s.broken = cause
	event := s.log.Error().Err(cause)
	if errors.Is(cause, journal.ErrRemoved) {
		event.Msg("embedded store: its folder in data_dir was removed or replaced; no write is accepted. What was " +
			"acknowledged is in memory and can be read: " +
			"put the folder back, or copy what is needed with mneme memory get while this process runs, and start anew")
		return
	}
	event.Msg("embedded store: the journal failed; reads go on, writes are refused until it works again")
}

// resume accepts writes again if the journal works.
func (s *Server) resume() {
	if s.engine == nil {
		s.rebuild()
	}
	if s.engine == nil {
		return
	}
	if err := s.journal.Resume(s.engine.snapshot); err != nil {
		s.log.Debug().Err(err).Msg("embedded store: the journal does not work yet")
		return
	}
	s.broken = nil
	s.log.Info().Msg("embedded store: the journal works again; writes are accepted")
}
