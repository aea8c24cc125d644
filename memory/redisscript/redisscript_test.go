package redisscript_test

import (
	"embed"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
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
	require.Empty(t, r.At(7))
}
