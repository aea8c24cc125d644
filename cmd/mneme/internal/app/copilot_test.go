package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/copilottest"
)

// A whole mneme with a Copilot CLI that answers the master: the CLI is told to come back
// to the gateway's own port, and the chat is one session.
func TestACopilotCLIBehindTheMaster(t *testing.T) {
	t.Parallel()
	cli := copilottest.Start(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=cli", "MNEME_PROXY_TEAMMATE_BACKEND=off",
		backend("off", "offline", ""),
		backend("cli", "copilot", "", "provider_backend: off", fmt.Sprintf("addr: %q", cli.Addr())))
	require.Contains(t, u.say("1", "hello"), "echo: hello")
	require.Contains(t, u.say("1", "world"), "echo: world")
	made := cli.Calls("session.create")
	require.Len(t, made, 1, "a chat is one session")
	require.Contains(t, string(made[0].Params), `"http://`+u.addrs.Proxy+`/teammate/copilot/v1"`)
	u.stop()
	require.Empty(t, cli.Live())
}

func TestACopilotCLIThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", mergeBackends([]string{"MNEME_PROXY_LISTEN=127.0.0.1:0", "MNEME_DATA_DIR=" + t.TempDir(),
		"MNEME_PROXY_ACTIVE=cli", "MNEME_PROXY_TEAMMATE_BACKEND=off", backend("off", "offline", ""),
		backend("cli", "copilot", "", "provider_backend: off", "command: [no-such-copilot]")}))
	require.NoError(t, err)
	err = app.Proxy(context.Background(), cfg, app.Options{Log: zerolog.Nop()})
	require.ErrorContains(t, err, "proxy.backends.cli.command")
	require.ErrorContains(t, err, "install the Copilot CLI, or give its whole path")
}
