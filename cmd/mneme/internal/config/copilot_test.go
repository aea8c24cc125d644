package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// copilotFile is a file with two backends, off and cli, and the given members of cli.
func copilotFile(members string) string {
	return "proxy:\n  active: cli\n  backends:\n    off: {kind: offline}\n    cli: {kind: copilot, " + members + "}\n"
}

func TestACopilotBackend(t *testing.T) {
	c,
		err := load(t,
		copilotFile(`addr: "127.0.0.1:4321", provider_backend: off, api_key_env: COPILOT_CONNECTION_TOKEN, model_map: `+
			`{"*": m}`),
		"COPILOT_CONNECTION_TOKEN=hush")
	require.NoError(t, err)
	require.NoError(t, c.RequireKeys())
	require.Equal(t, "hush", c.Proxy.Backends["cli"].APIKeyEnv.Reveal())

	c, err = load(t, copilotFile(`command: [copilot, --log-level, error], provider_backend: off`),
		"PATH=/bin", "COPILOT_HOME=/h", "HOME=", "GH_TOKEN=hush", "OPENAI_API_KEY=hush", "COPILOT_GITHUB_TOKEN=hush")
	require.NoError(t, err)
	require.Equal(t, []string{"copilot", "--log-level", "error"}, c.Proxy.Backends["cli"].Command)
	require.Equal(t, []string{"COPILOT_HOME=/h", "PATH=/bin"}, c.Proxy.Backends["cli"].CommandEnv,
		"no token reaches the command")

	_, err = load(t, copilotFile(`addr: "copilot:4321", provider_backend: off`)+"  advertise: http://proxy:8082\n")
	require.NoError(t, err)
}

func TestWrongCopilotBackends(t *testing.T) {
	for text, want := range map[string]string{
		copilotFile(
			`provider_backend: off`,
		): "mneme.yaml:5: proxy.backends.cli.addr: is missing; give the host:port of a Copilot CLI that runs with " +
			"--headless --port, or a command that runs one",
		copilotFile(
			`addr: "127.0.0.1:1", command: [copilot], provider_backend: off`,
		): "mneme.yaml:5: proxy.backends.cli.command: addr is set too; keep one of them",
		copilotFile(
			`addr: "127.0.0.1", provider_backend: off`,
		): `mneme.yaml:5: proxy.backends.cli.addr: host:port is needed, such as 127.0.0.1:8080, not "127.0.0.1"`,
		copilotFile(
			`command: [""], provider_backend: off`,
		): "mneme.yaml:5: proxy.backends.cli.command[0]: is empty or missing; it is a program or one of its " +
			"arguments, such as [copilot]",
		copilotFile(
			`command: [copilot], api_key_env: T, provider_backend: off`,
		): "mneme.yaml:5: proxy.backends.cli.api_key_env: a CLI that the gateway runs gets a token of its own; remove it, " +
			"or give addr instead of command",
		copilotFile(
			`addr: "127.0.0.1:1"`,
		): "mneme.yaml:5: proxy.backends.cli.provider_backend: is missing; name the backend that answers the CLI's own " +
			"model calls; proxy.backends has: cli, off",
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: gpt`,
		): `mneme.yaml:5: proxy.backends.cli.provider_backend: there is no backend "gpt"; proxy.backends has: cli, off`,
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: cli`,
		): `mneme.yaml:5: proxy.backends.cli.provider_backend: "cli" is of kind copilot too, so that the CLI's model ` +
			`calls would go round in circles; name another one`,
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: off, base_url: "http://x"`,
		): "mneme.yaml:5: proxy.backends.cli.base_url: a backend of kind copilot has none: " +
			"addr or command says where the CLI is; " +
			"remove it, or change kind",
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: off, auth: none`,
		): "mneme.yaml:5: proxy.backends.cli.auth: a backend of kind copilot has none: " +
			"the token of api_key_env is presented if " +
			"there is one; remove it, or change kind",
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: off, vendor: openai`,
		): "mneme.yaml:5: proxy.backends.cli.vendor: a backend of kind copilot has none: " +
			"the rules are those of provider_backend; " +
			"remove it, or change kind",
		copilotFile(
			`addr: "127.0.0.1:1", provider_backend: off, thinking: {budget_tokens: 2000}`,
		): "mneme.yaml:5: proxy.backends.cli.thinking: a backend of kind copilot has none: " +
			"what the model thinks does not come " +
			"out of the CLI; set it for provider_backend; remove it, or change kind",
		copilotFile(
			`addr: "copilot:4321", provider_backend: off`,
		): `mneme.yaml:1: proxy.advertise: is missing; the Copilot CLI of proxy.backends.cli runs at copilot:4321 and needs ` +
			`the URL under which it reaches this gateway, such as http://proxy:8082`,
		copilotFile(`addr: "127.0.0.1:1", provider_backend: off`) +
			"  advertise: proxy:8082\n": `mneme.yaml:6: proxy.advertise: an http:// or https:// URL is needed, not "proxy:8082"`,
		copilotFile(`addr: "127.0.0.1:1", provider_backend: off`) +
			"  teammates: {copilot: off}\n": "mneme.yaml:6: proxy.teammates.copilot: the name is taken by the CLI's own " +
			"model calls, which go to provider_backend; remove it",
		copilotFile(`addr: "127.0.0.1:1", provider_backend: off`) +
			"agents: {subagents: [{name: copilot, description: x}]}\n": `mneme.yaml:5: proxy.backends.cli.kind: the CLI's ` +
			`model calls come back under the name "copilot", which a subagent or a member of the panel has; rename that`,
		copilotFile(`addr: "127.0.0.1:1", provider_backend: off`) +
			"    more: {kind: copilot, addr: 'localhost:2', provider_backend: k}\n    k: {kind: openai, base_url: " +
			"'https://x/v1'}\n": `mneme.yaml:5: proxy.backends.cli.provider_backend: that of "more" is "k"; all CLIs come ` +
			`back by one route, so both must be the same`,
		copilotFile(`addr: "127.0.0.1:1", provider_backend: k`) +
			"    k: {kind: openai, auth: passthrough, base_url: 'https://x/v1'}\n": `mneme.yaml:5: ` +
			`proxy.backends.cli.provider_backend: the auth of "k" is passthrough, and the CLI has no caller's credential to ` +
			`pass on; name another one`,
		"proxy: {backends: {a: {kind: offline, addr: 'x:1'}}}\n": "mneme.yaml:1: proxy.backends.a.addr: a backend of " +
			"kind offline has none: it is for a Copilot CLI; remove it, or change kind",
	} {
		_, err := load(t, text)
		require.EqualError(t, err, want)
	}
}
