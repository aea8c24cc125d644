package redisstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var (
	appendScript  = redisscript.New(lua, "common", "append")
	asideScript   = redisscript.New(lua, "common", "aside")
	cutScript     = redisscript.New(lua, "common", "cut")
	indexScript   = redisscript.New(lua, "common", "index")
	loadScript    = redisscript.New(lua, "common", "load")
	replaceScript = redisscript.New(lua, "common", "replace")
	eraseScript   = redisscript.New(lua, "common", "erase")
	takeScript    = redisscript.New(lua, "common", "take")
	renewScript   = redisscript.New(lua, "common", "renew")
	regainScript  = redisscript.New(lua, "common", "regain")
	packScript    = redisscript.New(lua, "common", "pack")
	beginScript   = redisscript.New(lua, "common", "begin")
	openScript    = redisscript.New(lua, "common", "open")
	finishScript  = redisscript.New(lua, "common", "finish")
	closeScript   = redisscript.New(lua, "common", "close")

	distrustScript   = redisscript.New(lua, "common", "distrust")
	restoreCutScript = redisscript.New(lua, "common", "restore_cut")
)

// read is a script's reply. Whatever Redis says instead of one of our words means that it
// could not serve us.
func read(cmd *redis.Cmd) (redisscript.Reply, error) {
	r, err := redisscript.Read(cmd)
	if err != nil {
		return nil, unavailable(err)
	}
	if r.Word() == "moved" {
		return r, memory.ErrMoved
	}
	return r, nil
}

func unavailable(err error) error {
	if err == nil || errors.Is(err, memory.ErrUnavailable) {
		return err
	}
	if wrongType(err) || errors.Is(err, memory.ErrDamaged) {
		return fmt.Errorf("%w: %w", memory.ErrDamaged, err)
	}
	if strings.HasPrefix(err.Error(), "MISCONF") {
		return fmt.Errorf("%w: %w: %w", memory.ErrUnavailable, memory.ErrReadOnly, err)
	}
	return fmt.Errorf("%w: %w", memory.ErrUnavailable, err)
}

// call runs one script.
func (s *Store) call(ctx context.Context, script *redis.Script, keys []string, args ...any) (redisscript.Reply, error) {
	return read(script.Run(ctx, s.redis, keys, args...))
}

// inOrder runs commands of which each may only come after the one before it, see
// [redisscript.InOrder].
func (s *Store) inOrder(ctx context.Context, scripts []*redis.Script, cmds ...redis.Cmder) error {
	return unavailable(redisscript.InOrder(ctx, s.redis, scripts, cmds...))
}

func historyKeys(k memory.Key) []string { return []string{k.String(), metaKey(k)} }

// metaKey is the hash beside a history. The braces are a Cluster hash tag, so
// that one script may touch both.
func metaKey(k memory.Key) string { return "{" + k.String() + "}:meta" }

func leaseKey(c memory.Chat) string { return "{" + memory.ChatKey(c).String() + "}:turn" }

// firstKey holds the token of who takes the chat's next turn before all others.
func firstKey(c memory.Chat) string { return "{" + memory.ChatKey(c).String() + "}:first" }
