package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/r3labs/sse/v2"
)

// ErrSilent says that no byte came for the time idle.
var ErrSilent = errors.New("nothing came, not even a heartbeat")

// ErrTooLong says that an event is longer than max.
var ErrTooLong = bufio.ErrTooLong

// Event is one server-sent event that has data. Its bytes are valid until the next call of
// Next; those of a field that it does not have are nil. Lines of data are joined by line ends.
type Event struct{ ID, Name, Data []byte }

// Reader reads the events of one body, for one goroutine.
type Reader struct {
	frames *sse.EventStreamReader
	body   *body
}

// NewReader reads events of at most max bytes of data. When no byte comes for the time idle while
// Next waits for one, it calls silent from another goroutine, which must make reading the body
// fail, as cancelling its request does; idle 0 is for ever. The time between calls does not count.
func NewReader(src io.Reader, max int, idle time.Duration, silent func()) *Reader {
	b := &body{src: src, wait: func() error { return nil }, idle: cmp.Or(idle, math.MaxInt64)}
	b.watch = time.AfterFunc(time.Hour, func() { b.silent.Store(true); silent() })
	b.watch.Stop()
	return &Reader{frames: sse.NewEventStreamReader(b, max+4<<10), body: b} // for the id and the name
}

// OnWait has Next call f, from its own goroutine, before it waits for bytes: f knows then that all
// events that are there were given. An error of f is one of the body.
func (r *Reader) OnWait(f func() error) { r.body.wait = f }

// Next waits for the next event; comments are skipped. What the end of the body cuts off is
// no event: the body's error comes, io.EOF too.
func (r *Reader) Next() (Event, error) {
	for {
		frame, err := r.frames.ReadEvent()
		if r.body.end != nil { // the frame, if there is one, is the torn rest
			return Event{}, r.body.end
		}
		if err != nil {
			return Event{}, err
		}
		if e := parse(frame); len(e.Data) > 0 {
			return e, nil
		}
	}
}

// parse is not inlined so that Next, in which thousands of streams wait, has a small frame.
//
//go:noinline
func parse(frame []byte) (e Event) {
	for line := range bytes.SplitSeq(frame, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		name, _, _ := bytes.Cut(line, []byte(":"))
		value := bytes.TrimPrefix(bytes.TrimPrefix(line[len(name):], []byte(":")), []byte(" "))
		switch string(name) {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			if e.Data != nil {
				value = append(append(bytes.Clone(e.Data), '\n'), value...)
			}
			e.Data = value
		}
	}
	return e
}

// body is read under a watch that runs while a read waits.
type body struct {
	src     io.Reader
	wait    func() error // see OnWait
	idle    time.Duration
	watch   *time.Timer
	silent  atomic.Bool // the watch has run out
	end     error       // of the body, once it was given: what is unread then is no frame
	nextErr error       // came along with bytes, or from wait, and is given next
}

func (b *body) Read(p []byte) (n int, err error) {
	if b.nextErr == nil {
		b.nextErr = b.wait()
	}
	if err = b.nextErr; err == nil {
		b.watch.Reset(b.idle)
		n, err = b.src.Read(p)
		b.watch.Stop()
	}
	if n > 0 {
		b.nextErr = err
		return n, nil
	}
	if b.end = err; b.silent.Load() {
		b.end = ErrSilent
	}
	return 0, b.end
}
