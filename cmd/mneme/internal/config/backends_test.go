package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key pasted where a variable's name belongs is refused, and is in no message.
func TestPastedKeysAreRefusedAndNotRepeated(t *testing.T) {
	for _, pasted := range []string{
		"sk-proj-Ab3dEf6hIj9kLm2nOp5q", "sk_test_4eC39HqLyjWDarjtT1zdp7dc", "gsk_Ab3dEf6hIj9kLm2nOp5q", "AIzaSyA1b2C3d4E5f6G7h8I9j0KlMnOpQrStUvW",
		"b1946ac92492d2347c6235b4d2611184", "AKIAIOSFODNN7EXAMPLE123", "xai-1234", "my key", "Bearer abc", "eyJhbGciOi.J9.x",
	} {
		const file = "proxy:\n  backends:\n    gpt:\n      kind: openai\n      base_url: https://x/v1\n      api_key_env: %q\n"
		_, err := load(t, fmt.Sprintf(file, pasted))
		require.ErrorContains(t, err, "mneme.yaml:6: proxy.backends.gpt.api_key_env: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)

		_, err = load(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1'}}}\n", "MNEME_PROXY_BACKENDS_GPT_API_KEY_ENV="+pasted)
		require.ErrorContains(t, err, "MNEME_PROXY_BACKENDS_GPT_API_KEY_ENV: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)

		_, err = load(t, fmt.Sprintf("redis:\n  url: redis://h\n  password_env: %q\n", pasted))
		require.ErrorContains(t, err, "mneme.yaml:3: redis.password_env: this looks like a secret itself", pasted)
		require.NotContains(t, err.Error(), pasted)
	}
	for _, name := range []string{"OPENAI_API_KEY", "openai_key", "KEY2", "_k", "GLM_4_6_KEY_1234_OF_TEAM_2"} {
		_, err := load(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1', api_key_env: "+name+"}}}\n")
		require.NoError(t, err, name)
	}
	_, err := load(t, "proxy: {backends: {gpt: {kind: openai, base_url: 'https://x/v1', api_key_env: sk_live_123}}}\n", "sk_live_123=hush")
	require.NoError(t, err, "a variable of this name is set, so it is a name")
}

func TestAddressesOfOtherFormsAreTaken(t *testing.T) {
	for _, base := range []string{
		"https://api.z.ai/api/paas/v4", "https://generativelanguage.googleapis.com/v1beta/openai/", "https://api.deepseek.com", "https://openrouter.ai/api/v1",
		"http://127.0.0.1:11434/v1", "https://models.example.com", "https://x.openai.azure.com/openai/v1", "https://api.groq.com/openai/v1",
	} {
		_, err := load(t, "proxy: {backends: {b: {kind: openai, base_url: '"+base+"'}}}\n")
		require.NoError(t, err, base)
	}
	for _, base := range []string{"https://api.anthropic.com/", "https://api.moonshot.ai/anthropic", "https://api.z.ai/api/anthropic", "http://127.0.0.1:1"} {
		_, err := load(t, "proxy: {backends: {b: {kind: anthropic, base_url: '"+base+"'}}}\n")
		require.NoError(t, err, base)
	}
}
