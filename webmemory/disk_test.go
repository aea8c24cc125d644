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
	"mneme/internal/webmemorytest"
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
	s := newSmall(t, filepath.Join(mount, "data"), webmemorytest.Answers("done"))
	post := func() webmemorytest.Response { return s.Post("1", strings.Repeat("hello ", 100)) }
	require.Equal(t, http.StatusOK, post().Status)

	filler := filepath.Join(mount, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	var refused webmemorytest.Response
	webmemorytest.Eventually(t, "a post is refused", func() bool { // the file's last page has room for some
		refused = post()
		return refused.Status == http.StatusServiceUnavailable
	})
	require.Contains(t, refused.Problem(t).Message, "can be read and takes no changes right now")
	readyz := func() (status, reason string) {
		a := s.Do("GET", "/readyz", nil)
		require.Equal(t, http.StatusOK, a.Status)
		var body struct {
			Status  string
			Reasons []string
		}
		require.NoError(t, json.Unmarshal(a.Body, &body))
		return body.Status, strings.Join(body.Reasons, "; ")
	}
	webmemorytest.Eventually(t, "readyz tells", func() bool {
		status, reason := readyz()
		return status == "degraded" && strings.Contains(reason, "no space left on device")
	})
	require.Equal(t, http.StatusOK, s.Do("GET", "/v1/chats/1/history", nil).Status)
	require.Equal(t, http.StatusServiceUnavailable, s.Do("DELETE", "/v1/chats/1", nil).Status,
		"its text is in the file still")

	require.NoError(t, os.Remove(filler))
	webmemorytest.Eventually(t, "it is ready again", func() bool { status, _ := readyz(); return status == "ready" })
	webmemorytest.Eventually(t, "messages are answered", func() bool { return post().Status == http.StatusOK })
	require.Equal(t, http.StatusOK, s.Do("DELETE", "/v1/chats/1", nil).Status)
}
