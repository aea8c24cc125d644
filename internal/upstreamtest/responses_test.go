package upstreamtest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

const (
	said      = `{"role":"user","content":"hi"}`
	encrypted = `"store":false,"include":["reasoning.encrypted_content"],`
	offered   = `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],`
)

func openAI(c upstreamtest.Config) *upstreamtest.Server {
	c.Vendor = upstreamtest.OpenAI
	return upstreamtest.New(c)
}

// response asks for one with these items; rest are more members, each with a comma behind it.
func response(rest string, items ...string) string {
	return `{"model":"m",` + rest + `"input":[` + strings.Join(items, ",") + `]}`
}

// given is the output of an accepted request.
func given(t tester, v *upstreamtest.Server, body string) []string {
	t.Helper()
	w := post(t, v, "/v1/responses", body)
	require.Equal(t, 200, w.Code, "%s\n%s", w.Body, body)
	var items []string
	for _, item := range gjson.Get(w.Body.String(), "output").Array() {
		items = append(items, item.Raw)
	}
	return items
}

func outputOf(item string) string {
	kind := map[string]string{"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
	return fmt.Sprintf(`{"type":%q,"call_id":%q,"output":"4"}`, kind[gjson.Get(item, "type").Str],
		gjson.Get(item, "call_id").Str)
}

// lacking is an item without a member.
func lacking(item, member string) string {
	var rest []string
	gjson.Parse(item).ForEach(func(k, v gjson.Result) bool {
		if k.Str != member {
			rest = append(rest, k.Raw+":"+v.Raw)
		}
		return true
	})
	return "{" + strings.Join(rest, ",") + "}"
}

// with is an item that has a member of this value, too.
func with(item, member, value string) string {
	item = lacking(item, member)
	return strings.TrimSuffix(item, "}") + `,"` + member + `":` + value + `}`
}

func id(item string) string { return gjson.Get(item, "id").Str }

// A client that gives back what it was given is never refused, and all of the model's thinking in the tool
// loop comes back.
func TestFaithfulClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := openAI(upstreamtest.Config{})
		mode := rapid.SampledFrom([]string{"encrypted", "no ids", "stored", "previous", "text"}).Draw(t, "mode")
		rest := offered
		if mode == "text" {
			v = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.DeepSeek})
		}
		if mode == "encrypted" || mode == "no ids" {
			rest += encrypted
		}
		items, fresh, previous := []string{said}, []string{said}, ""
		loop := 0 // reasoning items in it
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			a, thoughts, ends := anyAnswer(t, mode == "text")
			v.Queue(a)
			body := response(rest, items...)
			if mode == "previous" && previous != "" {
				body = response(rest+fmt.Sprintf(`"previous_response_id":%q,`, previous), fresh...)
			}
			var output []string
			output, previous = answerOf(t, v, body, rapid.Bool().Draw(t, "stream"))
			last := v.Last()
			require.Equal(t, loop, last.Kept)
			require.Zero(t, last.Lost)
			require.Empty(t, last.LostCompactions)
			fresh = nil
			for _, item := range output {
				if kind := gjson.Get(item, "type").Str; strings.HasSuffix(kind, "_call") {
					fresh = append(fresh, outputOf(item))
				}
				if mode == "no ids" {
					item = lacking(item, "id")
				}
				items = append(items, item)
			}
			if mode != "text" && rapid.IntRange(0, 3).Draw(t, "another answers") == 0 {
				call := fmt.Sprintf(`{"type":"function_call","call_id":"toolu_%d","name":"f","arguments":"{}"}`, len(items))
				fresh = append(fresh, call, outputOf(call))
			}
			loop += thoughts
			if ends || rapid.IntRange(0, 3).Draw(t, "interrupts") == 0 {
				fresh, loop = append(fresh, said), 0
			}
			items = append(items, fresh...)
		}
	})
}

