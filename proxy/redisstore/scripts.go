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
	if err := failure(pipe.Exec(ctx)); err == nil || !unknownScript(err) {
		return out, err
	}
	pipe = client.Pipeline()
	for i, c := range calls {
		if unknownScript(out[i].Err()) {
			out[i] = c.script.Eval(ctx, pipe, c.keys, c.args...)
		}
	}
	return out, failure(pipe.Exec(ctx))
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
		if e := cmd.Err(); e != nil && !othersKey(e) && (first == nil || unknownScript(first)) {
			first = e
		}
	}
	if first == nil && !othersKey(err) {
		return err
	}
	return first
}

// othersKey says that somebody else keeps something under a key.
func othersKey(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// words are the strings of a script's answer; none if its key is another's.
func words(cmd *redis.Cmd) ([]string, error) {
	if othersKey(cmd.Err()) {
		return nil, nil
	}
	values, err := cmd.StringSlice()
	if err != nil {
		return nil, fmt.Errorf("answer of a script: %w", err)
	}
	return values, nil
}
