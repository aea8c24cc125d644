package weaviate_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// real are the nodes of a cluster of the program that WEAVIATE_SERVER names, which scripts/test --engines builds.
type real struct {
	urls []string
	kill []func()
	pids []int
}

// startReal starts a cluster of n nodes, each in a process of its own.
func startReal(t *testing.T, n int) *real {
	t.Helper()
	program := os.Getenv("WEAVIATE_SERVER")
	if program == "" {
		t.Skip("WEAVIATE_SERVER is not set: ./scripts/test --engines builds a Weaviate and runs this test over it")
	}
	r := &real{}
	var ports [][]int
	var join []string
	for i := range n {
		ports = append(ports, freePorts(t, 7))
		join = append(join, fmt.Sprintf("n%d:%d", i, ports[i][3]))
	}
	gossip := ports[0][1]
	for i, ports := range ports {
		home := t.TempDir()
		said, err := os.Create(filepath.Join(home, "log"))
		require.NoError(t, err)
		c := exec.Command(program, "--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--scheme", "http")
		c.Stdout, c.Stderr = said, said
		env := map[string]any{"PERSISTENCE_DATA_PATH": filepath.Join(home, "data"),
			"AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": true,
			"DEFAULT_VECTORIZER_MODULE":               "none", "CLUSTER_IN_LOCALHOST": true, "CLUSTER_HOSTNAME": fmt.Sprintf("n%d", i),
			"CLUSTER_ADVERTISE_ADDR":   "127.0.0.1",
			"CLUSTER_GOSSIP_BIND_PORT": ports[1], "CLUSTER_DATA_BIND_PORT": ports[2], "RAFT_PORT": ports[3],
			"RAFT_INTERNAL_RPC_PORT": ports[4], "GRPC_PORT": ports[5], "PROMETHEUS_MONITORING_PORT": ports[6],
			"RAFT_BOOTSTRAP_EXPECT": n, "DISABLE_TELEMETRY": true, "AUTOSCHEMA_ENABLED": false, "USE_INVERTED_SEARCHABLE": false,
			"GOMAXPROCS":             2,
			"RAFT_BOOTSTRAP_TIMEOUT": 180, "PROFILING_PORT": 0, "GO_PROFILING_DISABLE": true}
		if i > 0 {
			env["CLUSTER_JOIN"] = fmt.Sprintf("127.0.0.1:%d", gossip)
		}
		c.Env = append(slices.Clone(os.Environ()), "RAFT_JOIN="+strings.Join(join, ","))
		for name, value := range env {
			c.Env = append(c.Env, fmt.Sprintf("%s=%v", name, value))
		}
		require.NoError(t, c.Start())
		stop := func() { _ = c.Process.Kill(); _ = c.Wait() }
		r.kill, r.pids = append(r.kill, stop), append(r.pids, c.Process.Pid)
		t.Cleanup(func() {
			stop()
			if t.Failed() {
				b, _ := os.ReadFile(said.Name())
				t.Logf("node %d said at the end:\n%s", i, b[max(0, len(b)-4000):])
			}
		})
		if i == 0 { // the others join it, and end if nothing listens there
			require.Eventually(t, func() bool {
				to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", gossip))
				if err == nil {
					to.Close()
				}
				return err == nil
			}, time.Minute, 50*time.Millisecond)
		}
		r.urls = append(r.urls, fmt.Sprintf("http://127.0.0.1:%d", ports[0]))
	}
	for _, u := range r.urls {
		require.Eventually(t, func() bool {
			answer, err := http.Get(u + "/v1/.well-known/ready")
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		}, 3*time.Minute, 100*time.Millisecond, "a node is not ready")
	}
	return r
}

// freePorts are n that follow each other: a node takes the port behind that of another's gossip for its data.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		first := l.Addr().(*net.TCPAddr).Port
		listeners := []net.Listener{l}
		for p := first + 1; p < first+n; p++ {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
				listeners = append(listeners, l)
			}
		}
		for _, l := range listeners {
			l.Close()
		}
		if len(listeners) == n {
			for p := first; p < first+n; p++ {
				ports = append(ports, p)
			}
			return ports
		}
	}
	require.Fail(t, "there are no free ports beside each other")
	return nil
}
