// Package inprocess connects HTTP clients to servers of the same process by pipes instead of sockets.
package inprocess

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Hosts are the servers of a process. The zero value has none.
type Hosts struct {
	mu        sync.Mutex
	listeners map[string]*listener // guarded by mu; by host and port of the URLs
}

// Serve answers requests for a host and port (80 by default) with h. stop removes the host and waits for open requests until ctx ends.
func (hosts *Hosts) Serve(host string, h http.Handler) (stop func(ctx context.Context) error) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host += ":80"
	}
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	if hosts.listeners == nil {
		hosts.listeners = map[string]*listener{}
	}
	hosts.listeners[host] = l
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }() // ends with stop
	return func(ctx context.Context) error {
		hosts.mu.Lock()
		delete(hosts.listeners, host)
		hosts.mu.Unlock()
		return server.Shutdown(ctx)
	}
}

// Transport returns a copy of network that reaches the hosts by pipes. A pipe carries plain HTTP also for https, which
// requires that network has a DialTLSContext.
func (hosts *Hosts) Transport(network *http.Transport) *http.Transport {
	t := network.Clone()
	if t.DialContext == nil {
		t.DialContext = (&net.Dialer{}).DialContext
	}
	t.DialContext = hosts.dial(t.DialContext)
	if t.DialTLSContext != nil {
		t.DialTLSContext = hosts.dial(t.DialTLSContext)
	}
	return t
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dial returns a dialer that connects to the hosts, and to all other addresses by next.
func (hosts *Hosts) dial(next dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		hosts.mu.Lock()
		l := hosts.listeners[address]
		hosts.mu.Unlock()
		if l == nil {
			return next(ctx, network, address)
		}
		client, server := net.Pipe()
		select {
		case l.conns <- server:
			return client, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listener is a net.Listener for the server ends of pipes.
type listener struct {
	conns     chan net.Conn
	closeOnce sync.Once
	closed    chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "in process", Net: "pipe"} }
