// Package dnstest is the DNS of a test's process: it has the names that tests give addresses to, and no other.
package dnstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

var (
	mu    sync.Mutex
	hosts = map[string][]netip.Addr{} // guarded by mu
)

// Use has each lookup of this process answered from here, but for names in /etc/hosts. It is for TestMain: a lookup
// that runs meanwhile is a data race.
func Use() {
	net.DefaultResolver = &net.Resolver{PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) { return &server{}, nil }}
}

// Set gives a name addresses of IPv4, in place of those before.
func Set(name string, addrs ...string) {
	var ips []netip.Addr
	for _, a := range addrs {
		ips = append(ips, netip.MustParseAddr(a))
	}
	mu.Lock()
	defer mu.Unlock()
	hosts[name] = ips
}

// server is a connection to a server of DNS over TCP (RFC 1035, 4.2.2): each message has its length before it.
type server struct {
	net.Conn
	answers bytes.Buffer
}

const (
	headBytes = 12
	typeA     = 1
)

// Write takes a query, whole.
func (s *server) Write(framed []byte) (int, error) {
	query := framed[2:]
	var labels []string
	pos := headBytes
	for query[pos] != 0 {
		size := int(query[pos])
		labels = append(labels, string(query[pos+1:pos+1+size]))
		pos += 1 + size
	}
	qtype := binary.BigEndian.Uint16(query[pos+1:])
	mu.Lock()
	addrs, ok := hosts[strings.Join(labels, ".")]
	mu.Unlock()
	flags := uint16(0x8180) // an answer, of a server that recurses
	if !ok {
		flags |= 3 // there is no such name
	}
	if qtype != typeA {
		addrs = nil
	}
	answer := append([]byte{}, query[:2]...)
	for _, n := range []uint16{flags, 1, uint16(len(addrs)), 0, 0} {
		answer = binary.BigEndian.AppendUint16(answer, n)
	}
	answer = append(answer, query[headBytes:pos+5]...)
	for _, a := range addrs {
		// The name is that of the question, and there is no time to live.
		answer = append(answer, 0xc0, headBytes, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, a.AsSlice()...)
	}
	s.answers.Write(binary.BigEndian.AppendUint16(nil, uint16(len(answer))))
	s.answers.Write(answer)
	return len(framed), nil
}

// Read gives what was answered.
func (s *server) Read(p []byte) (int, error) { return s.answers.Read(p) }

// Close does nothing.
func (s *server) Close() error { return nil }

// SetDeadline does nothing: nothing is waited for.
func (s *server) SetDeadline(time.Time) error { return nil }
