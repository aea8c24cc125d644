package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a batch may take before it is given up.
const patience = 2 * time.Minute

// calls are those that a load consists of.
type calls struct {
	request []byte // with marks
	ends    string // of every answer's body
	length  int    // of every answer's body, in bytes; 0 if it may differ
}

// load sends calls over connections that it keeps, each waiting for its answer.
type load struct {
	lines []*line
	stop  func() bool // of what ends the connections with the context
	sent  atomic.Int64
}

// line is a connection and what is sent on it.
type line struct {
	net.Conn
	calls   calls
	request template
	out     []byte
	in      *bufio.Reader
	answer  bytes.Buffer
}

// openLoad connects, and makes every connection's first call. Numbers of calls
// begin after first.
func openLoad(ctx context.Context, addr string, c calls, connections int, first int64) (*load, error) {
	l := &load{}
	l.sent.Store(first)
	for i := range connections {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			l.close()
			return nil, err
		}
		number := make([]byte, len(lineMark))
		digits(number, int64(i))
		request := bytes.ReplaceAll(c.request, []byte(lineMark), number)
		l.lines = append(l.lines, &line{Conn: conn, calls: c, request: newTemplate(request), in: bufio.NewReaderSize(conn, 16<<10)})
		_ = conn.SetDeadline(time.Now().Add(patience))
	}
	l.stop = context.AfterFunc(ctx, l.hangUp)
	if err := l.each(func(one *line) error { return one.call(l.sent.Add(1)) }); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// run makes n calls, as fast as they are answered.
func (l *load) run(n int) (took time.Duration, err error) {
	began := time.Now()
	last := l.sent.Load() + int64(n)
	err = l.each(func(one *line) error {
		_ = one.SetDeadline(began.Add(patience))
		for {
			i := l.sent.Add(1)
			if i > last {
				return nil
			}
			if err := one.call(i); err != nil {
				return err
			}
		}
	})
	return time.Since(began), err
}

// each does something on all connections at once. The first failure ends it.
func (l *load) each(do func(*line) error) error {
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for _, one := range l.lines {
		group.Go(func() {
			if err := do(one); err != nil {
				once.Do(func() { first = err; l.hangUp() })
			}
		})
	}
	group.Wait()
	return first
}

func (l *load) hangUp() {
	for _, one := range l.lines {
		_ = one.Close()
	}
}

// close ends the connections.
func (l *load) close() {
	if l.stop != nil {
		l.stop()
	}
	l.hangUp()
}

// call sends one call and checks its answer, which remains until the next.
func (one *line) call(n int64) error {
	one.out = one.request.numbered(one.out[:0], n)
	if _, err := one.Write(one.out); err != nil {
		return fmt.Errorf("sending a call: %w", err)
	}
	resp, err := http.ReadResponse(one.in, nil)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	one.answer.Reset()
	_, err = one.answer.ReadFrom(resp.Body)
	body := one.answer.Bytes()
	switch {
	case err != nil:
		return fmt.Errorf("reading an answer: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("a call was answered with %s: %.300s", resp.Status, body)
	case !bytes.HasSuffix(body, []byte(one.calls.ends)):
		return fmt.Errorf("an answer does not end as it should: …%s", body[max(0, len(body)-200):])
	case one.calls.length > 0 && one.calls.length != len(body):
		return fmt.Errorf("an answer has %d bytes instead of %d: %.300s", len(body), one.calls.length, body)
	case resp.Close:
		return errors.New("the connection is closed after an answer")
	}
	return nil
}
