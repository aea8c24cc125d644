package redistest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/stack"
)

// patience bounds every wait of this package for processes to agree.
const patience = 90 * time.Second

// Cluster is a Redis Cluster of three masters without replicas.
type Cluster struct {
	Nodes []*Server

	t       testing.TB
	clients []*redis.Client // of the nodes
}

// StartCluster starts the masters and forms a Cluster of them. They end with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 3 {
		node := Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
		c.Nodes, c.clients = append(c.Nodes, node), append(c.clients, node.Client())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := stack.FormCluster(ctx, len(c.clients), c.clients...); err != nil {
		t.Fatal(err)
	}
	return c
}

// Addrs are the addresses of the masters.
func (c *Cluster) Addrs() []string {
	return addrs(c.Nodes)
}

func addrs(servers []*Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Addr)
	}
	return out
}

// Client is a new client of the cluster; it is closed with the test.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// FlushAll empties every master.
func (c *Cluster) FlushAll() {
	c.t.Helper()
	for _, node := range c.clients {
		if err := node.FlushAll(context.Background()).Err(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Move gives the slot of key, with all that is in it, to the next master while
// clients go on, and waits until all masters know.
func (c *Cluster) Move(key string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m := move{nodes: c.clients, ids: make([]string, len(c.clients)), src: -1}
	for i, node := range m.nodes {
		m.ids[i] = node.ClusterMyID(ctx).Val()
		// Those that do not own the slot redirect.
		if node.Exists(ctx, key).Err() == nil {
			m.src, m.dst = i, (i+1)%len(m.nodes)
		}
	}
	if m.src < 0 {
		c.t.Fatalf("no master owns the slot of %s", key)
	}
	m.slot = m.nodes[0].ClusterKeySlot(ctx, key).Val()
	err := m.run(ctx)
	if err == nil {
		err = stack.AwaitCluster(ctx, m.nodes...)
	}
	if err != nil {
		c.t.Fatalf("moving the slot of %s: %v", key, err)
	}
}

// move is one slot on its way between two masters.
type move struct {
	nodes    []*redis.Client
	ids      []string
	src, dst int
	slot     int64
}

func (m move) run(ctx context.Context) error {
	err := errors.Join(m.set(ctx, m.dst, "importing", m.ids[m.src]), m.set(ctx, m.src, "migrating", m.ids[m.dst]))
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(m.nodes[m.dst].Options().Addr)
	for {
		keys, err := m.nodes[m.src].ClusterGetKeysInSlot(ctx, int(m.slot), 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		// One by one: what clients meet while some of their keys have moved is what is to be tested.
		if err := m.nodes[m.src].Migrate(ctx, host, port, keys[0], 0, 10*time.Second).Err(); err != nil {
			return err
		}
	}
	// The new owner first, or for a moment there would be none.
	for _, node := range []int{m.dst, m.src, 3 - m.dst - m.src} {
		if err := m.set(ctx, node, "node", m.ids[m.dst]); err != nil {
			return err
		}
	}
	return nil
}

func (m move) set(ctx context.Context, node int, state, id string) error {
	return m.nodes[node].Do(ctx, "cluster", "setslot", m.slot, state, id).Err()
}

// await polls until check finds nothing wrong.
func await(ctx context.Context, t testing.TB, what string, check func() error) {
	t.Helper()
	if err := stack.Await(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}
