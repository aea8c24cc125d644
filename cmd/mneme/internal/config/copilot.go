package config

import (
	"cmp"
	"net"
	"slices"
)

// copilotTeammate is the name under which the gateway takes the model calls of the
// Copilot CLI.
const copilotTeammate = "copilot"

// checkCopilot checks a backend of kind copilot, and what it needs of the rest.
func (b Backend) checkCopilot(key string, c Config) error {
	p := c.Proxy
	provider := p.Backends[b.ProviderBackend]
	_, isTeammate := p.Teammates[copilotTeammate]
	host, _, _ := net.SplitHostPort(b.Addr)
	isLocal := host == "" || onThisMachine(host)
	path := key + ".provider_backend"
	err := cmp.Or(
		when(b.Addr == "" && len(b.Command) == 0, key+".addr",
			"is missing; give the host:port of a Copilot CLI that runs with --headless --port, or a command that runs one"),
		when(b.Addr != "" && len(b.Command) > 0, key+".command", "addr is set too; keep one of them"),
		when(b.Addr == "" && b.APIKeyEnv.Name != "", key+".api_key_env",
			"a CLI that the gateway runs gets a token of its own; remove it, or give addr instead of command"),
		when(b.ProviderBackend == "", path,
			"is missing; name the backend that answers the CLI's own model calls; proxy.backends has: %s", listed(p.Backends)),
		p.has(path, b.ProviderBackend),
		when(provider.Kind == KindCopilot, path,
			"%q is of kind %s too, so that the CLI's model calls would go round in circles; name another one",
			b.ProviderBackend, KindCopilot),
		when(provider.Auth == "passthrough", path,
			"the auth of %q is passthrough, and the CLI has no caller's credential to pass on; name another one",
			b.ProviderBackend),
	)
	for name, other := range sorted(p.Backends) {
		err = cmp.Or(err, when(other.Kind == KindCopilot && other.ProviderBackend != b.ProviderBackend, path,
			"that of %q is %q; all CLIs come back by one route, so both must be the same", name, other.ProviderBackend))
	}
	return cmp.Or(err,
		when(isTeammate, join("proxy.teammates", copilotTeammate),
			"the name is taken by the CLI's own model calls, which go to provider_backend; remove it"),
		when(slices.Contains(c.teammates(), copilotTeammate), key+".kind",
			"the CLI's model calls come back under the name %q, which a subagent or a member of the panel has; rename that",
			copilotTeammate),
		when(p.Advertise == "" && !isLocal, "proxy.advertise",
			"is missing; the Copilot CLI of %s runs at %s and needs the URL "+
				"under which it reaches this gateway, such as http://proxy:8082", key, b.Addr),
	)
}
