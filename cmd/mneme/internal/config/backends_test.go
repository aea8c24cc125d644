package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongBackends(t *testing.T) {
	const backend = "proxy:\n  backends:\n    kimi:\n      kind: anthropic\n"
	for name, test := range map[string]struct {
		text, want string
	}{
		"openai address without /v1": {
			"proxy: {backends: {gpt: {kind: openai, base_url: 'https://api.openai.com'}}}\n",
			`mneme.yaml:1: proxy.backends.gpt.base_url: the API of kind openai of this vendor is at ` +
				`https://api.openai.com/v1; write that`,
		},
		"gemini's address without its OpenAI half": {
			"proxy: {backends: {g: {kind: openai, base_url: 'https://generativelanguage.googleapis.com/v1beta/'}}}\n",
			`mneme.yaml:1: proxy.backends.g.base_url: the API of kind openai of this vendor is at ` +
				`https://generativelanguage.googleapis.com/v1beta/openai; write that`,
		},
		"gemini's address of its OpenAI half": {
			"proxy: {backends: {g: {kind: interactions, base_url: 'https://generativelanguage.googleapis.com/v1beta/openai'}}}\n",
			`mneme.yaml:1: proxy.backends.g.base_url: the API of kind interactions of this vendor is at ` +
				`https://generativelanguage.googleapis.com/v1beta; write that`,
		},
		"the address of an interaction": {
			"proxy: {backends: {g: {kind: interactions, base_url: 'https://x/v1beta/interactions'}}}\n",
			`mneme.yaml:1: proxy.backends.g.base_url: that is the address of one endpoint; write https://x/v1beta`,
		},
		"the other kind's address": {
			"proxy: {backends: {k: {kind: openai, base_url: 'https://api.moonshot.ai/anthropic'}}}\n",
			`mneme.yaml:1: proxy.backends.k.base_url: the API of kind openai of this vendor is at ` +
				`https://api.moonshot.ai/v1; write that`,
		},
		"anthropic address of another vendor": {
			backend + "      base_url: https://api.moonshot.ai\n",
			`mneme.yaml:5: proxy.backends.kimi.base_url: the API of kind anthropic of this vendor is at ` +
				`https://api.moonshot.ai/anthropic; write that`,
		},
		"a kind that the vendor does not have": {
			backend + "      base_url: https://api.openai.com\n",
			`mneme.yaml:5: proxy.backends.kimi.base_url: api.openai.com has no API of kind anthropic; set kind to openai`,
		},
		"a key in the query": {
			"proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1?Key=abc'}}}\n",
			`mneme.yaml:1: proxy.backends.gpt.base_url: a key does not belong in the URL; name its variable in api_key_env`,
		},
		"address of an endpoint": {
			"proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1/chat/completions'}}}\n",
			`mneme.yaml:1: proxy.backends.gpt.base_url: that is the address of one endpoint; write https://x/v1`,
		},
		"address of anthropic's endpoint": {
			backend + "      base_url: https://x/v1/messages\n",
			`mneme.yaml:5: proxy.backends.kimi.base_url: that is the address of one endpoint; write https://x`,
		},
		"thinking of an openai backend": {
			"proxy:\n  backends:\n    gpt:\n      kind: openai\n      base_url: https://x/v1\n      thinking: " +
				"{budget_tokens: 2000}\n",
			`mneme.yaml:6: proxy.backends.gpt.thinking: a backend of kind openai has none: there the request's ` +
				`reasoning_effort decides; remove it, or change kind`,
		},
		"thinking of an offline backend": {
			"proxy:\n  backends:\n    off: {kind: offline, thinking: {unproven: lazy}}\n",
			`mneme.yaml:3: proxy.backends.off.thinking: a backend of kind offline has none: its model does not think; remove it, or ` +
				`change kind`,
		},
		"vendor of an offline backend": {
			"proxy:\n  backends:\n    off: {kind: offline, vendor: kimi}\n",
			`mneme.yaml:3: proxy.backends.off.vendor: a backend of kind offline has none: it keeps no vendor's rules; remove it, or ` +
				`change kind`,
		},
		"runs for an offline backend": {
			"proxy:\n  backends:\n    off: {kind: offline, pass_run: true}\n",
			`mneme.yaml:3: proxy.backends.off.pass_run: a backend of kind offline has none: it calls nobody's ` +
				`server; remove it, or change kind`,
		},
		"models of an offline backend": {
			"proxy:\n  backends:\n    off: {kind: offline, model_map: {master: x}}\n",
			`mneme.yaml:3: proxy.backends.off.model_map: a backend of kind offline has none: it has one model, whatever it is ` +
				`called; remove it, or change kind`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.text)
			require.EqualError(t, err, test.want)
		})
	}
}

