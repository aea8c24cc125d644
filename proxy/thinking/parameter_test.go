package thinking

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The recorded refusals of parameters: in how many the name is found, and in how
// many a wrong one.
func TestRefusedParameterInRecordedErrorsOutsideData(t *testing.T) {
	found, wrong := 0, 0
	all := recordedErrors(t, "parameters.jsonl")
	for _, e := range all {
		r, ok := RefusedParameter(e.Status, []byte(e.Body))
		switch {
		case !ok:
			t.Logf("not found: %s in %s", e.Parameter, e.Body)
		case r.Name == e.Parameter || slices.Contains(e.Parameters, r.Name):
			found++
		default:
			wrong++
			t.Errorf("%s is taken for %s (%s): %s", e.Parameter, r.Name, e.Source, e.Body)
		}
	}
	t.Logf("%d refusals of a parameter: %d found, %d wrong", len(all), found, wrong)
	require.GreaterOrEqual(t, found, 38)
	require.Zero(t, wrong)
}

// Other errors name parameters, too. In those about thinking, length, keys and
// tools none is refused; the families that do refuse one, or a way to ask for
// thinking, are told by their labels.
func TestNoParameterIsRefusedInOtherErrorsOutsideData(t *testing.T) {
	refusing := []string{"unknown_param", "ctx_mgmt", "g_param", "r_param", "r_include", "beta"}
	asking := map[string][]string{
		"mode": {"thinking.type", "output_config.effort"}, "sampling": {"temperature"}, "tool_choice": {"tool_choice"},
		"clear_thinking": {"context_management"}, "g_budget": {"thinking.type"}, "shape_other": {"thinking.type"},
	}
	for _, name := range []string{"dev.jsonl", "context-length.jsonl", "responses-gemini.jsonl"} {
		t.Run(name, func(t *testing.T) {
			for _, e := range recordedErrors(t, name) {
				r, ok := RefusedParameter(e.Status, []byte(e.Body))
				require.True(t, ok || e.Family != "mode", e.Body)
				if ok && !slices.Contains(refusing, e.Family) && !slices.Contains(asking[e.Family], r.Name) {
					t.Errorf("%s: %q is taken for a refused parameter: %s", e.Family, r.Name, e.Body)
				}
			}
		})
	}
}

// What vendors and gateways say, in words of which no record was at hand when the
// rules were made, or that the records hold in one shape only.
func TestRefusedParameter(t *testing.T) {
	for body, want := range map[string]Refused{
		`{"error":{"message":"Unrecognized request arguments supplied: store, ` +
			`metadata"}}`: {Name: "store"},
		`{"message":"Malformed input request: extraneous key [temperature] is not permitted, please reformat your input ` +
			`and try again."}`: {Name: "temperature"},
		`{"message":"#: extraneous key [top_k] is not ` +
			`permitted"}`: {Name: "top_k"},
		`{"error":"json: unknown field ` +
			`\"stream_options\""}`: {Name: "stream_options"},
		"Failed to deserialize the JSON body into the target type: unknown field `store`, expected one of `model`, " +
			"`messages`": {Name: "store"},
		`{"error":{"message":"[{\"code\":\"unrecognized_keys\",\"keys\":[\"store\"],\"message\":\"Unrecognized key(s) in ` +
			`object: 'store'\"}]"}}`: {Name: "store"},
		`Additional properties are not allowed ('store' was ` +
			`unexpected)`: {Name: "store"},
		`create() got an unexpected keyword argument ` +
			`'parallel_tool_calls'`: {Name: "parallel_tool_calls"},
		`{"error":{"message":"Extra inputs are not permitted, field: 'prompt_cache_key', value: ` +
			`'x'"}}`: {Name: "prompt_cache_key"},
		"{\"error\":{\"message\":\"`frequency_penalty` is not supported by this " +
			"model.\"}}": {Name: "frequency_penalty"},
		`{"detail":[{"type":"literal_error","loc":["body","reasoning_effort"],"msg":"Input should be 'none' or ` +
			`'high'","input":"low"}]}`: {Name: "reasoning_effort", Value: true, Accepted: []string{"none", "high"}},
		`{"error":{"message":"Unsupported value: 'minimal' is not supported with the 'gpt-5.1' model. Supported values ` +
			`are: 'none'.","type":"x","param":"reasoning.effort","code":"unsupported_value"}}`: {
			Name: "reasoning.effort", Value: true, Accepted: []string{"none"},
		},
		`{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. ` +
			`Please use /v1/responses instead.","param":"reasoning_effort","code":null}}`: {
			Name: "reasoning_effort", ConflictsWith: "tools", Off: true,
		},
		`{"error":{"message":"To use function tools, Function tools with reasoning_effort are not supported for gpt-5.6 ` +
			`in /v1/chat/completions."}}`: {Name: "reasoning_effort", ConflictsWith: "tools", Off: true},
		"`temperature` and `top_p` cannot both be specified for this model. Please use only " +
			"one.": {Name: "top_p", ConflictsWith: "temperature"},
		`Unknown parameter: ` +
			`'tools[0].function.strict'.`: {Name: "tools[].function.strict"},
		`The parameter 'logit_bias' is not ` +
			`supported`: {Name: "logit_bias"},
		`'seed' is not a supported parameter for this ` +
			`model`: {Name: "seed"},
		`litellm.UnsupportedParamsError: groq does not support parameters: {'store': True}, for ` +
			`model=x`: {Name: "store"},
	} {
		r, ok := RefusedParameter(400, []byte(body))
		require.True(t, ok, body)
		require.Equal(t, want, r, body)
	}
	for _, body := range []string{
		`{"error":{"message":"Invalid parameter: messages with role 'tool' must be a response to a preceding message with ` +
			`'tool_calls'."}}`,
		`{"error":{"message":"The model 'gpt_4' does not exist"}}`,
		`{"error":{"message":"model: claude-opus-9 is not available"}}`,
		`{"detail":[{"type":"missing","loc":["body","messages",0,"name"],"msg":"Field ` +
			`required","input":{"content":"Unsupported parameter: 'store'"}}]}`,
		`Unknown parameter in the request`,
		`tool_use ids must be unique`,
		``,
	} {
		r, ok := RefusedParameter(400, []byte(body))
		require.False(t, ok, "%s: %+v", body, r)
	}
	for _, status := range []int{200, 401, 403, 413, 429} {
		_, ok := RefusedParameter(status, []byte("Unsupported parameter: 'store'"))
		require.False(t, ok, status)
	}
}

// Whatever an error is made of, reading it ends, and what is found is a name.
func FuzzRefusedParameter(f *testing.F) {
	for _, seed := range []string{
		`{"error":{"message":"Unsupported parameter: 'x' is not supported with this model. Use 'y' instead.","param":"x"}}`,
		`{'detail': [{'type': 'extra_forbidden', 'loc': ('body', 'messages', 0, 'n'), 'msg': 'Extra inputs are not ` +
			`permitted', 'input': {"a\\":`,
		"\\\\\\u0022\\n`a` and `b` cannot both be specified", "unknown field [[(((''a.b[0].c",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ok := RefusedParameter(400, body)
		require.Equal(t, ok, r.Name != "")
		for _, name := range []string{r.Name, r.ConflictsWith} {
			require.NotContains(t, name, " ")
			require.NotContains(t, name, `"`)
		}
	})
}
