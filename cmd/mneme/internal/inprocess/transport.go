// Package inprocess is an http.RoundTripper onto handlers of the same process: services
// that may as well be processes of their own hand each other requests without a socket.
// Toward both it is a connection: what is written shows after a Flush; a writer waits for
// its reader (backpressure); closing the answer's body, or the end of the request's
// context, ends the handler's context; a handler that panics is a read error; a write
// deadline holds; both bodies may be under way at once. The handler reads the request's
// body itself, so that a deadline for that is the one which its source has. Trailers
// are those of http.TrailerPrefix. There are no 1xx, no upgrades and no Hijack.
package inprocess

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrAborted is what a client gets of an answer that its handler broke off.
var ErrAborted = errors.New("the handler broke off its answer")

// Hosts are the handlers of a process. The zero value has none.
type Hosts struct {
	mu    sync.Mutex
	known map[string]*server // guarded by mu: by host and port of the URLs
}

type server struct {
	http.Handler
	open sync.WaitGroup // requests; added to under Hosts.mu
}

// Serve has h answer the requests for a host and port. stop ends that, and waits until
// those that are being answered are over, or ctx ends.
func (hosts *Hosts) Serve(host string, h http.Handler) (stop func(ctx context.Context) error) {
	s := &server{Handler: h}
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	if hosts.known == nil {
		hosts.known = map[string]*server{}
	}
	hosts.known[host] = s
	return func(ctx context.Context) error {
		hosts.mu.Lock()
		delete(hosts.known, host)
		hosts.mu.Unlock()
		over, done := context.WithCancel(ctx)
		go func() { s.open.Wait(); done() }() // ends with the last request
		<-over.Done()
		return ctx.Err()
	}
}

// Transport sends requests for hosts that are served here to their handlers, and all
// others over the network.
type Transport struct {
	*http.Transport
	Hosts *Hosts
}

// RoundTrip runs the handler on a goroutine of its own and returns once the head of the
// answer is there. The handler's context is a new one, as behind a socket: of the client's
// context only its end reaches it, no value and no deadline.
//
// The request counts as open before the lock is given back, so that a stop that begins in
// between waits for it. What the exchange holds of the request lives as long as the answer
// streams; its body is therefore left out and goes with the handler's reading.
func (t *Transport) RoundTrip(asked *http.Request) (*http.Response, error) {
	t.Hosts.mu.Lock()
	s := t.Hosts.known[asked.URL.Host]
	if s == nil {
		t.Hosts.mu.Unlock()
		return t.Transport.RoundTrip(asked)
	}
	s.open.Add(1)
	t.Hosts.mu.Unlock()
	x := &exchange{asked: asked.WithContext(asked.Context()), header: http.Header{},
		answered: make(chan *http.Response, 1)}
	x.asked.Body, x.asked.GetBody = nil, nil // a body must not be held as long as its answer streams
	x.state, x.end = context.WithCancelCause(context.Background())
	x.client, x.server = net.Pipe()
	ctx, leave := context.WithCancel(context.Background())
	x.leave = leave
	taken := x.take(ctx, asked)
	detach := context.AfterFunc(asked.Context(), func() { x.cut(context.Cause(x.asked.Context())) })
	go func() { // ends with the handler, once the client has read or closed the answer
		defer s.open.Done()
		defer detach()
		x.serve(s, taken)
	}()
	select {
	case resp := <-x.answered:
		return resp, nil
	case <-x.state.Done():
	}
	select {
	case resp := <-x.answered: // it is over already
		return resp, nil
	default:
		return nil, context.Cause(x.state)
	}
}

// exchange is one request and its answer: the handler's http.ResponseWriter, and the body
// that the client reads.
type exchange struct {
	asked    *http.Request           // without its body
	leave    context.CancelFunc      // ends the handler's context; its cause says no more than a connection's
	state    context.Context         // ends with the exchange; its cause is io.EOF, or why it broke off
	end      context.CancelCauseFunc // of state
	answered chan *http.Response     // gets the head

	client, server net.Conn       // the two ends of the answer's body
	out            *bufio.Writer  // into server; nil while it holds nothing
	header, shown  http.Header    // the handler's, and its copy that is sent
	status         int            // 0 before WriteHeader
	headed         bool           // the head was sent
	response       *http.Response // once headed; the client reads its trailer after the body's end
}

// writers hold what a handler has written and not flushed. Most streams pause with nothing
// in them.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 2<<10) }}

// take makes of a client's request what a server would read of it.
func (x *exchange) take(ctx context.Context, asked *http.Request) *http.Request {
	r := asked.Clone(ctx)
	r.RequestURI, r.RemoteAddr, r.GetBody = asked.URL.RequestURI(), "127.0.0.1:0", nil
	if asked.URL.Scheme == "https" {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	r.Host, r.URL.Scheme, r.URL.Host = cmp.Or(asked.Host, asked.URL.Host), "", ""
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		r.Body, r.ContentLength = http.NoBody, 0
		return r
	case r.ContentLength == 0:
		r.ContentLength = -1 // the length was not told
	}
	r.Body = &source{r.Body, r.ContentLength, x}
	return r
}

