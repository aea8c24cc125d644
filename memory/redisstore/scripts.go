package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

//go:embed lua/common.lua
var commonSource string

//go:embed lua/append.lua
var appendSource string

//go:embed lua/aside.lua
var asideSource string

//go:embed lua/cut.lua
var cutSource string

//go:embed lua/index.lua
var indexSource string

//go:embed lua/load.lua
var loadSource string

//go:embed lua/replace.lua
var replaceSource string

//go:embed lua/erase.lua
var eraseSource string

//go:embed lua/take.lua
var takeSource string

//go:embed lua/renew.lua
var renewSource string

//go:embed lua/regain.lua
var regainSource string

//go:embed lua/pack.lua
var packSource string

//go:embed lua/begin.lua
var beginSource string

//go:embed lua/open.lua
var openSource string

//go:embed lua/finish.lua
var finishSource string

//go:embed lua/close.lua
var closeSource string

var (
	appendScript  = newScript(appendSource)
	asideScript   = newScript(asideSource)
	cutScript     = newScript(cutSource)
	indexScript   = newScript(indexSource)
	loadScript    = newScript(loadSource)
	replaceScript = newScript(replaceSource)
	eraseScript   = newScript(eraseSource)
	takeScript    = newScript(takeSource)
	renewScript   = newScript(renewSource)
	regainScript  = newScript(regainSource)
	packScript    = newScript(packSource)
	beginScript   = newScript(beginSource)
	openScript    = newScript(openSource)
	finishScript  = newScript(finishSource)
	closeScript   = newScript(closeSource)
)

// distrustScript drops the sum of a meta if it still is the one that was seen.
// KEYS  history, meta
// ARGV  sum
var distrustScript = newScript(`
if redis.call('HGET', KEYS[2], 'sum') == ARGV[1] then
  return redis.call('HDEL', KEYS[2], 'sum')
end
return 0`)

// restoreCutScript notes a deliberate change of a history that is not there.
// KEYS  history, meta
// ARGV  turn of the change, life of a tombstone in seconds
var restoreCutScript = newScript(`
if redis.call('EXISTS', KEYS[1]) == 1 or number(redis.call('HGET', KEYS[2], 'cut')) >= tonumber(ARGV[1]) then
  return 0
end
local fresh = redis.call('EXISTS', KEYS[2]) == 0
redis.call('HSET', KEYS[2], 'cut', ARGV[1], 'adopted', ARGV[1])
if fresh then
  redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return 1`)

func newScript(source string) *redis.Script { return redis.NewScript(commonSource + source) }

// reply is what a script returns: a word, and what belongs to it.
type reply []string

func (r reply) word() string { return r.at(0) }

func (r reply) at(i int) string {
	if i >= len(r) {
		return ""
	}
	return r[i]
}

// read turns a script's result into a reply. Whatever Redis says instead of one
// of our words means that it could not serve us.
func read(cmd *redis.Cmd) (reply, error) {
	values, err := cmd.Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	r := make(reply, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok {
			r[i] = text
		} else {
			r[i] = fmt.Sprint(v)
		}
	}
	if r.word() == "moved" {
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
func (s *Store) call(ctx context.Context, script *redis.Script, keys []string, args ...any) (reply, error) {
	return read(script.Run(ctx, s.redis, keys, args...))
}

// inOrder runs commands of which each may only come after the one before it: in one
// round trip where all keys are on one server, in a cluster one by one. Each may be run
// twice, since a script that Redis does not know is loaded, and all come again. A
// command keeps its own error; the first is told.
func (s *Store) inOrder(ctx context.Context, scripts []*redis.Script, cmds ...redis.Cmder) error {
	for again := false; ; again = true {
		if _, slots := s.redis.(*redis.ClusterClient); slots {
			for _, cmd := range cmds {
				if failed(s.redis.Process(ctx, cmd)) {
					break
				}
			}
		} else {
			_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, cmd := range cmds {
					_ = p.Process(ctx, cmd) // told by the command
				}
				return nil
			})
		}
		var err error
		for _, cmd := range cmds {
			if err == nil && failed(cmd.Err()) {
				err = cmd.Err()
			}
		}
		if again || !missing(err) {
			return unavailable(err)
		}
		for _, script := range scripts {
			if err := script.Load(ctx, s.redis).Err(); err != nil {
				return unavailable(err)
			}
		}
		for _, cmd := range cmds {
			cmd.SetErr(nil)
		}
	}
}

// failed says whether a command did not run; a key that is not there is an answer.
func failed(err error) bool { return err != nil && !errors.Is(err, redis.Nil) }

// evalSha is a call of a script as a command for inOrder.
func evalSha(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	all := []any{"evalsha", script.Hash(), len(keys)}
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// missing says that Redis does not know a script: a restart or a failover
// emptied its cache.
func missing(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

func historyKeys(k memory.Key) []string { return []string{k.String(), metaKey(k)} }

// metaKey is the hash beside a history. The braces are a Cluster hash tag, so
// that one script may touch both.
func metaKey(k memory.Key) string { return "{" + k.String() + "}:meta" }

func leaseKey(c memory.Chat) string { return "{" + memory.ChatKey(c).String() + "}:turn" }

// firstKey holds the token of who takes the chat's next turn before all others.
func firstKey(c memory.Chat) string { return "{" + memory.ChatKey(c).String() + "}:first" }