// anyAnswer is one with reasoning that is followed by something, and with some reasoning if it must; ends says that
// it calls no tool.
func anyAnswer(t *rapid.T, must bool) (a upstreamtest.Answer, thoughts int, ends bool) {
	ends = true
	for range rapid.IntRange(1, 3).Draw(t, "units") {
		if rapid.IntRange(0, 5).Draw(t, "compacts") == 0 {
			a.Blocks = append(a.Blocks, upstreamtest.Compact("So far."))
		}
		for range rapid.IntRange(map[bool]int{true: 1}[must], 2).Draw(t, "thoughts") {
			thoughts++
			a.Blocks = append(a.Blocks, upstreamtest.Think(rapid.String().Draw(t, "thought")))
		}
		said := rapid.Bool().Draw(t, "says")
		if said {
			a.Blocks = append(a.Blocks, upstreamtest.Say(rapid.StringN(1, 40, -1).Draw(t, "text")))
		}
		calls := rapid.IntRange(0, 3).Draw(t, "calls")
		if calls == 0 && !said {
			calls = 1
		}
		for range calls {
			ends = false
			a.Blocks = append(a.Blocks, upstreamtest.Use("f", `{"x":1}`))
		}
	}
	return a, thoughts, ends
}

// answerOf is the output of an accepted request, and the response's id; a stream has to have the items of
// its last event in its others, too.
func answerOf(t tester, v *upstreamtest.Server, body string, stream bool) (items []string, id string) {
	if stream {
		body = `{"stream":true,` + body[1:]
	}
	w := post(t, v, "/v1/responses", body)
	require.Equal(t, 200, w.Code, "%s\n%s", w.Body, body)
	whole := w.Body.String()
	if stream {
		all := itemEvents(t, whole)
		whole = gjson.Get(all[len(all)-1], "response").Raw
		var done []string
		for _, e := range all {
			if gjson.Get(e, "type").Str == "response.output_item.done" {
				done = append(done, gjson.Get(e, "item").Raw)
			}
		}
		require.Equal(t, "["+strings.Join(done, ",")+"]", gjson.Get(whole, "output").Raw)
	}
	for _, item := range gjson.Get(whole, "output").Array() {
		items = append(items, item.Raw)
	}
	return items, gjson.Get(whole, "id").Str
}

// itemEvents are the data of a stream of Responses, in order.
func itemEvents(t tester, stream string) (all []string) {
	for f := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(f, "\ndata: ")
		require.True(t, ok, f)
		require.Equal(t, strings.TrimPrefix(name, "event: "), gjson.Get(data, "type").Str)
		require.EqualValues(t, len(all), gjson.Get(data, "sequence_number").Int())
		all = append(all, data)
	}
	return all
}

