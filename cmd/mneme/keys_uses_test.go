package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/cmd/mneme/internal/models"
)

// What a key has spent of its limits, and what each run of a chat took.
func TestWhatAKeyAndItsRunsTook(t *testing.T) {
	t.Chdir(t.TempDir())
	s := startUp(t, models.Places{}, []string{"MNEME_AUTH_MODE=keys"}, "up", "--offline")
	command := func(stdin string, args ...string) string {
		r := mneme(t, stdin, append(args, "--url", s.web)...)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	key := strings.TrimSpace(command("", "keys", "create", "--name", "bot", "--scopes", "chat,memory:read", "--budget",
		"1000000tokens/total", "--rate", "2runs"))
	command("What is 17 * 3?\n", "chat", "-q", "--chat", "7", "--key", key)
	command("What is 17 * 4?\n", "chat", "-q", "--chat", "7", "--key", key)
	list := ""
	require.Eventually(t, func() bool { // charges are written behind the call
		list = command("", "keys", "ls")
		return strings.Contains(list, "bot") && !strings.Contains(list, "1000000tokens/total  0")
	}, time.Minute, 100*time.Millisecond)
	require.Regexp(t, `bot +default +chat,memory:read +\S+ \S+ +good +1000000tokens/total +[1-9]\d* +\d+ +-\n`+
		` +2runs +0 +\d+ +-\n`, list)

	runs := strings.Fields(command("", "usage", "--by", "run", "--chat", "7", "--json", "--key", key))
	require.Len(t, runs, 2)
	for _, run := range runs {
		require.Equal(t, `["default","7","master","completed"]`, gjson.Get(run, "[tenant,chat,agent,outcome]").Raw, run)
		require.Positive(t, gjson.Get(run, "record.usage.input_tokens").Int(), run)
		require.InDelta(t, time.Now().Unix(), gjson.Get(run, "started").Float(), 600)
	}
	require.NotEqual(t, gjson.Get(runs[0], "run_id").String(), gjson.Get(runs[1], "run_id").String())
}
