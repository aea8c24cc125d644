package models_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/models"
	"mneme/internal/testtier"
)

// answers is a server with a JSON answer per "METHOD /path", 404 for the rest.
func answers(t *testing.T, by map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		if r.Method == http.MethodPost {
			var body struct{ Model string }
			raw, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(raw, &body)
			key += " " + body.Model
		}
		text, ok := by[key]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The shapes are those of docs.ollama.com/api, lmstudio.ai/docs and llama.cpp's
// tools/server/README.md.
var (
	ollama = map[string]string{
		"GET /v1/models":              `{"object":"list","data":[{"id":"embed:latest"},{"id":"qwen3:8b"},{"id":"llama3.1:latest"},{"id":"tuned:latest"}]}`,
		"GET /api/tags":               `{"models":[{"name":"embed:latest"},{"name":"qwen3:8b"},{"name":"llama3.1:latest"},{"name":"tuned:latest"}]}`,
		"GET /api/ps":                 `{"models":[{"name":"llama3.1:latest","context_length":16384}]}`,
		"POST /api/show embed:latest": `{"capabilities":["embedding"]}`,
		"POST /api/show " +
			"qwen3:8b": `{"capabilities":["completion","tools","thinking"],"model_info":{"qwen3.context_length":40960}}`,
		"POST /api/show " +
			"llama3.1:latest": `{"capabilities":["completion","tools"],"model_info":{"llama.context_length":131072}}`,
		"POST /api/show tuned:latest": `{"capabilities":["completion","tools"],"parameters":"stop \"<|x|>\"\nnum_ctx   ` +
			`                     8192\n"}`,
	}
	lmStudio = map[string]string{
		"GET /v1/models": `{"object":"list","data":[{"id":"plain"},{"id":"cold"},{"id":"warm"}]}`,
		"GET /api/v0/models": `{"object":"list","data":[
			{"id":"embedder","type":"embeddings","state":"loaded"},
			{"id":"of\u202egnihton\u001b[2J","type":"llm","state":"loaded","capabilities":["tool_use"]},
			{"id":"plain","type":"llm","state":"loaded","max_context_length":32768,"loaded_context_length":8000},
			{"id":"cold","type":"llm","state":"not-loaded","max_context_length":131072,"capabilities":["tool_use"]},
			{"id":"warm","type":"vlm","state":"loaded","max_context_length":131072,"loaded_context_length":12000,"capabilities":["tool_use"]}]}`,
	}
	llamaCPP = map[string]string{
		"GET /v1/models": `{"object":"list","data":[{"id":"qwen3-8b.gguf","meta":{"n_ctx_train":40960}}]}`,
		"GET /props":     `{"default_generation_settings":{"n_ctx":10240},"total_slots":1,"chat_template_caps":{"supports_tools":true,"supports_tool_calls":true}}`,
	}
)

func TestServersGiveAModelThatReportsTools(t *testing.T) {
	with := func(base map[string]string, key, value string) map[string]string {
		changed := map[string]string{key: value}
		for k, v := range base {
			if k != key {
				changed[k] = v
			}
		}
		return changed
	}
	for name, c := range map[string]struct {
		server map[string]string
		ask    string
		model  string
		window int
		err    string
	}{
		"ollama, the first with tools; the window is the default of the server, not of the training": {
			ollama, "", "qwen3:8b", 4096, "",
		},
		"ollama, one in memory":     {ollama, "llama3.1", "llama3.1:latest", 16384, ""},
		"ollama, one with a window": {ollama, "tuned:latest", "tuned:latest", 8192, ""},
		"ollama, one without tools": {
			ollama, "embed", "", 0, "does not report that embed can call tools, which mneme needs",
		},
		"ollama without a model": {map[string]string{"GET /api/tags": `{"models":[]}`}, "", "", 0,
			"has no model yet"},
		"lm studio, a loaded one goes first": {lmStudio, "", "warm", 12000, ""},
		"lm studio, one that is not loaded":  {lmStudio, "cold", "cold", 4096, ""},
		"llama.cpp":                          {llamaCPP, "", "qwen3-8b.gguf", 10240, ""},
		"llama.cpp of before": {with(llamaCPP, "GET /props",
			`{"default_generation_settings":{"n_ctx":2048},"chat_template_tool_use":"{{ tools }}"}`), "", "qwen3-8b.gguf", 2048,
			""},
		"llama.cpp with a template without tools": {with(llamaCPP, "GET /props",
			`{"default_generation_settings":{"n_ctx":2048},"chat_template_caps":{"supports_tools":false,"supports_tool_calls":true}}`), "", "", 0,
			"reports for no model that it can call tools, which mneme needs (it has: qwen3-8b.gguf)"},
		"one that says nothing of tools": {map[string]string{"GET /v1/models": `{"data":[{"id":"m"}]}`}, "", "", 0,
			"reports for no model that it can call tools"},
		"none of them": {
			map[string]string{}, "", "", 0, "does not list its models as an API of kind openai does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := answers(t, c.server)
			for _, form := range []string{at, at + "/v1", at + "/v1/"} {
				server, err := models.NewServer(form)
				require.NoError(t, err)
				choice, err := server.Candidate().Choose(t.Context(), c.ask)
				if c.err != "" {
					require.ErrorContains(t, err, c.err)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, c.model, choice.Model)
				require.Equal(t, c.window, choice.Window)
				require.Equal(t, at+"/v1", choice.BaseURL)
			}
		})
	}
}

