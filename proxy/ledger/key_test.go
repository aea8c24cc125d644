package ledger_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

func TestBlockKey(t *testing.T) {
	key := func(block string) string { return ledger.BlockKey([]byte(block)) }
	base := key(thinking("a\nb", "s"))
	require.NotEmpty(t, base)
	for _, equal := range []string{
		`{"signature":"s","type":"thinking","thinking":"a\u000ab"}`,
		` { "type" : "thinking", "thinking":"a\nb","signature":"s", "cache_control":{"type":"ephemeral"}, "x":null } `,
	} {
		require.Equal(t, base, key(equal), equal)
	}
	keys := map[string]string{base: "the first"}
	for _, other := range []string{
		thinking("a\r\nb", "s"), thinking("a\nb ", "s"), thinking("a\nb", "S"), thinking("", "s"), thinking("", ""),
		unsigned("a\nb"), redacted("s"),
		`{"type":"thinking","thinking":"a\nb","signature":"s","more":1}`,
		`{"role":"assistant","reasoning_content":"a"}`, `{"reasoning":"a"}`, `{"reasoning_details":[{"text":"a"}]}`,
		`{"thinking_blocks":[{"text":"a"}]}`,
		`{"tool_calls":[{"extra_content":{"google":{"thought_signature":"s"}}}]}`,
		`{"tool_calls":[{},{"extra_content":{"google":{"thought_signature":"s"}}}]}`,
		`{"extra_content":{"google":{"thought_signature":"s"}}}`,
	} {
		k := key(other)
		require.NotEmpty(t, k, other)
		require.NotContains(t, keys, k, "%s and %s", other, keys[k])
		keys[k] = other
	}
	require.Equal(t, key(unsigned("a")), key(thinking("a", "")), "an empty signature is none")
	for _, none := range []string{
		text("a"), toolUse("i", "n", `{"type":"thinking","thinking":"x"}`), `"thinking"`, `5`, ``, `{`, `{},{}`,
		`{}]},{"content":[{}`,
		`{"role":"assistant","content":"x","reasoning_content":"","reasoning":null,"reasoning_details":[],"extra_content":{}}`,
	} {
		require.Empty(t, key(none), none)
	}
}

func TestContextKey(t *testing.T) {
	key := func(rest string) string {
		o, err := wire.ReadOutline([]byte(`{"model":"m",` + rest + `}`))
		require.NoError(t, err)
		return ledger.ContextKey(o)
	}
	base := key(`"system":[{"type":"text","text":"be\"cache_control\" kind"}],"tools":[{"name":"a"}],"messages":[]`)
	for _, same := range []string{
		`"messages":[{"role":"user","content":"x"}],"tools":[{"name":"a","cache_control":{"type":"ephemeral","x":[{}]}}],"system":[{"cache_control":null,"type":"text","text":"be\"cache_control\" kind"}]`,
		`"system":[{"type":"text","cache_control": {"type":"ephemeral"} ,"text":"be\"cache_control\" ` +
			`kind"}],"tools":[{"name":"a"}],"max_tokens":5`,
	} {
		require.Equal(t, base, key(same), same)
	}
	for _, other := range []string{
		`"system":[{"type":"text","text":"be\"cache_control\" rude"}],"tools":[{"name":"a"}]`,
		`"system":[{"type":"text","text":"be\"cache_control\" kind"}],"tools":[{"name":"b"}]`,
		`"system":[{"type":"text","text":"be\"cache_control\" kind"}]`,
		`"system":[{"type":"text","text":"be\"cache_control\" ` +
			`kind"}],"tools":[{"name":"a"}],"messages":[{"role":"system","content":"x"}]`,
	} {
		require.NotEqual(t, base, key(other), other)
	}
	require.NotEqual(t, key(`"messages":[{"role":"system","content":"x"}]`),
		key(`"messages":[{"role":"system","content":"y"},{"role":"user","content":"z"}]`))
	require.Equal(t, key(`"messages":[{"role":"system","content":"x"}]`),
		key(`"messages":[{"role":"system","content":"x"},{"role":"user","content":"z"},{"role":"system","content":"y"}]`))
	require.NotEqual(t, key(`"system":["cache_control"]`), key(`"system":["cache_control","cache_control"]`),
		"a value is no name")
}

func TestCanRecur(t *testing.T) {
	for id, recurs := range map[string]bool{
		"toolu_01A09q90qw90lq917835lq9": false, "call_abcdefghijklmnopqrstuvwx": false, "toolu_0123456789abcdef": false,
		"chatcmpl-tool-9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d": false,
		"": true, "call_1": true, "toolu_123456789": true, "functions.search_documents:0": true,
		"call_function_search_1": true,
	} {
		require.Equal(t, recurs, ledger.CanRecur(id), id)
	}
	require.False(t, ledger.CanRecur("call_"+strings.Repeat("9", 24)))
}
