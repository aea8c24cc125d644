package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisstore"
)

// scanCount is how many keys one SCAN looks at. The embedded store gives all of
// them at once.
const scanCount = 1000

// node is a server that holds keys: a Cluster has several.
type node struct {
	*redis.Client
	identity string // another one at the end means that a SCAN missed keys
}

// nodes are the servers behind a client, masters only.
func nodes(ctx context.Context, client redis.UniversalClient) ([]node, error) {
	masters, err := redisstore.Masters(ctx, client)
	if err != nil {
		return nil, err
	}
	servers := make([]node, len(masters))
	for i, master := range masters {
		info := master.InfoMap(ctx, "server")
		if err := info.Err(); err != nil {
			return nil, err
		}
		servers[i] = node{master, info.Item("Server", "run_id") + "/" + info.Item("Server", "process_id")}
	}
	return servers, nil
}

// page is some keys of a node.
type page struct {
	node node
	keys []string
}

// pages gives all keys that match a pattern, of one node after the other. A key may come
// twice. After an error nothing follows.
func pages(ctx context.Context, servers []node, pattern string) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		for _, n := range servers {
			for cursor, hasMore := uint64(0), true; hasMore; hasMore = cursor != 0 {
				keys, next, err := n.Scan(ctx, cursor, pattern, scanCount).Result()
				if err != nil {
					yield(page{}, fmt.Errorf("reading the keys: %w", err))
					return
				}
				for chunk := range slices.Chunk(keys, scanCount) {
					if !yield(page{n, chunk}, nil) {
						return
					}
				}
				cursor = next
			}
		}
	}
}

// transactions runs each unit of commands as one transaction, and all of them in
// one round trip, and gives the replies by unit. A reply of a command that failed
// is an error. The commands are sent as they are, since go-redis would send one
// transaction for everything, which a Cluster refuses.
func (n node) transactions(ctx context.Context, units ...[][]any) ([][]any, error) {
	executed := make([]*redis.Cmd, len(units))
	_, err := n.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, unit := range units {
			p.Do(ctx, "MULTI")
			for _, command := range unit {
				p.Do(ctx, command...)
			}
			executed[i] = p.Do(ctx, "EXEC")
		}
		return nil
	})
	replies := make([][]any, len(units))
	for i, cmd := range executed {
		reply, failed := cmd.Slice()
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		if len(reply) != len(units[i]) {
			return nil, fmt.Errorf("a transaction of %d commands had %d replies", len(units[i]), len(reply))
		}
		replies[i] = reply
	}
	return replies, nil
}
