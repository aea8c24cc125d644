//go:build unix

package embedded

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/testtier"
)

const (
	roleVar = "EMBEDDED_TEST_ROLE"
	dirVar  = "EMBEDDED_TEST_DIR"
)

func TestMain(m *testing.M) {
	var err error
	switch dir := os.Getenv(dirVar); os.Getenv(roleVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "append until killed":
		err = appendUntilKilled(dir)
	case "open":
		_, err = Open(context.Background(), Options{Dir: dir, Log: zerolog.Nop()})
	case "fill the disk":
		err = fillTheDisk(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(role, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+dir)
	return cmd
}

// spliceScript appends to a JSON array as the history store does and counts beside it.
var spliceScript = redis.NewScript(`
	local n = redis.call('STRLEN', KEYS[1])
	if n == 0 then
		redis.call('SET', KEYS[1], '[' .. ARGV[1] .. ']')
	else
		redis.call('SETRANGE', KEYS[1], n - 1, ',' .. ARGV[1] .. ']')
	end
	return redis.call('HINCRBY', KEYS[2], 'count', 1)`)

func appendUntilKilled(dir string) error {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: s.Dial,
		MaintNotificationsConfig: noMaintenance})
	for {
		n, err := spliceScript.Run(ctx, c, []string{"log", "meta"}, `"`+strings.Repeat("x", 100)+`"`).Int()
		if err != nil {
			return err
		}
		fmt.Println(n)
		// Something to compact: the journal outgrows its live data a few times in the whole test.
		if err := c.Set(ctx, "scratch", strings.Repeat("y", 30_000), 0).Err(); err != nil {
			return err
		}
	}
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	testtier.Slow(t)
	ctx, dir := context.Background(), t.TempDir()
	total := 0
	for round := range 8 {
		cmd := child("append until killed", dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for stop := 10 + rand.IntN(40); stop > 0 && lines.Scan(); stop-- {
		}
		require.NoError(t, cmd.Process.Kill())
		for ok := true; ok; ok = lines.Scan() { // also what it printed before it died
			total, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		_ = cmd.Wait()

		s := open(t, Options{Dir: dir})
		c := insider(t, s)
		count, err := c.HGet(ctx, "meta", "count").Int()
		require.NoError(t, err)
		require.GreaterOrEqual(t, count, total, "round %d", round)
		log := c.Get(ctx, "log").Val()
		require.Equal(t, count, strings.Count(log, `"x`), "the string and its meta are from one instant")
		require.True(t, strings.HasPrefix(log, "[") && strings.HasSuffix(log, `x"]`))
		require.NoError(t, s.Close())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir})
	var stderr bytes.Buffer
	cmd := child("open", dir)
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Equal(t, fmt.Sprintf("%s: data is in use by process %d\n", dir, os.Getpid()), stderr.String())
}

// fillTheDisk writes under a limit of the kernel on the size of files, which fails a write half way like a full disk.
// It prints the number of writes acknowledged. Then it takes the limit away, and waits until the store goes on by
// itself.
func fillTheDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir, Listen: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer s.Close()
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: s.Dial,
		MaintNotificationsConfig: noMaintenance, MaxRetries: -1})
	defer c.Close()
	const most = 20_000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: limit.Max}); err != nil {
		return err
	}
	acknowledged := 0
	for err == nil {
		var n int
		if n, err = spliceScript.Run(ctx, c, []string{"log", "meta"}, `"`+strings.Repeat("x", 1000)+`"`).Int(); err == nil {
			acknowledged = n
		}
	}
	if !strings.HasPrefix(err.Error(), "MISCONF") || !strings.Contains(err.Error(), "file too large") {
		return fmt.Errorf("unexpected: %w", err)
	}
	for _, refused := range []error{c.Set(ctx, "k", "v", 0).Err(), c.Ping(ctx).Err()} {
		if refused == nil || !strings.HasPrefix(refused.Error(), "MISCONF") {
			return fmt.Errorf("after the failure: %w", refused)
		}
	}
	// Reads go on and show what was acknowledged, not the write that failed.
	if n, err := c.HGet(ctx, "meta", "count").Int(); err != nil || n != acknowledged {
		return fmt.Errorf("count is %d (%w), acknowledged were %d", n, err, acknowledged)
	}
	if info := c.Info(ctx, "persistence").Val(); !strings.Contains(info, "journal_writes:refused") {
		return fmt.Errorf("INFO says %q", info)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n, err := spliceScript.Run(ctx, c, []string{"log", "meta"}, `"`+strings.Repeat("x", 1000)+`"`).Int()
		if err == nil && n == acknowledged+1 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("with room again: %d, %w", n, err)
		}
	}
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	fmt.Println(acknowledged + 1)
	return nil
}

func TestFullDisk(t *testing.T) {
	testtier.Slow(t)
	ctx, dir := context.Background(), t.TempDir()
	var stderr bytes.Buffer
	cmd := child("fill the disk", dir)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	acknowledged, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.Positive(t, acknowledged)

	c := insider(t, open(t, Options{Dir: dir}))
	count, err := c.HGet(ctx, "meta", "count").Int()
	require.NoError(t, err)
	require.Equal(t, acknowledged, count)
	require.Equal(t, acknowledged, strings.Count(c.Get(ctx, "log").Val(), `"x`))
	require.NoError(t, c.Set(ctx, "k", "there is room again", 0).Err())
}
