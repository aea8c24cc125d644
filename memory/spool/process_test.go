//go:build unix

package spool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/testtier"
	"mneme/memory/journal"
)

const (
	roleVar = "SPOOL_TEST_ROLE"
	dirVar  = "SPOOL_TEST_DIR"
	turnVar = "SPOOL_TEST_TURN"
)

func TestMain(m *testing.M) {
	roles := map[string]func(dir string) error{
		"work":          workUntilKilled,
		"live beside":   liveBeside,
		"fill the disk": fillTheDisk,
	}
	role := roles[os.Getenv(roleVar)]
	if role == nil {
		goleak.VerifyTestMain(m)
		return
	}
	if err := role(os.Getenv(dirVar)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(role, dir string, turn int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+dir, fmt.Sprintf("%s=%d", turnVar, turn))
	cmd.Stderr = os.Stderr
	return cmd
}

var workKeys = []Queue{alice, runs, bob, notes}

// workUntilKilled adds and drains, and prints a line for every promise as soon as it was made.
func workUntilKilled(dir string) error {
	var turn int64
	if _, err := fmt.Sscan(os.Getenv(turnVar), &turn); err != nil {
		return err
	}
	s, err := Open(dir, Options{}, zerolog.Nop())
	if err != nil {
		return err
	}
	for seq := int64(1); ; seq++ {
		key := workKeys[rand.IntN(len(workKeys))]
		if err := s.Add(entry(key, turn, seq)); err != nil {
			return err
		}
		fmt.Println("added", key, turn, seq)
		if rand.IntN(6) > 0 {
			continue
		}
		var removed []Entry
		away := errors.New("away")
		err := s.Drain(context.Background(), key, func(_ context.Context, entries []Entry) (int, error) {
			n := rand.IntN(len(entries) + 1)
			for _, e := range entries[:n] {
				fmt.Println("taken", e.Queue, e.Mark.Turn, e.Mark.Seq)
			}
			removed = append(removed, entries[:n]...)
			if n < len(entries) {
				return n, away
			}
			return n, nil
		})
		if err != nil && !errors.Is(err, away) {
			return err
		}
		for _, e := range removed {
			fmt.Println("removed", e.Queue, e.Mark.Turn, e.Mark.Seq)
		}
	}
}

func TestKilledProcessesKeepTheirPromises(t *testing.T) {
	testtier.Slow(t)
	dir := t.TempDir()
	promises := map[string]map[string]bool{"added": {}, "taken": {}, "removed": {}}
	for round := range 15 {
		cmd := child("work", dir, round+1)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for stop := 1 + rand.IntN(60); lines.Scan(); stop-- {
			if stop == 0 { // what it prints until it dies is read as well
				require.NoError(t, cmd.Process.Kill())
			}
			promise, what, _ := strings.Cut(lines.Text(), " ")
			require.Contains(t, promises, promise)
			if promise == "taken" {
				require.NotContains(t, promises["removed"], what, "handed out again after its removal")
			}
			promises[promise][what] = true
		}
		require.Error(t, cmd.Wait())
	}

	s := open(t, dir)
	found := map[string]bool{}
	for _, key := range workKeys {
		var last Entry
		for _, e := range taken(t, s, key) {
			require.Equal(t, entry(key, e.Mark.Turn, e.Mark.Seq), e)
			require.True(t, last.Mark.Turn < e.Mark.Turn || last.Mark.Turn == e.Mark.Turn && last.Mark.Seq < e.Mark.Seq,
				"%v after %v", e.Mark, last.Mark)
			last = e
			found[fmt.Sprint(e.Queue, " ", e.Mark.Turn, " ", e.Mark.Seq)] = true
		}
	}
	require.NotEmpty(t, promises["removed"])
	for what := range promises["added"] {
		require.True(t, promises["taken"][what] || found[what], "%s is lost", what)
	}
	for what := range promises["removed"] {
		require.NotContains(t, found, what)
	}
	t.Logf("%d added, %d drained by processes that were killed, %d found in the end",
		len(promises["added"]), len(promises["taken"]), len(found))
}

// liveBeside adds for alice, says so, waits for its standard input to end, and prints what it then drains.
func liveBeside(dir string) error {
	s, err := Open(dir, Options{}, zerolog.Nop())
	if err != nil {
		return err
	}
	if err := s.Add(entry(alice, 2, 1)); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	return s.Drain(context.Background(), alice, func(_ context.Context, entries []Entry) (int, error) {
		for _, e := range entries {
			fmt.Println(e.Mark.Turn, e.Mark.Seq)
		}
		return len(entries), nil
	})
}

func TestLivingProcessesLeaveEachOtherAlone(t *testing.T) {
	dir := t.TempDir()
	mine := open(t, dir)
	add(t, mine, entry(alice, 1, 1))

	cmd := child("live beside", dir, 0)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "ready", lines.Text())

	require.Empty(t, open(t, dir).Queues(), "both lives, so nothing is an orphan")
	require.NoError(t, forget(mine, bob.Key))
	require.Equal(t, []Entry{entry(alice, 1, 1)}, taken(t, mine, alice))

	require.NoError(t, in.Close())
	var drained []string
	for lines.Scan() {
		drained = append(drained, lines.Text())
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, []string{"2 1"}, drained)
}

