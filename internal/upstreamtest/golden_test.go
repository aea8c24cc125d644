package upstreamtest_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// judge is a vendor with bodies of one endpoint in which something is to be broken.
type judge struct {
	name, path, beta string
	config           upstreamtest.Config
	bodies           []string
}

// bad are bodies that chance would hardly break like that, by the name of the judge.
var bad = map[string][]string{
	"anthropic": {asking(opus48, `"tools":[{"name":"f","input_schema":{"type":"object","anyOf":[]}}]`),
		asking(opus48, `"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":{"exclusiveMinimum":true}}}}]`)},
	"cerebras":       {chat(says("user", `[`+text+`]`))},
	"deepseek, chat": {asking("d", `"messages":[`+says("user", linked)+`]`), asking("d", `"response_format":{"type":"json_object"}`)},
	"strangest":      {chat(says("user", linked)), asking("m", `"stop":[]`)},
	"chat": {asking("m", `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
		"schema":{"type":"object","properties":{"a":{}},"required":[]}}}`)},
	"openai, chat": {unbounded("o1-mini", `"reasoning_effort":"low"`), unbounded("gpt-5", `"frequency_penalty":1`),
		unbounded("gpt-5", `"presence_penalty":1`), unbounded("gpt-5", `"top_p":0.1`)},
	"openai": {`{"model":"gpt-5","top_p":0.5,"input":"hi"}`, `{"model":"m","text":{"format":{"type":"json_schema","name":"n"}}}`,
		response("", `{"role":"assistant","content":[{"type":"refusal"}]}`), response("", `{"role":"user","id":5,"content":"a"}`)},
}

const linked = `[{"type":"image_url","image_url":{"url":"https://x"}}]`

func unbounded(model, members string) string {
	return `{"model":"` + model + `",` + members + `,"messages":[` + ask + `]}`
}

const (
	picture = `{"type":"base64","media_type":"image/gif","data":"R0lGODlhAQABAAAAACw="}`
	dataURL = `"data:image/gif;base64,R0lGODlhAQABAAAAACw="`
	schema  = `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"},
		"b":{"type":"array","items":{"type":"string","enum":["x"]}}}}`
)

