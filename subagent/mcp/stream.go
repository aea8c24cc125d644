package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"golang.org/x/time/rate"
)

// maxMessage is the size of one message from a server, in bytes, above which it breaks its session.
const maxMessage = 8 << 20

// Lines that a server may send in one go, and then per second. One that sends more is read more
// slowly: what it sends lies in its own memory.
const (
	lineBurst = 10_000
	lineRate  = 2_000
)

var errTooLong = errors.New("a message is too long")

// lines reads a stream line by line, at a bounded rate. A line that keep refuses is left out.
type lines struct {
	ctx    context.Context // a wait ends with it
	r      *bufio.Reader
	limit  *rate.Limiter
	keep   func(line []byte) bool
	broken func(error) // is told of a line that is too long
	rest   []byte      // of the line that is being read
	failed error
}

func newLines(ctx context.Context, r io.Reader, keep func([]byte) bool, broken func(error)) *lines {
	return &lines{
		ctx: ctx, r: bufio.NewReader(r), limit: rate.NewLimiter(lineRate, lineBurst), keep: keep, broken: broken,
	}
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.failed != nil {
			return 0, l.failed
		}
		var line []byte
		if line, l.failed = l.next(); l.keep(line) {
			l.rest = line
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next is a line with its end.
func (l *lines) next() ([]byte, error) {
	if err := l.limit.Wait(l.ctx); err != nil {
		<-l.ctx.Done() // it says before a deadline that this one will pass
		return nil, l.ctx.Err()
	}
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxMessage {
			l.broken(errTooLong)
			return nil, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// isMessage says whether a line of a program's output may be a message. Programs also print
// words for persons.
func isMessage(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && (line[0] == '{' || line[0] == '[')
}

func isAny([]byte) bool { return true }

// limited is a body of which at most so many bytes are read.
type limited struct {
	io.Reader
	remaining int64
	broken    func(error) // is told of a body that is too long or not whole
}

func (l *limited) Read(p []byte) (int, error) {
	if l.remaining <= 0 {
		l.broken(errTooLong)
		return 0, errTooLong
	}
	n, err := l.Reader.Read(p[:min(int64(len(p)), l.remaining)])
	if l.remaining -= int64(n); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		l.broken(errCut)
	}
	return n, err
}
