package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxFrame bounds one server-sent event, in bytes.
const maxFrame = 16 << 20

// ErrFrameTooLong is returned for an event of more than 16 MiB.
var ErrFrameTooLong = errors.New("an event of the stream is longer than 16 MiB")

// Frame is one server-sent event as it came.
type Frame struct {
	Raw  []byte // with the blank line that ends it
	Data []byte // the data lines, joined by line ends; empty for a comment
}

// FrameReader cuts a stream into its events.
type FrameReader struct {
	r   *bufio.Reader
	raw []byte
	buf []byte
}

// frameReaders are kept for the next stream. The buffer holds some events of a burst and
// is small beside all else that an answer takes while it streams; larger events are read
// past it.
var frameReaders = sync.Pool{New: func() any { return &FrameReader{r: bufio.NewReaderSize(nil, 4<<10)} }}

// maxKeptFrame bounds what is kept for events, in bytes.
const maxKeptFrame = 64 << 10

// NewFrameReader reads events from r. It is to be released.
func NewFrameReader(r io.Reader) *FrameReader {
	f := frameReaders.Get().(*FrameReader)
	f.r.Reset(r)
	return f
}

// Release ends the reading: the reader, and the bytes of the last event, are
// another stream's from then on.
func (f *FrameReader) Release() {
	f.r.Reset(nil)
	if cap(f.raw) <= maxKeptFrame && cap(f.buf) <= maxKeptFrame {
		frameReaders.Put(f)
	}
}

// More reports whether another whole event is here already, so that writing the last
// one on can wait for it. Half an event may be half for long.
func (f *FrameReader) More() bool {
	b, _ := f.r.Peek(f.r.Buffered())
	return bytes.Contains(b, []byte("\n\n")) || bytes.Contains(b, []byte("\n\r\n"))
}

// Next reads an event; its bytes are valid until the next call. At the end of
// the stream it returns io.EOF, together with what came after the last blank
// line, if anything did. Any other error comes without a Frame: half an event
// must not reach anybody.
func (f *FrameReader) Next() (Frame, error) {
	f.raw, f.buf = f.raw[:0], f.buf[:0]
	for {
		line, err := f.line()
		if err != nil && (err != io.EOF || len(f.raw) == 0) {
			return Frame{}, err
		}
		content := bytes.TrimRight(line, "\r\n")
		if data, ok := bytes.CutPrefix(content, []byte("data:")); ok {
			if len(f.buf) > 0 {
				f.buf = append(f.buf, '\n')
			}
			f.buf = append(f.buf, bytes.TrimPrefix(data, []byte(" "))...)
		}
		if err == io.EOF || len(content) == 0 {
			return Frame{f.raw, f.buf}, err
		}
	}
}

// line appends the next line to raw and returns it, line end included.
func (f *FrameReader) line() ([]byte, error) {
	start := len(f.raw)
	for {
		part, err := f.r.ReadSlice('\n')
		f.raw = append(f.raw, part...)
		if len(f.raw) > maxFrame {
			return nil, ErrFrameTooLong
		}
		if err != bufio.ErrBufferFull {
			return f.raw[start:], err
		}
	}
}

// AppendFrame appends an event to dst. An empty name leaves the event line out.
// Data must be one line.
func AppendFrame(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	return append(append(append(dst, "data: "...), data...), "\n\n"...)
}
