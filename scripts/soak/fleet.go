package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The processes of a fleet: the nodes of a Cluster, three of them replicas, and the services, of which apiservers and
// gateways are behind one name each.
var (
	fleetNodes = []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6"}
	fleetOrder = append(slices.Clone(fleetNodes), "proxy-a", "proxy-b", apiA, apiB, "apiserver-c", "apiserver-d",
		webA, webB, "webmemory-c")
)

// fleet is what a soak of many processes has besides them.
type fleet struct {
	addrs   []string // of the nodes
	cluster *redis.ClusterClient
	models  *name // of the gateways
	environ []string
	formed  bool
}

// newFleet makes the names, under which nothing answers yet.
func newFleet(o options, s *testbed, at map[string]string) (*fleet, error) {
	f := &fleet{models: &name{of: s.at(proxyName, at)}, addrs: s.at(redisName, at)}
	f.models.slow.Store(int64(o.slow))
	apis, err := (&name{of: s.at(apiName, at)}).listen()
	gateways, failed := f.models.listen()
	f.cluster = redis.NewClusterClient(&redis.ClusterOptions{Addrs: f.addrs, ContextTimeoutEnabled: true})
	f.environ = []string{"MNEME_REDIS_URL=", "MNEME_REDIS_ADDRS=" + strings.Join(f.addrs, ","),
		"MNEME_REDIS_WAIT_REPLICAS=1", "MNEME_APISERVER_MAX_RUNS=10000", "MNEME_WEBMEMORY_APISERVER=http://" + apis,
		"MNEME_APISERVER_PROXY=http://" + gateways}
	return f, errors.Join(err, failed)
}

// at are the addresses of the processes of a kind.
func (s *testbed) at(kind string, all map[string]string) (addrs []string) {
	for _, name := range s.of(kind) {
		addrs = append(addrs, all[name])
	}
	return addrs
}

// form makes a Cluster of the nodes, the first time, and waits until it has all slots.
func (f *fleet) form() error {
	if !f.formed {
		args := append([]string{"--cluster", "create"}, append(f.addrs, "--cluster-replicas", "1", "--cluster-yes")...)
		if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("forming a Cluster: %w: %s", err, out)
		}
		f.formed = true
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command("redis-cli", "--cluster", "check", f.addrs[0]).CombinedOutput()
		if err == nil && strings.Contains(string(out), "All nodes agree about slots") {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the Cluster is not whole: %w: %s", err, out)
		}
	}
}

// name passes each connection on to one of several processes in turn, as the address of a Service of Kubernetes does:
// it passes over one that does not answer, and balances connections, not requests.
type name struct {
	of   []string
	next atomic.Int64
	slow atomic.Int64 // how long each answer waits, in ns, for models that think
}

func (n *name) listen() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { // it ends with the soak
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go n.pass(in)
		}
	}()
	return l.Addr().String(), nil
}

func (n *name) pass(in net.Conn) {
	defer in.Close()
	for range n.of {
		out, err := net.Dial("tcp", n.of[int(n.next.Add(1))%len(n.of)])
		if err != nil {
			continue
		}
		defer out.Close()
		go func() { // ends with either connection
			_, _ = io.Copy(out, in)
			out.Close()
		}()
		n.answer(in, out)
		return
	}
}

// answer passes on what a process says, the first bytes of an answer later.
func (n *name) answer(to io.Writer, from io.Reader) {
	buffer, last := make([]byte, 32<<10), time.Time{}
	for {
		count, err := from.Read(buffer)
		if slow := time.Duration(n.slow.Load()); count > 0 && slow > 0 && time.Since(last) > slow {
			time.Sleep(slow)
		}
		last = time.Now()
		if _, failed := to.Write(buffer[:count]); failed != nil || err != nil {
			return
		}
	}
}
