package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// FormCluster makes a Redis Cluster of servers that are up, have --cluster-enabled and hold nothing, and waits for it
// as AwaitCluster does. The first ones are the masters, with a part of the slots each, the others replicas of them.
func FormCluster(ctx context.Context, masters int, nodes ...*redis.Client) error {
	host, port, _ := net.SplitHostPort(nodes[0].Options().Addr)
	for i, node := range nodes {
		var err error
		if i < masters {
			// Different epochs from the start: nodes that meet with equal ones first have to settle which node's slots count.
			err = errors.Join(node.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
				node.ClusterAddSlotsRange(ctx, slots*i/masters, slots*(i+1)/masters-1).Err())
		}
		if err == nil && i > 0 {
			err = node.ClusterMeet(ctx, host, port).Err()
		}
		if err == nil && i >= masters {
			id := nodes[i%masters].ClusterMyID(ctx).Val()
			err = Await(ctx, "a replica to know its master", func() error { return node.ClusterReplicate(ctx, id).Err() })
		}
		if err != nil {
			return fmt.Errorf("forming a Cluster: %w", err)
		}
	}
	return AwaitCluster(ctx, nodes...)
}

// AwaitCluster waits until the nodes, which are all of a Cluster, know each other and agree on the owners of its slots.
func AwaitCluster(ctx context.Context, nodes ...*redis.Client) error {
	return Await(ctx, "the nodes of a Cluster to agree", func() error {
		first := ""
		for i, node := range nodes {
			state, err := node.ClusterInfo(ctx).Result()
			info, failed := node.ClusterNodes(ctx).Result()
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			view := owners(info)
			if i == 0 {
				first = view
			}
			if !strings.Contains(state, "cluster_state:ok") || strings.Count(info, "\n") != len(nodes) || view != first {
				return fmt.Errorf("%s sees %s%s, and the first node %s", node, state, info, first)
			}
		}
		return nil
	})
}

// owners reads which node has which slots, since which epoch, from CLUSTER NODES. Without the epoch, a node that agrees
// could still be told otherwise by older news.
func owners(nodes string) string {
	var parts []string
	for line := range strings.Lines(nodes) {
		// id addr flags master ping pong epoch link slots…; slots in motion stand in brackets
		if f := strings.Fields(line); len(f) > 8 {
			parts = append(parts, f[0]+" "+f[6]+" "+strings.Join(f[8:], " "))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Await polls until check finds nothing wrong. Once ctx has ended, the error is what check found last.
func Await(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
