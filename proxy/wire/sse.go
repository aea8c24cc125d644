package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// maxFrame bounds one server-sent event, in bytes.
const maxFrame = 16 << 20

// ErrFrameTooLong is returned for an event of more than 16 MiB.
var ErrFrameTooLong = errors.New("an event of the stream is longer than 16 MiB")

// Frame is one server-sent event.
type Frame struct {
	Raw  []byte // as it came, including the blank line that ends it
	Data []byte // the data lines, joined by newlines; empty for a comment
}

// IsStream reports whether the header is that of a stream of server-sent events.
func IsStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// With appends the event to dst with other data, in as many data lines as that has; its other lines
// stay as they are. The event may lack the blank line at its end.
func (f Frame) With(dst, data []byte) []byte {
	written := false
	for line := range bytes.Lines(f.Raw) {
		if !bytes.HasPrefix(line, []byte("data:")) {
			dst = append(dst, line...)
			continue
		}
		if written {
			continue
		}
		written = true
		start, ending := "data:", line[len(bytes.TrimRight(line, "\r\n")):]
		if bytes.HasPrefix(line, []byte("data: ")) {
			start = "data: "
		}
		for part := range bytes.SplitSeq(data, []byte("\n")) {
			dst = append(append(append(dst, start...), part...), ending...)
		}
	}
	return dst
}

// FrameReader splits a stream into its events and keeps their bytes exactly, except for a character whose halves come in
// two events.
type FrameReader struct {
	r    *bufio.Reader
	raw  []byte
	buf  []byte
	half []byte // the first half of a character, see joinHalves
}

// frameReaders are kept for the next stream. The buffer holds some events of a burst and
// is small beside all else that an answer takes while it streams; larger events are read
// past it.
var frameReaders = sync.Pool{New: func() any { return &FrameReader{r: bufio.NewReaderSize(nil, 4<<10)} }}

// maxKeptFrame bounds the buffers that go back to the pool, in bytes.
const maxKeptFrame = 64 << 10

// NewFrameReader reads events from r. The caller must call Release.
func NewFrameReader(r io.Reader) *FrameReader {
	f := frameReaders.Get().(*FrameReader)
	f.r.Reset(r)
	f.half = nil
	return f
}

// Release returns the reader to the pool. The reader and the bytes of the last event must not be
// used afterwards.
func (f *FrameReader) Release() {
	f.r.Reset(nil)
	if cap(f.raw) <= maxKeptFrame && cap(f.buf) <= maxKeptFrame {
		frameReaders.Put(f)
	}
}

// HasMore reports whether another complete event is in the buffer already, so that flushing the last
// one can wait for it. An incomplete event does not count, since its rest may take long.
func (f *FrameReader) HasMore() bool {
	b, _ := f.r.Peek(f.r.Buffered())
	return bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n"))
}

// Next reads an event; its bytes are valid until the next call. At the end of the stream it
// returns io.EOF, together with what came after the last blank line, if anything did. Any other
// error comes without a Frame, so that no caller gets half an event.
func (f *FrameReader) Next() (Frame, error) {
	f.raw, f.buf = f.raw[:0], f.buf[:0]
	for {
		line, err := f.line()
		if err != nil && (!errors.Is(err, io.EOF) || len(f.raw) == 0) {
			return Frame{}, err
		}
		content := bytes.TrimRight(line, "\r\n")
		if data, ok := bytes.CutPrefix(content, []byte("data:")); ok {
			if len(f.buf) > 0 {
				f.buf = append(f.buf, '\n')
			}
			f.buf = append(f.buf, bytes.TrimPrefix(data, []byte(" "))...)
		}
		if errors.Is(err, io.EOF) || len(content) == 0 {
			frame := Frame{f.raw, f.buf}
			if len(f.half) > 0 || hasHalf(f.buf) {
				frame = f.joinHalves(frame)
			}
			return frame, err
		}
	}
}

// line appends the next line to raw and returns it with its line ending.
func (f *FrameReader) line() ([]byte, error) {
	start := len(f.raw)
	for {
		part, err := f.r.ReadSlice('\n')
		f.raw = append(f.raw, part...)
		if len(f.raw) > maxFrame {
			return nil, ErrFrameTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return f.raw[start:], err
		}
	}
}

// AppendFrame appends an event to dst. Without a name it has no event line. Data must be one line.
func AppendFrame(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	return append(append(append(dst, "data: "...), data...), "\n\n"...)
}