// Everything that a stream says piece by piece is what the JSON answer has.
func TestResponsesStreamed(t *testing.T) {
	for vendor, order := range map[upstreamtest.Vendor]string{
		upstreamtest.OpenAI: "created in_progress " +
			"output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.delta " +
			"reasoning_summary_text.done reasoning_summary_part.done output_item.done " +
			"output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done " +
			"output_item.added function_call_arguments.delta function_call_arguments.done output_item.done " +
			"output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed",
		upstreamtest.DeepSeek: "created in_progress " +
			"output_item.added content_part.added reasoning_text.delta reasoning_text.delta " +
			"reasoning_text.done content_part.done output_item.done " +
			"output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done " +
			"output_item.added function_call_arguments.delta function_call_arguments.done output_item.done " +
			"output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed",
	} {
		v := upstreamtest.New(upstreamtest.Config{Vendor: vendor})
		blocks := []upstreamtest.Block{
			upstreamtest.Think("It is the first."), upstreamtest.Say("Look."),
			upstreamtest.Use("f", `{"x":1}`), upstreamtest.Use("c", "a b"),
		}
		v.Queue(upstreamtest.Reply(blocks...), upstreamtest.Reply(blocks...))
		rest := encrypted + `"reasoning":{"summary":"auto"},"tools":[{"type":"namespace","name":"n","tools":[
			{"type":"function","name":"f","parameters":{"type":"object"}}]},{"type":"custom","name":"c"},{"type":"web_search"}],`
		whole := post(t, v, "/v1/responses", response(rest, said)).Body.String()
		all := itemEvents(t, post(t, v, "/v1/responses", response(`"stream":true,`+rest, said)).Body.String())
		var kinds []string
		texts := map[string]string{}
		for _, e := range all {
			kind := strings.TrimPrefix(gjson.Get(e, "type").Str, "response.")
			kinds = append(kinds, kind)
			texts[strings.TrimSuffix(kind, ".delta")] += gjson.Get(e, "delta").Str
		}
		require.Equal(t, order, strings.Join(kinds, " "), vendor)
		require.Equal(t, "It is the first.", texts["reasoning_summary_text"]+texts["reasoning_text"])
		require.Equal(t, "Look.", texts["output_text"])
		require.Equal(t, `{"x":1}`, texts["function_call_arguments"])
		require.Equal(t, "a b", texts["custom_tool_call_input"])

		streamed := gjson.Get(all[len(all)-1], "response").Raw
		for path, want := range map[string]string{
			"output.#.type": `["reasoning","message","function_call","custom_tool_call"]`, "status": `"completed"`,
			"output.1.content.0.text": `"Look."`, "output.2.arguments": `"{\"x\":1}"`, "output.2.namespace": `"n"`,
			"output.3.input": `"a b"`, "reasoning.summary": `"auto"`, "error": "null", "incomplete_details": "null",
			"store": "false",
		} {
			require.Equal(t, want, gjson.Get(whole, path).Raw, path)
			require.Equal(t, want, gjson.Get(streamed, path).Raw, path)
		}
		require.Equal(t, gjson.Get(whole, "usage.output_tokens_details").Raw,
			gjson.Get(streamed, "usage.output_tokens_details").Raw)
		require.Positive(t, gjson.Get(whole, "usage.output_tokens_details.reasoning_tokens").Int())
		for i, prefix := range []string{"rs_", "msg_", "fc_", "ctc_"} {
			require.True(t, strings.HasPrefix(gjson.Get(whole, fmt.Sprintf("output.%d.id", i)).Str, prefix))
		}
		require.Equal(t, vendor == upstreamtest.OpenAI,
			strings.HasPrefix(gjson.Get(whole, "output.0.encrypted_content").Str, "gAAAA"))
	}
}

func TestReasoningIsShownAsAsked(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	for rest, want := range map[string]string{
		"":                                "[[] <nil>]",
		encrypted:                         "[[] gAAAA]",
		`"reasoning":{"summary":"auto"},`: `[[{"type":"summary_text","text":"Hm."}] <nil>]`,
	} {
		v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Yes.")))
		item := given(t, v, response(rest, said))[0]
		content := gjson.Get(item, "encrypted_content")
		got := fmt.Sprint([]any{gjson.Get(item, "summary").Raw, content.Value()})
		if content.Exists() {
			got = fmt.Sprint([]any{gjson.Get(item, "summary").Raw, content.Str[:5]})
		}
		require.Equal(t, want, got, rest)
		require.False(t, gjson.Get(item, "status").Exists())
	}
	v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Yes.")))
	require.Len(t, given(t, v, response(`"reasoning":{"effort":"none"},`, said)), 1)
	require.Len(t, given(t, v, strings.Replace(response("", said), `"m"`, `"gpt-4o"`, 1)), 1)
	require.Len(t, given(t, v, strings.Replace(response("", said), `"m"`, `"gpt-5.2"`, 1)), 1, "none by itself")
	require.Len(t, given(t, v, strings.Replace(response("", said), `"m"`, `"gpt-5"`, 1)), 2)
}

func TestResponsesThatEndEarly(t *testing.T) {
	for stop, want := range map[string]string{
		"max_tokens":     `incomplete {"reason":"max_output_tokens"} null incomplete`,
		"content_filter": `incomplete {"reason":"content_filter"} null incomplete`,
		"refusal":        `completed null null completed`,
		"failed":         `failed null {"code":"server_error","message":"Internal server error"} completed`,
	} {
		for _, stream := range []string{"", `"stream":true,`} {
			v := openAI(upstreamtest.Config{})
			v.Queue(upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Say("No.")}, StopReason: stop})
			body := post(t, v, "/v1/responses", response(stream, said)).Body.String()
			if stream != "" {
				all := itemEvents(t, body)
				last := all[len(all)-1]
				require.Equal(t, "response."+gjson.Get(last, "response.status").Str, gjson.Get(last, "type").Str)
				body = gjson.Get(last, "response").Raw
			}
			require.Equal(t, want, strings.Join([]string{gjson.Get(body, "status").Str,
				gjson.Get(body, "incomplete_details").Raw, gjson.Get(body, "error").Raw, gjson.Get(body, "output.0.status").Str},
				" "), stop)
			require.Equal(t, stop == "refusal", gjson.Get(body, "output.0.content.0.refusal").Str == "No.")
		}
	}
}

