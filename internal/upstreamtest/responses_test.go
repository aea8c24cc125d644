package upstreamtest

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/proxy/wire"
)

// respond posts a request for a response. It returns the response and, of a stream, the events.
func respond(t tester, v *Server, body string) (whole string, all []string) {
	t.Helper()
	whole = ok(t, v, "/v1/responses", body)
	if v.Last().Stream {
		all = itemEvents(t, whole)
		whole = gjson.Get(all[len(all)-1], "response").Raw
	}
	return whole, all
}

// output posts a request for a response and returns the items of the answer.
func output(t tester, v *Server, body string) (items []string) {
	t.Helper()
	whole, _ := respond(t, v, body)
	for _, item := range gjson.Get(whole, "output").Array() {
		items = append(items, item.Raw)
	}
	return items
}

// outputOf returns the output of a call.
func outputOf(call string) string {
	kind := map[string]string{"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
	return fmt.Sprintf(`{"type":%q,"call_id":%q,"output":"4"}`, kind[gjson.Get(call, "type").Str], gjson.Get(call, "call_id").Str)
}

func idOf(item string) string { return gjson.Get(item, "id").Str }

func bare(item string) string { return withoutMember(item, "id") }

// itemEvents returns the data of a stream of Responses.
func itemEvents(t tester, stream string) (all []string) {
	for f := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, found := strings.Cut(f, "\ndata: ")
		require.True(t, found, f)
		require.Equal(t, strings.TrimPrefix(name, "event: "), gjson.Get(data, "type").Str)
		require.EqualValues(t, len(all), gjson.Get(data, "sequence_number").Int())
		all = append(all, data)
	}
	return all
}

// A faithful client is never refused. All of the model's reasoning in the tool loop comes back.
func TestFaithfulClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]string{"encrypted", "no ids", "stored", "previous", "text"}).Draw(t, "mode")
		v := New(Config{Vendor: map[bool]Vendor{true: DeepSeek, false: OpenAI}[mode == "text"]})
		members := offersF
		if mode == "encrypted" || mode == "no ids" {
			members += "," + encrypted
		}
		items, fresh, previous := []string{hi}, []string{hi}, ""
		loop := 0 // reasoning items in it
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			a, thoughts, ends := anyAnswer(t, mode == "text")
			v.Queue(a)
			more, sent := fmt.Sprintf(`,"stream":%t`, rapid.Bool().Draw(t, "stream")), items
			if mode == "previous" && previous != "" {
				more, sent = more+fmt.Sprintf(`,"previous_response_id":%q`, previous), fresh
			}
			whole, all := respond(t, v, resp("m", members+more, sent...))
			previous, fresh = idOf(whole), nil
			var done []string
			for _, e := range all {
				if gjson.Get(e, "type").Str == "response.output_item.done" {
					done = append(done, gjson.Get(e, "item").Raw)
				}
			}
			require.True(t, all == nil || "["+strings.Join(done, ",")+"]" == gjson.Get(whole, "output").Raw)
			last := v.Last()
			require.Equal(t, []int{loop, 0, 0}, []int{last.Returned, last.Missing, len(last.LostCompactions)})
			for _, output := range gjson.Get(whole, "output").Array() {
				item := output.Raw
				if strings.HasSuffix(output.Get("type").Str, "_call") {
					fresh = append(fresh, outputOf(item))
				}
				if mode == "no ids" {
					item = bare(item)
				}
				items = append(items, item)
			}
			if mode != "text" && rapid.IntRange(0, 3).Draw(t, "another vendor answers") == 0 {
				call := withMember(fCall, "call_id", fmt.Sprintf(`"toolu_%d"`, len(items)))
				fresh = append(fresh, call, outputOf(call))
			}
			loop += thoughts
			if ends || rapid.IntRange(0, 3).Draw(t, "interrupts") == 0 {
				fresh, loop = append(fresh, hi), 0
			}
			items = append(items, fresh...)
		}
	})
}

// anyAnswer returns an answer whose reasoning is followed by something. It has reasoning if it must. It ends the turn if
// it calls no tool.
func anyAnswer(t *rapid.T, must bool) (a Answer, thoughts int, ends bool) {
	ends = true
	for range rapid.IntRange(1, 3).Draw(t, "units") {
		if rapid.IntRange(0, 5).Draw(t, "compacts") == 0 {
			a.Blocks = append(a.Blocks, Compact("So far."))
		}
		for range rapid.IntRange(map[bool]int{true: 1}[must], 2).Draw(t, "thoughts") {
			thoughts++
			a.Blocks = append(a.Blocks, Think(rapid.String().Draw(t, "thought")))
		}
		calls := rapid.IntRange(0, 3).Draw(t, "calls")
		if rapid.Bool().Draw(t, "says") {
			a.Blocks = append(a.Blocks, Say(rapid.StringN(1, 40, -1).Draw(t, "text")))
		} else {
			calls = max(calls, 1)
		}
		for range calls {
			ends = false
			a.Blocks = append(a.Blocks, Use("f", `{"x":1}`))
		}
	}
	return a, thoughts, ends
}

