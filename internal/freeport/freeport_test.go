package freeport_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/freeport"
)

// No process gets a port that another one holds, whether or not anything listens there, until it is given up.
func TestAPortIsClaimedOnce(t *testing.T) {
	held := map[string]func(){}
	for range 400 { // of 10,000: without claims there would be two alike
		addr, release, err := freeport.Claim()
		require.NoError(t, err)
		require.NotContains(t, held, addr)
		require.True(t, strings.HasPrefix(addr, "127.0.0.1:"))
		held[addr] = release
	}
	for addr, release := range held {
		_, err := net.ListenPacket("udp4", addr)
		require.Error(t, err, "another process sees the claim")
		l, err := net.Listen("tcp", addr)
		require.NoError(t, err, "who has claimed a port can listen there")
		require.NoError(t, l.Close())
		release()
		claim, err := net.ListenPacket("udp4", addr)
		require.NoError(t, err)
		require.NoError(t, claim.Close())
	}
}