// A key that stands where something of another form belongs is in no message either.
func TestWhatMayBeASecretIsNotRepeated(t *testing.T) {
	const pasted = "sk-proj-Ab3dEf6hIj9kLm2nOp5q"
	for setting, entry := range map[string]string{"kind": "kind: %s", "addr": "kind: openai, addr: %s",
		"auth": "kind: copilot, auth: %s", "base_url": "kind: openai, base_url: %s"} {
		_, err := load(t, fmt.Sprintf("proxy:\n  backends:\n    gpt: {"+entry+"}\n", pasted))
		require.ErrorContains(t, err, "proxy.backends.gpt."+setting, setting)
		require.NotContains(t, err.Error(), pasted, setting)
	}
}

// A key pasted where a variable's name belongs is refused, and is in no message.
func TestPastedKeysAreRefusedAndNotRepeated(t *testing.T) {
	for _, pasted := range []string{
		"sk-proj-Ab3dEf6hIj9kLm2nOp5q", "sk_test_4eC39HqLyjWDarjtT1zdp7dc", "gsk_Ab3dEf6hIj9kLm2nOp5q",
		"AIzaSyA1b2C3d4E5f6G7h8I9j0KlMnOpQrStUvW",
		"b1946ac92492d2347c6235b4d2611184", "AKIAIOSFODNN7EXAMPLE123", "xai-1234", "my key", "Bearer abc", "eyJhbGciOi.J9.x",
	} {
		const file = "proxy:\n  backends:\n    gpt:\n      kind: openai\n      base_url: https://x/v1\n      api_key_env: " +
			"%q\n"
		_, err := load(t, fmt.Sprintf(file, pasted))
		require.ErrorContains(t, err, "mneme.yaml:6: proxy.backends.gpt.api_key_env: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)

		_, err = load(t, "", fmt.Sprintf("MNEME_PROXY_BACKENDS={gpt: {kind: openai, base_url: 'https://x/v1', "+
			"api_key_env: %q}}", pasted))
		require.ErrorContains(t, err,
			"MNEME_PROXY_BACKENDS: proxy.backends.gpt.api_key_env: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)

		_, err = load(t, fmt.Sprintf("redis:\n  url: redis://h\n  password_env: %q\n", pasted))
		require.ErrorContains(t, err, "mneme.yaml:3: redis.password_env: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)
	}
	for _, name := range []string{"OPENAI_API_KEY", "openai_key", "KEY2", "_k", "GLM_4_6_KEY_1234_OF_TEAM_2"} {
		_, err := load(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1', api_key_env: "+name+"}}}\n")
		require.NoError(t, err, name)
	}
	for _, elsewhere := range []string{
		"{kind: openai, base_url: sk-hush-12345678}", "{kind: openai, api_key: sk-hush}",
		"{kind: openai, api_key_env: [sk-hush]}", "{kind: openai, api_key_env: {sk-hush: 1}}", "sk-hush",
	} {
		_, err := load(t, "proxy: {backends: {gpt: "+elsewhere+"}}\n")
		require.Error(t, err, elsewhere)
		require.NotContains(t, err.Error(), "hush", elsewhere)
	}
	_, err := load(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1', api_key_env: sk_live_123}}}\n",
		"sk_live_123=hush")
	require.NoError(t, err, "a variable of this name is set, so it is a name")
}

func TestAddressesOfOtherFormsAreTaken(t *testing.T) {
	for _, base := range []string{
		"https://api.z.ai/api/paas/v4", "https://generativelanguage.googleapis.com/v1beta/openai/",
		"https://api.deepseek.com", "https://openrouter.ai/api/v1",
		"http://127.0.0.1:11434/v1", "https://models.example.com", "https://x.openai.azure.com/openai/v1",
		"https://api.groq.com/openai/v1",
	} {
		_, err := load(t, "proxy: {backends: {b: {kind: openai, base_url: '"+base+"'}}}\n")
		require.NoError(t, err, base)
	}
	for _, base := range []string{"https://api.anthropic.com/", "https://api.moonshot.ai/anthropic",
		"https://api.z.ai/api/anthropic", "http://127.0.0.1:1"} {
		_, err := load(t, "proxy: {backends: {b: {kind: anthropic, base_url: '"+base+"'}}}\n")
		require.NoError(t, err, base)
	}
}

// Azure documents an address with a query.
func TestABaseURLMayHaveAQuery(t *testing.T) {
	_, err := load(t, "proxy: {backends: {a: {kind: openai, auth: none, "+
		"base_url: 'https://x.openai.azure.com/openai/v1?api-version=2024-12-01-preview'}}}\n")
	require.NoError(t, err)
}
