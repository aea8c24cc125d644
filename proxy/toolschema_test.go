package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// Schemas of tools as MCP servers have them.
const (
	fineSchema = `{"type": "object","properties":{"q":{"type":"string"}}}`
	unionTop   = `{"type":"object","anyOf":[{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]},` +
		`{"type":"object","properties":{"url":{"type":"string"}},"required":["url"]}]}`
	zodSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","additionalProperties":false,` +
		`"properties":{"n":{"type":["integer","null"],"exclusiveMinimum":0},"at":{"$ref":"#/$defs/place","description":"Where."}},` +
		`"required":["n"],"$defs":{"place":{"type":"object","properties":{"inside":{"$ref":"#/$defs/place"}}}}}`
	draft4 = `{"type":"object","properties":{"n":{"type":"number","minimum":0,"exclusiveMinimum":true}}}`
)

// withTools is a request with tools of these schemas, called t0, t1, ….
func withTools(path string, schemas ...string) string {
	var tools []string
	for i, s := range schemas {
		if strings.HasSuffix(path, "/messages") {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d","input_schema":%s}`, i, s))
		} else {
			tools = append(tools, fmt.Sprintf(`{"type":"function","function":{"name":"t%d","parameters":%s}}`, i, s))
		}
	}
	return `{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}],"tools":[` + strings.Join(tools, ",") + `]}`
}

// takes is a vendor of chat completions with rules that are known or not.
func takes(schemas upstreamtest.Schemas, vendor string) backendCase {
	return backendCase{name: "b", vendor: upstreamtest.Config{Vendor: upstreamtest.Chat,
		Chat: upstreamtest.ChatRules{Schemas: schemas}}, config: proxy.BackendConfig{Kind: proxy.KindOpenAI, Vendor: vendor}}
}

// Fault: one tool of an MCP server is refused by the vendor, and with it every request of the agent.
func TestSchemasThatAVendorIsKnownToRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backend backendCase
		path    string
		schemas []string
	}{
		"anthropic": {claude, "/v1/messages", []string{fineSchema, unionTop, zodSchema}},
		"openai":    {takes(upstreamtest.OpenAISchemas, "openai"), "/v1/chat/completions", []string{fineSchema, unionTop, zodSchema}},
		"gemini":    {takes(upstreamtest.GeminiSchemas, "gemini"), "/v1/chat/completions", []string{fineSchema, unionTop, zodSchema, draft4}},
	} {
		t.Run(name, func(t *testing.T) {
			w := knocked(t, c.backend)
			v, g := w.vendors[c.backend.name], w.gateway()
			got := g.ask(c.path, withTools(c.path, c.schemas...))
			require.Equal(t, 200, got.status, got.body)
			require.Equal(t, 1, v.Count(), "no refusal")
			require.Contains(t, string(v.Last().Body), fineSchema, "byte for byte")
			require.Contains(t, g.metrics("sanitizer_changes_total"), `rule="tool_schema"`)
		})
	}
}

