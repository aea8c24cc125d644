// Package bytecount counts the bytes that each tenant stores. It owns a hash in Redis for each tenant (mneme:stored and
// mneme:stored:<tenant>): the bytes of each chat by its id, of the notes of each user, of each collection of documents by its name, and their sum.
//
// A count is set after a change, with the size found then. A change that is not counted is counted with the next one.
package bytecount

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var set = redisscript.New(lua, "set")

// total is the field of the sum. No id of a chat has this form.
const total = "*"

// Counts are the counts of all tenants. They are safe for concurrent use.
type Counts struct{ redis redis.UniversalClient }

// New returns the counts in a Redis.
func New(client redis.UniversalClient) Counts { return Counts{client} }

// Chat counts the bytes of a chat's memory, its subagents' included. 0 removes its count.
func (c Counts) Chat(ctx context.Context, chat memory.Chat, bytes int64) error {
	return c.set(ctx, chat.Tenant(), chat.ID(), bytes)
}

// User counts the bytes of a user's notes. 0 removes its count.
func (c Counts) User(ctx context.Context, u memory.User, bytes int64) error {
	return c.set(ctx, u.Tenant(), total+"user:"+u.ID(), bytes)
}

// Collection counts the bytes of a collection's documents. 0 removes its count.
func (c Counts) Collection(ctx context.Context, tenant memory.Tenant, name string, bytes int64) error {
	return c.set(ctx, tenant, total+"documents:"+name, bytes)
}

func (c Counts) set(ctx context.Context, tenant memory.Tenant, what string, bytes int64) error {
	err := set.Run(ctx, c.redis, []string{key(tenant)}, what, bytes).Err()
	if err != nil {
		err = fmt.Errorf("counting what is stored: %w", redisscript.Unavailable(err))
	}
	return err
}

// Total returns the bytes that a tenant stores. Errors are memory.ErrUnavailable.
func (c Counts) Total(ctx context.Context, tenant memory.Tenant) (int64, error) {
	n, err := c.redis.HGet(ctx, key(tenant), total).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("reading how much is stored: %w", redisscript.Unavailable(err))
	}
	return n, nil
}

func key(tenant memory.Tenant) string { return memory.ListKey(memory.KindStored, tenant) }
