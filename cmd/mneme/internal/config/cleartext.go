package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// cleartext is a configured address that receives a secret without TLS.
type cleartext struct {
	key string
	url *url.URL
}

// cleartexts returns the addresses of model vendors, the webhook, retrieval and the cold store that receive a secret
// without TLS. Tools check their own addresses.
func (c Config) cleartexts() (list []cleartext) {
	add := func(secret Variable, key, address string) {
		if u, err := url.Parse(address); err == nil && u.Scheme == "http" && secret.Name != "" {
			list = append(list, cleartext{key, u})
		}
	}
	for name, b := range sorted(c.Proxy.Backends) {
		keys := []Variable{b.APIKeyEnv}
		for _, r := range c.Proxy.Routes {
			keys = append(keys, r.Keys[name]...)
		}
		if i := slices.IndexFunc(keys, func(v Variable) bool { return v.Name != "" }); i >= 0 {
			add(keys[i], join("proxy.backends", name)+".base_url", b.BaseURL)
		}
	}
	add(c.Approvals.Webhook.SecretEnv, "approvals.webhook.url", c.Approvals.Webhook.URL)
	add(c.Retrieval.Rerank.APIKeyEnv, "retrieval.rerank.url", c.Retrieval.Rerank.URL)
	for _, addr := range c.Retrieval.Engine.URLs {
		add(c.Retrieval.Engine.APIKeyEnv, "retrieval.engine.urls", addr)
	}
	add(c.Cold.SecretKeyEnv, "cold.endpoint", c.Cold.Endpoint)
	return list
}

// checkCleartext refuses public addresses that would receive a secret without TLS.
func (c Config) checkCleartext() error {
	for _, a := range c.cleartexts() {
		if !inside(a.url.Hostname()) {
			return bad(a.key, "a secret would go through the internet in the clear; write https://")
		}
	}
	return nil
}

// Cleartext returns a warning for each address on another machine that receives a secret without TLS.
func (c Config) Cleartext() (warnings []string) {
	for _, a := range c.cleartexts() {
		if !onThisMachine(a.url.Hostname()) {
			warnings = append(warnings, fmt.Sprintf("%s: a secret goes to %s without TLS; write https:// if the server has it", a.key,
				a.url.Host))
		}
	}
	return warnings
}

func onThisMachine(host string) bool {
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}

// inside reports whether a host is of this machine or of a private network.
func inside(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return onThisMachine(host) || !strings.Contains(host, ".") || slices.ContainsFunc([]string{
		".local", ".internal", ".svc", ".home.arpa", ".test",
	}, func(end string) bool { return strings.HasSuffix(strings.ToLower(host), end) })
}
