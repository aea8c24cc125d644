package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/models"
)

// Notes are added, listed, corrected and removed on the command line.
func TestMemoryNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	s := startUp(t, models.Places{}, nil, "up", "--offline")
	note := func(args ...string) result {
		return mneme(t, "", append([]string{"memory", "note", "--url", s.web}, args...)...)
	}
	require.Equal(t, "there are no notes\n", note("ls", "1").stdout)
	r := note("add", "1", "Answer in  English.")
	require.Zero(t, r.code, r.stderr)
	id := strings.TrimSpace(strings.TrimPrefix(r.stdout, "noted as "))
	require.Zero(t, note("add", "1", "Count in euros.", "--subagent", "analytic").code)
	list := note("ls", "1").stdout
	require.Regexp(t, `\(chat\)\s+`+id+`\s+active\s+operator\s+\S+ \S+\s+Answer in English\.\n`, list)
	require.Regexp(t, `analytic\s+n\w+\s+active\s+operator\s+\S+ \S+\s+Count in euros\.\n`, list)
	require.NotContains(t, note("ls", "1", "analytic", "--json").stdout, "English")
	require.Equal(t, "active: Answer in Russian.\n", note("set", "1", id, "--text", "Answer in Russian.").stdout)
	require.Equal(t, 2, note("set", "1", id).code)
	require.Equal(t, 1, note("rm", "1", "nosuch").code)
	exported := mneme(t, "", "memory", "export", "1", "--url", s.web)
	require.Zero(t, exported.code, exported.stderr)
	imported := mneme(t, exported.stdout, "memory", "import", "2", "--url", s.web)
	require.Equal(t, "imported 0 messages of 0 histories\n2 notes wait for a yes: mneme memory note ls 2\n",
		imported.stdout)
	require.Contains(t, note("ls", "2").stdout, "proposed")
	require.Equal(t, "removed\n", note("rm", "1", id).stdout)
	require.NotContains(t, note("ls", "1").stdout, "Russian")
	require.Regexp(t, `1\s+analytic\s+0\s+0\s+0\s+0\s+1\n`, mneme(t, "", "memory", "ls", "--chat=1", "--url", s.web).stdout)
}

// The notes of a user are added, listed, changed, removed and erased on the command line.
func TestUserNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	s := startUp(t, models.Places{}, nil, "up", "--offline")
	note := func(args ...string) result {
		return mneme(t, "", append(append([]string{"memory", "note"}, args...), "--user", "--url", s.web)...)
	}
	require.Equal(t, "there are no notes\n", note("ls", "ann").stdout)
	r := note("add", "ann", "Answer in  English.")
	require.Zero(t, r.code, r.stderr)
	id := strings.TrimSpace(strings.TrimPrefix(r.stdout, "noted as "))
	require.Regexp(t, `CHAT\s.*\n-\s+`+id+`\s+active\s+operator\s+\S+ \S+\s+Answer in English\.\n`, note("ls", "ann").stdout)
	require.Equal(t, "active: Answer in Russian.\n", note("set", "ann", id, "--text", "Answer in Russian.").stdout)
	require.Contains(t, note("ls", "ann", "--json").stdout, `"Answer in Russian."`)
	require.Equal(t, 1, note("rm", "ann", "nosuch").code)
	require.Equal(t, 2, note("ls", "no id").code)
	require.Equal(t, 2, note("ls", "ann", "analytic").code)
	require.Equal(t, "removed\n", note("rm", "ann", id).stdout)
	require.Zero(t, note("add", "ann", "My pin is 4711.").code)

	erase := func(args ...string) result {
		return mneme(t, "", append([]string{"memory", "rm", "ann", "--user", "--url", s.web}, args...)...)
	}
	refused := erase()
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stdout, "the notes of the user ann\n")
	require.Contains(t, refused.stderr, "nothing erased")
	require.Equal(t, "notes erased: 1\ndone\n", erase("--yes", "--chats").stdout)
	require.Equal(t, "there are no notes\n", note("ls", "ann").stdout)
}