func TestWhatIsNoServer(t *testing.T) {
	for _, raw := range []string{"http://", "ftp://x", "http://u:p@x/v1", "http://x/v1?a=b", "x"} {
		_, err := models.NewServer(raw)
		require.ErrorContains(t, err, "is no URL of a model server; give one such as http://127.0.0.1:9090/v1")
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	server, err := models.NewServer(gone.URL)
	require.NoError(t, err)
	_, err = server.Candidate().Choose(t.Context(), "")
	require.EqualError(t, err, gone.URL+"/v1 cannot be reached (connection refused)")
}

func TestFind(t *testing.T) {
	there, gone := answers(t, ollama), httptest.NewServer(nil)
	gone.Close()
	places := models.Places{Servers: []models.Server{{Name: "ollama", URL: there}, {Name: "lmstudio", URL: gone.URL}}}
	find := func(environ ...string) (found []string) {
		for _, c := range models.Find(t.Context(), environ, places, "127.0.0.1:8082") {
			found = append(found, strings.TrimSpace(c.Backend+" "+c.BaseURL+" "+c.KeyVar))
		}
		return found
	}
	local := "ollama " + there + "/v1"
	require.Equal(t, []string{local}, find("OPENAI_API_KEY=", "PATH=/bin"))
	require.Equal(t, []string{
		"openai https://api.openai.com/v1 OPENAI_API_KEY", "anthropic https://api.anthropic.com ANTHROPIC_API_KEY",
		"gemini https://generativelanguage.googleapis.com/v1beta/openai GEMINI_API_KEY",
		"openrouter https://openrouter.ai/api/v1 OPENROUTER_API_KEY", "deepseek https://api.deepseek.com/v1 DEEPSEEK_API_KEY",
		local,
	}, find("DEEPSEEK_API_KEY=k", "GEMINI_API_KEY=k", "OPENROUTER_API_KEY=k", "ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k"))
	require.Equal(t, []string{"openai https://gateway.example/v1 OPENAI_API_KEY",
		"anthropic https://gateway.example ANTHROPIC_API_KEY", local},
		find("OPENAI_API_KEY=k", "OPENAI_BASE_URL=https://gateway.example/v1/", "ANTHROPIC_API_KEY=k",
			"ANTHROPIC_BASE_URL=https://gateway.example/v1"),
		"a key goes where its owner sends it")
	for _, ours := range []string{"http://127.0.0.1:8082", "http://localhost:8082/", "http://[::1]:8082/v1"} {
		require.Equal(t, []string{"anthropic https://api.anthropic.com ANTHROPIC_API_KEY", local},
			find("ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL="+ours), "our own gateway is no model of ours")
	}
}

// A server that takes a connection and says nothing does not keep mneme from starting.
func TestFindWaitsForNoServer(t *testing.T) {
	testtier.Slow(t)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hangs.Close)
	require.Empty(t,
		models.Find(t.Context(), nil, models.Places{Servers: []models.Server{{Name: "ollama", URL: hangs.URL}}}))
}

func TestOllamaHost(t *testing.T) {
	at := answers(t, ollama)
	found := models.Find(context.Background(), []string{"OLLAMA_HOST=" + strings.TrimPrefix(at, "http://")}, models.Places{
		Vendors: []models.Vendor{},
	})
	require.NotEmpty(t, found)
	require.Equal(t, at+"/v1", found[0].BaseURL)
}
