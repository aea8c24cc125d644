package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
	"mneme/proxy/copilot/chat"
)

// Owners keeps which process has the sessions of a conversation, a hash for each
// conversation with a field for each route. It is safe for concurrent use.
type Owners struct {
	redis redis.UniversalClient
	ttl   time.Duration
}

// NewOwners keeps owners for so long after their last claim, which must be longer
// than a session lives. The client, which the caller closes, must heed deadlines.
func NewOwners(client redis.UniversalClient, ttl time.Duration) *Owners {
	return &Owners{redis: client, ttl: ttl}
}

func ownersKey(tenant, conversation string) string {
	return "proxy:copilot:{" + tenant + ":" + conversation + "}"
}

// Claim implements [chat.Owners].
func (o *Owners) Claim(ctx context.Context, s chat.Scope, owner string) error {
	key := ownersKey(s.Tenant, s.Conversation)
	_, err := o.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, s.Route, owner)
		p.PExpire(ctx, key, o.ttl)
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, err)
	}
	return nil
}

// Holders implements [chat.Owners].
func (o *Owners) Holders(ctx context.Context, scopes []chat.Scope) ([]string, error) {
	got := make([]*redis.StringCmd, len(scopes))
	pipe := o.redis.Pipeline()
	for i, s := range scopes {
		got[i] = pipe.HGet(ctx, ownersKey(s.Tenant, s.Conversation), s.Route)
	}
	_, _ = pipe.Exec(ctx) // each command tells its own error, and nil for no owner
	holders := make([]string, len(scopes))
	for i, cmd := range got {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redisscript.WrongType(err) {
			return nil, fmt.Errorf("reading proxy:copilot: %w", err)
		}
		holders[i] = cmd.Val()
	}
	return holders, nil
}

// Disown implements [chat.Owners].
func (o *Owners) Disown(ctx context.Context, tenant, conversation string) error {
	key := ownersKey(tenant, conversation)
	if err := o.redis.Del(ctx, key).Err(); err != nil {
		return fmt.Errorf("deleting %s: %w", key, err)
	}
	return nil
}
