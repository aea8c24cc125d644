package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/internal/upstreamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServesUntilStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"-vendor", "kimi", "-delay", "1ms", "-key", "k"}, w, io.Discard)
		_ = w.Close()
	}()
	out := bufio.NewReader(r)
	url, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+\n$`, url)

	told := make(chan string, 2)
	go func() {
		for range 2 {
			s, _ := out.ReadString('\n')
			told <- s
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for key, status := range map[string]int{"k": 200, "wrong": 401} {
		q, err := http.NewRequest(http.MethodPost, strings.TrimSpace(url)+"/v1/messages",
			strings.NewReader(`{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		require.NoError(t, err)
		q.Header.Set("X-Api-Key", key)
		res, err := client.Do(q)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, status, res.StatusCode)
		if status == 200 {
			require.Contains(t, string(body), "message_stop")
			require.Equal(t, "200 messages m stream thinking\n", <-told)
		} else {
			require.Equal(t, "401 messages: invalid x-api-key\n", <-told)
		}
	}
	stop()
	require.Equal(t, exitOK, <-ended)
}

func TestUsage(t *testing.T) {
	for args, c := range map[string]struct {
		code int
		says string
	}{
		"-help":                   {exitOK, "-prefix-check"},
		"-unknown":                {exitUsage, "not defined"},
		"-vendor x":               {exitUsage, `-vendor "x" is not known; whose rules to follow`},
		"-listen 0.0.0.0:0":       {exitUsage, "is not on loopback"},
		"-listen x":               {exitUsage, "is no address"},
		"-listen 127.0.0.1:99999": {exitFailure, "invalid port"},
		"-vendor kimi extra":      {exitUsage, `unexpected argument "extra"`},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), c.says, args)
		require.Empty(t, stdout.String(), args)
	}
}

func TestFaultsArePosted(t *testing.T) {
	vendor := upstreamtest.New(upstreamtest.Config{})
	posted := func(body string) int {
		w := httptest.NewRecorder()
		fail(vendor)(w, httptest.NewRequest(http.MethodPost, "/fail", strings.NewReader(body)))
		return w.Code
	}
	require.Equal(t, http.StatusNoContent, posted(`[{"status":429,"retry_after":60,"times":2},
		{"status":529,"first":"messages","message":"Full."},{"status":400,"body":"no"}]`))
	for _, want := range []struct {
		status int
		says   string
	}{{429, "rate_limit_error"}, {429, "rate_limit_error"}, {200, "event: error"}, {400, "no"}, {200, "message_stop"}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/messages",
			strings.NewReader(`{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		r.Header.Set("Anthropic-Version", "2023-06-01")
		vendor.ServeHTTP(w, r)
		require.Equal(t, want.status, w.Code, w.Body)
		require.Contains(t, w.Body.String(), want.says)
		if want.status == 429 {
			require.Equal(t, "60", w.Header().Get("Retry-After"))
		}
	}
	require.Equal(t, http.StatusBadRequest, posted(`[{"shout":1}]`))

	require.Equal(t, http.StatusNoContent, posted(`[{"status":503,"times":1000}]`))
	require.Equal(t, http.StatusNoContent, posted(`[]`))
	require.Zero(t, vendor.Pending(), "it is well again")
}
