package upstreamtest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
)

// everything is an answer with each kind of block.
var everything = Reply(Think("I think slowly, écoutez."), Omitted(), Redacted(), Say("Let me look at it."),
	Use("weather", `{"city":"Århus","days":3}`), Use("weather", `{}`))

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/answers.golden")

// Answers in each dialect, whole and as a stream, equal testdata/answers.golden except for random parts.
func TestAnswersAreWhatTheyWere(t *testing.T) {
	thinks := `"thinking":{"type":"enabled","budget_tokens":2000},"max_tokens":9000,`
	const effort = `"stream_options":{"include_usage":true},"reasoning_effort":"low",`
	random := regexp.MustCompile(`((msg|rs|fc|ctc|cmp|resp|v1)_|req_01|toolu_01|call_(\d\d_)?|chatcmpl-)\w+|[\w+/=-]{100,}|` +
		`"call_id":"\w{9}"|"id":"\w{8,9}"`)
	var out strings.Builder
	for _, c := range []struct {
		name, path, members string
		config              Config
	}{
		{"anthropic", "/v1/messages", thinks, Config{PromptCache: true}},
		{"kimi", "/v1/messages", thinks, Config{Vendor: Kimi}},
		{"deepseek", "/v1/messages", thinks, Config{Vendor: DeepSeek}},
		{"glm", "/v1/messages", thinks, Config{Vendor: GLM}},
		{"chat", "/v1/chat/completions", effort, Config{Vendor: Chat,
			Chat: ChatRules{ThoughtSignatures: true, ReasoningField: "reasoning"}}},
		{"kimi", "/v1/chat/completions", effort, Config{Vendor: Kimi, PromptCache: true}},
		{"openai", "/v1/chat/completions", "", Config{Vendor: OpenAI, PromptCache: true}},
		{"openai", "/v1/responses", `"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],` +
			`"tools":[{"type":"custom","name":"weather"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],`,
			Config{Vendor: OpenAI, Responses: ResponsesRules{FlatErrors: true}}},
		{"deepseek", "/v1/responses", "", Config{Vendor: DeepSeek}},
		{"google", "/v1beta/interactions", `"generation_config":{"thinking_summaries":"auto"},`, Config{Vendor: Google}},
	} {
		c.config.Stream.Chunk = 20
		v := New(c.config)
		text, use := Say("I may tell it: écoutez."), Use("f", `{"city":"Århus","days":3}`)
		for i, a := range []Answer{
			everything, {Blocks: []Block{text, use}, StopReason: "max_tokens"}, {Blocks: []Block{text}, StopReason: "refusal"},
			{StopReason: "failed"}, {Blocks: []Block{Compact("c"), text}, StopReason: "content_filter"},
			Reply(use).FailAfter(2), Reply(text).FailAfter(4),
		} {
			for _, stream := range []bool{false, true} {
				if a.Cut != nil && !stream {
					continue
				}
				v.Queue(a)
				input := `"messages":[` + ask + `]`
				if c.path == "/v1/responses" || c.path == "/v1beta/interactions" {
					input = `"input":"ask"`
				}
				w := post(t, v, c.path, fmt.Sprintf(`{"model":"m",%s"stream":%t,%s}`, c.members, stream, input),
					"Anthropic-Beta", betaBinding)
				require.Equal(t, 200, w.Code, w.Body)
				body := random.ReplaceAllString(w.Body.String(), "*")
				fmt.Fprintf(&out, "== %s %s %d %t %s\n%s\n", c.name, c.path, i, stream, w.Header().Get("Content-Type"), body)
			}
		}
	}
	path := filepath.Join("testdata", "answers.golden")
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	golden, err := os.ReadFile(path)
	require.NoError(t, err)
	was, now := strings.Split(string(golden), "\n"), strings.Split(out.String(), "\n")
	for i := range max(len(was), len(now)) {
		require.False(t, i >= len(was) || i >= len(now) || was[i] != now[i],
			"line %d of %s differs; rewrite it with -rewrite and read its diff", i+1, path)
	}
}

// Kimi's signatures have another length in streams.
func TestLengthsOfSignatures(t *testing.T) {
	signature := regexp.MustCompile(`"signature":"([^"]+)"`)
	for stream, length := range map[string]int{"false": 12946, "true": 4340} {
		v := New(Config{Vendor: Kimi})
		v.Queue(everything)
		body := ok(t, v, "/v1/messages", msg("m", `"stream":`+stream))
		require.Len(t, signature.FindStringSubmatch(body)[1], length)
		require.Contains(t, body, `"id":"tool_1"`)
	}
}

// Real requests of a coding agent are accepted without checks of signatures, except for one that was recorded because of
// its refusal. With the checks, requests with thinking are refused because a stand-in for the vendor signed them.
func TestRequestsOfACodingAgentOutsideData(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "claude-code"), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	loose, strict := New(Config{Thinking: ThinkingRules{SkipSignatures: true}}), New(Config{})
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var recorded struct {
				URL     string            `json:"url"`
				Headers map[string]string `json:"headers"`
				Body    json.RawMessage   `json:"body"`
			}
			require.NoError(t, json.Unmarshal(raw, &recorded))
			var header []string
			for name, value := range recorded.Headers {
				header = append(header, name, value)
			}
			body := string(recorded.Body)
			answer := post(t, loose, recorded.URL, body, header...).Body.String()
			refusal := errorText(post(t, strict, recorded.URL, body, header...).Body.String())
			if strings.Contains(file, "last-assistant-without-thinking-400") {
				const want = "^messages.9.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When "
				require.Regexp(t, want, errorText(answer))
				require.Regexp(t, want, refusal)
				return
			}
			require.Contains(t, answer, "event: message_stop")
			switch {
			case strings.Contains(body, `"redacted_thinking"`):
				require.Equal(t, invalidRed, refusal)
			case strings.Contains(body, `"signature"`):
				require.Regexp(t, "^messages.[12].content.0: Invalid `signature` in `thinking` block$", refusal)
			default:
				require.Empty(t, refusal)
			}
		})
	}
}
