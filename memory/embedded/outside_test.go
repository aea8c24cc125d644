package embedded

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestOutsideMayLookAndNotWrite(t *testing.T) {
	ctx := context.Background()
	s := open(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	in := insider(t, s)
	require.NoError(t, in.Set(ctx, "subagent:analytic:12345", `[{"role":"user"}]`, 0).Err())
	require.NoError(t, in.HSet(ctx, "h", "f", "v").Err())

	out := outsider(t, s)
	require.Equal(t, `[{"role":"user"}]`, out.Get(ctx, "subagent:analytic:12345").Val())
	require.Equal(t, map[string]string{"f": "v"}, out.HGetAll(ctx, "h").Val())
	keys, _, err := out.Scan(ctx, 0, "subagent:*", 10).Result()
	require.NoError(t, err)
	require.Equal(t, []string{"subagent:analytic:12345"}, keys)
	require.Contains(t, out.Info(ctx).Val(), "mneme embedded store, for one process")
	require.Contains(t, out.Info(ctx, "memory").Val(), "maxmemory_policy:noeviction")
	_, err = out.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "h1"); p.DBSize(ctx); return nil })
	require.ErrorIs(t, err, redis.Nil)

	size := s.journal.Size()
	for _, cmd := range [][]any{
		{"SET", "k", "v"}, {"del", "h"}, {"EVAL", "return 1", "0"}, {"EVALSHA", "x", "0"},
		{"SCRIPT", "FLUSH"}, {"FLUSHALL"}, {"GETEX", "h"}, {"EXPIRE", "h", "1"}, {"XADD", "s", "*", "a", "b"},
	} {
		require.EqualError(t, out.Do(ctx, cmd...).Err(), readOnlyOutside, "%v", cmd)
	}
	require.ErrorContains(t, out.Do(ctx, "EVAL_RO", "while true do end", "0").Err(), "does not support")
	_, err = out.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "k", "v", 0); return nil })
	require.ErrorContains(t, err, "EXECABORT")
	require.Equal(t, size, s.journal.Size())
	require.Equal(t, int64(2), in.DBSize(ctx).Val())
}

func TestOutsideGarbageEndsTheConnectionOnly(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	for name, input := range map[string]string{
		"http":             "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
		"no bulk":          "*1\r\n:1\r\n",
		"negative":         "*-1\r\n",
		"too many":         "*1000000\r\n",
		"too long":         "*1\r\n$100000000\r\n",
		"bulk cut wrongly": "*1\r\n$4\r\nPINGxx",
		"long line":        "*" + strings.Repeat("1", 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", s.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write([]byte(input))
			require.NoError(t, err)
			reply, _ := bufio.NewReader(conn).ReadString('\n')
			require.Contains(t, reply, "-ERR Protocol error")
		})
	}
	require.NoError(t, outsider(t, s).Ping(context.Background()).Err())
}

func TestOutsideConnectionsAreBounded(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	ping := func(conn net.Conn) string {
		if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
			return ""
		}
		reply, _ := bufio.NewReader(conn).ReadString('\n')
		return strings.TrimSpace(reply)
	}
	for range maxOutside {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.Equal(t, "+PONG", ping(conn))
	}
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.Empty(t, ping(conn))
	require.NoError(t, insider(t, s).Ping(context.Background()).Err())
}

func TestRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed: the TCP listener was tried with go-redis only")
	}
	ctx := context.Background()
	s := open(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.NoError(t, insider(t, s).Set(ctx, "chat_history:1", `[{"content":"Алия"}]`, 0).Err())
	run := func(stdin string, args ...string) string {
		port := s.Addr().(*net.TCPAddr).Port
		cmd := exec.CommandContext(ctx, cli, append([]string{"-p", fmt.Sprint(port)}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, `[{"content":"Алия"}]`, run("", "--raw", "GET", "chat_history:1"))
	require.Equal(t, "chat_history:1", run("", "--scan"))
	require.Equal(t, readOnlyOutside, run("", "DEL", "chat_history:1"))
	require.Equal(t, "PONG", run("", "-3", "PING"))
	require.Contains(t, run("", "INFO", "server"), "mneme embedded store")
	require.Contains(t, run("", "--bigkeys"), "chat_history:1")
	// What an interactive session sends first.
	require.NotContains(t, run("", "COMMAND", "DOCS"), "hincrbyfloat")
	require.Equal(t, "OK\nQUEUED\nQUEUED\n1\nstring", run("MULTI\nDBSIZE\nTYPE chat_history:1\nEXEC\n"))
}
