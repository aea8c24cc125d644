package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/cmd/mneme/internal/config"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// vendors are strict fakes of the vendors that the examples' hosts belong to, with the
// models that they have: an alias of ours is unknown to them.
var vendors = map[string]upstreamtest.Config{
	"api.openai.com": {
		Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{OpenAI: true},
		Models: []string{"gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-5.4", "gpt-5.6", "o3",
			"o4-mini", "text-embedding-3-small"},
	},
	"api.anthropic.com": {Models: []string{"claude-sonnet-4-5", "claude-opus-4-5", "claude-opus-4-8", "claude-opus-5",
		"claude-sonnet-5"}},
	"api.moonshot.ai":  {Vendor: upstreamtest.Kimi, Models: []string{"kimi-k2-thinking", "kimi-k2.6", "kimi-k3"}},
	"api.z.ai":         {Vendor: upstreamtest.GLM, Models: []string{"glm-4.6", "glm-4.7", "glm-5.3"}},
	"127.0.0.1":        {Vendor: upstreamtest.Chat, Models: []string{"openai/gpt-5.1"}}, // LiteLLM
	"api.deepseek.com": {Vendor: upstreamtest.DeepSeek, Models: []string{"deepseek-chat", "deepseek-reasoner"}},
}

// clerk is a model that delegates the sum to the subagent analytic, which asks its
// calculator; both repeat what they are told.
func clerk(r *upstreamtest.Request) *upstreamtest.Answer {
	a := upstreamtest.Reply(upstreamtest.Think("What do the results say?"),
		upstreamtest.Say("It is "+strings.Join(r.Results, "; ")))
	if len(r.Results) == 0 {
		for _, tool := range r.Tools {
			switch {
			case tool.Name == "calculator":
				a = upstreamtest.Reply(upstreamtest.Think("A sum."), upstreamtest.Use(tool.Name, `{"expression":"17 * 23"}`))
			case strings.Contains(tool.Name, "analytic"):
				a = upstreamtest.Reply(upstreamtest.Think("It is good at sums."),
					upstreamtest.Use(tool.Name, `{"task":"How much is 17 * 23?"}`))
			}
		}
	}
	return &a
}

// elsewhere takes each vendor's host to its fake.
type elsewhere struct {
	t     *testing.T
	fakes map[string]*upstreamtest.Server
	at    map[string]*neturl.URL
}

func newElsewhere(t *testing.T) *elsewhere {
	e := &elsewhere{t: t, fakes: map[string]*upstreamtest.Server{}, at: map[string]*neturl.URL{}}
	for host, c := range vendors {
		c.APIKey, c.Answer = "a key", clerk
		e.fakes[host] = upstreamtest.New(c)
		server := httptest.NewServer(e.fakes[host])
		t.Cleanup(server.Close)
		var err error
		e.at[host], err = neturl.Parse(server.URL)
		require.NoError(t, err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return e
}

func (e *elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	at, ok := e.at[r.URL.Hostname()]
	if !ok {
		return nil, fmt.Errorf("there is no fake of %s; add one to vendors in examples_test.go", r.URL.Host)
	}
	moved := r.Clone(r.Context())
	moved.URL.Scheme, moved.URL.Host = at.Scheme, at.Host
	return http.DefaultTransport.RoundTrip(moved)
}

var fenced = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")

// examples are the blocks of README.md and docs that configure backends, by the place
// where they stand.
func examples(t *testing.T) map[string]string {
	root := filepath.Join("..", "..", "..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	found := map[string]string{}
	for _, file := range append(files, filepath.Join(root, "README.md"), filepath.Join(root, "TUTORIAL.md")) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, at := range fenced.FindAllSubmatchIndex(text, -1) {
			block := string(text[at[2]:at[3]])
			if strings.Contains("\n"+block, "\nproxy:\n") && strings.Contains(block, "\n  backends:") {
				found[fmt.Sprintf("%s:%d", filepath.Base(file), 2+strings.Count(string(text[:at[0]]), "\n"))] = block
			}
		}
	}
	return found
}

// Every configuration of backends in README.md and docs, as a user would copy it:
// the whole stack starts with it, and a message that needs a delegation and a tool is
// answered, through the master and its subagent, without a vendor refusing anything.
// Only the network is stood in: by fakes that refuse what the vendors refuse, behind
// the hosts that the examples name.
func TestTheExamplesOfTheDocumentationAreRefusedByNobody(t *testing.T) {
	testtier.Slow(t)
	all := examples(t)
	require.GreaterOrEqual(t, len(all), 6, "they are found by their fences")
	for place, text := range all {
		t.Run(place, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.WriteFile("mneme.yaml", []byte(text), 0o600))
			cfg, err := config.Load("", nil)
			require.NoError(t, err)
			var environ []string
			for _, b := range cfg.Proxy.Backends {
				if b.APIKeyEnv.Name != "" {
					environ = append(environ, b.APIKeyEnv.Name+"=a key")
				}
			}
			// A Copilot CLI is another program; what its model calls come to is tried.
			if b := cfg.Proxy.Backends[cfg.Proxy.Active]; b.Kind == config.KindCopilot {
				t.Setenv("PATH", fakeCLI(t)+":"+os.Getenv("PATH"))
				environ = append(environ, "MNEME_PROXY_ACTIVE="+b.ProviderBackend, "MNEME_PROXY_TEAMMATE_BACKEND="+
					b.ProviderBackend)
			}
			network := newElsewhere(t)
			u := startWith(t, together, network, environ...)
			for range 2 {
				require.Contains(t, u.say("1", "How much is 17 * 23?"), "391")
			}
			asked := 0
			for host, fake := range network.fakes {
				asked += fake.Count()
				for _, r := range fake.Rejections() {
					t.Errorf("%s refused: %s\n%s", host, r.Rejection, r.Body)
				}
			}
			require.GreaterOrEqual(t, asked, 8, "the master and its subagent, twice each, in both turns")
		})
	}
}