func TestResponsesStreamsThatFail(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	v.Queue(upstreamtest.Reply(upstreamtest.Say("Yes.")).FailAfter(4))
	all := itemEvents(t, post(t, v, "/v1/responses", response(`"stream":true,`, said)).Body.String())
	require.Len(t, all, 6)
	require.Equal(t, `{"message":"Overloaded","type":"server_error","param":null,"code":"server_is_overloaded"}`,
		gjson.Get(all[4], "error").Raw)
	require.Equal(t, "response.failed", gjson.Get(all[5], "type").Str)
	require.Equal(t, gjson.Get(all[0], "response.id").Str, gjson.Get(all[5], "response.id").Str)
	require.Equal(t, "Overloaded", gjson.Get(all[5], "response.error.message").Str)

	v.Fail(upstreamtest.ErrorFirst(wire.Responses, 429, "Please try again in 1.2s."))
	all = itemEvents(t, post(t, v, "/v1/responses", response(`"stream":true,`, said)).Body.String())
	require.Equal(t, "rate_limit_exceeded", gjson.Get(all[1], "response.error.code").Str)

	v = openAI(upstreamtest.Config{Responses: upstreamtest.ResponsesRules{InStream: true, FlatErrors: true}})
	forged := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAA"}`
	all = itemEvents(t, post(t, v, "/v1/responses", response(`"stream":true,`, said, forged, said)).Body.String())
	require.Len(t, all, 4)
	require.Equal(t, "invalid_encrypted_content", gjson.Get(all[2], "code").Str)
	require.Equal(t, "response.failed", gjson.Get(all[3], "type").Str)
	require.Contains(t, v.Last().Rejection, "for item rs_1 could not be verified")
	require.Equal(t, 400, post(t, v, "/v1/responses", response("", said, forged, said)).Code)
}

// unitOf is an answer of a server: reasoning, a message and two calls, then their outputs.
func unitOf(t tester, v *upstreamtest.Server, rest string) (reasoning, text, first, second string, outputs []string) {
	v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("Look."),
		upstreamtest.Use("f", "{}"), upstreamtest.Use("f", "{}")))
	o := given(t, v, response(offered+rest, said))
	require.Len(t, o, 4)
	return o[0], o[1], o[2], o[3], []string{outputOf(o[2]), outputOf(o[3])}
}

// Reasoning and what it led to are one unit.
func TestReasoningUnits(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	rs, msg, fc, fc2, outs := unitOf(t, v, encrypted)
	other, _, otherCall, otherCall2, otherOuts := unitOf(t, v, encrypted)
	bare := func(item string) string { return lacking(item, "id") }
	orphan := func(item string) string {
		return fmt.Sprintf("Item '%s' of type 'reasoning' was provided without its required following item.", id(item))
	}
	missing := func(item string) string {
		return fmt.Sprintf("Item '%s' of type '%s' was provided without its required 'reasoning' item: '%s'.", id(item),
			gjson.Get(item, "type").Str, id(rs))
	}
	for name, c := range map[string]struct {
		items []string
		want  string
	}{
		"whole":                       {[]string{rs, msg, fc, fc2, outs[0], outs[1]}, ""},
		"outputs between":             {[]string{rs, msg, fc, outs[0], fc2, outs[1]}, ""},
		"no ids":                      {[]string{bare(rs), bare(msg), bare(fc), bare(fc2), outs[0], outs[1]}, ""},
		"no message and no ids":       {[]string{rs, bare(fc), outs[0]}, ""},
		"none of it":                  {nil, ""},
		"ids dropped with reasoning":  {[]string{bare(msg), bare(fc), bare(fc2), outs[0], outs[1]}, ""},
		"reasoning alone":             {[]string{rs}, orphan(rs)},
		"reasoning alone, no id":      {[]string{bare(rs)}, orphan(rs)},
		"an output behind":            {[]string{bare(fc), rs, outs[0]}, orphan(rs)},
		"another's call behind":       {[]string{rs, bare(otherCall), otherOuts[0]}, orphan(rs)},
		"calls cut from reasoning":    {[]string{fc, outs[0]}, missing(fc)},
		"message cut":                 {[]string{msg}, missing(msg)},
		"another's reasoning":         {[]string{other, fc, outs[0]}, orphan(other)},
		"calls before the message":    {[]string{rs, bare(fc), outs[0], msg}, missing(msg)},
		"reasoning behind its call":   {[]string{fc, outs[0], rs, msg}, missing(fc)},
		"reasoning moved to the next": {[]string{rs, other, otherCall, otherCall2, otherOuts[0], otherOuts[1]}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			items := append(append([]string{said}, c.items...), said)
			w := post(t, v, "/v1/responses", response(encrypted, items...))
			require.Equal(t, c.want, message(w.Body.String()))
			if c.want != "" {
				require.Equal(t, 400, w.Code)
				require.Equal(t, `["input",null,"invalid_request_error"]`,
					gjson.Get(w.Body.String(), "[error.param,error.code,error.type]").Raw)
			}
		})
	}
}

