package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
)

// over runs a command line over the store of these variables.
func over(t *testing.T, environ []string, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &console{environ: environ, stdin: strings.NewReader(stdin), stdout: &stdout,
		stderr: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

func TestBackupIntoAFileAndThroughAPipe(t *testing.T) {
	testtier.Slow(t)
	t.Chdir(t.TempDir())
	server := redistest.Start(t)
	client := server.Client()
	require.NoError(t, client.Set(t.Context(), "chat_history:12345", `[{"role":"user","content":"I am Aliya"}]`, 0).Err())
	redis := []string{"MNEME_REDIS_URL=" + server.URL()}
	saved := "saved 1 history, 0 collections of documents, 0.0 kB to "
	require.Equal(t, result{0, "", saved + "m.backup\n"}, over(t, redis, "", "backup", "m.backup"))
	info, err := os.Stat("m.backup")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t,
		result{1, "", "mneme: m.backup: the file exists; name another one, or add --force to write over it\n"},
		over(t, redis, "", "backup", "m.backup"))
	require.Zero(t, over(t, redis, "", "backup", "m.backup", "--force").code)
	require.Contains(t, over(t, redis, "", "backup", "no/such/folder").stderr, "no/such/folder")
	require.Contains(t, over(t, []string{"MNEME_REDIS_URL=redis://127.0.0.1:1"}, "", "backup", "away.backup").stderr,
		"connection refused")

	piped := over(t, redis, "", "backup", "-")
	require.Equal(t, saved+"-\n", piped.stderr)
	embedded := []string{"MNEME_DATA_DIR=data"}
	require.Contains(t, over(t, embedded, "", "backup", "none").stderr, "there is no store in data/redis")
	for name, bad := range map[string]string{"cut": piped.stdout[:len(piped.stdout)-9], "empty": "",
		"foreign": "REDIS0011"} {
		require.NoError(t, os.WriteFile(name, []byte(bad), 0o600))
		for _, r := range []result{over(t, embedded, bad, "restore", "-"), over(t, embedded, "", "restore", name),
			over(t, redis, "", "restore", "--force", name)} {
			require.Equal(t, 1, r.code)
			require.Regexp(t, "^mneme: (standard input|"+name+
				"): (the backup is damaged or cut short; nothing was restored from it|this is no backup that mneme wrote) ",
				r.stderr)
		}
	}
	require.NoDirExists(t, filepath.Join("data", "redis"))
	require.EqualValues(t, 1, client.DBSize(t.Context()).Val())

	r := over(t, embedded, piped.stdout, "restore", "-")
	require.Regexp(t,
		`^restored 1 history, 0 collections of documents, 0\.0 kB, saved on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n$`, r.stderr)
	require.Contains(t, over(t, embedded, "", "restore", "m.backup").stderr,
		"the store is not empty, it holds chat_history:12345: restore into an empty one, or add --force")
	r = over(t, embedded, "", "restore", "--force", "m.backup")
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "what was there before is kept in data/redis.before-")
	left, err := filepath.Glob("*.tmp")
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = filepath.Glob("data/redis.restoring-*")
	require.NoError(t, err)
	require.Empty(t, left)
}
