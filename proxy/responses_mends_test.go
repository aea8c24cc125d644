package proxy_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// gptUnknown is OpenAI's Responses of which the gateway knows nothing, so that refusals have to teach it.
var gptUnknown = backendCase{name: "gpt", vendor: upstreamtest.Config{Vendor: upstreamtest.OpenAI},
	config: proxy.BackendConfig{Kind: proxy.KindResponses, Vendor: "generic"}}

const anyOfSchema = `{"type":"object","anyOf":[{"properties":{"q":{"type":"string"}}},{"properties":{"n":{"type":"integer"}}}]}`

// mendCase is a request of Responses of which something is mended.
type mendCase struct {
	of      backendCase
	model   string
	members string // beside model, input and stream
	header  []string
	// before is what was said before, with the members that go on from it; nil for nothing
	before  func(t *testing.T, v *upstreamtest.Server, ask func(body string) answered) (members string)
	faults  []upstreamtest.Fault
	changes map[string]string // members of what leaves, as JSON; "" for none
	listed  bool              // a text becomes a list, as something is put before it
}

// refusalOf is one refusal in OpenAI's form.
func refusalOf(message, more string) []upstreamtest.Fault {
	return []upstreamtest.Fault{upstreamtest.Canned(400, fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error",%s}}`,
		message, more))}
}

// mendCases are the rules of the last hop and the cures of refusals that can apply to a request of Responses.
var mendCases = map[string]mendCase{
	"nothing":         {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"low"},"metadata":{"a": "b"}`},
	"temperature":     {of: gpt, model: "gpt-5", members: `"temperature":0.5,"top_p":0.5`, changes: map[string]string{"temperature": "", "top_p": ""}},
	"beside thinking": {of: gpt, model: "gpt-5.1", members: `"temperature":0.5,"reasoning":{"effort":"high"}`, changes: map[string]string{"temperature": ""}},
	"no effort":       {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"none"}`, changes: map[string]string{"reasoning": `{"effort":"minimal"}`}},
	"effort xhigh": {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"xhigh","summary":"detailed"}`,
		changes: map[string]string{"reasoning": `{"effort":"high","summary":"detailed"}`}},
	"effort max": {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"max"}`,
		changes: map[string]string{"reasoning": `{"effort":"high"}`}},
	"no thinker": {of: gpt, model: "gpt-4o", members: `"reasoning":{"effort":"high"}`, changes: map[string]string{"reasoning": ""}},
	"schema": {of: gpt, model: "gpt-5", members: `"tools":[{"type":"web_search"},{"type":"custom","name":"patch"},` +
		`{"type":"function","name":"f","parameters":` + anyOfSchema + `}]`,
		changes: map[string]string{"tools.0": `{"type":"web_search"}`, "tools.1": `{"type":"custom","name":"patch"}`,
			"tools.2.parameters.anyOf": "", "tools.2.parameters.type": `"object"`}},
	"schema of a namespace": {of: gpt, model: "gpt-5", members: `"tools":[{"type":"namespace","name":"n","description":"d","tools":[` +
		`{"type":"function","name":"f","parameters":` + anyOfSchema + `}]}]`,
		changes: map[string]string{"tools.0.tools.0.parameters.anyOf": "", "tools.0.tools.0.name": `"f"`}},
	"what brings reasoning back": {of: gpt, model: "gpt-5", members: `"store":false`,
		changes: map[string]string{"include": `["reasoning.encrypted_content"]`}},
	"the same beside others": {of: gpt, model: "gpt-5", members: `"store":false,"include":["message.output_text.logprobs"]`,
		changes: map[string]string{"include": `["message.output_text.logprobs","reasoning.encrypted_content"]`}},
	"a forced tool": {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"max"},"tool_choice":"required",` +
		`"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]`,
		changes: map[string]string{"reasoning.effort": `"high"`, "tool_choice": `"required"`}},

	"refused: temperature": {of: gptUnknown, model: "gpt-5", members: `"temperature":0.5`, changes: map[string]string{"temperature": ""}},
	"refused: an effort": {of: gptUnknown, model: "gpt-5", members: `"reasoning":{"effort":"none"}`,
		changes: map[string]string{"reasoning": `{"effort":"minimal"}`}},
	"refused: any effort": {of: gptUnknown, model: "gpt-4o", members: `"reasoning":{"effort":"low"}`,
		changes: map[string]string{"reasoning.effort": ""}},
	"refused: a schema": {of: gptUnknown, model: "gpt-5", members: `"tools":[{"type":"web_search"},` +
		`{"type":"function","name":"f","parameters":` + anyOfSchema + `}]`,
		changes: map[string]string{"tools.0": `{"type":"web_search"}`, "tools.1.parameters.anyOf": ""}},
	"refused: encrypted reasoning": {of: gptUnknown, model: "gpt-4o", members: `"store":false`, changes: map[string]string{"include": ""}},
	"refused: the client's": {of: gptUnknown, model: "gpt-4o",
		members: `"store":false,"include":["message.output_text.logprobs","reasoning.encrypted_content"]`,
		changes: map[string]string{"include": `["message.output_text.logprobs"]`}},
	"refused: the length": {of: gpt, model: "gpt-5", members: `"max_output_tokens":300000`, faults: refusalOf(
		"This model's maximum context length is 128000 tokens. However, you requested 300010 tokens (10 in the messages, "+
			"300000 in the completion).", `"param":null`),
		changes: map[string]string{"max_output_tokens": "119991"}},
	"refused: a summary": {of: gpt, model: "gpt-5", members: `"reasoning":{"effort":"low","summary":"auto"}`,
		faults: refusalOf("Unsupported parameter: 'reasoning.summary' is not supported with this model.",
			`"param":"reasoning.summary","code":"unsupported_parameter"`),
		changes: map[string]string{"reasoning": `{"effort":"low"}`}},

	"what was before": {of: gpt, model: "gpt-5", members: `"temperature":0.5`, header: []string{"X-AG-Continue", "true"}, listed: true,
		before: func(t *testing.T, _ *upstreamtest.Server, ask func(string) answered) string {
			require.Equal(t, 200, ask(`{"model":"gpt-5","input":"before"}`).status)
			return ""
		}, changes: map[string]string{"temperature": "", "input.0.content.0.text": `"before"`}},
	"refused: reasoning of before": {of: gpt, model: "gpt-5", members: `"store":false,"include":["reasoning.encrypted_content"]`,
		header: []string{"X-AG-Continue", "true"}, listed: true,
		before: func(t *testing.T, v *upstreamtest.Server, ask func(string) answered) string {
			v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Yes.")))
			require.Equal(t, 200, ask(`{"model":"gpt-5","input":"before","store":false}`).status)
			return ""
		}, faults: refusalOf("The encrypted content gAAA could not be verified. Reason: Encrypted content could not be "+
			"decrypted or parsed.", `"param":null,"code":"invalid_encrypted_content"`),
		changes: map[string]string{"input.0.content.0.text": `"before"`, `input.#(type=="reasoning")`: ""}},
	"a response before": {of: gpt, model: "gpt-5", members: `"temperature":0.5`, listed: true,
		before: func(t *testing.T, _ *upstreamtest.Server, ask func(string) answered) string {
			got := ask(`{"model":"gpt-5","input":"before"}`)
			require.Equal(t, 200, got.status, got.body)
			return fmt.Sprintf(`,"previous_response_id":%q`, gjson.Get(got.body, "id").Str)
		}, changes: map[string]string{"temperature": "", "input.0.content.0.text": `"before"`, "previous_response_id": ""}},
}

