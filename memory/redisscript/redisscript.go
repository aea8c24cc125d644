// Package redisscript runs the Lua scripts of the stores in Redis, and reads their replies. A script is called by its
// hash (EVALSHA). Redis knows a hash from the first call on until a restart or a failover empties its cache of
// scripts; then it answers NOSCRIPT, and the script is sent with its source (EVAL). go-redis does so for a command by
// itself, in a pipeline it does not.
//
// It owns no keys, no goroutine and no connection, and never repeats a script that may have run. Of mneme it imports
// only package memory, so that the stores of every tower can share it.
package redisscript

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// New is the script with the source in the files lua/NAME.lua, one behind the other. A
// file that is not there is a mistake in the program, and panics.
func New(files embed.FS, names ...string) *redis.Script {
	var source strings.Builder
	for _, name := range names {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	return redis.NewScript(source.String())
}

// Pipe sends the commands that add queues in one round trip. Each command keeps its own error, and the first one of a
// command that did not run is returned.
func Pipe(ctx context.Context, client redis.Cmdable, add func(redis.Pipeliner)) ([]redis.Cmder, error) {
	cmds, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { add(p); return nil })
	if !failed(err) {
		err = firstFailure(cmds)
	}
	return cmds, err
}

// Call is one run of a script.
type Call struct {
	Script *redis.Script
	Keys   []string
	Args   []any
}

// Run makes calls in one round trip, and in another one those with a script that Redis
// did not know. Each command keeps its own error.
func Run(ctx context.Context, client redis.Cmdable, calls ...Call) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(calls))
	unknown := func(cmd *redis.Cmd) bool { return cmd == nil || Unknown(cmd.Err()) }
	for _, send := range []func(*redis.Script, context.Context, redis.Scripter, []string, ...any) *redis.Cmd{
		(*redis.Script).EvalSha, (*redis.Script).Eval,
	} {
		if !slices.ContainsFunc(cmds, unknown) {
			break
		}
		_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
			for i, c := range calls {
				if unknown(cmds[i]) {
					cmds[i] = send(c.Script, ctx, p, c.Keys, c.Args...)
				}
			}
			return nil
		})
	}
	return cmds
}

// InOrder runs commands of which each may only come after the one before it: in one round
// trip where all keys are on one server, in a cluster one by one. Each may be run twice:
// if Redis does not know one of the scripts, all of these are loaded, and all commands
// come again. A command keeps its own error; the first one is returned.
func InOrder(ctx context.Context, client redis.UniversalClient, scripts []*redis.Script, cmds ...redis.Cmder) error {
	for retry := false; ; retry = true {
		if _, slots := client.(*redis.ClusterClient); slots {
			for _, cmd := range cmds {
				if failed(client.Process(ctx, cmd)) {
					break
				}
			}
		} else {
			_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, cmd := range cmds {
					_ = p.Process(ctx, cmd) // told by the command
				}
				return nil
			})
		}
		err := firstFailure(cmds)
		if retry || !Unknown(err) {
			return err
		}
		for _, script := range scripts {
			if err := script.Load(ctx, client).Err(); err != nil {
				return err
			}
		}
		for _, cmd := range cmds {
			cmd.SetErr(nil)
		}
	}
}

// failed says whether a command did not run; a key that is not there is an answer.
func failed(err error) bool { return err != nil && !errors.Is(err, redis.Nil) }

// firstFailure is the first error of commands that did not run.
func firstFailure(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if failed(cmd.Err()) {
			return cmd.Err()
		}
	}
	return nil
}

// Command is a call of a script as a command for InOrder.
func Command(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	argv := []any{"evalsha", script.Hash(), len(keys)}
	for _, key := range keys {
		argv = append(argv, key)
	}
	cmd := redis.NewCmd(ctx, append(argv, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// Unknown says whether Redis refused a call since it does not know the script.
func Unknown(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// WrongType says whether Redis refused a command since a key holds a value of another
// type, which is another program's. A script's error tells it somewhere in its text.
func WrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// Reply is what a script returned: in most cases a word, and what belongs to it.
type Reply []string

// Read is the reply of a script that returns an array; what is not in it is "".
func Read(cmd *redis.Cmd) (Reply, error) {
	values, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	r := make(Reply, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case nil:
		case string:
			r[i] = v
		default:
			r[i] = fmt.Sprint(v)
		}
	}
	return r, nil
}

// Word is the first part, "" of an empty reply.
func (r Reply) Word() string { return r.Part(0) }

// Part is a part, "" if there are not so many.
func (r Reply) Part(i int) string {
	if i >= len(r) {
		return ""
	}
	return r[i]
}
