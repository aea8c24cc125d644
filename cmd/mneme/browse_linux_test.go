package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/models"
)

// What is printed first, when nothing else has to be said, leads to the page; --open goes there.
func TestUpOpensThePage(t *testing.T) {
	t.Chdir(t.TempDir())
	bin, opened := t.TempDir(), filepath.Join(t.TempDir(), "opened")
	require.NoError(t, syscall.Mkfifo(opened, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "xdg-open"),
		[]byte("#!/bin/sh\necho \"$1\" > "+opened+"\n"), 0o700))
	t.Setenv("PATH", bin)
	s := startUp(t, models.Places{}, []string{"DISPLAY=:0"}, "up", "--offline", "--open")
	require.Len(t, s.read, 1)
	address, err := os.ReadFile(opened) // waits until the browser has opened the pipe for writing
	require.NoError(t, err)
	require.Equal(t, s.web+"/\n", string(address))
	resp, err := http.Get(strings.TrimSpace(string(address)))
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Contains(t, string(page), "<title>mneme</title>")
	require.Zero(t, s.stop())
}

func TestNoBrowserIsSaid(t *testing.T) {
	for name, c := range map[string]struct{ display, says string }{
		"no display": {"", "there is no display"},
		"no program": {"DISPLAY=:0", "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", t.TempDir())
			var out bytes.Buffer
			(&console{stdout: &out, environ: []string{c.display}}).browse("http://127.0.0.1:1/")
			require.Regexp(t, `^No browser was opened \(.*`+c.says+`.*\): open http://127.0.0.1:1/ in one.\n$`, out.String())
		})
	}
}
