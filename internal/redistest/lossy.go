package redistest

import (
	"io"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dropped = new(atomic.Int64)
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
	closed := func(conns ...net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
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
			pipes.Go(func() { _, _ = io.Copy(out, in); closed(in, out) })
			pipes.Go(func() {
				defer closed(in, out)
				for b := make([]byte, 64<<10); ; {
					n, err := out.Read(b)
					if err != nil {
						return
					}
					if loses(b[:n]) && rand.Float64() < share {
						dropped.Add(1)
						return
					}
					if _, err := in.Write(b[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String(), dropped
}
