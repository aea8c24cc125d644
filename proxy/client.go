package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mneme/proxy/wire"
)

// errClientGone is wrapped when an answer cannot be written.
var errClientGone = errors.New("the client left")

// clientWriter writes an answer, each piece within a time: a client that stops
// reading must not hold a call to a backend for ever.
//
// Pings of a quiet stream come from another goroutine, hence the lock.
type clientWriter struct {
	http.ResponseWriter
	control http.ResponseController
	timeout time.Duration
	tell    func(http.Header) // adds to the header just before it is written
	started bool              // the status is out
	stream  bool              // what is out is an event stream
	status  int
	spent   time.Duration // in writing, which is the client's time

	mu        sync.Mutex // guards writes
	unflushed bool       // what was written last is not pushed out
	deadline  time.Time  // of the writes
	pinger    *time.Timer
}

// quiet is how long a translated stream may say nothing: proxies on the way give
// up connections on which nothing moves.
const quiet = 15 * time.Second

// pings are what both dialects' clients pass over.
var pings = map[wire.Dialect][]byte{
	wire.Messages: []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n"),
	wire.Chat:     []byte(": ping\n\n"),

	// codex counts events only, and OpenAI sends this one: https://github.com/openai/openai-python/issues/2725.
	wire.Responses: []byte("event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n"),
}

// ping has a stream say something whenever it was quiet for long, until release.
func (c *clientWriter) ping(d wire.Dialect) {
	if !c.stream {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinger = time.AfterFunc(quiet, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pinger == nil {
			return
		}
		_ = c.put(pings[d], true) // a client that is gone shows at the next event
		c.pinger.Reset(quiet)
	})
}

func newClientWriter(w http.ResponseWriter, timeout time.Duration) *clientWriter {
	return &clientWriter{ResponseWriter: w, control: *http.NewResponseController(w), timeout: timeout}
}

// Values that headers share, as none is ever modified.
var noCache, unbuffered = []string{"no-cache"}, []string{"no"}

// begin writes the status and the header.
func (c *clientWriter) begin(status int) {
	c.started, c.status = true, status
	c.tell(c.Header())
	if c.stream = strings.HasPrefix(c.Header().Get("Content-Type"), "text/event-stream"); c.stream {
		c.Header()["Cache-Control"], c.Header()["X-Accel-Buffering"] = noCache, unbuffered
	}
	c.WriteHeader(status) // it goes out with the first piece
}

// write writes a piece, and pushes it out when flush says so.
func (c *clientWriter) write(b []byte, flush bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinger != nil {
		c.pinger.Reset(quiet)
	}
	return c.put(b, flush)
}

func (c *clientWriter) put(b []byte, flush bool) error {
	if len(b) == 0 && !c.unflushed {
		return nil
	}
	began := time.Now()
	defer func() { c.spent += time.Since(began) }()
	// Setting it for every event of a stream would cost as much as the event.
	if began.Sub(c.deadline) > -c.timeout*3/4 {
		c.deadline = began.Add(c.timeout)
		// Writers that know no deadlines, as in tests, cannot be stuck either.
		_ = c.control.SetWriteDeadline(c.deadline)
	}
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	if c.unflushed = !flush; c.unflushed || !c.stream {
		return nil
	}
	if err := c.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

// writeBody writes an answer that is not a stream.
func (c *clientWriter) writeBody(status int, body []byte) error {
	c.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.begin(status)
	return c.write(body, true)
}

// release ends the pings and takes the deadline off the connection, which serves
// other requests.
func (c *clientWriter) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinger != nil {
		c.pinger.Stop()
		c.pinger = nil
	}
	_ = c.control.SetWriteDeadline(time.Time{})
}
