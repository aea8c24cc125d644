package config

import (
	"net"
	"slices"
	"strings"
)

// copilotTeammate is the name under which the gateway takes the model calls of the
// Copilot CLI.
const copilotTeammate = "copilot"

// validateCopilot checks a backend of kind copilot by itself.
func (b Backend) validateCopilot(key string) error {
	for _, other := range []struct {
		name, why string
		set       bool
	}{
		{"base_url", "addr or command says where the CLI is", b.BaseURL != ""},
		{"auth", "the token of api_key_env is presented if there is one", b.Auth != ""},
		{"vendor", "the rules are those of provider_backend", b.Vendor != ""},
		{"profile", "the rules are those of provider_backend", b.Profile != nil},
		{"thinking", "what the model thinks does not come out of the CLI; set it for provider_backend",
			b.Thinking != Thinking{}},
	} {
		if other.set {
			return bad(key+"."+other.name, "a copilot backend has none: %s; remove it", other.why)
		}
	}
	switch {
	case b.Addr == "" && len(b.Command) == 0:
		return bad(key+".addr",
			"is missing; give the host:port of a Copilot CLI that runs with --headless --port, or a command that runs one")
	case b.Addr != "" && len(b.Command) > 0:
		return bad(key+".command", "addr is set too; keep one of them")
	case b.Addr != "":
		return address(key+".addr", b.Addr)
	case slices.Contains(b.Command, ""):
		return bad(key+".command", "an empty word in it; a program and its arguments are needed, such as [copilot]")
	case b.APIKeyEnv != "":
		return bad(key+".api_key_env",
			"a CLI that the gateway runs gets a token of its own; remove it, or give addr instead of command")
	}
	return nil
}

// validateCopilot checks what a copilot backend needs of the rest.
func (p Proxy) validateCopilot(name string, b Backend, teammates []string) error {
	key := join("proxy.backends", name) + ".provider_backend"
	if b.ProviderBackend == "" {
		return bad(key, "is missing; name the backend that answers the CLI's own model calls; proxy.backends has: %s",
			p.names())
	}
	if err := p.has(key, b.ProviderBackend); err != nil {
		return err
	}
	provider := p.Backends[b.ProviderBackend]
	switch {
	case provider.Kind == KindCopilot:
		return bad(key, "%q is of kind %s too, so that the CLI's model calls would go round in circles; name another one",
			b.ProviderBackend, KindCopilot)
	case provider.Auth == "passthrough":
		return bad(key, "the auth of %q is passthrough, and the CLI has no caller's credential to pass on; name another one",
			b.ProviderBackend)
	}
	for other, c := range sorted(p.Backends) {
		if c.Kind == KindCopilot && c.ProviderBackend != b.ProviderBackend {
			return bad(key, "that of %q is %q; all CLIs come back by one route, so both must be the same", other,
				c.ProviderBackend)
		}
	}
	if _, taken := p.Teammates[copilotTeammate]; taken {
		return bad(join("proxy.teammates", copilotTeammate),
			"the name is taken by the CLI's own model calls, which go to provider_backend; remove it")
	}
	if slices.Contains(teammates, copilotTeammate) {
		return bad(join("proxy.backends", name)+".kind",
			"the CLI's model calls come back under the name %q, which a subagent or a member of the panel has; rename that",
			copilotTeammate)
	}
	return p.reachable(name, b)
}

// reachable asks for proxy.advertise where a CLI elsewhere could not find back.
func (p Proxy) reachable(name string, b Backend) error {
	host, _, _ := net.SplitHostPort(b.Addr)
	if p.Advertise != "" || b.Addr == "" || host == "" || strings.EqualFold(host, "localhost") {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return bad("proxy.advertise",
		"is missing; the Copilot CLI of backend %q runs at %s and needs the URL under which it reaches this gateway, such "+
			"as http://proxy:8082", name, b.Addr)
}
