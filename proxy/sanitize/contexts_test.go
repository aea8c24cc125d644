package sanitize

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContextTokens(t *testing.T) {
	for model, want := range map[string]int{
		"claude-opus-4-8": 200_000, "anthropic/claude-sonnet-4.5": 200_000,
		"us.anthropic.claude-haiku-4-5-20251001-v1:0": 200_000,
		"gpt-4.1": 1_047_576, "gpt-4.1-mini": 1_047_576, "gpt-4o-mini": 128_000, "gpt-4": 8_192, "gpt-4-0613": 8_192,
		"gpt-4-turbo": 128_000,
		"gpt-5":       400_000, "gpt-5.1-codex": 400_000, "gpt-5-chat-latest": 128_000, "GPT-3.5-turbo-0125": 16_385,
		"openai/gpt-oss-120b": 131_072,
		"o1":                  200_000, "o3-mini": 200_000, "o4-mini": 200_000, "o1-mini": 128_000, "openai/o3": 200_000,
		"gemini-2.5-flash": 1_048_576, "models/gemini-3-pro-preview": 1_048_576, "gemini-1.5-pro-002": 2_097_152,
		"kimi-k2.6": 262_144, "moonshot-v1-8k": 8_192, "deepseek-chat": 131_072, "deepseek/deepseek-r1": 131_072,
		"glm-4.6": 204_800, "glm-5": 204_800, "glm-4.5-air": 131_072, "MiniMax-M2": 204_800,
		"mistral-large-latest": 131_072, "codestral-latest": 262_144, "mistral-7b-instruct": 32_768,
		"grok-4": 262_144, "grok-4-1-fast-reasoning": 2_000_000, "grok-3": 131_072,
		"llama-3.3-70b-versatile": 131_072, "llama3-70b-8192": 8_192, "qwen3-32b": 131_072,
		"master": 0, "": 0, "my-own-model": 0, "o2": 0, "video1": 0,
	} {
		require.Equal(t, want, ContextTokens(model, false), model)
	}
	require.Equal(t, 200_000, ContextTokens("claude-opus-4-8", true))
	require.Zero(t, ContextTokens("llama3.2", true), "Ollama gives it 4,096 unless told otherwise")
}

func TestOutputTokens(t *testing.T) {
	for model, want := range map[string]int64{
		"claude-opus-4-8": 128_000, "claude-opus-4-8[1m]": 128_000, "us.anthropic.claude-opus-4-8-v1:0": 128_000,
		"claude-opus-4-5": 64_000, "claude-sonnet-4-5": 64_000, "anthropic/claude-sonnet-4.5": 64_000,
		"claude-sonnet-4-20250514": 64_000, "claude-haiku-4-5-20251001": 64_000, "claude-3-7-sonnet": 64_000,
		"claude-opus-4-1": 32_000, "claude-opus-4-1-20250805": 32_000, "claude-opus-4": 32_000,
		"claude-opus-4-20250514": 32_000, "claude-opus-4-0": 32_000, "claude-3-5-haiku": 8_192,
		"claude-3-haiku-20240307": 4_096, "claude-fable-9": 0, "gpt-5": 0,
	} {
		require.Equal(t, want, OutputTokens(model), model)
	}
}
