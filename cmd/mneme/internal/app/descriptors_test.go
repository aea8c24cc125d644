package app_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/redistest"
)

// A webmemory without a free file descriptor answers /healthz, refuses other requests, and recovers.
func TestWithoutDescriptorsHealthIsAnswered(t *testing.T) {
	t.Parallel()
	s := newStack(t, "MNEME_REDIS_URL="+redistest.Start(t, "--save", "").URL())
	s.files = 96
	s.start("webmemory")
	get := func(path string) (status int, body string, err error) {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + s.web + path)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw), err
	}
	status, _, err := get("/v1/chats")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)

	idle := make([]net.Conn, 120)
	for i := range idle {
		idle[i], err = net.Dial("tcp", s.web)
		require.NoError(t, err)
		defer idle[i].Close()
	}
	refused := 0
	for range 5 {
		status, _, err := get("/healthz")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		if status, body, err := get("/v1/chats"); err == nil && status == http.StatusServiceUnavailable {
			require.Equal(t, "no_descriptors", gjson.Get(body, "error.code").Str, body)
			refused++
		}
	}
	require.NotZero(t, refused)
	for _, c := range idle {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { status, _, err := get("/v1/chats"); return err == nil && status == http.StatusOK },
		30*time.Second, 100*time.Millisecond)
	log, err := os.ReadFile(s.running["webmemory"].Log)
	require.NoError(t, err)
	require.Contains(t, string(log), "no file descriptor is free")
	require.LessOrEqual(t, strings.Count(string(log), "descriptor"), 4, string(log))
}
