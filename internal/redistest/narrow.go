package redistest

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Narrow is a way to a server that can hold back the requests with one command, so that a
// client that takes it is behind for as long as a test wants.
type Narrow struct {
	command string
	client  *redis.Client

	mu      sync.Mutex
	changed *sync.Cond
	closed  bool // to the command; guarded by mu
}

// Narrow opens a way that is open until it is closed, for requests with a command in
// lower case. It ends with the test.
func (s *Server) Narrow(t testing.TB, command string) *Narrow {
	n := &Narrow{command: command}
	n.changed = sync.NewCond(&n.mu)
	n.client = redis.NewClient(&redis.Options{Addr: s.forward(t, n.wait, pass), ContextTimeoutEnabled: true,
		ReadTimeout: time.Minute})
	t.Cleanup(func() { n.Open(); n.client.Close() })
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

func (n *Narrow) wait(request []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.closed && bytes.Contains(bytes.ToLower(request), []byte(n.command)) {
		n.changed.Wait()
	}
	return true
}
