package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxFrame bounds one event on the wire, in bytes.
const maxFrame = 16 << 20

// frames reads server-sent events. Only their data is given: an event's own
// JSON says again what the id: and event: fields do.
type frames struct{ in *bufio.Reader }

func newFrames(r io.Reader) *frames { return &frames{in: bufio.NewReaderSize(r, 32<<10)} }

// next gives the data of the next event that has any. An event that the end of
// the stream cuts off is not given: io.EOF comes instead.
func (f *frames) next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if has {
				return data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		has = true
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(data) > maxFrame {
			return nil, fmt.Errorf("an event is larger than %d bytes", maxFrame)
		}
	}
}

// line reads up to the next line feed, which it drops with a carriage return
// before it.
func (f *frames) line() ([]byte, error) {
	var whole []byte
	for {
		part, err := f.in.ReadSlice('\n')
		whole = append(whole, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(whole[:len(whole)-1], []byte("\r")), nil
		case err != bufio.ErrBufferFull:
			return nil, err
		case len(whole) > maxFrame:
			return nil, fmt.Errorf("a line of the stream is longer than %d bytes", maxFrame)
		}
	}
}
