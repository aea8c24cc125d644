// Package freeport gives tests and measurements ports that stay theirs while no process listens on them: until a
// process has started, and between its end and its next start.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are claimed from lowest on. They, and those 10,000 above them, on which nodes of a Redis Cluster
// listen too, are below the ports that Linux (from 32768 on) and macOS (from 49152 on) give to outgoing
// connections and to processes that ask for any free port.
const (
	lowest = 12_000
	count  = 10_000
)

// held has the claims, which the garbage collector would close otherwise if no caller held on to release.
var claims sync.Map

// Addr claims a port of loopback, and gives it as 127.0.0.1:port. It is free for others when the test has ended.
func Addr(t testing.TB) string {
	t.Helper()
	addr, release, err := Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// Claim is Addr for what is no test: the port is claimed until release is called or this process ends.
func Claim() (addr string, release func(), err error) {
	for range 1000 {
		addr = fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(count))
		// The UDP port of the same number is the claim, between processes too. It is in no listener's way, and the
		// kernel gives it up with the process.
		claim, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp4", addr); err == nil {
			_ = l.Close()
			claims.Store(claim, addr)
			return addr, func() { claims.Delete(claim); _ = claim.Close() }, nil
		}
		_ = claim.Close()
	}
	return "", nil, errors.New("no free port was found in a thousand tries from 12000 to 21999")
}