func TestResponsesStreamsThatFail(t *testing.T) {
	openAI := Config{Vendor: OpenAI}
	inStream := Config{Vendor: OpenAI, Responses: ResponsesRules{InStream: true, FlatErrors: true}}
	for _, c := range []struct {
		config     Config
		prepare    func(v *Server)
		items      []string
		part, want string // of the list of events
	}{
		{openAI, func(v *Server) { v.Queue(Reply(Say("Yes.")).FailAfter(4)) }, []string{hi},
			"[#,4.error,5.type,5.response.error.message]",
			`[6,{"message":"Overloaded","type":"server_error","param":null,"code":"server_is_overloaded"},` +
				`"response.failed","Overloaded"]`},
		{openAI, func(v *Server) { v.Fail(ErrorFirst(wire.Responses, 429, "Please try again in 1.2s.")) }, []string{hi},
			"1.response.error.code", `"rate_limit_exceeded"`},
		{inStream, func(*Server) {}, []string{hi, reasoned, hi}, "[#,2.code,3.type]",
			`[4,"invalid_encrypted_content","response.failed"]`},
	} {
		v := New(c.config)
		c.prepare(v)
		all := itemEvents(t, ok(t, v, "/v1/responses", resp("m", `"stream":true`, c.items...)))
		require.Equal(t, c.want, gjson.Get("["+strings.Join(all, ",")+"]", c.part).Raw)
		if id := gjson.Get(all[0], "response.id").Str; id != "" {
			require.Equal(t, id, gjson.Get(all[len(all)-1], "response.id").Str)
		}
	}
	v := New(inStream)
	require.Equal(t, 400, post(t, v, "/v1/responses", resp("m", "", hi, reasoned, hi)).Code, "without a stream")
	serve(v, firstWrite{httptest.NewRecorder(), func() { require.Equal(t, 200, v.Last().Status) }},
		"/v1/responses", resp("m", `"stream":true`, hi, reasoned, hi))
	require.Contains(t, v.Last().Rejection, "for item rs_1 could not be verified")

	v = New(openAI)
	v.Queue(Answer{Blocks: []Block{Say("Yes.")}, Cut: &Cut{Events: 3, Clean: true}})
	all := itemEvents(t, ok(t, v, "/v1/responses", resp("m", `"stream":true`, hi)))
	require.Len(t, all, 3)
	w := post(t, v, "/v1/responses", resp("m", `"previous_response_id":"`+gjson.Get(all[0], "response.id").Str+`"`, hi))
	require.Equal(t, "previous_response_not_found", gjson.Get(w.Body.String(), "error.code").Str)
}

// unitOf has the vendor answer with reasoning, a message and two calls. It returns them and the outputs of the calls.
func unitOf(t tester, v *Server, members string) (reasoning, text, first, second string, outputs []string) {
	v.Queue(Reply(Think("Hm."), Say("Look."), Use("f", "{}"), Use("f", "{}")))
	o := output(t, v, resp("m", offersF+","+members, hi))
	require.Len(t, o, 4)
	return o[0], o[1], o[2], o[3], []string{outputOf(o[2]), outputOf(o[3])}
}

// The vendor names its compactions that did not come back. Rows of refusals count thinking. A request that repeats the
// context of an earlier one reads from the cache.
func TestLostCompactionsAreNamed(t *testing.T) {
	v := New(Config{Vendor: OpenAI})
	rs, text, fc, fc2, outs := unitOf(t, v, encrypted)
	for want, items := range map[bool][]string{false: {hi}, true: {hi, rs, text, fc, fc2, outs[0], outs[1]}} {
		whole, _ := respond(t, v, resp("m", encrypted, items...))
		require.Equal(t, want, gjson.Get(whole, "usage.input_tokens_details.cached_tokens").Int() > 0)
	}
	v.Queue(Reply(Compact("So far."), Use("f", "{}")))
	o := output(t, v, resp("m", offersF, hi))
	v.Queue(Reply(Compact("Further."), Say("Yes.")))
	newer := output(t, v, resp("m", "", hi, o[0], o[1], outputOf(o[1])))
	for _, c := range []struct {
		items []string
		lost  string
	}{
		{[]string{hi, o[1], outputOf(o[1])}, idOf(o[0])}, {[]string{o[0], o[1], outputOf(o[1])}, ""},
		{[]string{newer[0], newer[1], hi}, ""}, // the newer compaction replaces the older one
		{[]string{hi, newer[1], hi}, idOf(newer[0])},
	} {
		output(t, v, resp("m", "", c.items...))
		require.Equal(t, c.lost, strings.Join(v.Last().LostCompactions, " "))
	}
}

// A server accepts items that it has forgotten. It cannot continue a forgotten response.
func TestOldItemsAreForgotten(t *testing.T) {
	v := New(Config{Vendor: OpenAI, Remember: 1})
	rs, text, _, _, _ := unitOf(t, v, encrypted)
	first, _ := respond(t, v, resp("m", "", hi))
	next := resp("m", fmt.Sprintf(`"previous_response_id":%q`, idOf(first)), hi)
	for _, store := range []string{"false", "true"} {
		for range 10 {
			output(t, v, resp("m", `"store":`+store, hi))
		}
		if store == "false" {
			output(t, v, next)
		}
	}
	output(t, v, resp("m", "", hi, text, hi))
	output(t, v, resp("m", "", hi, rs, bare(text), hi))
	require.Contains(t, post(t, v, "/v1/responses", next).Body.String(), "previous_response_not_found")

	// The newest response is kept, however large it is.
	v = New(Config{})
	for _, id := range []string{"a", "b", "c"} {
		v.responses.add(map[string][]members{id: {}}, maxKept/2+1)
	}
	for id, want := range map[string]bool{"a": false, "b": false, "c": true} {
		require.Equal(t, want, v.responses.get(id) != nil, id)
	}
}