func judges() (all []judge) {
	with := func(name, path, beta string, c upstreamtest.Config, bodies ...string) {
		all = append(all, judge{name, path, beta, c, bodies})
	}
	history := func(before ...string) string {
		return turns(ask, uses(append(before, text, use("a"), use("b"))...), results(gives("a"), `{"type":"tool_result",
			"tool_use_id":"b","content":[`+text+`,{"type":"image","source":`+picture+`}]}`, text), reply,
			says("user", `[`+cached+`,{"type":"image","source":{"type":"url","url":"https://x"}},{"type":"document",
			"source":{}}]`))
	}
	tools := `"tools":[{"name":"calc","input_schema":` + schema + `},{"type":"web_search_1","name":"web_search"}],
		"system":[` + cached + `]`
	open := func(model, members string) string { return asking(model, tools+","+members) }
	format := `"output_config":{"effort":"high","format":{"type":"json_schema","schema":` + schema + `}}`
	anthropic := []string{
		open(sonnet45, enabled+`,`+history(thought)), open(opus48, adaptive+`,`+cleared+`,`+history(thought, hidden)),
		open(opus5, disabled+`,`+format+`,"metadata":{"user_id":"u"},`+turns(ask, reply)),
		open(opus46, `"tool_choice":{"type":"tool","name":"calc"},"temperature":1,`+history()),
		open(fable, `"stop_sequences":[],"mcp_servers":[],`+turns(ask, reply, says("system", `"s"`), ask)),
		open(sonnet45, enabled+`,`+turns(ask, uses(thought, use("a")), results(gives("a")), uses(thought, text))),
	}
	betas := contextBeta + "," + bindingBeta + ",mcp-client-2025-04-04"
	skip := upstreamtest.ThinkingRules{SkipSignatures: true}
	with("anthropic", "/v1/messages", betas, upstreamtest.Config{Thinking: skip}, anthropic...)
	models := []string{sonnet45, opus46}
	with("anthropic, signatures", "/v1/messages", "", upstreamtest.Config{Models: models}, anthropic...)
	strict := upstreamtest.ThinkingRules{SkipSignatures: true, StrictOff: true, Bedrock: true, Window: 2000}
	with("bedrock", "/v1/messages", betas, upstreamtest.Config{Thinking: strict}, anthropic...)
	with("count", "/v1/messages/count_tokens", betas, upstreamtest.Config{Thinking: skip}, anthropic[0])
	kimi := upstreamtest.Config{Vendor: upstreamtest.Kimi, Models: []string{"k"}}
	with("kimi", "/v1/messages", "", kimi, open("k", enabled+`,`+history(thought)), open("k", disabled+`,`+history(bare)))
	deepSeek := upstreamtest.Config{Vendor: upstreamtest.DeepSeek, Models: []string{"d", "deepseek-v4-pro"}}
	with("deepseek", "/v1/messages", "", deepSeek, open("d", enabled+`,`+turns(ask, uses(bare, use("a")), results(gives("a")),
		uses(thought, text), ask)), open("deepseek-v4-pro", `"output_config":{"effort":"low"},`+turns(ask, uses(bare, text), ask)))
	with("glm", "/v1/messages", "", upstreamtest.Config{Vendor: upstreamtest.GLM}, open("glm-5.3", enabled+`,`+history(thought)))

	functions := `"tools":[{"type":"function","function":{"name":"calc","description":"d","parameters":` + schema + `}}]`
	dialogue := func(model, members string) string {
		return `{"model":"` + model + `",` + members + functions + `,"messages":[` + strings.Join([]string{
			says("system", `"s"`), says("user", `[`+text+`,{"type":"image_url","image_url":{"url":"https://x"}},
			{"type":"image_url","image_url":{"url":`+dataURL+`}}]`), `{"role":"assistant","content":"c","reasoning_content":"r",
			"tool_calls":[` + call("a") + `,` + callOf("abcDEF123", "calc", `{\"a\":1}`) + `]}`, result("abcDEF123"), result("a"),
			`{"role":"assistant","content":[` + text + `,{"type":"refusal","refusal":"r"}],"reasoning_content":" "}`,
			says("user", `"Speak JSON"`)}, ",") + `]}`
	}
	plain := func(model, members string) string {
		return `{"model":"` + model + `",` + members + functions + `,"messages":[` + strings.Join([]string{
			says("developer", `"s"`), ask, calls(call("abcDEF123")), result("abcDEF123"), reply, ask}, ",") + `]}`
	}
	form := `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object",
		"additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"}}}}},`
	chats := []string{dialogue("m", form), plain("m", `"thinking":{"type":"enabled"},`)}
	for name, rules := range map[string]upstreamtest.ChatRules{
		"chat": {},
		"strangest": {KnownArguments: true, NoParameters: []string{"stop", "top_k"}, NoImages: true,
			Schemas: upstreamtest.GeminiSchemas},
		"mistral":  {ToolIDs: upstreamtest.MistralIDs, Replay: upstreamtest.ReplayMistral},
		"groq":     {ToolIDs: upstreamtest.AnyIDs, Replay: upstreamtest.ReplayGroq, Schemas: upstreamtest.PlainSchemas},
		"cerebras": {Replay: upstreamtest.ReplayCerebras, TextOnly: true, Schemas: upstreamtest.MoonshotSchemas},
		"gemini":   {ThoughtSignatures: true, Schemas: upstreamtest.OpenAISchemas},
	} {
		with(name, "/v1/chat/completions", "", upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: rules}, chats...)
	}
	with("openai, chat", "/v1/chat/completions", "", upstreamtest.Config{Vendor: upstreamtest.OpenAI,
		Models: []string{"gpt-5", "gpt-5.4", "gpt-4.1", "o1-mini"}}, dialogue("gpt-4.1", form),
		plain("gpt-5", `"reasoning_effort":"low","temperature":1,`), plain("gpt-5.4", `"reasoning_effort":"none","top_p":1,`),
		plain("o1-mini", `"max_completion_tokens":9,`))
	with("kimi, chat", "/v1/chat/completions", "", kimi, dialogue("k", form), plain("k", disabledFirst))
	with("deepseek, chat", "/v1/chat/completions", "", deepSeek, dialogue("d", ""),
		plain("deepseek-v4-pro", `"reasoning_effort":"low","response_format":{"type":"json_object"},`))
	with("glm, chat", "/v1/chat/completions", "", upstreamtest.Config{Vendor: upstreamtest.GLM},
		dialogue("glm-5.3", disabledFirst))

	typed := `"tools":[{"type":"function","name":"f","description":"d","strict":true,"parameters":` + schema + `},
		{"type":"namespace","name":"n","description":"d","tools":[{"type":"custom","name":"c","format":{}}]},{"type":"web_search"}],`
	items := strings.Join([]string{said, `{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
		{"type":"input_image","image_url":"https://x"},{"type":"input_image","image_url":` + dataURL + `}]}`,
		`{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"a"},
		{"type":"refusal","refusal":"no"}]}`, `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}`,
		`{"type":"custom_tool_call","call_id":"call_2","name":"c","input":"a"}`,
		`{"type":"function_call_output","call_id":"call_1","output":"4"}`, `{"type":"custom_tool_call_output","call_id":"call_2",
		"output":[{"type":"input_text","text":"4"}]}`, `{"type":"web_search_call","id":"ws_1"}`}, ",")
	asks := func(model, members string) string {
		return `{"model":"` + model + `",` + typed + members + `"input":[` + items + `]}`
	}
	reasoned := `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAAAB",
		"content":[]},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r"}]}`
	responses := []string{
		asks("gpt-5", encrypted+`"reasoning":{"effort":"low","summary":"auto"},"max_output_tokens":99,"temperature":1,`),
		asks("gpt-4.1", `"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":`+schema+`}},
			"tool_choice":{"type":"function","name":"f"},"instructions":"i",`), `{"model":"m","input":"hi"}`,
		`{"model":"m","input":[` + said + `,` + reasoned + `,{"type":"compaction","encrypted_content":"gAAAA"},
			{"type":"item_reference","id":"msg_9"},` + said + `],"conversation":"c","previous_response_id":"r"}`,
		`{"model":"m","input":[` + said + `,` + reasoned + `,` + said + `]}`,
		`{"model":"m","input":[` + said + `,{"type":"item_reference","id":"msg_9"}]}`,
	}
	with("openai", "/v1/responses", "", upstreamtest.Config{Vendor: upstreamtest.OpenAI}, responses...)
	with("azure", "/v1/responses", "", upstreamtest.Config{Vendor: upstreamtest.OpenAI, Models: []string{"gpt-5", "m"},
		Responses: upstreamtest.ResponsesRules{Azure: true, OldWording: true}}, responses...)
	with("deepseek, responses", "/v1/responses", "", deepSeek, strings.ReplaceAll(responses[0], "gpt-5", "d"),
		strings.ReplaceAll(responses[4], `"m"`, `"d"`))
	slices.SortStableFunc(all, func(a, b judge) int { return strings.Compare(a.name, b.name) })
	return all
}

