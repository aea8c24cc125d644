package config

import (
	"cmp"
	"net"
	"slices"
	"strings"
)

// copilotTeammate is the name under which the gateway takes the model calls of the
// Copilot CLI.
const copilotTeammate = "copilot"

// validateCopilot checks a backend of kind copilot by itself.
func (b Backend) validateCopilot(key string) error {
	const none = "a copilot backend has none: %s; remove it"
	return cmp.Or(
		when(b.BaseURL != "", key+".base_url", none, "addr or command says where the CLI is"),
		when(b.Auth != "", key+".auth", none, "the token of api_key_env is presented if there is one"),
		when(b.Vendor != "", key+".vendor", none, "the rules are those of provider_backend"),
		when(b.Profile != nil, key+".profile", none, "the rules are those of provider_backend"),
		when(b.Thinking != Thinking{}, key+".thinking", none,
			"what the model thinks does not come out of the CLI; set it for provider_backend"),
		when(b.Addr == "" && len(b.Command) == 0, key+".addr",
			"is missing; give the host:port of a Copilot CLI that runs with --headless --port, or a command that runs one"),
		when(b.Addr != "" && len(b.Command) > 0, key+".command", "addr is set too; keep one of them"),
		optional(address, key+".addr", b.Addr),
		when(slices.Contains(b.Command, ""), key+".command",
			"an empty word in it; a program and its arguments are needed, such as [copilot]"),
		when(b.Addr == "" && b.APIKeyEnv != "", key+".api_key_env",
			"a CLI that the gateway runs gets a token of its own; remove it, or give addr instead of command"),
	)
}

// validateCopilot checks what a backend needs of the rest if it is of kind copilot.
func (p Proxy) validateCopilot(name string, b Backend, teammates []string) error {
	if b.Kind != KindCopilot {
		return nil
	}
	key := join("proxy.backends", name) + ".provider_backend"
	provider := p.Backends[b.ProviderBackend]
	err := cmp.Or(
		when(b.ProviderBackend == "", key,
			"is missing; name the backend that answers the CLI's own model calls; proxy.backends has: %s", p.names()),
		p.has(key, b.ProviderBackend),
		when(provider.Kind == KindCopilot, key,
			"%q is of kind %s too, so that the CLI's model calls would go round in circles; name another one",
			b.ProviderBackend, KindCopilot),
		when(provider.Auth == "passthrough", key,
			"the auth of %q is passthrough, and the CLI has no caller's credential to pass on; name another one",
			b.ProviderBackend),
	)
	if err != nil {
		return err
	}
	for other, c := range sorted(p.Backends) {
		if c.Kind == KindCopilot && c.ProviderBackend != b.ProviderBackend {
			return bad(key, "that of %q is %q; all CLIs come back by one route, so both must be the same", other,
				c.ProviderBackend)
		}
	}
	_, taken := p.Teammates[copilotTeammate]
	host, _, _ := net.SplitHostPort(b.Addr)
	ip := net.ParseIP(host)
	here := host == "" || strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
	return cmp.Or(
		when(taken, join("proxy.teammates", copilotTeammate),
			"the name is taken by the CLI's own model calls, which go to provider_backend; remove it"),
		when(slices.Contains(teammates, copilotTeammate), join("proxy.backends", name)+".kind",
			"the CLI's model calls come back under the name %q, which a subagent or a member of the panel has; rename that",
			copilotTeammate),
		when(p.Advertise == "" && !here, "proxy.advertise",
			"is missing; the Copilot CLI of backend %q runs at %s and needs the URL under which it reaches this gateway, "+
				"such as http://proxy:8082", name, b.Addr),
	)
}
