package responseswire_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

// thought is a thinking block that holds an item.
func thought(item string) string {
	return `{"type":"thinking","thinking":"","signature":"rsp1_` + base64.RawStdEncoding.EncodeToString([]byte(item)) + `"}`
}

// Items of a turn go back so that the vendor takes them.
func TestReasoningGoesBackByTheVendorsRules(t *testing.T) {
	const (
		good = `{"id": "rs_1","type":"reasoning", "summary":[],"encrypted_content":"gAAAA"}`
		says = `{"type":"text","text":"Hello"}`
	)
	tail := func(thoughts, blocks string) string {
		return thought(`{"thoughts":` + thoughts + `,"blocks":` + blocks + `,"items":[{"at":1,"is":{"id":"msg_1","type":"message",` +
			`"role":"assistant","phase":"final_answer"}}]}`)
	}
	const (
		plain = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}`
		whole = `{"id":"msg_1","type":"message","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"Hello"}]}`
	)
	for name, c := range map[string]struct {
		blocks []string
		want   []string
	}{
		"byte for byte, with its follower":  {[]string{thought(good), says, tail("1", "2")}, []string{good, whole}},
		"ids go with the reasoning":         {[]string{says, tail("1", "2")}, []string{plain}},
		"nothing follows":                   {[]string{says, thought(good)}, []string{plain}},
		"nobody can read it":                {[]string{thought(`{"id":"rs_1","type":"reasoning","summary":[]}`), says, tail("1", "2")}, []string{strings.Replace(whole, `"id":"msg_1",`, "", 1)}},
		"somebody else's thinking":          {[]string{`{"type":"thinking","thinking":"x","signature":"sig"}`, says}, []string{plain}},
		"a leftover status, no summary":     {[]string{thought(`{"id":"rs_1","type":"reasoning","status":null,"encrypted_content":"g"}`), says}, []string{`{"summary":[],"id":"rs_1","type":"reasoning","encrypted_content":"g"}`, plain}},
		"content beside what is encrypted":  {[]string{thought(`{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text"}],"encrypted_content":"g"}`), says}, []string{`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"g"}`, plain}},
		"a foreign id":                      {[]string{thought(`{"id":"x1","type":"reasoning","summary":[],"encrypted_content":"g"}`), says}, []string{`{"type":"reasoning","summary":[],"encrypted_content":"g"}`, plain}},
		"twice":                             {[]string{thought(good), thought(good), says}, []string{good, plain}},
		"an item that nobody here knows":    {[]string{thought(good), `{"type":"text","text":"rsp1_` + base64.RawStdEncoding.EncodeToString([]byte(`{"type":"odd", "n":1e2}`)) + `"}`}, []string{good, `{"type":"odd", "n":1e2}`}},
		"what only looks like a sealed one": {[]string{`{"type":"text","text":"rsp1_Hello"}`}, []string{strings.Replace(plain, "Hello", "rsp1_Hello", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := responseswire.ResponsesRequest([]byte(`{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"},`+
				`{"role":"assistant","content":[`+strings.Join(c.blocks, ",")+`]},{"role":"user","content":"go on"}]}`), chatwire.Options{})
			require.NoError(t, err)
			items := gjson.GetBytes(got.Body, "input").Array()
			var between []string
			for _, it := range items[1 : len(items)-1] {
				between = append(between, it.Raw)
			}
			require.Equal(t, c.want, between)
		})
	}
}

// What an answer keeps, a request gives back.
func TestWhatAnAnswerKeepsComesBack(t *testing.T) {
	const output = `[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"gAAAA"},
		{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Hello"}]},
		{"id":"fc_1","type":"function_call","name":"f","call_id":"call_1","arguments":"{\"a\":1}"}]`
	a := messagesAnswer(chatwire.AnswerOptions{})
	a.Keep(false)
	said := once(t, a, []byte(`{"id":"resp_1","status":"completed","model":"m","output":`+output+`}`))
	got, err := responseswire.ResponsesRequest([]byte(`{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"},`+
		`{"role":"assistant","content":`+gjson.Get(said, "content").Raw+`}]}`), chatwire.Options{})
	require.NoError(t, err)
	input := gjson.GetBytes(got.Body, "input").Array()[1:]
	for i, want := range gjson.Parse(output).Array() {
		require.JSONEq(t, want.Raw, input[i].Raw)
	}
	require.Equal(t, gjson.Parse(output).Get("0").Raw, input[0].Raw, "byte for byte")

	events, err := wire.ReadEvents([]byte(said))
	require.NoError(t, err)
	var u wire.Unsealed
	var all wire.Assembler
	for _, e := range events {
		for _, e := range u.Event(nil, e) {
			require.NoError(t, all.Add(&e), "blocks are numbered without a gap")
		}
	}
	body, ok := all.JSON()
	require.True(t, ok)
	shown := string(body)
	require.NotContains(t, shown, "rsp1_")
	require.EqualValues(t, 3, gjson.Get(shown, "content.#").Int(), shown)
	var r wire.Response
	require.NoError(t, wire.Unmarshal([]byte(shown), &r))
}
