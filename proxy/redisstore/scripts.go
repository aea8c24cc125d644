package redisstore

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

// runAll runs scripts in one round trip, in another too if Redis does not know one of
// them.
func runAll(ctx context.Context, client redis.UniversalClient, calls []redisscript.Call) ([]*redis.Cmd, error) {
	cmds := redisscript.Run(ctx, client, calls...)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !redisscript.WrongType(err) {
			return cmds, err
		}
	}
	return cmds, nil
}

// failure is the first error of a pipeline, one that is not for an unknown script
// before one that is. A key that holds something else is none: to try again would
// not help, and would keep all others from what they want.
func failure(cmds []redis.Cmder, err error) error {
	if err == nil {
		return nil
	}
	var first error
	for _, cmd := range cmds {
		if e := cmd.Err(); e != nil && !redisscript.WrongType(e) && (first == nil || redisscript.Unknown(first)) {
			first = e
		}
	}
	if first == nil && !redisscript.WrongType(err) {
		return err
	}
	return first
}

// words are the strings of a script's answer; none if its key is another's.
func words(cmd *redis.Cmd) (redisscript.Reply, error) {
	reply, err := redisscript.Read(cmd)
	if redisscript.WrongType(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("answer of a script: %w", err)
	}
	return reply, nil
}
