package sanitize_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// accepted sends what was made of a request to a strict vendor.
func accepted(t *rapid.T, v upstreamtest.Config, in sanitize.Input) {
	out := sanitize.Sanitize(in)
	path := map[wire.Dialect]string{wire.Messages: "/v1/messages", wire.Chat: "/v1/chat/completions"}[in.Dialect]
	req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(out.Body))
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header["Anthropic-Beta"] = slices.Clone(in.Betas)
	out.Header(req.Header)
	w := httptest.NewRecorder()
	upstreamtest.New(v).ServeHTTP(w, req)
	require.Equal(t, 200, w.Code, "%s\n%s\nbecame\n%s\n%v", w.Body, in.Outline.Body, out.Body, out.Changes)
}

// Whatever model a request was written for, the one that it reaches takes it.
func TestAcceptedByAnthropic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true}
		model := g.pick("model", "claude-opus-4-8", "claude-sonnet-4-5", "claude-haiku-4-5-20251001", "claude-opus-4-6",
			"claude-opus-5",
			"claude-opus-5-5", "claude-sonnet-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-mythos-preview")
		in := input(t, wire.Messages, g.messagesBody(model), "anthropic",
			g.pick("beta", "", "context-1m-2025-08-07,interleaved-thinking-2025-05-14"))
		if len(in.Outline.Messages) == 0 {
			t.Skip("nothing is said")
		}
		accepted(t, upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{SkipSignatures: true}}, in)
	})
}

func TestAcceptedByBedrock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true}
		in := input(t, wire.Messages, g.messagesBody("us.anthropic.claude-sonnet-4-5-20250929-v1:0"), "bedrock",
			"claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27")
		if len(in.Outline.Messages) == 0 {
			t.Skip("nothing is said")
		}
		accepted(t, upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{
			SkipSignatures: true, Bedrock: true, NoContextManagement: true, Betas: []string{"interleaved-thinking-2025-05-14"},
		}}, in)
	})
}

func TestAcceptedByOtherVendors(t *testing.T) {
	for name, c := range map[string]struct {
		model   string
		dialect wire.Dialect
		config  upstreamtest.Config
	}{
		"kimi": {"kimi-k2.7-code", wire.Messages, upstreamtest.Config{
			Vendor: upstreamtest.Kimi, Thinking: upstreamtest.ThinkingRules{OnlyEnabled: true},
		}},
		"kimi ":    {"kimi-k2.6", wire.Chat, upstreamtest.Config{Vendor: upstreamtest.Kimi}},
		"deepseek": {"deepseek-v4-pro", wire.Messages, upstreamtest.Config{Vendor: upstreamtest.DeepSeek}},
		"openai": {"gpt-5", wire.Chat, upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
			KnownArguments: true,
		}}},
		"groq": {"llama", wire.Chat, upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
			Replay: upstreamtest.ReplayGroq,
		}}},
		"mistral": {"mistral-large", wire.Chat, upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
			ToolIDs: upstreamtest.MistralIDs, Replay: upstreamtest.ReplayMistral,
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := generator{T: t, tame: true, blind: name == "deepseek"}
				in := input(t, c.dialect, drawBody(g, c.dialect, c.model), strings.TrimSpace(name))
				list := again(t, in, sanitize.Sanitize(in)).Outline.Messages
				if n := len(list); n == 0 || c.dialect == wire.Chat && list[n-1].Role != "user" && list[n-1].Role != "tool" {
					t.Skip("the model is not asked")
				}
				accepted(t, c.config, in)
			})
		})
	}
}
