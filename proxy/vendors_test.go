package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// away takes requests for any host to one server, so that a configuration may name
// the vendor's own host.
type away struct{ to *url.URL }

func (a away) RoundTrip(r *http.Request) (*http.Response, error) {
	moved := r.Clone(r.Context())
	moved.URL.Scheme, moved.URL.Host = a.to.Scheme, a.to.Host
	return http.DefaultTransport.RoundTrip(moved)
}

// at is a gateway with a vendor as its only backend, behind a base URL of its own.
func at(t *testing.T, v *upstreamtest.Server, name, base string, c proxy.BackendConfig) (*world, *front) {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(func() { http.DefaultTransport.(*http.Transport).CloseIdleConnections(); server.Close() })
	to, err := url.Parse(server.URL)
	require.NoError(t, err)
	w := knocked(t, claude)
	c.BaseURL = base
	w.config.Backends, w.config.Active = map[string]proxy.BackendConfig{name: c}, name
	w.config.Transport = away{to}
	w.vendors = map[string]*upstreamtest.Server{name: v}
	return w, w.gateway()
}

// Kimi, GLM and DeepSeek get their own rules without being named, by their host or by
// the name of their model: adaptive thinking is asked for in their way, and the loop of
// a tool keeps the reasoning that they demand. The start says so.
func TestVendorsAreFoundOut(t *testing.T) {
	t.Parallel()
	fakes := map[string]upstreamtest.Vendor{"kimi": upstreamtest.Kimi, "glm": upstreamtest.GLM,
		"deepseek": upstreamtest.DeepSeek}
	for _, c := range []struct{ vendor, kind, base, model, why string }{
		{"kimi", "anthropic", "https://api.moonshot.ai/anthropic", "kimi-k2-thinking", "by the host api.moonshot.ai"},
		{"kimi", "openai", "https://api.moonshot.cn/v1", "kimi-k2.6", "by the host api.moonshot.cn"},
		{"kimi", "anthropic", "http://relay.example/anthropic", "kimi-k3", "by the name of its model kimi-k3"},
		{"glm", "anthropic", "https://api.z.ai/api/anthropic", "glm-4.7", "by the host api.z.ai"},
		{"glm", "openai", "https://open.bigmodel.cn/api/paas/v4", "glm-4.6", "by the host open.bigmodel.cn"},
		{"glm", "anthropic", "https://api.z.ai/api/anthropic", "glm-5.3", "by the host api.z.ai"},
		{"glm", "anthropic", "http://relay.example", "glm-4.7", "by the name of its model glm-4.7"},
		{"deepseek", "anthropic", "https://api.deepseek.com/anthropic", "deepseek-v4", "by the host api.deepseek.com"},
		{"deepseek", "openai", "https://api.deepseek.com/v1", "deepseek-reasoner", "by the host api.deepseek.com"},
		{"deepseek", "openai", "http://relay.example/v1", "deepseek-reasoner", "by the name of its model deepseek-reasoner"},
	} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(fmt.Sprint(c.kind, " at ", c.base, ", ", c.model, ", ", endpoint), func(t *testing.T) {
				v := upstreamtest.New(upstreamtest.Config{Vendor: fakes[c.vendor]})
				w, g := at(t, v, "b", c.base, proxy.BackendConfig{Kind: c.kind, ModelMap: map[string]string{"*": c.model}})
				require.Equal(t, 1, w.log.count(fmt.Sprintf(`"profile":%q,"why":%q`, c.vendor, c.why)), w.log.String())
				client, m := g.anyClient(endpoint, "master")
				m.within("c1")
				if m, ok := client.(*messagesClient); ok {
					m.thinking, m.maxTokens = `{"type":"adaptive"}`, 9000
				}
				toolTurn(v, "one")
				require.Equal(t, "one is done.", client.say("First"))
				toolTurn(v, "two")
				require.Equal(t, "two is done.", client.say("Second"))
				require.Empty(t, v.Rejections())
				require.Contains(t, string(v.Last().Body), "one thinks before", "reasoning of older turns stays, too")
				if endpoint == "messages" && c.kind == "anthropic" && c.vendor != "deepseek" {
					require.Equal(t, "enabled", gjson.GetBytes(v.Last().Body, "thinking.type").Str)
				}
			})
		}
	}
}

