//go:build unix

package journal

import (
	"bufio"
	"bytes"
	"errors"
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

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

const (
	roleVar = "JOURNAL_TEST_ROLE"
	dirVar  = "JOURNAL_TEST_DIR"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "write until killed":
		err = writeUntilKilled(os.Getenv(dirVar))
	case "open":
		_, _, err = Open(os.Getenv(dirVar), Options{}, discard)
	case "fill the disk":
		err = fillTheDisk(os.Getenv(dirVar))
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

// numbered is the n-th record of a writing child: its length varies and its content can be checked.
func numbered(n int) string { return strconv.Itoa(n) + " " + strings.Repeat("x", n*37%5000) }

// writeUntilKilled goes on where the journal ends and prints the number of every record acknowledged.
func writeUntilKilled(dir string) error {
	n := 0
	j, _, err := Open(dir, Options{}, func([]byte) error { n++; return nil })
	if err != nil {
		return err
	}
	for ; ; n++ {
		if err := j.Append([]byte(numbered(n))); err != nil {
			return err
		}
		fmt.Println(n)
		if n%50 == 49 {
			err := j.Rewrite(func(emit func([]byte) error) error {
				for i := range n + 1 {
					if err := emit([]byte(numbered(i))); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
}

func TestKilledWriterLosesNothingAcknowledged(t *testing.T) {
	testtier.Slow(t)
	dir := t.TempDir()
	for round := range 10 {
		cmd := child("write until killed", dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		acknowledged := -1
		for stop := 20 + rand.IntN(60); stop > 0 && lines.Scan(); stop-- {
		}
		require.NoError(t, cmd.Process.Kill())
		for ok := true; ok; ok = lines.Scan() { // also what it printed before it died
			acknowledged, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		_ = cmd.Wait()

		j, _, got := reopen(t, dir)
		require.Greater(t, len(got), acknowledged, "round %d", round)
		for i, r := range got {
			require.Equal(t, numbered(i), r)
		}
		require.NoError(t, j.Close())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := written(t, "x")
	reopen(t, dir)
	var stderr bytes.Buffer
	cmd := child("open", dir)
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), fmt.Sprintf("data is in use by process %d", os.Getpid()))
}

// fillTheDisk appends under a limit of the kernel on the size of files, which fails a write half way like a full disk.
func fillTheDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	const most = 10_000
	j, _, err := Open(dir, Options{}, discard)
	if err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		return err
	}
	for n := 0; ; n++ {
		before := j.Size()
		err := j.Append([]byte(numbered(n)))
		if err == nil {
			fmt.Println(n)
			continue
		}
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("unexpected: %w", err)
		}
		info, statErr := j.file.Stat()
		if statErr != nil || info.Size() != before || !errors.Is(j.Append([]byte("x")), ErrFailed) {
			return fmt.Errorf("after the failure: %v bytes, should be %d", info.Size(), before)
		}
		return j.Close()
	}
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	var stderr bytes.Buffer
	cmd := child("fill the disk", dir)
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Minute
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	acknowledged := strings.Fields(string(out))
	require.NotEmpty(t, acknowledged)

	j, rec, got := reopen(t, dir)
	require.Len(t, got, len(acknowledged))
	require.Zero(t, rec.Dropped)
	for i, r := range got {
		require.Equal(t, numbered(i), r)
	}
	require.NoError(t, j.Append([]byte("there is room again")))
}
