package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access"
)

func TestAKeyIsKeptForItsAddressAlone(t *testing.T) {
	home := t.TempDir()
	text := "mn_bot_" + strings.Repeat("A", 43)
	con := &console{environ: []string{"HOME=" + home}, stdin: strings.NewReader(text + "\n"), stdout: new(strings.Builder),
		stderr: new(strings.Builder)}
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "use", "--url", "https://mneme.example.com/"}, con))
	require.NotContains(t, con.stderr.(*strings.Builder).String(), text)
	path := filepath.Join(home, ".config", "mneme", "key")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for at, want := range map[string]string{"https://mneme.example.com": text, "https://evil.example.com": "",
		"https://mneme.example.com.evil.com": "", "http://mneme.example.com": ""} {
		got, err := con.keptKey(at)
		require.NoError(t, err)
		require.Equal(t, want, got, at)
	}
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "use", "--forget", "--url", "https://mneme.example.com"}, con))
	got, err := con.keptKey("https://mneme.example.com")
	require.NoError(t, err)
	require.Empty(t, got)
	con.stdin = strings.NewReader("sk-123\n")
	require.Equal(t, exitFailure, run(t.Context(), []string{"keys", "use"}, con))
	require.NotContains(t, con.stderr.(*strings.Builder).String(), "sk-123")
}

func TestTheInternalSecretStaysOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	_, err := access.OpenSecret(filepath.Join(dir, "internal_secret"))
	require.NoError(t, err)
	con := &console{environ: []string{"MNEME_DATA_DIR=" + dir}}
	for at, sent := range map[string]bool{"http://127.0.0.1:8081": true, "http://localhost:8081": true,
		"https://mneme.example.com": false, "http://127.0.0.1.evil.com": false} {
		carry, err := con.asOperator(at)
		require.NoError(t, err)
		c, ours := carry.(access.Carrier)
		require.Equal(t, sent, ours && c.Secret != "", at)
	}
}

func TestWrongKeyFlagsSayWhatToDo(t *testing.T) {
	for args, says := range map[string]string{
		"keys create --name x":                              "missing flags: --scopes",
		"keys create --name x --scopes chat --expires soon": "90d or 12h",
		"keys create --name x --scopes chat --tenant A!":    "a tenant is 1 to 32 characters",
		"keys rotate x --overlap -1h":                       "90d or 12h",
		"keys revoke":                                       "expected",
		"keys ls --key a\tb":                                "",
	} {
		errs := new(strings.Builder)
		con := &console{stdin: strings.NewReader(""), stdout: new(strings.Builder), stderr: errs}
		require.NotEqual(t, exitOK, run(t.Context(), strings.Split(args, " "), con))
		require.Contains(t, errs.String(), says)
	}
}