const disabledFirst = `"thinking":{"type":"disabled"},`

// replacements take the place of every value of a body in turn.
var replacements = []string{`null`, `true`, `1`, `0.5`, `""`, `" "`, `"a b"`, `"x "`, `[]`, `{}`, `["x"]`, `[{}]`, `[null]`, `{"type":"object"}`,
	`{"type":"text","text":"t"}`, `"user"`, `"assistant"`, `"system"`, `"tool"`, `"text"`, `"thinking"`, `"redacted_thinking"`,
	`"tool_use"`, `"tool_result"`, `"image"`, `"server_tool_use"`, `"function"`, `"custom"`, `"array"`, `"reasoning"`, `"message"`,
	`"input_image"`, `"function_call"`, `"function_call_output"`, `"enabled"`, `"disabled"`, `"adaptive"`, `"none"`, `"xhigh"`, `"any"`,
	`"required"`, `"allowed_tools"`, `"json_object"`, `"` + strings.Repeat("x", 65) + `"`, `"http://x"`, `"data:image/png;base64,AAAA"`, `"gpt-5"`, `"é"`}

// extras are members that are set beside those of every object.
var extras = map[string]string{
	"zz": `1`, "cache_control": `{}`, "signature": `"s"`, "anyOf": `[]`, "minimum": `1`, "exclusiveMinimum": `true`, "$ref": `"#"`,
	"max_tokens": `9`, "temperature": `0`, "reasoning_effort": `"max"`, "thinking": `{"type":"enabled","budget_tokens":5}`, "enum": `[1,""]`,
	"items": `{}`, "format": `"uri"`, "required": `["q"]`, "content": `"c"`, "block_binding": `{}`, "betas": `[]`, "id": `"id 1"`,
	"stop": `[]`, "tool_choice": `"required"`, "include": `["x"]`, "max_output_tokens": `3`, "reasoning_content": `""`,
	"previous_response_id": `"p"`, "conversation": `"c"`, "context_management": `{"edits":[]}`, "extra_content": `{"google":{"thought_signature":"!"}}`,
}