// A schema that is refused by a vendor of unknown rules goes in a plainer form, in this request and, without
// another refusal, in the next ones. The others stay as they are.
func TestARefusedSchemaIsLearned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schemas upstreamtest.Schemas
		bad     string
	}{
		"OpenAI's": {upstreamtest.OpenAISchemas, unionTop}, "Google's": {upstreamtest.GeminiSchemas, zodSchema},
		"Moonshot's": {upstreamtest.MoonshotSchemas, unionTop},
	} {
		for _, path := range []string{"/v1/chat/completions", "/teammate/v1/messages"} {
			t.Run(name+path, func(t *testing.T) {
				w := knocked(t, takes(c.schemas, "generic"))
				v, g := w.vendors["b"], w.gateway()
				v.Queue(upstreamtest.Reply(upstreamtest.Use("t1", `{"n":1.0,"at":null}`)))
				got := g.ask(path, withTools(path, fineSchema, c.bad))
				require.Equal(t, 200, got.status, got.body)
				require.Equal(t, 2, v.Count(), "one refusal")
				arguments := gjson.Get(got.body, "choices.0.message.tool_calls.0.function.arguments").Str
				if strings.HasSuffix(path, "messages") {
					arguments = gjson.Get(got.body, "content.0.input").Raw
				}
				require.Equal(t, `{"n":1.0,"at":null}`, arguments, "they are the model's")
				first := string(v.Last().Body)
				for range 2 {
					require.Equal(t, 200, g.ask(path, withTools(path, fineSchema, c.bad)).status)
					require.Equal(t, first, string(v.Last().Body), "a vendor's prompt cache holds")
				}
				require.Equal(t, 4, v.Count(), "and no more")
				require.Equal(t, 1, w.log.count("[schema_retry]"))
				require.Contains(t, g.metrics("parameter_retries_total"), `outcome="ok",parameter="tool_schema"`)
				require.Contains(t, g.metrics("upstream_refusals_total"), `class="tool_schema"`)
				// The tool alone, and for this model alone.
				require.Equal(t, 200, g.ask(path, withTools(path, c.bad)).status)
				require.Equal(t, 5, v.Count())
			})
		}
	}
}

// The tool that the error names is changed, and all of them only if that was not enough.
func TestARefusalNamesATool(t *testing.T) {
	t.Parallel()
	w := knocked(t, takes(upstreamtest.OpenAISchemas, "generic"))
	v, g := w.vendors["b"], w.gateway()
	const path, strange = "/v1/chat/completions", `{"type":"object","properties":{"x":{"minimum":1}}}`
	require.Equal(t, 200, g.ask(path, withTools(path, strange, unionTop)).status)
	require.Equal(t, 2, v.Count())
	require.Contains(t, string(v.Last().Body), strange)
	other := strings.Replace(unionTop, "anyOf", "oneOf", 1)
	third := strings.Replace(unionTop, "id", "name", -1)
	require.Equal(t, 200, g.ask(path, withTools(path, strange, unionTop, other, third)).status)
	require.Equal(t, 5, v.Count(), "refused for one, then for the other")
	require.NotContains(t, string(v.Last().Body), strange)
	require.Equal(t, 200, g.ask(path, withTools(path, strange, unionTop, other, third)).status)
	require.Equal(t, 6, v.Count())
}

func TestAnthropicRefusesAnOldDraft(t *testing.T) {
	t.Parallel()
	w := knocked(t, claude)
	v, g := w.vendors["claude"], w.gateway()
	const path = "/v1/messages"
	for i := range 2 {
		require.Equal(t, 200, g.ask(path, withTools(path, fineSchema, draft4)).status)
		require.Equal(t, 2+i, v.Count())
	}
}

// A schema that cannot be cured is refused to the client in the vendor's words, and nothing is learned of it.
func TestASchemaThatCannotBeCured(t *testing.T) {
	t.Parallel()
	b := takes(upstreamtest.AnySchema, "generic")
	w := knocked(t, b)
	v, g := w.vendors["b"], w.gateway()
	const path = "/v1/chat/completions"
	for range 2 {
		before := v.Count()
		got := g.ask(path, withTools(path, `{"type":"string"}`))
		require.Equal(t, 400, got.status)
		require.Contains(t, got.body, "Invalid schema for function 't0'")
		require.Equal(t, before+1, v.Count())
	}
}

// Requests at one time may each pay for it once, and none fails.
func TestARefusedSchemaUnderLoad(t *testing.T) {
	t.Parallel()
	w := knocked(t, takes(upstreamtest.GeminiSchemas, "generic"))
	g := w.gateway()
	const path = "/v1/chat/completions"
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 4 {
				got := g.ask(path, withTools(path, fineSchema, unionTop, zodSchema))
				assert.Equal(t, 200, got.status, got.body)
			}
		})
	}
	all.Wait()
}
