package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
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
	var clients []*redis.Client
	switch c := client.(type) {
	case *redis.Client:
		clients = []*redis.Client{c}
	case *redis.ClusterClient:
		found := make(chan *redis.Client, 1000)
		err := c.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			found <- master
			return nil
		})
		close(found)
		if err != nil {
			return nil, err
		}
		for master := range found {
			clients = append(clients, master)
		}
	default:
		return nil, fmt.Errorf("a client of type %T has no nodes", client)
	}
	all := make([]node, len(clients))
	for i, c := range clients {
		id, err := identity(ctx, c)
		if err != nil {
			return nil, err
		}
		all[i] = node{c, id}
	}
	return all, nil
}

// identity is another one for every start of a server.
func identity(ctx context.Context, c *redis.Client) (string, error) {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return infoField(info, "run_id") + "/" + infoField(info, "process_id"), nil
}

// infoField is one line of INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// scan gives pages of the keys that match on a node. A key may come twice.
func (n node) scan(ctx context.Context, pattern string, page func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := n.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		for len(keys) > 0 {
			count := min(len(keys), scanCount)
			if err := page(keys[:count]); err != nil {
				return err
			}
			keys = keys[count:]
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// transactions runs each unit of commands as one transaction, and all of them in
// one round trip, and gives the replies by unit. A reply of a command that failed
// is an error. The commands are sent as they are, since go-redis would send one
// transaction for everything, which a Cluster refuses.
func (n node) transactions(ctx context.Context, units [][][]any) ([][]any, error) {
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