// Where nothing tells a backend's vendor, the kind's rules hold, and those of the model
// that a request names.
func TestAVendorThatNobodyKnows(t *testing.T) {
	t.Parallel()
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.GLM})
	w, g := at(t, v, "b", "http://relay.example", proxy.BackendConfig{Kind: proxy.KindAnthropic})
	require.Equal(t, 1,
		w.log.count(`"profile":"anthropic","why":"by the kind anthropic, since neither the host nor the names of its `+
			`models tell"`))
	c := g.messages("glm-4.7")
	c.thinking, c.maxTokens = `{"type":"adaptive"}`, 9000
	c.say("Hello")
	require.Empty(t, v.Rejections())

	w.config.Backends["b"] = proxy.BackendConfig{Kind: proxy.KindAnthropic, BaseURL: "https://api.z.ai/api/anthropic",
		Vendor: "anthropic"}
	w.gateway()
	require.Equal(t, 1, w.log.count(`"profile":"anthropic","why":"by the configuration"`), "what is configured wins")
}

// Fault: DeepSeek or Kimi at an unknown address gets another vendor's rules, which remove its reasoning. Then each round
// of a tool is refused although the ledger has the turn.
func TestReasoningGoesBackWhateverTheProfileSays(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, fake := range []upstreamtest.Vendor{upstreamtest.DeepSeek, upstreamtest.Kimi} {
		for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
			for _, vendor := range []string{"", "anthropic", "generic", "openai", "gemini", "mistral", "glm", "bedrock"} {
				for _, endpoint := range []string{"messages", "chat"} {
					for model, conversation := range map[string]string{"my-model": "c1", "claude-sonnet-4-5": ""} {
						t.Run(fmt.Sprint(fake, " as ", vendor, ", ", kind, ", ", endpoint, ", ", model), func(t *testing.T) {
							v := upstreamtest.New(upstreamtest.Config{Vendor: fake})
							_, g := at(t, v, "b", "http://relay.example", proxy.BackendConfig{Kind: kind, Vendor: vendor})
							client, m := g.anyClient(endpoint, model)
							m.within(conversation)
							if m, ok := client.(*messagesClient); ok {
								m.manual(8000)
							}
							for _, turn := range []string{"one", "two", "three"} {
								toolTurn(v, turn)
								require.Equal(t, turn+" is done.", client.say(turn))
							}
							require.Contains(t, string(v.Last().Body), "three thinks before")
							if refused := len(v.Rejections()); refused > 0 {
								require.Equal(t, 1, refused, "it is remembered")
								require.Contains(t, string(v.Last().Body), "one thinks before")
							}
						})
					}
				}
			}
		}
	}
}

// The same for Google's signatures of calls, behind a name that tells nothing.
func TestCallSignaturesGoBackWhateverTheProfileSays(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"openai", "generic", "kimi"} {
		t.Run(vendor, func(t *testing.T) {
			v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
				ThoughtSignatures: true,
			}})
			_, g := at(t, v, "b", "http://relay.example/v1", proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: vendor})
			client := g.chat("my-model")
			client.within("c1")
			for _, turn := range []string{"one", "two", "three"} {
				toolTurn(v, turn)
				require.Equal(t, turn+" is done.", client.say(turn))
			}
			require.LessOrEqual(t, len(v.Rejections()), 1, "it is remembered")
		})
	}
}