// Whatever is mended of a request of Responses, its input leaves in a form that the vendor takes: a text as the text that
// it is, a list with the client's own items; and all else that no mend names as the client has it.
func TestTheInputOfAMendedRequestOfResponses(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, c := range mendCases {
		for _, input := range []string{`"Say  <hi> \u00e9"`, `[ {"role":"user", "content":"Say  <hi> \u00e9"} ]`,
			`[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},` +
				`{"role":"user","content":[{"type":"input_text","text":"Say  <hi> \u00e9"}]}]`} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %.1s, stream=%t", name, input, stream), func(t *testing.T) {
					w := newWorld(t, c.of)
					w.checked = true
					v := w.vendors["gpt"]
					g := w.gateway()
					header := http.Header{"X-Ag-Conversation-Id": {"c1"}}
					ask := func(body string) answered { return g.send(t.Context(), "/v1/responses", header, []byte(body)) }
					more := ""
					if c.before != nil {
						more = c.before(t, v, ask)
					}
					v.Fail(c.faults...)
					for i := 0; i < len(c.header); i += 2 {
						header.Set(c.header[i], c.header[i+1])
					}
					body := fmt.Sprintf(`{"model":%q, "input": %s,"stream":%t,%s%s}`, c.model, input, stream, c.members, more)
					got := ask(body)
					require.Equal(t, 200, got.status, "%s\nwas answered with\n%s", body, got.body)
					sent := v.Last().Body
					if len(c.changes) == 0 {
						require.Equal(t, body, string(sent))
						return
					}
					for path, want := range c.changes {
						prompt := "input.0.role"
						if gjson.Get(body, prompt).Str == "developer" && gjson.GetBytes(sent, prompt).Str == "developer" {
							path = strings.Replace(path, "input.0.", "input.1.", 1) // the prompt stays first
						}
						require.Equal(t, want, gjson.GetBytes(sent, path).Raw, "%s of\n%s", path, sent)
					}
					gjson.Parse(body).ForEach(func(name, value gjson.Result) bool {
						named := func(path string) bool { return path == name.Str || strings.HasPrefix(path, name.Str+".") }
						if name.Str != "input" && !slices.ContainsFunc(slices.Collect(maps.Keys(c.changes)), named) {
							require.Equal(t, value.Raw, gjson.GetBytes(sent, name.Str).Raw, "%s of\n%s", name.Str, sent)
						}
						return true
					})
					is := gjson.GetBytes(sent, "input")
					if own := gjson.Get(body, "input"); !c.listed && !own.IsArray() {
						require.Equal(t, own.Raw, is.Raw, "%s", sent)
					} else if own.IsArray() {
						items := own.Array()
						require.Equal(t, items[len(items)-1].Raw, is.Array()[len(is.Array())-1].Raw, "%s", sent)
					} else {
						require.Equal(t, "Say  <hi> é", is.Get("@reverse.0.content.0.text").Str, "%s", sent)
					}
					for _, item := range is.Array() {
						require.True(t, !is.IsArray() || item.IsObject(), "%s", sent)
					}
				})
			}
		}
	}
}
