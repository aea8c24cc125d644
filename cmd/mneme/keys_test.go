package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/cmd/mneme/internal/config"
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
		got, err := storedKey(con, at)
		require.NoError(t, err)
		require.Equal(t, want, got, at)
	}
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "use", "--forget", "--url", "https://mneme.example.com"}, con))
	got, err := storedKey(con, "https://mneme.example.com")
	require.NoError(t, err)
	require.Empty(t, got)
	con.stdin = strings.NewReader("sk-123\n")
	require.Equal(t, exitFailure, run(t.Context(), []string{"keys", "use"}, con))
	require.NotContains(t, con.stderr.(*strings.Builder).String(), "sk-123")
}

// theirs is a console of a user of its own, and where its keys are kept.
func theirs(t *testing.T, environ ...string) (con *console, path string) {
	t.Helper()
	home := t.TempDir()
	return &console{environ: append(environ, "HOME="+home), stdin: strings.NewReader(""), stdout: new(strings.Builder),
		stderr: new(strings.Builder)}, filepath.Join(home, ".config", "mneme", "key")
}

const aKey = "mn_bot_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestKeptKeysAreTheirOwnersAlone(t *testing.T) {
	const at = "https://mneme.example.com"
	con, path := theirs(t)
	_, open, err := storeKey(con, at, aKey)
	require.NoError(t, err)
	require.NoError(t, open)
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
		for _, wide := range []os.FileMode{0o022, 0o077} {
			require.NoError(t, os.Chmod(name, mode|wide))
			_, err = storedKey(con, at)
			require.ErrorContains(t, err, "chmod go= "+name)
			require.ErrorContains(t, err, "rotate")

			con.stdin = strings.NewReader(aKey)
			require.Equal(t, exitOK, run(t.Context(), []string{"keys", "use", "--url", at}, con))
			said := con.stderr.(*strings.Builder).String()
			require.Equal(t, name == path, strings.Contains(said, "Others could read "+path), said)
			info, err = os.Stat(name)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), name)
			con.stderr = new(strings.Builder)
			got, err := storedKey(con, at)
			require.NoError(t, err)
			require.Equal(t, aKey, got)
		}
	}
}

// Many commands keep keys at once: all are there in the end, and a reader meanwhile finds a whole file.
func TestKeysThatAreKeptAtOnceAreAllKept(t *testing.T) {
	con, path := theirs(t)
	_, _, err := storeKey(con, "http://first", aKey)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, _, err := storeKey(con, fmt.Sprint("http://host-", i), fmt.Sprint(aKey, i))
			assert.NoError(t, err)
			got, err := storedKey(con, "http://first")
			assert.NoError(t, err)
			assert.Equal(t, aKey, got)
		})
	}
	all.Wait()
	for i := range 16 {
		got, err := storedKey(con, fmt.Sprint("http://host-", i))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(aKey, i), got)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// What cannot be finished leaves the file as it was, and nothing beside it.
func TestAKeyThatCannotBeKeptLeavesNothing(t *testing.T) {
	_, path := theirs(t)
	require.NoError(t, os.MkdirAll(path, 0o700)) // a folder in the file's place
	require.Error(t, writeFile(path, true, func(out io.Writer) error {
		_, err := io.WriteString(out, aKey)
		return err
	}))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// A server that sends its client elsewhere, also to another port or name of the same machine, sends no key along.
func TestARedirectionCarriesNoKeyAway(t *testing.T) {
	var elsewhere, here atomic.Int64
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		raw, _ := httputil.DumpRequest(r, true)
		if strings.Contains(string(raw), aKey) {
			leaked.Store(true)
		}
		fmt.Fprint(w, `{"chats": []}`)
	}))
	t.Cleanup(other.Close)
	to := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer "+aKey {
				here.Add(1)
			}
			http.Redirect(w, r, to+r.URL.Path, status)
		}))
		t.Cleanup(s.Close)
		con, _ := theirs(t)
		_, _, err := storeKey(con, s.URL, aKey)
		require.NoError(t, err)
		for _, args := range [][]string{{"memory", "ls"}, {"keys", "ls"}, {"chat", "-q"}, {"usage"}} {
			con.stdin = strings.NewReader("hi\n")
			run(t.Context(), append(args, "--url", s.URL), con)
		}
	}
	require.EqualValues(t, 12, here.Load(), "the server itself gets the key")
	require.Positive(t, elsewhere.Load())
	require.False(t, leaked.Load())
}

func TestAWrongKeySaysWhatToDo(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": {"code": "unauthorized", "message": "This key is not known."}}`)
	}))
	t.Cleanup(s.Close)
	for _, args := range [][]string{{"memory", "ls"}, {"chat", "-q"}, {"keys", "ls"}} {
		con, _ := theirs(t, "MNEME_KEY="+aKey)
		con.stdin = strings.NewReader("hi\n")
		require.Equal(t, exitFailure, run(t.Context(), append(args, "--url", s.URL), con))
		said := con.stderr.(*strings.Builder).String()
		require.Contains(t, said, "This key is not known.")
		require.Contains(t, said, "mneme keys use")
		require.NotContains(t, said, aKey)
	}
}

// A key with a budget in USD is said to be of no use for models without a price.
func TestABudgetInUSDIsToldOfModelsWithoutAPrice(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"id": "a", "key": %q}`, aKey)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "mneme.yaml")
	require.NoError(t, os.WriteFile(file, []byte("proxy: {backends: {v: {kind: openai, base_url: 'https://v.example/v1', "+
		"model_map: {'*': odd-1}}}}\n"), 0o600))
	for budget, warned := range map[string]bool{"1usd/day": true, "5tokens/day,1usd/day": true, "5tokens/day": false} {
		con, _ := theirs(t, "MNEME_CONFIG="+file, "MNEME_KEY="+aKey)
		require.Equal(t, exitOK, run(t.Context(), []string{"keys", "create", "--name", "x", "--scopes", "chat", "--budget",
			budget,
			"--url", s.URL}, con), con.stderr)
		require.Equal(t, warned, strings.Contains(con.stderr.(*strings.Builder).String(),
			"there is none of odd-1 (backend v)"), budget)
	}
}

func TestTheInternalSecretStaysOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	_, err := access.OpenSecret(filepath.Join(dir, "internal_secret"))
	require.NoError(t, err)
	con := &console{environ: []string{"MNEME_DATA_DIR=" + dir}}
	for at, sent := range map[string]bool{"http://127.0.0.1:8081": true, "http://localhost:8081": true,
		"https://mneme.example.com": false, "http://127.0.0.1.evil.com": false} {
		carry, err := operatorTransport(con, at)
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

// A key that a client put into an address stands in no log.
func TestNoKeyIsLogged(t *testing.T) {
	key := "mn_ops_" + strings.Repeat("aB3-_", 8)
	for _, format := range []string{"json", "console", "auto"} {
		var log, file strings.Builder
		out := newLogger(&log, config.Log{Level: "info", Format: format}, &file)
		out.Warn().Str("path", "/v1/chats/"+key).Msg("request")
		require.Contains(t, log.String(), "/v1/chats/mn_ops_***", format)
		require.Contains(t, file.String(), "/v1/chats/mn_ops_***", format)
		require.NotContains(t, log.String()+file.String(), key)
	}
}