// broken are variants of a body that differ from it in one place, each with a name: one of so many, by chance.
func broken(body string, chance *rand.Rand, one int) iter.Seq2[string, string] {
	return func(yield func(name, body string) bool) {
		var root any
		if err := json.Unmarshal([]byte(body), &root); err != nil {
			panic(fmt.Sprint(err, body))
		}
		ok := true
		emit := func(at, what string) {
			if ok && chance.IntN(one) == 0 {
				data, _ := json.Marshal(root)
				ok = yield(at+" "+what, string(data))
			}
		}
		var visit func(at string, v any, set func(any))
		visit = func(at string, v any, set func(any)) {
			for i, r := range replaced {
				set(r)
				emit(at, "= "+replacements[i])
			}
			set(v)
			switch v := v.(type) {
			case map[string]any:
				for _, name := range slices.Sorted(maps.Keys(extras)) {
					before, had := v[name]
					v[name] = json.RawMessage(extras[name])
					emit(at, "with "+name)
					if delete(v, name); had {
						v[name] = before
					}
				}
				for _, name := range slices.Sorted(maps.Keys(v)) {
					inner := v[name]
					delete(v, name)
					emit(at+"."+name, "is missing")
					v[name] = inner
					visit(at+"."+name, inner, func(other any) { v[name] = other })
				}
			case []any:
				for i, inner := range v {
					list := func(what string, values ...any) { set(values); emit(fmt.Sprint(at, ".", i), what) }
					list("is missing", slices.Concat(v[:i:i], v[i+1:])...)
					list("is there twice", slices.Concat(v[:i+1:i+1], v[i:])...)
					list("moves to the end", append(slices.Concat(v[:i:i], v[i+1:]), inner)...)
					list("is the last", v[:i+1]...)
					set(v)
					visit(fmt.Sprint(at, ".", i), inner, func(other any) { v[i] = other })
				}
			}
		}
		visit("", root, func(other any) { root = other })
	}
}

var replaced = func() (all []any) {
	for _, r := range replacements {
		all = append(all, json.RawMessage(r))
	}
	return all
}()

// variants are a body, some with one defect, and some with two.
func variants(body string, once, twice int) iter.Seq2[string, string] {
	return func(yield func(name, body string) bool) {
		if !yield("as it is", body) {
			return
		}
		chance := rand.New(rand.NewPCG(1, uint64(len(body))))
		for name, b := range broken(body, chance, once) {
			if !yield(name, b) {
				return
			}
		}
		for name, b := range broken(body, chance, twice) {
			for another, b := range broken(b, chance, 1000) {
				if !yield(name+" and "+another, b) {
					return
				}
			}
		}
	}
}

var (
	chanced = regexp.MustCompile(`req_01\w+|(unable to|cannot) unmarshal`) // differs between two runs
	varying = regexp.MustCompile("(^|\"message\":\")[\\w$]+: |[\\w$]+([.\\[\\]]+[\\w$]+)+|\\d+|'[^']*'|`[^`]*`|id [^ .]+|blocks[a-z ]*: [^ ]+|found: [^ ]+")
)