// fillTheDisk works under a limit of the kernel on the size of files, which fails a write half way like a full disk. It
// prints how many entries it leaves for bob.
func fillTheDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(dir, Options{}, zerolog.Nop())
	if err != nil {
		return err
	}
	alices, err := addUntilFull(s, alice, bob)
	if err != nil {
		return err
	}
	if err := forget(s, alice.Key); !errors.Is(err, journal.ErrFailed) || s.Pending(alice) != alices {
		return fmt.Errorf("the file has bob's entries too and cannot be rewritten, yet: %w", err)
	}
	if err := s.Drain(context.Background(), bob, takeInto(new([]Entry))); err != nil || s.Pending(bob) != 0 {
		return fmt.Errorf("drain: %w", err)
	}
	if err := forget(s, alice.Key); err != nil || s.Pending(alice) != 0 {
		return fmt.Errorf("no other's entries are in the file, so it can be deleted: %w", err)
	}
	if folders, err := os.ReadDir(dir); err != nil || len(folders) != 0 {
		return fmt.Errorf("left behind: %v, %w", folders, err)
	}

	bobs, err := addUntilFull(s, bob)
	if err != nil {
		return fmt.Errorf("there is room again: %w", err)
	}
	fmt.Println(bobs)
	enough := errors.New("enough")
	err = s.Drain(context.Background(), bob, func(context.Context, []Entry) (int, error) { return 3, enough })
	if !errors.Is(err, enough) || s.Pending(bob) != bobs-3 {
		return fmt.Errorf("drain some: %w", err)
	}
	return nil
}

// addUntilFull returns how many entries of each history were acknowledged before the disk was full. It stays full.
func addUntilFull(s *Spool, keys ...Queue) (int, error) {
	limit := func(bytes uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: 1 << 40})
	}
	if err := limit(5000); err != nil {
		return 0, err
	}
	add := func(seq int) error {
		for _, key := range keys {
			if err := s.Add(entry(key, 1, int64(seq))); err != nil {
				return err
			}
		}
		return nil
	}
	n := 0
	var err error
	for err == nil {
		if err = add(n + 1); err == nil {
			n++
		}
	}
	for range 3 {
		if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, syscall.EFBIG) || n < 5 {
			return n, fmt.Errorf("after %d entries: %w", n, err)
		}
		if err := limit(4); err != nil { // not even the start of another file fits
			return n, err
		}
		err = s.Add(entry(keys[0], 1, int64(n+1)))
	}
	return s.Pending(keys[0]), nil
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := child("fill the disk", dir, 0)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Minute
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	acknowledged, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)

	require.Len(t, folders(t, dir), 1, "failed attempts leave no folders")
	s := open(t, dir)
	require.Len(t, taken(t, s, bob), acknowledged, "a removal that could not be written comes back, nothing else changes")
	add(t, s, entry(bob, 1, 1))
}
