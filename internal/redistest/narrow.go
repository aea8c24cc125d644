package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Narrow is a way to a server that can hold back the requests with one command, so that a
// client that takes it is behind for as long as a test wants.
type Narrow struct {
	target, command string
	client          *redis.Client

	mu      sync.Mutex
	changed *sync.Cond
	closed  bool // to the command; guarded by mu
}

// Narrow opens a way that is open until it is closed, for requests with a command in
// lower case. It ends with the test.
func (s *Server) Narrow(t testing.TB, command string) *Narrow {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Narrow{target: s.Addr, command: command}
	n.changed = sync.NewCond(&n.mu)
	n.client = redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ContextTimeoutEnabled: true,
		ReadTimeout: time.Minute})
	var serving sync.WaitGroup
	t.Cleanup(func() { n.Open(); n.client.Close(); listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { n.serve(c) })
		}
	})
	return n
}

// Client takes the way.
func (n *Narrow) Client() *redis.Client { return n.client }

// Close holds the requests back from now on.
func (n *Narrow) Close() { n.set(true) }

// Open lets them pass, also those that wait.
func (n *Narrow) Open() { n.set(false) }

func (n *Narrow) set(closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = closed
	n.changed.Broadcast()
}

func (n *Narrow) serve(c net.Conn) {
	defer c.Close()
	server, err := net.Dial("tcp", n.target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { // ends with either connection
		defer server.Close()
		for b := make([]byte, 16<<10); ; {
			k, err := c.Read(b)
			if err == nil {
				n.wait(b[:k])
				_, err = server.Write(b[:k])
			}
			if err != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(c, server)
}

func (n *Narrow) wait(request []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.closed && bytes.Contains(bytes.ToLower(request), []byte(n.command)) {
		n.changed.Wait()
	}
}
