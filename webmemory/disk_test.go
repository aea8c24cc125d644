//go:build linux

package webmemory_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// The disk of the embedded store and the spool is full for a while: what is known is
// shown, messages are refused in clear words, readyz says why, and then all goes on.
func TestAFullDiskIsToldAndWaitedFor(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	mount := t.TempDir()
	if err := syscall.Mount("none", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
	s := newSmall(t, filepath.Join(mount, "data"), answers("done"))
	post := func() answer { return s.do("POST", "/v1/chats/1/messages", message{strings.Repeat("hello ", 100)}) }
	require.Equal(t, http.StatusOK, post().status)

	filler := filepath.Join(mount, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	var refused answer
	eventually(t, "a post is refused", func() bool { // the file's last page has room for some
		refused = post()
		return refused.status == http.StatusServiceUnavailable
	})
	require.Contains(t, refused.problem(t).Message, "can be read and takes no changes right now")
	readyz := func() (status, reason string) {
		a := s.do("GET", "/readyz", nil)
		require.Equal(t, http.StatusOK, a.status)
		var body struct {
			Status  string
			Reasons []string
		}
		require.NoError(t, json.Unmarshal(a.body, &body))
		return body.Status, strings.Join(body.Reasons, "; ")
	}
	eventually(t, "readyz tells", func() bool {
		status, reason := readyz()
		return status == "degraded" && strings.Contains(reason, "no space left on device")
	})
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/chats/1/history", nil).status)
	require.Equal(t, http.StatusServiceUnavailable, s.do("DELETE", "/v1/chats/1", nil).status,
		"its text is in the file still")

	require.NoError(t, os.Remove(filler))
	eventually(t, "it is ready again", func() bool { status, _ := readyz(); return status == "ready" })
	eventually(t, "messages are answered", func() bool { return post().status == http.StatusOK })
	require.Equal(t, http.StatusOK, s.do("DELETE", "/v1/chats/1", nil).status)
}
