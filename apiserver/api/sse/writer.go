package sse

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// piece is how many bytes one write deadline is for.
const piece = 64 << 10

// Writer writes an event stream as the answer to one request, from the goroutine of its
// handler. What is written is sent at the next Flush, or before. For a client that reads
// slowly it waits (backpressure); one that takes nothing for the timeout is given up. The
// first error is kept, and nothing is written after it.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	frame   []byte // the frame that is written; its memory is used again
	retry   []byte // a line of the next Event; empty for none
	err     error
}

// NewWriter begins the answer, with the status 200; its head is sent with the first Flush.
// timeout is how long the client may take for 64 KiB.
func NewWriter(w http.ResponseWriter, timeout time.Duration) *Writer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would collect events before it sends them
	w.WriteHeader(http.StatusOK)
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Event writes an event. Its name and its data are one line each. The id is the last line,
// since there are readers that take the id of an event that broke off for one that they
// have.
func (w *Writer) Event(id int64, name string, data []byte) error {
	w.frame = append(append(append(w.frame[:0], w.retry...), "data: "...), data...)
	w.frame = append(append(append(w.frame, "\nevent: "...), name...), "\nid: "...)
	w.retry = nil
	w.frame = strconv.AppendInt(w.frame, id, 10)
	return w.write()
}

// Data writes an event that has nothing but its data, one line.
func (w *Writer) Data(data []byte) error {
	w.frame = append(append(w.frame[:0], "data: "...), data...)
	return w.write()
}

// Frames writes events that are whole, each with the empty line behind it.
func (w *Writer) Frames(data []byte) error {
	w.frame = append(w.frame[:0], bytes.TrimSuffix(data, []byte("\n\n"))...)
	return w.write()
}

// Closing writes the event by which a stream ends early: without id, which would be resumed at.
func (w *Writer) Closing(name string, data []byte) error {
	w.frame = append(append(w.frame[:0], ": closing\nevent: "...), name...)
	w.frame = append(append(w.frame, "\ndata: "...), data...)
	return w.write()
}

// Retry sets the time after which a reader reopens a broken stream. The next Event has it: some
// readers take a frame of its own for an event (r3labs/sse#131).
func (w *Writer) Retry(wait time.Duration) {
	w.retry = append(strconv.AppendInt([]byte("retry: "), wait.Milliseconds(), 10), '\n')
}

// Comment writes a line that readers skip, such as a heartbeat.
func (w *Writer) Comment(text string) error {
	w.frame = append(append(w.frame[:0], ": "...), text...)
	return w.write()
}

// write ends the frame and writes it in pieces, so that a slow client is given time for
// a large one and a stuck client is not.
func (w *Writer) write() error {
	w.frame = append(w.frame, "\n\n"...)
	for part := range slices.Chunk(w.frame, piece) {
		if w.err == nil {
			_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) // not every connection has deadlines
			_, w.err = w.w.Write(part)
		}
	}
	if len(w.frame) > piece {
		w.frame = nil // one large event must not be held as long as the stream lasts
	}
	return w.err
}

// Flush sends what was written. Its deadline is also the one for the end of the body.
func (w *Writer) Flush() error {
	if w.err == nil {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
		w.err = w.control.Flush()
	}
	return w.err
}
