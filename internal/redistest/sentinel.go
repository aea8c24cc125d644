package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/stack"
)

// MasterName is what the sentinels call their master.
const MasterName = "mneme"

// Sentinel is a master with one replica, watched by three sentinels that replace
// a master which is silent for half a second.
type Sentinel struct {
	Master, Replica *Server // as they were at the start

	t      testing.TB
	guards []*Server
}

// StartSentinel starts them and waits until the replica follows and the sentinels
// know each other. They end with the test.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	args := []string{"--repl-diskless-sync-delay", "0"}
	s := &Sentinel{t: t, Master: Start(t, args...)}
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	s.Replica = Start(t, append(args, "--replicaof", host+" "+port)...)
	// Before the sentinels come: they ask a healthy master for its replicas every ten seconds only.
	s.AwaitReplica()
	for range 3 {
		s.guards = append(s.guards, startGuard(t, s.Master.Addr))
	}
	s.await(ctx, "the sentinels to know each other", func(client *redis.SentinelClient) error {
		m, err := client.Master(ctx, MasterName).Result()
		if err == nil && (m["flags"] != "master" || m["num-slaves"] != "1" || m["num-other-sentinels"] != "2") {
			err = fmt.Errorf("one sees a %s with %s replicas and %s sentinels", m["flags"], m["num-slaves"],
				m["num-other-sentinels"])
		}
		return err
	})
	return s
}

// await polls each sentinel until check finds nothing wrong.
func (s *Sentinel) await(ctx context.Context, what string, check func(*redis.SentinelClient) error) {
	s.t.Helper()
	for _, g := range s.guards {
		client := redis.NewSentinelClient(&redis.Options{Addr: g.Addr})
		await(ctx, s.t, what, func() error { return check(client) })
		_ = client.Close()
	}
}

// startGuard starts one sentinel.
func startGuard(t testing.TB, master string) *Server {
	t.Helper()
	s := start(t, func(dir, addr string) (*stack.Process, error) {
		return stack.Sentinel(dir, addr, MasterName, master, 2, 500*time.Millisecond)
	})
	t.Cleanup(func() { s.Kill() })
	return s
}

// Addrs are the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	return addrs(s.guards)
}

// Client is a new client that asks the sentinels for the master; it is closed
// with the test.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: MasterName, SentinelAddrs: s.Addrs(), ContextTimeoutEnabled: true,
	})
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// AwaitReplica waits until the replica follows the master and has all it wrote.
func (s *Sentinel) AwaitReplica() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Master.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	await(ctx, s.t, "the replica to follow", func() error {
		info, err := client.InfoMap(ctx, "replication").Result()
		if err != nil {
			return err
		}
		r := info["Replication"]
		if line := r["slave0"]; !strings.Contains(line, "state=online") ||
			!strings.Contains(line, "offset="+r["master_repl_offset"]+",") {
			return fmt.Errorf("at %s it is %q", r["master_repl_offset"], line)
		}
		return nil
	})
}

// CutReplica stops the replica and takes it off the master: of what is written
// from now on it will never hear, unless it is thawed while the master lives.
func (s *Sentinel) CutReplica() {
	s.t.Helper()
	s.AwaitReplica()
	s.Replica.Signal(syscall.SIGSTOP)
	client := redis.NewClient(&redis.Options{Addr: s.Master.Addr})
	defer client.Close()
	// Without this the kernel would keep what is written for it to read later.
	if err := client.ClientKillByFilter(context.Background(), "TYPE", "replica").Err(); err != nil {
		s.t.Fatal(err)
	}
}

// Failover kills the master, thaws the replica and waits until the sentinels have
// made it the master.
func (s *Sentinel) Failover() {
	s.t.Helper()
	s.Master.Kill()
	s.Replica.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, port, _ := net.SplitHostPort(s.Replica.Addr)
	s.await(ctx, "the failover", func(client *redis.SentinelClient) error {
		addr, err := client.GetMasterAddrByName(ctx, MasterName).Result()
		if err == nil && (len(addr) != 2 || addr[1] != port) {
			err = fmt.Errorf("the master is still %v", addr)
		}
		return err
	})
}