// verdict is the status and the error that a vendor gives to a body, in one line; an answer is only told by its status.
func (j judge) verdict(t *testing.T, v *upstreamtest.Server, body string) string {
	var header []string
	if j.beta != "" {
		header = []string{"Anthropic-Beta", j.beta}
	}
	w := post(t, v, j.path, body, header...)
	if w.Code == 200 {
		return "200"
	}
	return fmt.Sprint(w.Code, " ", chanced.ReplaceAllString(w.Body.String(), "*"))
}

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/*.golden")

// golden compares with a file of testdata, or writes it.
func golden(t *testing.T, name, is string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(is), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	was, now := strings.Split(string(want), "\n"), strings.Split(is, "\n")
	for i := range max(len(was), len(now)) {
		require.False(t, i >= len(was) || i >= len(now) || was[i] != now[i], "line %d of %s differs; if that is meant: "+
			"go test -run %s -rewrite, and look at its diff", i+1, path, t.Name())
	}
}

// Bodies with one defect, and with two, so that the order of the rules counts. Of refusals that differ only by places
// and names one is kept to its letter, and of all of them, with the bodies that get them, a hash.
func TestRefusalsAreWhatTheyWere(t *testing.T) {
	testtier.Slow(t)
	var out strings.Builder
	for _, j := range judges() {
		v := upstreamtest.New(j.config)
		first, all := map[string]string{}, map[string][]string{}
		judge := func(name, body string) {
			told := j.verdict(t, v, body)
			kind := varying.ReplaceAllString(told, "*")
			if all[kind] == nil {
				first[kind] = told
			}
			all[kind] = append(all[kind], name+": "+told)
		}
		for i, body := range j.bodies {
			for name, body := range variants(body, 50, 800) {
				judge(fmt.Sprint(i, " ", name), body)
			}
		}
		for _, body := range bad[j.name] {
			judge(body, body)
		}
		fmt.Fprintf(&out, "\n== %s\n", j.name)
		byText := func(a, b string) int { return strings.Compare(first[a], first[b]) }
		for _, kind := range slices.SortedFunc(maps.Keys(first), byText) {
			sum := sha256.Sum256([]byte(strings.Join(all[kind], "\n")))
			fmt.Fprintf(&out, "%s\n\t%d like that, %x\n", first[kind], len(all[kind]), sum[:6])
		}
	}
	golden(t, "refusals", out.String())
}

// What a vendor sends, whole and as a stream, in each dialect: each byte but those that come by chance.
func TestAnswersAreWhatTheyWere(t *testing.T) {
	thinks := `"thinking":{"type":"enabled","budget_tokens":2000},"max_tokens":9000,`
	const effort = `"stream_options":{"include_usage":true},"reasoning_effort":"low",`
	random := regexp.MustCompile(`((msg|rs|fc|ctc|cmp|resp)_|req_01|toolu_01|call_(\d\d_)?|chatcmpl-)\w+|[\w+/=-]{100,}|` +
		`"call_id":"\w{9}"|"id":"\w{9}"`)
	var out strings.Builder
	for _, c := range []struct {
		name, path, members string
		config              upstreamtest.Config
	}{
		{"anthropic", "/v1/messages", thinks, upstreamtest.Config{PromptCache: true}},
		{"kimi", "/v1/messages", thinks, upstreamtest.Config{Vendor: upstreamtest.Kimi}},
		{"deepseek", "/v1/messages", thinks, upstreamtest.Config{Vendor: upstreamtest.DeepSeek}},
		{"glm", "/v1/messages", thinks, upstreamtest.Config{Vendor: upstreamtest.GLM}},
		{"chat", "/v1/chat/completions", effort, upstreamtest.Config{Vendor: upstreamtest.Chat,
			Chat: upstreamtest.ChatRules{ThoughtSignatures: true, ReasoningField: "reasoning"}}},
		{"kimi", "/v1/chat/completions", effort, upstreamtest.Config{Vendor: upstreamtest.Kimi, PromptCache: true}},
		{"openai", "/v1/chat/completions", "", upstreamtest.Config{Vendor: upstreamtest.OpenAI, PromptCache: true}},
		{"openai", "/v1/responses", `"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],` +
			`"tools":[{"type":"custom","name":"weather"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],`,
			upstreamtest.Config{Vendor: upstreamtest.OpenAI, Responses: upstreamtest.ResponsesRules{FlatErrors: true}}},
		{"deepseek", "/v1/responses", "", upstreamtest.Config{Vendor: upstreamtest.DeepSeek}},
	} {
		c.config.Stream.Chunk = 20
		v := upstreamtest.New(c.config)
		reply := func(stop string, blocks ...upstreamtest.Block) upstreamtest.Answer {
			return upstreamtest.Answer{Blocks: blocks, StopReason: stop}
		}
		said, called := upstreamtest.Say("I may tell it: écoutez."), upstreamtest.Use("f", `{"city":"Århus","days":3}`)
		for i, a := range []upstreamtest.Answer{
			everything, reply("max_tokens", said, called), reply("refusal", said), reply("failed"),
			reply("content_filter", upstreamtest.Compact("c"), said), upstreamtest.Reply(called).FailAfter(2),
			reply("", said).FailAfter(4),
		} {
			for _, stream := range []bool{false, true} {
				if a.Cut != nil && !stream {
					continue
				}
				v.Queue(a)
				input := `"messages":[` + ask + `]`
				if c.path == "/v1/responses" {
					input = `"input":"ask"`
				}
				w := post(t, v, c.path, fmt.Sprintf(`{"model":"m",%s"stream":%t,%s}`, c.members, stream, input),
					"Anthropic-Beta", bindingBeta)
				require.Equal(t, 200, w.Code, w.Body)
				body := random.ReplaceAllString(w.Body.String(), "*")
				fmt.Fprintf(&out, "== %s %s %d %t %s\n%s\n", c.name, c.path, i, stream, w.Header().Get("Content-Type"), body)
			}
		}
	}
	golden(t, "answers", out.String())
}