// What the vendor gave is verified, any other vendor's is refused.
func TestEncryptedContent(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	rs, msg, _, _, _ := unitOf(t, v, encrypted)
	content := gjson.Get(rs, "encrypted_content").Str
	changed := with(rs, "encrypted_content", fmt.Sprintf("%q", content[:40]+"A"+content[41:]))
	if content[40] == 'A' {
		changed = with(rs, "encrypted_content", fmt.Sprintf("%q", content[:40]+"B"+content[41:]))
	}
	foreign, _, _, _, _ := unitOf(t, openAI(upstreamtest.Config{Name: "another account"}), encrypted)
	renamed := with(rs, "id", `"rs_1"`)
	v.Queue(upstreamtest.Reply(upstreamtest.Compact("So far."), upstreamtest.Say("Yes.")))
	cmp := given(t, v, response("", said))[0]
	lone := lacking(msg, "id")
	unverified := func(item, reason string) string {
		return "The encrypted content for item " + id(item) + " could not be verified. Reason: Encrypted content " + reason
	}
	const unread, mismatch = "could not be decrypted or parsed.", "item_id did not match the target item id."
	ends := func(item string) string {
		c := gjson.Get(item, "encrypted_content").Str
		return "The encrypted content gAAA..." + c[len(c)-4:] + " could not be verified."
	}
	notFound := "Item with id '" + id(rs) + "' not found. Items are not persisted when `store` is set to false. Try " +
		"again with `store` set to true, or remove this item from your input."
	for name, c := range map[string]struct {
		rules      upstreamtest.ResponsesRules
		item, want string
		status     int
		code       string
	}{
		"its own":             {item: rs, status: 200},
		"changed":             {item: changed, want: unverified(rs, unread), code: `"invalid_encrypted_content"`},
		"another account's":   {item: foreign, want: unverified(foreign, unread), code: `"invalid_encrypted_content"`},
		"of another item":     {item: renamed, want: unverified(renamed, mismatch), code: `"invalid_encrypted_content"`},
		"no id":               {item: lacking(foreign, "id"), want: ends(foreign), code: `"invalid_encrypted_content"`},
		"its own, no id":      {item: lacking(rs, "id"), status: 200},
		"not persisted":       {item: lacking(rs, "encrypted_content"), want: notFound, status: 404, code: "null"},
		"null":                {item: with(rs, "encrypted_content", "null"), want: notFound, status: 404, code: "null"},
		"a compaction":        {item: cmp, status: 200},
		"another kind":        {item: with(cmp, "encrypted_content", fmt.Sprintf("%q", content)), want: unverified(cmp, unread), code: `"invalid_encrypted_content"`},
		"a forged compaction": {item: with(cmp, "encrypted_content", `"gAAAAAxxxxxxxx"`), want: unverified(cmp, unread), code: `"invalid_encrypted_content"`},
		"Azure":               {rules: upstreamtest.ResponsesRules{Azure: true, OldWording: true}, item: foreign, want: ends(foreign), code: "null"},
		"Azure, not persisted": {rules: upstreamtest.ResponsesRules{Azure: true}, item: lacking(rs, "encrypted_content"),
			want: notFound, code: "null"},
	} {
		t.Run(name, func(t *testing.T) {
			v := openAI(upstreamtest.Config{Responses: c.rules})
			w := post(t, v, "/v1/responses", response("", said, c.item, lone, said))
			require.Equal(t, c.want, message(w.Body.String()))
			if c.status == 0 {
				c.status = 400
			}
			require.Equal(t, c.status, w.Code)
			require.Equal(t, c.code, gjson.Get(w.Body.String(), "error.code").Raw)
		})
	}
}

