package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait of this package for processes to agree.
const patience = 90 * time.Second

// slots is the number of hash slots of a cluster.
const slots = 16384

// Cluster is a Redis Cluster of three masters without replicas.
type Cluster struct {
	Nodes []*Server

	t testing.TB
}

// StartCluster starts the masters, shares the slots out among them and waits
// until all of them agree. They end with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 3 {
		c.Nodes = append(c.Nodes, startNode(t))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, node := range c.Nodes {
		client := node.Client()
		// Different epochs from the start: nodes that meet with equal ones first have to settle which node's slots count.
		err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err()
		if err == nil {
			err = client.ClusterAddSlotsRange(ctx, slots*i/3, slots*(i+1)/3-1).Err()
		}
		if err == nil && i > 0 {
			host, port, _ := net.SplitHostPort(c.Nodes[0].Addr)
			err = client.ClusterMeet(ctx, host, port).Err()
		}
		if err != nil {
			t.Fatalf("forming a cluster: %v", err)
		}
	}
	for _, node := range c.Nodes {
		client := node.Client()
		await(ctx, t, "the cluster to agree on its slots", func() error {
			info, err := client.ClusterInfo(ctx).Result()
			for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3",
				"cluster_size:3"} {
				if err == nil && !strings.Contains(info, want) {
					err = errors.New("not yet " + want)
				}
			}
			return err
		})
	}
	return c
}

// startNode starts a server that also listens on the port 10,000 above its own.
func startNode(t testing.TB) *Server {
	t.Helper()
	return Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
}

// Addrs are the addresses of the masters.
func (c *Cluster) Addrs() []string {
	return addrs(c.Nodes)
}

func addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return all
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
	for _, n := range c.Nodes {
		if err := n.Client().FlushAll(context.Background()).Err(); err != nil {
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
	m := move{nodes: make([]*redis.Client, len(c.Nodes)), ids: make([]string, len(c.Nodes)), from: -1}
	for i, n := range c.Nodes {
		m.nodes[i] = redis.NewClient(&redis.Options{Addr: n.Addr, ContextTimeoutEnabled: true})
		defer m.nodes[i].Close()
		m.ids[i] = m.nodes[i].ClusterMyID(ctx).Val()
		// Those that do not own the slot redirect.
		if m.nodes[i].Exists(ctx, key).Err() == nil {
			m.from, m.to = i, (i+1)%len(c.Nodes)
		}
	}
	if m.from < 0 {
		c.t.Fatalf("no master owns the slot of %s", key)
	}
	m.slot = m.nodes[0].ClusterKeySlot(ctx, key).Val()
	if err := m.run(ctx); err != nil {
		c.t.Fatalf("moving the slot of %s: %v", key, err)
	}
	for _, node := range m.nodes {
		await(ctx, c.t, "the cluster to agree on a move", func() error { return m.known(ctx, node) })
	}
}

// move is one slot on its way between two masters.
type move struct {
	nodes    []*redis.Client
	ids      []string
	from, to int
	slot     int64
}

func (m move) run(ctx context.Context) error {
	err := errors.Join(m.set(ctx, m.to, "importing", m.ids[m.from]), m.set(ctx, m.from, "migrating", m.ids[m.to]))
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(m.nodes[m.to].Options().Addr)
	for {
		keys, err := m.nodes[m.from].ClusterGetKeysInSlot(ctx, int(m.slot), 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		// One by one: what clients meet while some of their keys have moved is what is to be tested.
		if err := m.nodes[m.from].Migrate(ctx, host, port, keys[0], 0, 10*time.Second).Err(); err != nil {
			return err
		}
	}
	// The new owner first, or for a moment there would be none.
	for _, node := range []int{m.to, m.from, 3 - m.to - m.from} {
		if err := m.set(ctx, node, "node", m.ids[m.to]); err != nil {
			return err
		}
	}
	return nil
}

func (m move) set(ctx context.Context, node int, state, id string) error {
	return m.nodes[node].Do(ctx, "cluster", "setslot", m.slot, state, id).Err()
}

// known holds when a node sees the new owner as it sees itself: with the epoch in
// which it took the slot. Until then older news of the slot could still win.
func (m move) known(ctx context.Context, node *redis.Client) error {
	own, err := m.view(ctx, m.nodes[m.to])
	if err != nil {
		return err
	}
	seen, err := m.view(ctx, node)
	if err == nil && seen != own {
		err = fmt.Errorf("one sees %q, the new owner is %q", seen, own)
	}
	return err
}

// view is what a node says of the new owner: its epoch and its slots.
func (m move) view(ctx context.Context, node *redis.Client) (string, error) {
	text, err := node.ClusterNodes(ctx).Result()
	for line := range strings.Lines(text) {
		// id addr flags master ping pong epoch link slots…; slots in motion stand in brackets
		if f := strings.Fields(line); len(f) > 8 && f[0] == m.ids[m.to] {
			return f[6] + " " + strings.Join(f[8:], " "), nil
		}
	}
	return "", errors.Join(errors.New("the new owner is unknown"), err)
}

// await polls until check finds nothing wrong.
func await(ctx context.Context, t testing.TB, what string, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("waited %v for %s: %w", patience, what, err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
