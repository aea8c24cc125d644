package stack

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// Balancer passes the connections to one address of loopback on to several processes, as the address of a Service of
// Kubernetes does: it passes over a process that does not answer, and balances connections, not requests.
type Balancer struct {
	net.Listener // once it is closed, connections that are open go on

	Slow atomic.Int64 // how long each answer waits, in ns, for models that think
}

// Balance listens for processes, which need not be up. Each gets one connection of every round, whose order is random.
func Balance(targets ...string) (*Balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b := &Balancer{Listener: l}
	if err == nil {
		go b.accept(targets) // ends when the listener is closed
	}
	return b, err
}

func (b *Balancer) accept(targets []string) {
	for turn := 0; ; turn++ {
		if turn%len(targets) == 0 {
			targets = slices.Clone(targets) // what was accepted before still reads the order of its round
			rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		}
		in, err := b.Accept()
		if err != nil {
			return
		}
		go b.pass(in, targets, turn)
	}
}

func (b *Balancer) pass(in net.Conn, targets []string, turn int) {
	defer in.Close()
	for i := range targets {
		if out, err := net.Dial("tcp", targets[(turn+i)%len(targets)]); err == nil {
			defer out.Close()
			go func() { _, _ = io.Copy(out, in); out.Close() }() // ends with either connection
			b.answer(in, out)
			return
		}
	}
}

// answer passes on what a process says, the first bytes of an answer later.
func (b *Balancer) answer(dst io.Writer, src io.Reader) {
	buffer, last := make([]byte, 32<<10), time.Time{}
	for {
		count, err := src.Read(buffer)
		if slow := time.Duration(b.Slow.Load()); count > 0 && slow > 0 && time.Since(last) > slow {
			time.Sleep(slow)
		}
		last = time.Now()
		if _, failed := dst.Write(buffer[:count]); failed != nil || err != nil {
			return
		}
	}
}
