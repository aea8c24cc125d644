package webmemory

import "container/list"

// finished are the runs that are over and still held here, by when they ended. They
// are a cache: whoever asks for one that has left reads it from Redis, as from
// another process. Guarded by Server.mu.
type finished struct {
	runs  list.List // of *run, the one that ended first at the front
	bytes int       // that they take, about
}

// runSize is about what a run takes in memory beside its events, in bytes.
const runSize = 2 << 10

// retire moves a run that has ended to the finished ones. Those that ended first
// leave while they take more than KeepBytes. What was left to another process is of
// no use here.
func (s *Server) retire(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[r.id] != r {
		return // erased, or taken up again
	}
	if r.log.Aborted() {
		delete(s.live, r.id)
		return
	}
	r.size = r.log.Size() + runSize
	r.place = s.finished.runs.PushBack(r)
	s.finished.bytes += r.size
	for s.finished.bytes > s.cfg.KeepBytes {
		s.unlist(s.finished.runs.Front().Value.(*run))
	}
}

// enlist puts a run on the list of this process, in the place of one with its id.
// The caller holds mu.
func (s *Server) enlist(r *run) {
	if before := s.live[r.id]; before != nil {
		s.unlist(before)
	}
	s.live[r.id] = r
}

// unlist takes a run off the list of this process; readers that have it go on. The
// caller holds mu.
func (s *Server) unlist(r *run) {
	if s.live[r.id] == r {
		delete(s.live, r.id)
	}
	if r.place != nil {
		s.finished.runs.Remove(r.place)
		s.finished.bytes -= r.size
		r.place = nil
	}
}

// expire lets go of what ended longer than KeepRuns ago.
func (s *Server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := s.finished.runs.Front(); first != nil; first = s.finished.runs.Front() {
		r := first.Value.(*run)
		if !r.over(s.cfg.KeepRuns) {
			return
		}
		s.unlist(r)
	}
}
