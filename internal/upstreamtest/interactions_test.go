package upstreamtest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// interact posts the steps of an interaction, with more members before them, and gives status and body.
func interact(v *upstreamtest.Server, more string, steps ...string) (int, string) {
	body := `{"model":"gemini-3.8-flash","store":false,` + more + `"input":[` + strings.Join(steps, ",") + `]}`
	r := httptest.NewRequest(http.MethodPost, "/v1beta/interactions", strings.NewReader(body))
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	userSays   = `{"type":"user_input","content":[{"type":"text","text":"Use the tool."}]}`
	lookTool   = `"tools":[{"type":"function","name":"look","parameters":{"type":"object","properties":{}}}],`
	summarized = `"generation_config":{"thinking_summaries":"auto"},`
)

// Each of these is refused; without the fault the request is taken.
func TestInvalidInteractions(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Google})
	_, answer := interact(v, lookTool+summarized, userSays)
	steps := gjson.Get(answer, "steps").Array()
	require.Len(t, steps, 3, answer)
	thought, output, call := steps[0].Raw, steps[1].Raw, steps[2].Raw
	id := steps[2].Get("id").Str
	result := `{"type":"function_result","call_id":"` + id + `","name":"look","result":"four"}`
	good := []string{userSays, thought, output, call, result}
	status, body := interact(v, lookTool, good...)
	require.Equal(t, 200, status, body)
	require.Equal(t, "completed", gjson.Get(body, "status").Str)
	require.Zero(t, v.Last().Lost)

	stranger := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Google, Name: "other"})
	const generic = "Request contains an invalid argument."
	without := func(i int) []string { return append(append([]string{}, good[:i]...), good[i+1:]...) }
	with := func(i int, step string) []string {
		return append(append(append([]string{}, good[:i]...), step), good[i+1:]...)
	}
	signature := gjson.Get(thought, "signature").Raw
	for name, c := range map[string]struct {
		v          *upstreamtest.Server
		more       string
		steps      []string
		code, want string
	}{
		"another account's signature": {stranger, "", good, "invalid_request", generic},
		"a changed summary":           {v, "", with(1, strings.Replace(thought, "The user", "A user", 1)), "invalid_request", generic},
		"an empty signature":          {v, "", with(1, strings.Replace(thought, signature, `""`, 1)), "invalid_request", generic},
		"no signature":                {v, "", with(1, `{"type":"thought"}`), "invalid_request", "signature is required"},
		"a dummy in its place": {v, "", with(1, `{"type":"thought","signature":"skip_thought_signature_validator"}`),
			"invalid_request", generic},
		"a call's signature of nowhere": {v, "", with(3, strings.Replace(call, signature, `"x"`, 1)), "invalid_request", generic},
		"no thought before a call": {v, "", []string{userSays, `{"type":"function_call","id":"a","name":"look","arguments":{}}`,
			`{"type":"function_result","call_id":"a","name":"look","result":""}`}, "invalid_request", "missing a thought_signature"},
		"no result":           {v, "", append(without(4), userSays), "invalid_request", "No function result found"},
		"no result at all":    {v, "", without(4), "invalid_request", "No function result found"},
		"no call":             {v, "", without(3), "invalid_request", "No function call found"},
		"a result twice":      {v, "", append(good[:5:5], result), "invalid_request", "No function call found"},
		"another name":        {v, "", with(4, strings.Replace(result, "look", "see", 1)), "invalid_request", "is not that of its call"},
		"a call twice":        {v, "", append(good[:5:5], thought, call, result), "invalid_request", "Duplicate"},
		"arguments as a text": {v, "", with(3, strings.Replace(call, `"arguments":{}`, `"arguments":"{}"`, 1)), "invalid_request", "is an object"},
		"a previous one":      {v, `"previous_interaction_id":"v1_x",`, good, "invalid_request", "store set to false"},
		"in the background":   {v, `"background":true,`, good, "invalid_request", "store set to false"},
		"a temperature":       {v, `"generation_config":{"temperature":1},`, good, "parameter_unknown", "generation_config.temperature"},
		"an old member":       {v, `"response_mime_type":"application/json",`, good, "parameter_unknown", "response_mime_type"},
		"a level":             {v, `"generation_config":{"thinking_level":"none"},`, good, "invalid_request", "Thinking level none"},
		"a tool's schema":     {v, `"tools":[{"type":"function","name":"f","input_schema":{}}],`, good, "parameter_unknown", "input_schema"},
		"an unknown step":     {v, "", append(good[:5:5], `{"type":"message"}`), "invalid_request", "Unknown step type"},
		"a member of a step":  {v, "", with(2, `{"type":"model_output","content":[{"type":"text","text":"a"}],"role":"model"}`), "parameter_unknown", "role"},
		"an empty output":     {v, "", with(2, `{"type":"model_output","content":[]}`), "invalid_request", "content is empty"},
		"an image of nothing": {v, "", with(0, `{"type":"user_input","content":[{"type":"image","data":"aGk="}]}`), "invalid_request", "mime_type"},
		"a file in a result": {v, "", with(4, strings.Replace(result, `"four"`, `[{"type":"document","uri":"x"}]`, 1)),
			"invalid_request", generic},
		"no input": {v, "", nil, "invalid_request", "input is required"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := interact(c.v, c.more, c.steps...)
			require.Equal(t, 400, status, body)
			require.Equal(t, c.code, gjson.Get(body, "error.code").Str, body)
			require.Contains(t, gjson.Get(body, "error.message").Str, c.want)
		})
	}
}

// Thinking that did not come back is counted, where no rule refuses that.
func TestLostThoughtsOfInteractions(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Google})
	v.Queue(upstreamtest.Reply(upstreamtest.Think("a"), upstreamtest.Say("b"), upstreamtest.Think("c"),
		upstreamtest.Use("look", "{}")))
	_, answer := interact(v, lookTool, userSays)
	steps := gjson.Get(answer, "steps").Array()
	result := `{"type":"function_result","call_id":"` + steps[3].Get("id").Str + `","name":"look","result":"four"}`
	status, body := interact(v, "", userSays, steps[1].Raw, steps[2].Raw, steps[3].Raw, result)
	require.Equal(t, 200, status, body)
	require.Equal(t, 1, v.Last().Lost)
	require.Equal(t, 1, v.Last().Kept)
}

// The key is presented as the vendor's SDK does.
func TestTheKeyOfInteractions(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Google, APIKey: "AIza"})
	status, body := interact(v, "", userSays)
	require.Equal(t, 401, status, body)
	r := httptest.NewRequest(http.MethodPost, "/v1beta/interactions", strings.NewReader(`{"model":"m","input":"hi"}`))
	r.Header.Set("X-Goog-Api-Key", "AIza")
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code, w.Body.String())
}
