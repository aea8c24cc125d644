package openaiapi

import (
	"net/http"
	"sync"
	"time"

	"mneme/apiserver/api/sse"
)

// writeTime is how long a client may take for a piece of a stream.
const writeTime = 30 * time.Second

// Stream writes server-sent events to one client, and comments while there are none. It sends the HTTP head with the
// first of them.
type Stream struct {
	h      *Handler
	w      http.ResponseWriter
	mu     sync.Mutex
	out    *sse.Writer // guarded by mu; nil before the head
	quiet  *time.Timer // guarded by mu; nil before Start and after Close
	unsent bool        // guarded by mu: something was written since the last flush
}

// NewStream returns a stream that has sent nothing.
func (h *Handler) NewStream(w http.ResponseWriter) *Stream { return &Stream{h: h, w: w} }

// Start begins the comments. The first one comes after Config.Hold, because a proxy may cut a connection without
// traffic. It sends the head, so the status is decided then.
func (s *Stream) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = time.AfterFunc(s.h.Hold, s.ping)
}

// Started reports whether the head is sent or about to be.
func (s *Stream) Started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out != nil
}

// SetHeader sets a header of the head. It has no effect if a comment has sent the head.
func (s *Stream) SetHeader(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.Header().Set(name, value)
}

// head begins the head. The caller holds mu.
func (s *Stream) head() {
	if s.out == nil {
		s.out = sse.NewWriter(s.w, writeTime)
	}
}

func (s *Stream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet == nil {
		return
	}
	if s.head(); s.out.Comment("ping") == nil {
		_ = s.out.Flush() // a client that has left ends the request
	}
	s.quiet.Reset(s.h.Heartbeat)
}

// Close flushes the stream and ends its comments. Close is idempotent.
func (s *Stream) Close() {
	s.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet != nil {
		s.quiet.Stop()
		s.quiet = nil
	}
}

// Data writes an event with data. The next flush sends it.
func (s *Stream) Data(data []byte) { s.write(data, (*sse.Writer).Data) }

// Frames writes events that are encoded already. The next flush sends them.
func (s *Stream) Frames(frames []byte) { s.write(frames, (*sse.Writer).Frames) }

func (s *Stream) write(data []byte, by func(*sse.Writer, []byte) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head()
	_ = by(s.out, data) // a client that has left ends the request
	s.unsent = true
}

// Flush sends what was written.
func (s *Stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsent {
		return
	}
	_ = s.out.Flush()
	s.unsent = false
	if s.quiet != nil {
		s.quiet.Reset(s.h.Heartbeat)
	}
}
