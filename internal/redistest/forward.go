package redistest

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Lossy opens a way to the server on which some of the replies of which loses says so are lost, behind what the server
// did: the connection ends in their place. lost counts them. It ends with the test.
func (s *Server) Lossy(t testing.TB, share float64,
	loses func(reply []byte) bool) (addr string, dropped *atomic.Int64) {
	t.Helper()
	dropped = new(atomic.Int64)
	return s.forward(t, pass, func(reply []byte) bool {
		lost := loses(reply) && rand.Float64() < share
		if lost {
			dropped.Add(1)
		}
		return !lost
	}), dropped
}

// pass lets all bytes through.
func pass([]byte) bool { return true }

// forward opens a way to the server. requests and replies see what passes on it; false ends the connection. It ends
// with the test.
func (s *Server) forward(t testing.TB, requests, replies func([]byte) bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var pipes sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{} // guarded by mu; nil once the test is over
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		open = nil
		mu.Unlock()
		pipes.Wait()
	})
	opened := func(conns ...net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			if open == nil {
				_ = c.Close()
				continue
			}
			open[c] = true
		}
		return open != nil
	}
	pipe := func(dst, src net.Conn, passes func([]byte) bool) {
		var err error
		for b, n := make([]byte, 64<<10), 0; err == nil; {
			if n, err = src.Read(b); err != nil || !passes(b[:n]) {
				break
			}
			_, err = dst.Write(b[:n])
		}
		mu.Lock()
		defer mu.Unlock()
		for _, c := range []net.Conn{dst, src} {
			_ = c.Close()
			delete(open, c)
		}
	}
	pipes.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			if !opened(in, out) {
				return
			}
			pipes.Go(func() { pipe(out, in, requests) })
			pipes.Go(func() { pipe(in, out, replies) })
		}
	})
	return l.Addr().String()
}
