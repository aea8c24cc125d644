package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
)

// Bounds of connections that are accepted although the process has no file descriptor left.
const (
	spares    = 8                      // at once
	spareTime = 250 * time.Millisecond // each
)

// spareListener reserves file descriptors. When the process has no others, it accepts short connections with them and
// answers only health requests.
type spareListener struct {
	*net.TCPListener
	log zerolog.Logger // for lines that may come often

	mu     sync.Mutex
	files  []*os.File // guarded by mu
	used   int        // guarded by mu: descriptors of short connections
	closed bool       // guarded by mu
}

// withSpares returns l, which must be a TCP listener, with a reserve of file descriptors.
func withSpares(l net.Listener, log zerolog.Logger) net.Listener {
	s := &spareListener{TCPListener: l.(*net.TCPListener), log: log}
	s.refill(0)
	return s
}

// refill subtracts ended connections and opens files until the reserve is full again.
func (s *spareListener) refill(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	for !s.closed && len(s.files)+s.used < spares {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		s.files = append(s.files, f)
	}
}

// release closes one of the files to free its descriptor for a connection. It reports whether there was a file.
func (s *spareListener) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.files) == 0 {
		return false
	}
	_ = s.files[len(s.files)-1].Close()
	s.files, s.used = s.files[:len(s.files)-1], s.used+1
	return true
}

// Accept implements net.Listener.
func (s *spareListener) Accept() (net.Conn, error) {
	c, err := s.TCPListener.Accept()
	switch {
	case err == nil:
		s.refill(0)
		return c, nil
	case !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !s.release():
		return nil, err
	}
	// Without a free descriptor, accept fails even if no connection is pending.
	_ = s.SetDeadline(time.Now().Add(spareTime))
	c, failed := s.TCPListener.Accept()
	_ = s.SetDeadline(time.Time{})
	if failed != nil {
		s.refill(1)
		return nil, err
	}
	s.log.Error().Err(err).
		Msg("no file descriptor is free: only /healthz is answered to new connections; raise the limit " +
			"(ulimit -n)")
	short := &shortConn{Conn: c, end: time.Now().Add(spareTime), closed: sync.OnceFunc(func() { s.refill(1) })}
	return short, short.SetDeadline(time.Time{})
}

// Close implements net.Listener.
func (s *spareListener) Close() error {
	s.mu.Lock()
	for _, f := range s.files {
		_ = f.Close()
	}
	s.files, s.closed = nil, true
	s.mu.Unlock()
	return s.TCPListener.Close()
}

// shortConn is a connection on a spare descriptor. No deadline is later than its end.
type shortConn struct {
	net.Conn
	end    time.Time
	closed func()
}

func (c *shortConn) limit(t time.Time) time.Time {
	if t.IsZero() || t.After(c.end) {
		return c.end
	}
	return t
}

// SetDeadline implements net.Conn.
func (c *shortConn) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(c.limit(t)) }

// SetReadDeadline implements net.Conn.
func (c *shortConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.limit(t)) }

// SetWriteDeadline implements net.Conn.
func (c *shortConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.limit(t)) }

// Close implements net.Conn.
func (c *shortConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

type shortKey struct{}

// noteShort marks the requests of a short connection.
func noteShort(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if _, short := c.(*shortConn); short {
		return context.WithValue(ctx, shortKey{}, true)
	}
	return ctx
}

// healthOnly answers requests of short connections with 503, except for /healthz.
func healthOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(shortKey{}) != nil {
			w.Header().Set("Connection", "close")
			if r.URL.Path != "/healthz" {
				api.WriteProblem(w, &api.Problem{Status: http.StatusServiceUnavailable, Code: "no_descriptors", Retryable: true,
					Message: "The process has no file descriptor left. Raise its limit (ulimit -n)."})
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
