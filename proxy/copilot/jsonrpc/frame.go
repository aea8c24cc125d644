package jsonrpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds of a header.
const (
	maxHeaderBytes = 4 << 10
	maxHeaderLines = 16
)

// frames reads the bodies of frames.
type frames struct {
	r   *bufio.Reader
	max int // bytes of a body
}

func newFrames(r io.Reader, maxBody int) *frames {
	return &frames{r: bufio.NewReaderSize(r, 64<<10), max: maxBody}
}

// next is the body of the next frame, in memory of its own. io.EOF means that the
// stream ended between two frames, io.ErrUnexpectedEOF that it ended inside one.
func (f *frames) next() ([]byte, error) {
	n, err := f.header()
	if err != nil {
		return nil, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(f.r, body); err != nil {
		return nil, inside(err)
	}
	return body, nil
}

// header reads up to the empty line and gives the length of the body.
func (f *frames) header() (length int, err error) {
	length = -1
	for lines, size := 0, 0; ; lines++ {
		line, err := f.line(maxHeaderBytes - size)
		if err != nil && (lines > 0 || !errors.Is(err, io.EOF)) {
			return 0, inside(err)
		}
		if err != nil {
			return 0, err
		}
		if line == "" {
			break
		}
		if size += len(line) + len("\r\n"); lines == maxHeaderLines {
			return 0, fmt.Errorf("%w: more than %d header lines", ErrProtocol, maxHeaderLines)
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return 0, fmt.Errorf("%w: %.40q is no header line", ErrProtocol, line)
		}
		if !strings.EqualFold(name, "Content-Length") {
			continue
		}
		if length >= 0 {
			return 0, fmt.Errorf("%w: Content-Length stands twice", ErrProtocol)
		}
		if length, err = f.length(strings.TrimSpace(value)); err != nil {
			return 0, err
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("%w: a frame without Content-Length", ErrProtocol)
	}
	return length, nil
}

// line reads a line of at most max bytes without its CRLF. io.EOF means that
// there was nothing more at all.
func (f *frames) line(max int) (string, error) {
	var line []byte
	for {
		b, err := f.r.ReadByte()
		if err != nil {
			if len(line) > 0 {
				err = inside(err)
			}
			return "", err
		}
		if b == '\n' {
			break
		}
		if line = append(line, b); len(line) > max {
			return "", fmt.Errorf("%w: a header of more than %d bytes", ErrProtocol, maxHeaderBytes)
		}
	}
	if len(line) == 0 || line[len(line)-1] != '\r' {
		return "", fmt.Errorf("%w: a header line that does not end in CRLF", ErrProtocol)
	}
	return string(line[:len(line)-1]), nil
}

// length reads the value of Content-Length. What is above the bound is told from
// what is no number, and costs no memory.
func (f *frames) length(value string) (int, error) {
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: Content-Length is %.40q", ErrProtocol, value)
		}
	}
	n, err := strconv.Atoi(value)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > f.max:
		return 0, fmt.Errorf("%w: %.20s bytes, above %d", ErrFrameTooLarge, value, f.max)
	case err != nil || n == 0:
		return 0, fmt.Errorf("%w: Content-Length is %.40q", ErrProtocol, value)
	}
	return n, nil
}

// inside names an end of the stream as one that no peer makes on purpose.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frame puts a header before a body.
func frame(body []byte) []byte {
	out := make([]byte, 0, len(body)+32)
	out = append(out, "Content-Length: "...)
	out = strconv.AppendInt(out, int64(len(body)), 10)
	out = append(out, "\r\n\r\n"...)
	return append(out, body...)
}