// What is persisted may be named by its id, and only that.
func TestPersistedResponses(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	rs, msg, fc, fc2, outs := unitOf(t, v, "")
	reference := func(item string) string { return fmt.Sprintf(`{"type":"item_reference","id":%q}`, id(item)) }
	given(t, v, response("", said, rs, msg, fc, fc2, outs[0], outs[1]))
	given(t, v, response("", said, reference(rs), reference(msg), fc, fc2, outs[0], outs[1]))

	kept := gjson.Get(post(t, v, "/v1/responses", response("", said)).Body.String(), "id").Str
	lost := gjson.Get(post(t, v, "/v1/responses", response(`"store":false,`, said)).Body.String(), "id").Str
	previous := func(id string) string { return fmt.Sprintf(`"previous_response_id":%q,`, id) }
	require.Contains(t, given(t, v, `{"model":"m",`+previous(kept)+`"input":"and?"}`)[1], "You said: and?")
	for body, want := range map[string]string{
		response(previous(lost), said): "previous_response_not_found Previous response with id '" + lost + "' not found.",
		response(previous(kept)+`"conversation":"conv_1",`, said): "mutually_exclusive_parameters Mutually exclusive " +
			"parameters: Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
		response(`"conversation":"conv_1",`, said): " Conversation with id 'conv_1' not found.",
		response(previous(kept), said, `{"role":"user"}`): "missing_required_parameter Missing required parameter: " +
			"'input[1].content'.",
		response(previous(kept), outs[0]): " No tool call found for function call output with call_id " +
			gjson.Get(fc, "call_id").Str + ".",
	} {
		w := post(t, v, "/v1/responses", body)
		require.Equal(t, want, gjson.Get(w.Body.String(), "error.code").Str+" "+message(w.Body.String()))
	}
}

// The vendor sees what of its own thinking, and of its compactions, did not come back.
func TestOwnThinkingIsCounted(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	rs, msg, fc, fc2, outs := unitOf(t, v, encrypted)
	bare := func(item string) string { return lacking(item, "id") }
	counted := func(items ...string) []int {
		given(t, v, response(encrypted, items...))
		return []int{v.Last().Kept, v.Last().Lost}
	}
	require.Equal(t, []int{1, 0}, counted(said, rs, msg, fc, fc2, outs[0], outs[1]))
	require.Equal(t, []int{0, 1}, counted(said, bare(msg), bare(fc), bare(fc2), outs[0], outs[1]))
	require.Equal(t, []int{0, 0}, counted(said, bare(msg), bare(fc), bare(fc2), outs[0], outs[1], said), "an older turn")

	v.Queue(upstreamtest.Reply(upstreamtest.Compact("So far."), upstreamtest.Use("f", "{}")))
	o := given(t, v, response(offered, said))
	given(t, v, response("", said, o[1], outputOf(o[1])))
	require.Equal(t, []string{id(o[0])}, v.Last().LostCompactions)
	given(t, v, response("", o[0], o[1], outputOf(o[1])))
	require.Empty(t, v.Last().LostCompactions)

	// A newer compaction stands for the older one.
	v.Queue(upstreamtest.Reply(upstreamtest.Compact("Further."), upstreamtest.Say("Yes.")))
	newer := given(t, v, response("", said, o[0], o[1], outputOf(o[1])))
	given(t, v, response("", newer[0], newer[1], said))
	require.Empty(t, v.Last().LostCompactions)
	given(t, v, response("", said, newer[1], said))
	require.Equal(t, []string{id(newer[0])}, v.Last().LostCompactions)
}