// fakeCLI is a directory with a program by the name of the Copilot CLI that does
// nothing but wait.
func fakeCLI(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "copilot"), []byte("#!/bin/sh\nexec tail -f /dev/null\n"), 0o700))
	return dir
}

// How hard the master and a subagent think, as it reaches the vendor.
func TestTheAgentsEffort(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, c := range map[string]struct {
		model   string
		environ []string
		want    string
	}{
		"a model that is known to take it":   {"gpt-5.1", nil, "medium"},
		"one that takes it not beside tools": {"gpt-5.6", nil, "none"},
		"one that takes none":                {"gpt-4.1", nil, ""},
		"a level that is asked for":          {"gpt-5.1", []string{"MNEME_AGENTS_MASTER_REASONING_EFFORT=low"}, "low"},
		"none":                               {"gpt-5.1", []string{"MNEME_AGENTS_MASTER_REASONING_EFFORT=none"}, ""},
		"an empty variable":                  {"gpt-5.1", []string{"MNEME_AGENTS_MASTER_REASONING_EFFORT="}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			network := newElsewhere(t)
			u := startWith(t, together, network, append([]string{
				"MNEME_DATA_DIR=" + t.TempDir(), "K=a key",
				backend("gpt", "openai", "https://api.openai.com/v1", "api_key_env: K",
					"model_map: {master: "+c.model+", analytic: gpt-4.1}"),
				"MNEME_AGENTS_SUBAGENTS=[{name: analytic, temperature: 0.25, max_tokens: 600}, {name: knowledge}]",
			}, c.environ...)...)
			require.Contains(t, u.say("1", "How much is 17 * 23?"), "391")
			vendor := network.fakes["api.openai.com"]
			require.Empty(t, vendor.Rejections())
			subagent := false
			for _, r := range vendor.Requests() {
				if temperature := gjson.GetBytes(r.Body, "temperature"); temperature.Exists() {
					subagent = true
					require.InEpsilon(t, 0.25, temperature.Float(), 1e-6)
					require.EqualValues(t, 600, gjson.GetBytes(r.Body, "max_completion_tokens").Int())
					require.False(t, gjson.GetBytes(r.Body, "reasoning_effort").Exists())
					continue
				}
				require.Equal(t, c.model, r.Model)
				require.Equal(t, c.want, gjson.GetBytes(r.Body, "reasoning_effort").Str)
			}
			require.True(t, subagent)
		})
	}
}