// Fault: every level of effort makes the same request; a bound turns high into low,
// or does not bound.
func TestEffortsMakeADifference(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, c backendCase, model, endpoint, rest string, header ...string) gjson.Result {
		w := knocked(t, c)
		g := w.gateway()
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]%s}`, model, rest)
		got := g.ask(map[string]string{"chat": "/v1/chat/completions", "messages": "/v1/messages"}[endpoint], body, header...)
		require.Equal(t, 200, got.status, got.body)
		require.Empty(t, w.vendors[c.name].Rejections())
		return gjson.ParseBytes(w.vendors[c.name].Last().Body)
	}
	bound := func(tokens int64) backendCase {
		return claude.told(func(b *proxy.BackendConfig) { b.Thinking.BudgetTokens = tokens })
	}
	t.Run("a model that chooses its budget is told the effort", func(t *testing.T) {
		for _, c := range []backendCase{claude, bound(2000)} {
			for _, level := range []string{"low", "medium", "high"} {
				sent := ask(t, c, "claude-opus-4-8", "chat", `,"reasoning_effort":"`+level+`"`)
				require.Equal(t, level, sent.Get("output_config.effort").Str)
				require.Equal(t, "adaptive", sent.Get("thinking.type").Str)
			}
		}
		require.False(t, ask(t, claude, "claude-opus-4-8", "chat", "").Get("thinking").Exists())
		require.Equal(t, "medium", ask(t, claude, "claude-opus-4-8", "chat", "", "X-AG-Effort",
			"auto").Get("output_config.effort").Str)
	})
	t.Run("others get a share of the budget", func(t *testing.T) {
		for _, tokens := range []int64{2000, 10000} {
			before := int64(1024)
			for _, level := range []string{"low", "medium", "high"} {
				got := ask(t, bound(tokens), "claude-sonnet-4-5", "chat", `,"reasoning_effort":"`+level+
					`"`).Get("thinking.budget_tokens").Int()
				require.Greater(t, got, before)
				before = got
			}
			require.Equal(t, tokens, before, "high is all of it")
			auto := ask(t, bound(tokens), "claude-sonnet-4-5", "chat", "", "X-AG-Effort",
				"auto").Get("thinking.budget_tokens").Int()
			require.Equal(t, 1024+(tokens-1024)/2, auto)
		}
		require.False(t, ask(t, claude, "claude-sonnet-4-5", "chat", `,"reasoning_effort":"high"`).Get("thinking").Exists(),
			"and none where none is configured")
	})
	t.Run("the budget is a bound for every client", func(t *testing.T) {
		sent := ask(t, bound(2000), "claude-sonnet-4-5", "messages",
			`,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":5000}`)
		require.EqualValues(t, 2000, sent.Get("thinking.budget_tokens").Int())
		sent = ask(t, bound(2000), "claude-sonnet-4-5", "messages", `,"max_tokens":9000,"thinking":{"type":"adaptive"}`)
		require.EqualValues(t, 2000, sent.Get("thinking.budget_tokens").Int())
		sent = ask(t, bound(2000), "claude-sonnet-4-5", "messages",
			`,"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":1500}`)
		require.EqualValues(t, 1500, sent.Get("thinking.budget_tokens").Int())
	})
	openAI := unlisted.told(func(b *proxy.BackendConfig) { b.Vendor = "openai" })
	t.Run("OpenAI's models are asked for what they take", func(t *testing.T) {
		for model, want := range map[string]string{"gpt-4.1": "", "gpt-4o-mini": "", "gpt-3.5-turbo": "", "o3-mini": "medium",
			"gpt-5": "medium", "gpt-5.2": "medium", "gpt-9": ""} {
			require.Equal(t, want, ask(t, openAI, model, "chat", `,"max_tokens":50,"temperature":1`, "X-AG-Effort",
				"auto").Get("reasoning_effort").Str, model)
		}
		require.False(t, ask(t, openAI, "gpt-4.1", "chat", `,"reasoning_effort":"high"`).Get("reasoning_effort").Exists())
		for _, model := range []string{"gpt-5.4", "gpt-5.5", "gpt-5.6-terra"} {
			require.Equal(t, "none", ask(t, openAI, model, "chat", `,`+tool+`,"reasoning_effort":"high","temperature":1`).Get(
				"reasoning_effort",
			).Str)
		}
		require.EqualValues(t, 700, ask(t, openAI, "o3", "messages", `,"max_tokens":700,"temperature":0.3`).Get(
			"max_completion_tokens",
		).Int())
	})
	t.Run("and the header stays here", func(t *testing.T) {
		w := knocked(t, openAI)
		require.Equal(t, 200,
			w.gateway().ask("/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user","content":"hi"}]}`,
				"X-AG-Effort", "auto").status)
		require.Empty(t, w.vendors["openai"].Last().Header.Get("X-AG-Effort"))
	})
}