// source is a request's body, which is let go of once it is closed or read. That it fails
// is the client's error, whatever the handler answers.
type source struct {
	io.ReadCloser
	left int64 // bytes, if that is known
	x    *exchange
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.left -= int64(n); s.left == 0 || err == io.EOF {
		_ = s.Close()
	} else if err != nil {
		s.x.cut(err)
	}
	return n, err
}

func (s *source) Close() error {
	body := s.ReadCloser
	s.ReadCloser = http.NoBody
	return body.Close()
}

// serve runs the handler and completes the answer: a head that was not sent yet says how
// long the body is, then what is buffered is flushed, then the state ends with io.EOF, and
// only then is the pipe closed. In another order the client could read the closed pipe and
// find no cause for it. A handler that panics cuts the exchange off instead, and unlike
// net/http's server the process goes on without a connection to close.
func (x *exchange) serve(h http.Handler, r *http.Request) {
	body := r.Body
	defer x.leave()
	defer func() {
		if p := recover(); p != nil {
			if err, _ := p.(error); !errors.Is(err, http.ErrAbortHandler) {
				log.Printf("http: panic serving a request of this process: %v\n%s", p, debug.Stack())
			}
			x.cut(ErrAborted)
		}
		_ = body.Close()
	}()
	h.ServeHTTP(x, r)
	x.WriteHeader(http.StatusOK)
	if !x.headed && x.shown.Get("Content-Length") == "" {
		x.shown.Set("Content-Length", strconv.Itoa(x.held()))
	}
	if x.FlushError() != nil {
		x.cut(ErrAborted)
	} else {
		x.tellTrailer()
	}
	x.end(io.EOF)
	_ = x.server.Close()
}

// tellTrailer gives the client what the handler set for the end of the body, which the client has not seen yet.
func (x *exchange) tellTrailer() {
	for key, values := range x.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok && x.response != nil {
			if x.response.Trailer == nil {
				x.response.Trailer = http.Header{}
			}
			x.response.Trailer[name] = values
		}
	}
}

// cut breaks the exchange off: the client gets err, the handler a context that has ended
// and a writer that fails. The first cause stays, so that an exchange that is complete
// remains so.
func (x *exchange) cut(err error) {
	x.end(err)
	x.leave()
	_, _ = x.server.Close(), x.client.Close()
}

// Header is sent as WriteHeader finds it.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader takes the status; it is sent with the first bytes.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK {
		x.status, x.shown = status, x.header.Clone()
	}
}

// Write keeps some bytes until a Flush, as net/http does; for more it waits for the client.
func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	if x.asked.Method == http.MethodHead {
		return len(b), nil
	}
	if x.out == nil {
		x.out = writers.Get().(*bufio.Writer)
		x.out.Reset(x.server)
	}
	if len(b) > x.out.Available() {
		x.head()
	}
	return x.out.Write(b)
}

// held is how many bytes wait for a Flush.
func (x *exchange) held() int {
	if x.out == nil {
		return 0
	}
	return x.out.Buffered()
}

func (x *exchange) head() {
	if x.headed || x.state.Err() != nil {
		return // the head was sent, or the caller has left
	}
	x.headed = true
	length, err := strconv.ParseInt(x.shown.Get("Content-Length"), 10, 64)
	if err != nil {
		length = -1
	}
	x.response = &http.Response{
		Status: strconv.Itoa(x.status) + " " + http.StatusText(x.status), StatusCode: x.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: x.shown, ContentLength: length, Body: body{x}, Request: x.asked,
	}
	x.answered <- x.response
}

// FlushError sends the client what was written, the head first. The buffer goes back to
// the pool while nothing is in it; after a failed flush it is kept, because its error is
// what later writes have to report.
func (x *exchange) FlushError() error {
	x.WriteHeader(http.StatusOK)
	if x.head(); x.out == nil {
		return nil
	}
	err := x.out.Flush()
	if err == nil { // else it goes on failing
		writers.Put(x.out)
		x.out = nil
	}
	return err
}

// Flush is FlushError for those that know http.Flusher only.
func (x *exchange) Flush() { _ = x.FlushError() }

// SetWriteDeadline bounds how long the client is waited for; past it the answer is broken.
func (x *exchange) SetWriteDeadline(t time.Time) error { return x.server.SetWriteDeadline(t) }

// EnableFullDuplex has nothing to enable.
func (x *exchange) EnableFullDuplex() error { return nil }

// body is the client's end of an answer.
type body struct{ x *exchange }

// Read says of a pipe that is closed why it is.
func (b body) Read(p []byte) (int, error) {
	n, err := b.x.client.Read(p)
	if err != nil {
		err = context.Cause(b.x.state)
	}
	return n, err
}

// Close ends the handler's context if it has not returned.
func (b body) Close() error {
	b.x.cut(http.ErrBodyReadAfterClose)
	return nil
}
