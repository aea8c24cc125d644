package docstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var (
	createScript  = redisscript.New(lua, "create")
	putScript     = redisscript.New(lua, "put")
	deleteScript  = redisscript.New(lua, "delete")
	dropScript    = redisscript.New(lua, "drop")
	listScript    = redisscript.New(lua, "list")
	vectorsScript = redisscript.New(lua, "vectors")
)

// read is a script's reply. Whatever Redis says instead of one of our words means that it
// could not serve us.
func read(cmd *redis.Cmd) (redisscript.Reply, error) {
	r, err := redisscript.Read(cmd)
	if err != nil {
		return nil, unavailable(err)
	}
	switch r.Word() {
	case "":
		return nil, fmt.Errorf("%w: it gave an empty reply", ErrUnavailable)
	case "missing":
		return nil, ErrNoCollection
	}
	return r, nil
}

func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// run runs one script over a collection.
func (s *Store) run(ctx context.Context, script *redis.Script, c Collection, args ...any) (redisscript.Reply, error) {
	return read(script.Run(ctx, s.redis, c.keys(), args...))
}

// runAll runs a script over a collection once for each of the arguments, in one round
// trip.
func (s *Store) runAll(ctx context.Context, script *redis.Script, c Collection, args [][]any) []*redis.Cmd {
	calls := make([]redisscript.Call, len(args))
	for i, a := range args {
		calls[i] = redisscript.Call{Script: script, Keys: c.keys(), Args: a}
	}
	return redisscript.Run(ctx, s.redis, calls...)
}

// number reads a number that Redis keeps; 0 for what somebody made of it by hand.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
