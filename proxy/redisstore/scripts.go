package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// runAll runs scripts in one round trip, in another too if Redis does not know
// one of them: a restart or a failover empties its cache of scripts.
func runAll(ctx context.Context, client redis.UniversalClient, calls []call) ([]*redis.Cmd, error) {
	out := make([]*redis.Cmd, len(calls))
	pipe := client.Pipeline()
	for i, c := range calls {
		out[i] = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	if err := finish(ctx, pipe, out); err == nil || !unknownScript(err) {
		return out, err
	}
	pipe = client.Pipeline()
	for i, c := range calls {
		if unknownScript(out[i].Err()) {
			out[i] = c.script.Eval(ctx, pipe, c.keys, c.args...)
		}
	}
	return out, finish(ctx, pipe, out)
}

// finish sends what pipe holds and gives the first error among the commands, one
// that is not for an unknown script before one that is.
func finish(ctx context.Context, pipe redis.Pipeliner, cmds []*redis.Cmd) error {
	_, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if e := cmd.Err(); e != nil && (err == nil || unknownScript(err)) {
			err = e
		}
	}
	return err
}

func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// words are the strings of a script's answer.
func words(cmd *redis.Cmd) ([]string, error) {
	values, err := cmd.StringSlice()
	if err != nil {
		return nil, fmt.Errorf("answer of a script: %w", err)
	}
	return values, nil
}
