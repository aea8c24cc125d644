package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/models"
)

// The notes of a user are added, listed, corrected and removed on the command line, and a user is erased there.
func TestMemoryUser(t *testing.T) {
	t.Chdir(t.TempDir())
	s := startUp(t, models.Places{}, nil, "up", "--offline")
	user := func(args ...string) result {
		return mneme(t, "", append([]string{"memory", "user", "--url", s.web}, args...)...)
	}
	require.Equal(t, "there are no notes\n", user("ls", "ann").stdout)
	r := user("add", "ann", "Answer in  English.")
	require.Zero(t, r.code, r.stderr)
	id := strings.TrimSpace(strings.TrimPrefix(r.stdout, "noted as "))
	require.Regexp(t, `CHAT\s.*\n-\s+`+id+`\s+active\s+operator\s+\S+ \S+\s+Answer in English\.\n`, user("ls", "ann").stdout)
	require.Equal(t, "active: Answer in Russian.\n", user("set", "ann", id, "--text", "Answer in Russian.").stdout)
	require.Contains(t, user("ls", "ann", "--json").stdout, `"Answer in Russian."`)
	require.Equal(t, 1, user("rm", "ann", "nosuch").code)
	require.Equal(t, 2, user("ls", "no id").code)
	require.Equal(t, "removed\n", user("rm", "ann", id).stdout)
	require.Zero(t, user("add", "ann", "My pin is 4711.").code)

	refused := user("erase", "ann")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stdout, "the notes of the user ann\n")
	require.Contains(t, refused.stderr, "nothing was erased")
	require.Equal(t, "notes erased: 1\ndone\n", user("erase", "ann", "--yes", "--chats").stdout)
	require.Equal(t, "there are no notes\n", user("ls", "ann").stdout)
}
