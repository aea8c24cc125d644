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

// spareListener holds file descriptors for the time when the process has no other. It accepts short connections on
// them, on which only health is answered.
type spareListener struct {
	*net.TCPListener
	log zerolog.Logger // for lines that may come often

	mu    sync.Mutex
	files []*os.File // guarded by mu
	used  int        // guarded by mu: connections on them
}

func withSpares(l net.Listener, log zerolog.Logger) net.Listener {
	of, ok := l.(*net.TCPListener)
	if !ok {
		return l
	}
	s := &spareListener{TCPListener: of, log: log}
	s.refill(0)
	return s
}

// refill opens as many files as no connection stands for, after ended connections have ended.
func (s *spareListener) refill(ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= ended
	for len(s.files)+s.used < spares {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		s.files = append(s.files, f)
	}
}

// release closes one of the files, whose descriptor is then free for a connection, and reports whether there was one.
func (s *spareListener) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) == 0 {
		return false
	}
	_ = s.files[len(s.files)-1].Close()
	s.files, s.used = s.files[:len(s.files)-1], s.used+1
	return true
}

// Accept implements net.Listener.
func (s *spareListener) Accept() (net.Conn, error) {
	c, full := s.TCPListener.Accept()
	if full == nil {
		s.refill(0)
	}
	if !errors.Is(full, syscall.EMFILE) && !errors.Is(full, syscall.ENFILE) || !s.release() {
		return c, full
	}
	// Without a descriptor, the system does not say whether a connection waits.
	_ = s.SetDeadline(time.Now().Add(spareTime))
	c, err := s.TCPListener.Accept()
	_ = s.SetDeadline(time.Time{})
	if err != nil {
		s.refill(1)
		return nil, full
	}
	s.log.Error().Err(full).
		Msg("no file descriptor is free: only /healthz is answered to new connections; raise the limit " +
			"(ulimit -n)")
	short := &shortConn{Conn: c, end: time.Now().Add(spareTime), closed: sync.OnceFunc(func() { s.refill(1) })}
	return short, short.SetDeadline(time.Time{})
}

// Close implements net.Listener.
func (s *spareListener) Close() error {
	for s.release() {
	}
	return s.TCPListener.Close()
}

// shortConn is a connection on a spare descriptor. No deadline is later than its end.
type shortConn struct {
	net.Conn
	end    time.Time
	closed func()
}

func (c *shortConn) cap(t time.Time) time.Time {
	if t.IsZero() || t.After(c.end) {
		return c.end
	}
	return t
}

// SetDeadline implements net.Conn.
func (c *shortConn) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(c.cap(t)) }

// SetReadDeadline implements net.Conn.
func (c *shortConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.cap(t)) }

// SetWriteDeadline implements net.Conn.
func (c *shortConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.cap(t)) }

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
