package redisscript_test

import (
	"embed"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var script = redisscript.New(lua, "first_test", "then_test")

// A Redis that has forgotten its scripts runs each call once, in every way that there is.
func TestForgottenScripts(t *testing.T) {
	ctx, client := t.Context(), redistest.Start(t).Client()
	for round := range 2 {
		require.NoError(t, client.FlushAll(ctx).Err())
		if round == 0 {
			require.NoError(t, client.ScriptFlush(ctx).Err())
		}
		require.NoError(t, client.Set(ctx, "other", "text", 0).Err())
		cmds := redisscript.Run(ctx, client,
			redisscript.Call{Script: script, Keys: []string{"n"}, Args: []any{"x"}},
			redisscript.Call{Script: script, Keys: []string{"other"}, Args: []any{"y"}},
			redisscript.Call{Script: script, Keys: []string{"n"}, Args: []any{"z"}},
		)
		for i, want := range []redisscript.Reply{{"first", "1", "", "x"}, nil, {"first", "2", "", "z"}} {
			r, err := redisscript.Read(cmds[i])
			require.Equal(t, want == nil, err != nil, "a call that fails leaves the others alone")
			require.Equal(t, want, r)
		}
		require.NoError(t, client.LPush(ctx, "list", "x").Err())
		_,
			err := redisscript.Read(redisscript.Run(ctx, client, redisscript.Call{Script: script, Keys: []string{"list"},
			Args: []any{""}})[0])
		require.True(t, redisscript.WrongType(err), err)
	}
}

func TestCommandsInOrder(t *testing.T) {
	ctx, client := t.Context(), redistest.Start(t).Client()
	absent := redis.NewStringCmd(ctx, "get", "absent")
	run := redisscript.Command(ctx, script, []string{"n"}, "x")
	require.NoError(t, redisscript.InOrder(ctx, client, []*redis.Script{script}, absent, run))
	require.Equal(t, redis.Nil, absent.Err())
	r, err := redisscript.Read(run)
	require.NoError(t, err)
	require.Equal(t, redisscript.Reply{"first", "1", "", "x"}, r)
	require.Empty(t, r.Part(7))
}

// reply is an error as a Redis server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

// The replies were recorded from Redis 6.2, 7.0, 7.2 and Valkey 8.
func TestRefusalsNameWhatIsRefused(t *testing.T) {
	for text, what := range map[string]string{
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand":                        "the command evalsha",
		"NOPERM User mneme has no permissions to run the 'client|setname' command":                                  "the command client|setname",
		"ERR ACL failure in script: User mneme has no permissions to run the 'hset' command script: 9, on @u:8.":    "the command hset",
		"ERR The user executing the script can't run this command or subcommand script: 9, on @u:8. (command HSET)": "the command hset",
		"ERR The user executing the script can't run this command or subcommand script: 9, on @u:8.":                "a command",
		"NOPERM this user has no permissions to access one of the keys used as arguments":                           "one of the keys a, b",
		"NOPERM No permissions to access a key":                                                                     "one of the keys a, b",
		"ERR unknown command `EVALSHA`, with args beginning with: `READONLY `, ":                                    "the command evalsha",
		"ERR unknown command 'EVALSHA', with args beginning with: ":                                                 "the command evalsha",
		"ERR Unknown Redis command called from script script: 9, on @u:8. (command XADD)":                           "the command xadd",
		"READONLY You can't write against a read only replica. script: 9, on @u:8.":                                 "writes",
		"ERR Error running script: @user_script: 1: -READONLY You can't write against a rea":                        "writes",
		"WRONGPASS invalid username-password pair or user is disabled.":                                             "the credentials",
	} {
		err := redisscript.Unavailable(fmt.Errorf("connecting: %w", reply(text)), "a", "b")
		var refused *memory.RefusedError
		require.ErrorAs(t, err, &refused, text)
		require.Equal(t, what, refused.What, text)
		require.ErrorIs(t, err, memory.ErrUnavailable)
	}
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "NOREPLICAS Not enough good replicas",
		"ERR no such key NOPERM", "OOM command not allowed"} {
		err := redisscript.Unavailable(reply(text))
		require.NotErrorIs(t, err, memory.ErrRefused, text)
		require.ErrorIs(t, err, memory.ErrUnavailable)
	}
	require.NotErrorIs(t, redisscript.Unavailable(errors.New("NOPERM ")), memory.ErrRefused, "Redis did not say it")
}
