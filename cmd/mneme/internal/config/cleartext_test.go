package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A secret does not go through the internet without TLS, whichever setting has its address, and is warned about in a
// private network.
func TestSecretsGoNowhereInTheClear(t *testing.T) {
	for key, text := range map[string]string{
		"proxy.backends.v.base_url": "proxy: {backends: {v: {kind: openai, base_url: URL/v1, api_key_env: K}}}",
		"proxy.backends.w.base_url": "proxy: {backends: {w: {kind: openai, base_url: URL/v1}}, routes: {r: {use: [w], " +
			"keys: {w: [K]}}}}",
		"approvals.webhook.url": "approvals: {webhook: {url: URL, secret_env: K}}",
		"retrieval.rerank.url":  "retrieval: {rerank: {url: URL, api_key_env: K}}",
		"retrieval.engine.urls": "retrieval: {engine: {urls: [\"https://a.example\", \"URL\"], api_key_env: K}}",
		"cold.endpoint":         "cold: {store: \"s3://b\", endpoint: URL, access_key_env: K, secret_key_env: K}",
	} {
		t.Run(key, func(t *testing.T) {
			at := func(address string) (Config, error) {
				return load(t, strings.ReplaceAll(text, "URL", address), "K=abc")
			}
			_, err := at("http://api.example.com")
			require.ErrorContains(t, err, key+": a secret would go through the internet in the clear; write https://")
			for address, warnings := range map[string]int{
				"https://api.example.com": 0, "http://127.0.0.1:9": 0, "http://localhost": 0, "http://10.0.0.8": 1, "http://models": 1,
			} {
				c, err := at(address)
				require.NoError(t, err)
				require.Len(t, c.Cleartext(), warnings, address)
			}
		})
	}
}
