package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// secretAddress is a configured address that receives a secret.
type secretAddress struct{ key, url string }

// secretAddresses returns the addresses of model vendors, the webhook, retrieval and the cold store. Tools check their own
// addresses.
func (c Config) secretAddresses() (all []secretAddress) {
	add := func(secret Variable, key, url string) {
		if secret.Name != "" && url != "" {
			all = append(all, secretAddress{key, url})
		}
	}
	for name, b := range sorted(c.Proxy.Backends) {
		add(b.APIKeyEnv, join("proxy.backends", name)+".base_url", b.BaseURL)
	}
	add(c.Approvals.Webhook.SecretEnv, "approvals.webhook.url", c.Approvals.Webhook.URL)
	add(c.Retrieval.Rerank.APIKeyEnv, "retrieval.rerank.url", c.Retrieval.Rerank.URL)
	for _, to := range c.Retrieval.Engine.URLs {
		add(c.Retrieval.Engine.APIKeyEnv, "retrieval.engine.urls", to)
	}
	add(c.Cold.SecretKeyEnv, "cold.endpoint", c.Cold.Endpoint)
	return all
}

// checkCleartext refuses public addresses that would receive a secret without TLS.
func (c Config) checkCleartext() error {
	for _, a := range c.secretAddresses() {
		if u, err := url.Parse(a.url); err == nil && u.Scheme == "http" && !inside(u.Hostname()) {
			return bad(a.key, "a secret would go through the internet in the clear; write https://")
		}
	}
	return nil
}

// Cleartext returns a warning for each address on another machine that receives a secret without TLS.
func (c Config) Cleartext() (all []string) {
	for _, a := range c.secretAddresses() {
		u, err := url.Parse(a.url)
		if err == nil && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			all = append(all, fmt.Sprintf("%s: a secret goes to %s without TLS; write https:// if the server has it", a.key, u.Host))
		}
	}
	return all
}

// inside reports whether a host is of this machine or of a private network.
func inside(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc([]string{
		".localhost", ".local", ".internal", ".svc", ".home.arpa", ".test",
	}, func(end string) bool { return strings.HasSuffix(strings.ToLower(host), end) })
}
