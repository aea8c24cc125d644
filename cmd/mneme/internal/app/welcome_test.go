package app_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a start prints can be typed: a program that is installed is called by its name, and one that go run has built,
// which lies in a folder of its own or in the build cache, by go run. A start says where a new memory begins, so that
// one in another folder than before is seen.
func TestWhatAStartPrintsCanBeTyped(t *testing.T) {
	t.Parallel()
	s, data := newStack(t), t.TempDir()
	started := func(at string) string {
		path := filepath.Join(t.TempDir(), at, "mneme")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if os.Link(program(t), path) != nil { // on another file system
			all, err := os.ReadFile(program(t))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, all, 0o700))
		}
		cmd := exec.Command(path, "up", "--offline")
		cmd.Dir, cmd.Env = t.TempDir(), append(s.environ, "MNEME_DATA_DIR="+data)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Wait() }()
		defer func() { _ = cmd.Process.Kill() }()
		var said strings.Builder
		for lines := bufio.NewScanner(io.TeeReader(out, &said)); lines.Scan(); {
			if strings.Contains(lines.Text(), "claude mcp add") { // the last line
				return said.String()
			}
		}
		t.Fatalf("no welcome: %s", said.String())
		return ""
	}
	first := started("bin")
	require.Contains(t, first, "\n  mneme chat --chat 12345 ")
	require.Contains(t, first, "\n  mneme ingest FOLDER ")
	require.NotContains(t, first, "go run")
	require.Contains(t, first, "There is no memory in "+data+" yet: a new one begins here.\n")
	for _, at := range []string{"go-build123/b001/exe", "cache/9a/9a" + strings.Repeat("0f", 31) + "-d"} {
		later := started(at)
		require.Contains(t, later, "\n  go run ./cmd/mneme chat --chat 12345 ")
		require.NotContains(t, later, "There is no memory")
	}
}
