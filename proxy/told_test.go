package proxy_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy"
)

// tellsOf is what the headers say: backend, model, attempts and mends.
func tellsOf(h http.Header) string {
	var out []string
	for _, name := range []string{"Backend", "Model", "Attempts", "Mended"} {
		out = append(out, strings.Join(h.Values("X-AG-"+name), "|"))
	}
	return strings.Join(out, " ")
}

// An answer, and an error, says which backend gave it and what that took.
func TestAnswersSayWhoseTheyAre(t *testing.T) {
	t.Parallel()
	const unanswered = `{"model":"any","max_tokens":9,"messages":[{"role":"user","content":"hi"},{"role":"assistant",` +
		`"content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"user","content":"and?"}]`
	ok := byStream(chatBody, chatStream)
	refusing := func(status int, body string) http.HandlerFunc { // every other request
		refused := false
		return func(w http.ResponseWriter, r *http.Request) {
			if refused = !refused; refused {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
				return
			}
			ok(w, r)
		}
	}
	foreign := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Backend", "Attempts", "Mended"} {
			w.Header().Set("X-AG-"+name, "another-gateway")
		}
		ok(w, r)
	}
	always := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, c := range map[string]struct {
		vendor http.HandlerFunc
		path   string
		body   string
		status int
		want   string
	}{
		"an answer":             {ok, "/v1/chat/completions", ask, 200, "v real-2 1 "},
		"in the other dialect":  {ok, "/v1/messages", ask, 200, "v real-2 1 "},
		"of a teammate":         {ok, "/teammate/t/v1/chat/completions", ask, 200, "v real-2 1 "},
		"tried again":           {refusing(503, ""), "/v1/chat/completions", ask, 200, "v real-2 2 "},
		"a gateway behind":      {foreign, "/v1/chat/completions", ask, 200, "v real-2 1 "},
		"an error":              {always(404), "/v1/chat/completions", ask, 404, "v real-2 1 "},
		"an error, tried again": {always(500), "/v1/chat/completions", ask, 500, "v real-2 3 "},
		"a call without its result": {ok, "/v1/chat/completions", unanswered, 200,
			"v real-2 1 calls_closed"},
		"a refused parameter": {refusing(400, `{"error":{"message":"Unsupported parameter: 'seed' is not supported."}}`),
			"/v1/chat/completions", ask + `,"seed":1`, 200, "v real-2 2 refused_parameter,left_out:seed"},
		"nothing that can be routed": {ok, "/v1/chat/completions", `{"model":`, 400, "   "},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				v := vendor(t, c.vendor)
				config := to(v, proxy.KindOpenAI)
				b := config.Backends["v"]
				b.ModelMap = map[string]string{"*": "real-2"}
				config.Backends["v"] = b
				url, _ := gateway(t, config)
				body, header := c.body+"}", []string{"X-Test", "whole"}
				if stream {
					body, header = c.body+`,"stream":true}`, []string{"X-Test", "stream"}
				}
				got := post(t, url+c.path, body, header...)
				require.Equal(t, c.status, got.status, got.body)
				require.Equal(t, c.want, tellsOf(got.header))
			})
		}
	}
}

// A backend that cannot be reached is named all the same; one that is left alone was sent nothing.
func TestErrorsSayWhoWasAsked(t *testing.T) {
	t.Parallel()
	gone := vendor(t, nil)
	c := to(gone, proxy.KindOpenAI)
	gone.server.Close()
	c.Limits.Upstream.Failures = 1
	url, _ := gateway(t, c)
	require.Equal(t, "v real-1 3 ", tellsOf(post(t, url+"/v1/chat/completions", ask+`}`).header))
	require.Equal(t, "v real-1  ", tellsOf(post(t, url+"/v1/chat/completions", ask+`}`).header))
}

// The name of a model is the client's where no model_map has it, and no header may break on it.
func TestAnOddModelIsNotTold(t *testing.T) {
	t.Parallel()
	v := vendor(t, says("application/json", chatBody))
	url, _ := gateway(t, to(v, proxy.KindOpenAI))
	for _, model := range []string{`a\r\nSet-Cookie: x`, `мнема`, strings.Repeat("m", 500)} {
		got := post(t, url+"/v1/chat/completions", strings.Replace(ask, "real-1", model, 1)+`}`)
		require.Equal(t, "v  1 ", tellsOf(got.header))
		require.Empty(t, got.header.Get("Set-Cookie"))
	}
}

// Thinking that a client leaves out is put back, and unknown thinking is taken out once it is refused.
func TestAnswersSayWhatWasMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	g := w.gateway()
	c := g.messages("claude-opus-4-8")
	c.within("c1")
	c.damage = damages["thinking dropped"]
	toolTurn(w.vendors["claude"], "one")
	c.user(textOf("First"))
	use := c.step()[1]
	c.user(block{Type: "tool_result", ToolUseID: use.ID, Content: "result"})
	require.Equal(t, "claude claude-opus-4-8 1 thinking_restored", tellsOf(c.post().header))

	other := g.messages("claude-opus-4-8")
	other.within("c2")
	other.history = []message{{role: "user", content: []block{textOf("Hi")}}, {role: "assistant", content: []block{
		{Type: "thinking", Thinking: "made elsewhere", Signature: pointer("Zm9yZ2VkIGVsc2V3aGVyZQ==")}, textOf("Hello."),
	}}}
	other.user(textOf("And?"))
	require.Equal(t, "claude claude-opus-4-8 2 thinking_stripped,refused_thinking", tellsOf(other.post().header))
	w.conforms(1)
}

// The documentation has every mend, and no other.
func TestMendsAreDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("told.go")
	require.NoError(t, err)
	docs, err := os.ReadFile("../docs/gateway.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(docs), "### What was mended\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n#")
	names := func(of *regexp.Regexp, text string) (names []string) {
		for _, m := range of.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	require.Equal(t, names(regexp.MustCompile(`mend += "(\w+)"`), string(source)),
		names(regexp.MustCompile("(?m)^\\| `(\\w+)` \\|"), section))
}
