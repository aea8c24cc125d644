package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

func TestScript(t *testing.T) {
	o, err := parse([]string{"-script"}, io.Discard)
	require.NoError(t, err)
	tools := []upstreamtest.Tool{{Name: "Read"}}
	words := `Look. SCRIPT [[{"think":"a"},{"use":"Read","input":{"file":"/a"}},{"use":"Read"}], ` +
		`[{"redacted":true},{"omitted":true},{"say":"done"}]] and more`
	answer := func(user string, tools []upstreamtest.Tool, results ...string) *upstreamtest.Answer {
		return o.config.Answer(&upstreamtest.Request{User: user, Tools: tools, Results: results})
	}
	first := upstreamtest.Reply(upstreamtest.Think("a"), upstreamtest.Use("Read", `{"file":"/a"}`),
		upstreamtest.Use("Read", ""))
	last := upstreamtest.Reply(upstreamtest.Redacted(), upstreamtest.Omitted(), upstreamtest.Say("done"))
	require.Equal(t, &first, answer(words, tools))
	require.Equal(t, &last, answer(words, tools, "1", "2"))
	require.Nil(t, answer("no script", tools))
	require.Nil(t, answer(words, nil), "it calls a tool that is not offered")
	require.Nil(t, answer(words, tools, "1", "2", "3"), "more results than it has calls")
	require.Contains(t, answer(`SCRIPT [[{"shout":"x"}]]`, nil).Blocks[0].Text, "cannot be read")

	last = upstreamtest.Reply(upstreamtest.Compact("c"), upstreamtest.Say("x"))
	require.Equal(t, &last, answer(`SCRIPT [[{"compact":"c"},{"say":"x"}]]`, nil))

	words = `SCRIPT [[{"say":"x"},{"cut":{"after":2,"error":529,"times":1}}]]`
	require.Equal(t, &upstreamtest.Cut{Events: 2, Error: 529}, answer(words, nil).Cut)
	require.Nil(t, answer(words, nil).Cut, "it was said once")
	require.Equal(t, &upstreamtest.Cut{Events: 3, Inside: true, Clean: true},
		answer(`SCRIPT [[{"say":"x"},{"cut":{"after":3,"inside":true,"clean":true}}]]`, nil).Cut)
}

func TestContents(t *testing.T) {
	thoughts, documents := contents([]byte(`{"messages":[{"role":"user","content":"thinking"},
		{"role":"user","content":[{"type":"document"},{"type":"file"},{"type":"text"}]},
		{"role":"assistant","content":[{"type":"thinking"},{"type":"text"},{"type":"redacted_thinking"}]},
		{"role":"assistant","content":null,"reasoning_content":"Well."}, {"role":"assistant","reasoning_content":""}]}`))
	require.Equal(t, []int{3, 2}, []int{thoughts, documents})
	thoughts, documents = contents([]byte(`{"input":[{"role":"user","content":[{"type":"input_image"},{"type":"input_text"}]},
		{"type":"reasoning","content":null},{"type":"function_call_output","output":[{"type":"input_file"}]}]}`))
	require.Equal(t, []int{1, 2}, []int{thoughts, documents})
	thoughts, documents = contents([]byte(`no JSON`))
	require.Equal(t, []int{0, 0}, []int{thoughts, documents})
}

// What became of thinking is told beside the request.
func TestLineOfAResponse(t *testing.T) {
	r := upstreamtest.Request{Endpoint: upstreamtest.EndpointResponses, Status: 200, Model: "m", Missing: 1,
		Body: []byte(`{"input":[{"type":"reasoning"},{"type":"reasoning"}]}`), LostCompactions: []string{"cmp_1"}}
	require.Equal(t, "200 responses m replayed 2 lost 1 lost cmp_1", line(r))
	o, err := parse([]string{"-vendor", "openai", "-azure", "-refuse-in-stream", "-old-wording"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, upstreamtest.OpenAI, o.config.Vendor)
	require.Equal(t, upstreamtest.ResponsesRules{Azure: true, InStream: true, OldWording: true}, o.config.Responses)
}

func TestMoreBetas(t *testing.T) {
	o, err := parse([]string{"-betas", "new-1,new-2"}, io.Discard)
	require.NoError(t, err)
	require.Subset(t, o.config.Thinking.Betas, append(upstreamtest.KnownBetas(), "new-1", "new-2"))
}
