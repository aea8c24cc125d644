package term

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheHistoryFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "chat_history")
	require.Empty(t, loadHistory(path))
	e := &LineEditor{history: path}
	for range 2*maxHistory + 5 {
		e.append("x")
	}
	e.append(strings.Repeat("long", maxHistoryLine))
	e.append("last \xff")
	e.append("ж")
	lines := loadHistory(path)
	require.Len(t, lines, maxHistory)
	require.Equal(t, "ж", lines[maxHistory-1])
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Len(t, loadHistory(path), maxHistory, "the file was shortened")
	require.LessOrEqual(t, info.Size(), int64(4*maxHistory))
}
