package telemetry

import (
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// window is how long lines that are left out are counted before that is written.
	window = time.Minute
	// burst is how many lines with the same message are written in a window.
	burst = 3
	// maxLines bounds how many messages are told apart; what comes beyond is written.
	maxLines = 1000
)

// repeats is a zerolog.Hook that leaves out warnings and errors that say the same as
// others in the last minute, whatever their fields, and tells at its end how many.
type repeats struct {
	log zerolog.Logger // without this hook

	mu    sync.Mutex
	lines map[line]*count // guarded by mu
}

type line struct {
	level   zerolog.Level
	message string
}

// count is of one line in the window that its first one began.
type count struct {
	written, dropped int
	end              *time.Timer
}

// Run implements zerolog.Hook.
func (r *repeats) Run(e *zerolog.Event, level zerolog.Level, message string) {
	if level < zerolog.WarnLevel || level > zerolog.ErrorLevel || r.admit(line{level, message}) {
		return
	}
	e.Discard()
}

// admit says whether a line is written, and counts it if not.
func (r *repeats) admit(l line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.lines[l]
	if c == nil {
		if len(r.lines) >= maxLines {
			return true
		}
		c = &count{end: time.AfterFunc(window, func() { r.expire(l) })}
		r.lines[l] = c
	}
	if c.written < burst {
		c.written++
		return true
	}
	c.dropped++
	return false
}

// expire ends a line's window.
func (r *repeats) expire(l line) {
	r.mu.Lock()
	c := r.lines[l]
	delete(r.lines, l)
	r.mu.Unlock()
	if c != nil && c.dropped > 0 {
		r.log.WithLevel(l.level).Int("more", c.dropped).Msg(fmt.Sprintf("%s (%d more like this in the last minute)",
			l.message, c.dropped))
	}
}

// flush ends all windows.
func (r *repeats) flush() {
	r.mu.Lock()
	var open []line
	for l, c := range r.lines {
		if c.end.Stop() {
			open = append(open, l)
		}
	}
	r.mu.Unlock()
	for _, l := range open {
		r.expire(l)
	}
}