// What is forgotten is not held against a client, but it cannot be gone on from either.
func TestOldItemsAreForgotten(t *testing.T) {
	v := openAI(upstreamtest.Config{Remember: 1})
	rs, msg, _, _, _ := unitOf(t, v, encrypted)
	w := post(t, v, "/v1/responses", response("", said))
	first := gjson.Get(w.Body.String(), "id").Str
	for range 10 {
		given(t, v, response(`"store":false,`, said))
	}
	given(t, v, response(fmt.Sprintf(`"previous_response_id":%q,`, first), said))
	for range 10 {
		given(t, v, response("", said))
	}
	given(t, v, response("", said, msg, said))
	given(t, v, response("", said, rs, lacking(msg, "id"), said))
	w = post(t, v, "/v1/responses", response(fmt.Sprintf(`"previous_response_id":%q,`, first), said))
	require.Equal(t, "previous_response_not_found", gjson.Get(w.Body.String(), "error.code").Str)
}

func TestResponsesAtOnce(t *testing.T) {
	v := openAI(upstreamtest.Config{Remember: 2})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			items := []string{said}
			for range 10 {
				items = append(append(items, given(t, v, response(encrypted, items...))...), said)
			}
		})
	}
	clients.Wait()
	require.Equal(t, 80, v.Count())
	require.Empty(t, v.Rejections())
}

// An answer that is cut leaves no response to go on from.
func TestCutResponses(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	v.Queue(upstreamtest.Answer{Blocks: []upstreamtest.Block{upstreamtest.Say("Yes.")},
		Cut: &upstreamtest.Cut{After: 3, Clean: true}})
	all := itemEvents(t, post(t, v, "/v1/responses", response(`"stream":true,`, said)).Body.String())
	require.Len(t, all, 3)
	w := post(t, v, "/v1/responses", response(fmt.Sprintf(`"previous_response_id":%q,`,
		gjson.Get(all[0], "response.id").Str), said))
	require.Equal(t, "previous_response_not_found", gjson.Get(w.Body.String(), "error.code").Str)
}

func TestCachedTokens(t *testing.T) {
	v := openAI(upstreamtest.Config{})
	rs, msg, fc, fc2, outs := unitOf(t, v, encrypted)
	cached := func(items ...string) int64 {
		w := post(t, v, "/v1/responses", response(encrypted, items...))
		return gjson.Get(w.Body.String(), "usage.input_tokens_details.cached_tokens").Int()
	}
	require.Zero(t, cached(said))
	require.Positive(t, cached(said, rs, msg, fc, fc2, outs[0], outs[1]))
}

// DeepSeek wants its reasoning back as text, whatever its ids.
func TestDeepSeekResponses(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.DeepSeek})
	rs, msg, fc, fc2, outs := unitOf(t, v, encrypted)
	require.Equal(t, `[{"type":"reasoning_text","text":"Hm."}]`, gjson.Get(rs, "content").Raw)
	require.False(t, gjson.Get(rs, "encrypted_content").Exists())
	given(t, v, response("", said, lacking(rs, "id"), msg, fc, fc2, outs[0], outs[1]))
	require.Equal(t, []int{1, 0}, []int{v.Last().Kept, v.Last().Lost})
	given(t, v, response("", said, with(rs, "content", `[{"type":"reasoning_text","text":""}]`), fc, outs[0]))
	require.Equal(t, []int{0, 1}, []int{v.Last().Kept, v.Last().Lost})
	for _, items := range [][]string{
		{fc, outs[0]}, {lacking(rs, "content"), fc, outs[0]}, {rs, fc, outs[0], fc2, outs[1]},
	} {
		w := post(t, v, "/v1/responses", response("", slices.Concat([]string{said}, items)...))
		require.Equal(t, 400, w.Code)
		require.Equal(t, "The `reasoning_text` in the thinking mode must be passed back to the API.",
			message(w.Body.String()))
	}
	given(t, v, response(`"reasoning":{"effort":"none"},`, said, fc, outs[0]))
	w := post(t, v, "/v1/responses", response(`"previous_response_id":"resp_1",`, said))
	require.Equal(t, "previous_response_not_found", gjson.Get(w.Body.String(), "error.code").Str)
}
