package openaiapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/openaiapi"
)

// postResponse posts a request for a response. base precedes /v1 in the path.
func postResponse(w *webmemorytest.World, base, members string, header ...string) webmemorytest.Response {
	w.T.Helper()
	return w.Do("POST", base+"/v1/responses", `{"model":"mneme",`+members+"}", header...)
}

// requireResponse is postResponse for a request that must succeed.
func requireResponse(w *webmemorytest.World, base, members string, header ...string) (id, text string, r gjson.Result) {
	w.T.Helper()
	got := postResponse(w, base, members, header...)
	require.Equal(w.T, 200, got.Status, string(got.Body))
	r = gjson.ParseBytes(got.Body)
	if r.Get("object").Str != "response" {
		events := responseEvents(w.T, string(got.Body))
		r = events[len(events)-1].Get("response")
	}
	for _, part := range r.Get(`output.#(type=="message")#.content.0.text`).Array() {
		text += part.Str
	}
	return r.Get("id").Str, text, r
}

// responseEvents reads a stream, of which each event has to be named and numbered.
func responseEvents(t *testing.T, stream string) (events []gjson.Result) {
	t.Helper()
	frames := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	require.Equal(t, "data: [DONE]", frames[len(frames)-1], stream)
	for _, frame := range frames[:len(frames)-1] {
		if strings.HasPrefix(frame, ":") {
			continue
		}
		name, data, ok := strings.Cut(frame, "\ndata: ")
		require.True(t, ok, frame)
		e := gjson.Parse(data)
		require.Equal(t, "event: "+e.Get("type").Str, name)
		require.Equal(t, int64(len(events)), e.Get("sequence_number").Int())
		events = append(events, e)
	}
	return events
}

// The answer in one piece and the stream put together are the same, with progress as reasoning, and citations.
func TestResponsesWholeAndStreamed(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, ferry)
	whole := postResponse(w, "/c/c", `"input":"What does it cost?","instructions":"Be brief.","metadata":{"a":"b"}`)
	require.Equal(t, 200, whole.Status, string(whole.Body))
	require.Equal(t, "chat", whole.Header.Get("Mneme-Memory"))
	require.Equal(t, "c", whole.Header.Get("Mneme-Chat-Id"))
	r := gjson.ParseBytes(whole.Body)
	require.Equal(t, "resp_"+whole.RunID()+".1_c", r.Get("id").Str)
	require.Equal(t, "completed response mneme Be brief. b true", strings.Join([]string{r.Get("status").Str,
		r.Get("object").Str, r.Get("model").Str, r.Get("instructions").Str, r.Get("metadata.a").Str,
		r.Get("store").Raw}, " "))
	require.JSONEq(t, `["message","reasoning","message"]`, r.Get("output.#.type").Raw)
	require.Equal(t, "I look it up.", r.Get("output.0.content.0.text").Str)
	require.Equal(t, "knowledge is asked: What does a ferry cost?\nknowledge, documents: {\"query\":\"ferry\"}\n",
		r.Get("output.1.summary.0.text").Str)
	require.Equal(t, "\n\nIt <b>costs</b> 14 [1].", r.Get("output.2.content.0.text").Str)
	require.JSONEq(t, `[{"type":"url_citation","start_index":21,"end_index":24,"title":"Ferry","url":"https://x.y/ferry",`+
		`"citation":{"n":1,"doc_id":"ferry.md","title":"Ferry","source":"https://x.y/ferry","quote":"14 crowns"}}]`,
		r.Get("output.2.content.0.annotations").Raw)
	require.JSONEq(t, `{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":20,`+
		`"output_tokens_details":{"reasoning_tokens":5},"total_tokens":120}`, r.Get("usage").Raw)

	got := postResponse(w, "/c/c", `"stream":true,"input":"What does it cost?","instructions":"Be brief.","metadata":{"a":"b"}`)
	require.Equal(t, "text/event-stream", got.Header.Get("Content-Type"))
	events := responseEvents(t, string(got.Body))
	last := events[len(events)-1]
	require.Equal(t, "response.completed", last.Get("type").Str)
	plain := func(r gjson.Result) string {
		text := strings.NewReplacer(r.Get("id").Str[5:], "ID").Replace(r.Raw)
		for _, at := range []string{"created_at", "completed_at"} {
			text = strings.ReplaceAll(text, r.Get(at).Raw, "1")
		}
		return text
	}
	require.Equal(t, strings.TrimSpace(plain(r)), plain(last.Get("response")))
	var texts string
	kinds := map[string]int{}
	for _, e := range events {
		kinds[e.Get("type").Str]++
		if e.Get("type").Str == "response.output_text.delta" {
			texts += e.Get("delta").Str
		}
	}
	require.Equal(t, "I look it up.\n\nIt <b>costs</b> 14 [1].", texts)
	require.Equal(t, []int{1, 1, 3, 3, 1, 1}, []int{kinds["response.created"], kinds["response.in_progress"],
		kinds["response.output_item.added"], kinds["response.output_item.done"],
		kinds["response.output_text.annotation.added"], kinds["response.reasoning_summary_text.done"]})
}

// Whatever is wrong is said in OpenAI's shape, by the member's name in Responses, and leaves nothing behind.
func TestResponsesRefuse(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, webmemorytest.Answers("hello"))
	for name, c := range map[string]struct {
		members           string
		status            int
		code, param, says string
	}{
		"no JSON":         {members: `"input":`, status: 400, code: "bad_request"},
		"no input":        {members: `"stream":false`, status: 400, says: "input must hold"},
		"another model":   {members: `"input":"x","model":"gpt-9"`, status: 400}, // twice
		"an empty text":   {members: `"input":""`, status: 400},
		"the answer":      {members: `"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`, status: 400, param: "input"},
		"an odd role":     {members: `"input":[{"role":"x","content":"a"}]`, status: 400, says: "role"},
		"a sound":         {members: `"input":[{"role":"user","content":[{"type":"input_audio"}]}]`, status: 400, says: "input_audio"},
		"a kept file":     {members: `"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]`, status: 400, says: "file_id"},
		"a PDF":           {members: `"input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}]}],"store":false`, status: 400, code: "part_not_supported", param: "input[0].content[0]"},
		"background":      {members: `"input":"x","background":true`, status: 400, param: "background", says: "background"},
		"both places":     {members: `"input":"x","conversation":"c","previous_response_id":"resp_x"`, status: 400, param: "previous_response_id"},
		"no chat":         {members: `"input":"x","conversation":"a b"`, status: 400, says: "conversation names no chat"},
		"a hosted tool":   {members: `"input":"x","tools":[{"type":"code_interpreter","container":"c"}]`, status: 400, says: "code_interpreter"},
		"a stored prompt": {members: `"input":"x","prompt":{"id":"p"}`, status: 400, says: "prompt"},
		"an odd format":   {members: `"input":"x","text":{"format":{"type":"xml"}}`, status: 400, says: "text.format"},
		"nothing before":  {members: `"input":"x","previous_response_id":"resp_68c1"`, status: 400, code: "previous_response_not_found", param: "previous_response_id"},
		"of no chat": {members: `"input":"x","previous_response_id":"resp_` + strings.Repeat("A", 26) + `.1_"`, status: 400,
			code: "previous_response_not_found"},
		"of a chat that is none": {members: `"input":"x","previous_response_id":"resp_` + strings.Repeat("A", 26) + `.1_c"`,
			status: 400, code: "previous_response_not_found"},
		"an item of somebody's": {members: `"input":[{"type":"item_reference","id":"msg_68c1"},{"role":"user","content":"x"}]`,
			status: 404, code: "item_not_found", param: "input"},
		"an item that nobody kept": {members: `"input":[{"type":"item_reference","id":"msg_` + strings.Repeat("A", 26) +
			`.1_0"},{"role":"user","content":"x"}]`, status: 404, code: "item_not_found"},
		"an item of no chat": {members: `"input":[{"type":"item_reference","id":"msg_` + strings.Repeat("A", 26) +
			`.1_c_0"},{"role":"user","content":"x"}]`, status: 404, code: "item_not_found", param: "input"},
	} {
		got := postResponse(w, "", c.members)
		require.Equal(t, c.status, got.Status, "%s: %s", name, got.Body)
		told := openaiError(t, got)
		require.Equal(t, "invalid_request_error", told.Type, name)
		if c.code != "" {
			require.Equal(t, c.code, told.Code, name)
		}
		if c.param != "" {
			require.NotNil(t, told.Param, "%s: %s", name, got.Body)
			require.Equal(t, c.param, *told.Param, name)
		}
		require.Contains(t, told.Message, c.says, name)
	}
	require.Empty(t, w.Redis.Keys(context.Background(), "*chat_history*").Val())
	require.Equal(t, 404, w.Do("POST", "/v1/responses", `{"model":"gpt-9","input":"x"}`).Status)
	// Search that the client's vendor would do is left out, as at the gateway.
	require.Equal(t, 200, postResponse(w, "", `"input":"x","tools":[{"type":"web_search"}]`).Status)
}

// Each way of naming the chat leads to it, and one that names none begins one.
func TestResponsesWhichChat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	for _, c := range []struct {
		base, members string
		header        []string
		chat          string
	}{
		{members: `"input":"a","conversation":"a1"`, chat: "a1"},
		{members: `"input":"a","conversation":{"id":"a2"}`, chat: "a2"},
		{members: `"input":"a","metadata":{"chat_id":"a3"}`, chat: "a3"},
		{members: `"input":"a","conversation":"a4","metadata":{"chat_id":"a3"}`, chat: "a4"},
		{members: `"input":"a","conversation":"a4"`, header: []string{"X-Session-Id", "a5"}, chat: "a5"},
		{base: "/c/a6", members: `"input":"a","store":false`, chat: "a6"},
	} {
		got := postResponse(w, c.base, c.members, c.header...)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, c.chat, got.Header.Get("Mneme-Chat-Id"))
		require.Equal(t, "a", userWords(w, c.chat))
	}
	require.Equal(t, "a1", gjson.GetBytes(postResponse(w, "", `"input":"b","conversation":"a1"`).Body, "conversation.id").Str)
	first, second := postResponse(w, "", `"input":"a"`), postResponse(w, "", `"input":"a"`)
	require.Equal(t, "chat", first.Header.Get("Mneme-Memory"))
	chat := first.Header.Get("Mneme-Chat-Id")
	require.NotEqual(t, chat, second.Header.Get("Mneme-Chat-Id"))
	require.Equal(t, "a", userWords(w, chat))
	// A transcript without ids begins one with all that it says.
	id, _, _ := requireResponse(w, "", `"input":[{"role":"user","content":"x"},{"role":"assistant","content":"re x"},{"role":"user","content":"y"}]`)
	_, chat, _ = strings.Cut(id[5:], "_")
	require.Equal(t, []string{"user: x", "assistant: re x", "user: y"}, w.History("chat_history:" + chat)[:3])
	requireResponse(w, "", `"input":"z","previous_response_id":"`+id+`"`)
	require.Equal(t, "x y z", userWords(w, chat))
}

// store: false without a chat is answered from what was sent, and nothing is kept.
func TestResponsesKeepNothing(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	id, text, r := requireResponse(w, "", `"store":false,"instructions":"Be brief.","input":[{"role":"user","content":"a"},`+
		`{"id":"msg_of_a_vendor","type":"message","role":"assistant","content":[{"type":"output_text","text":"re a"}]},`+
		`{"type":"reasoning","id":"rs_x","summary":[],"encrypted_content":"x"},{"role":"user","content":"b"}]`)
	require.Equal(t, "to master (Be brief.), user a, assistant re a: b", text)
	require.Equal(t, "false", r.Get("store").Raw)
	require.Subset(t, []string{"mneme:epoch", "mneme:processes", "mneme:chats"},
		w.Redis.Keys(context.Background(), "*").Val(), "those of the service itself")
	require.Equal(t, 404, w.Do("GET", "/v1/responses/"+id, nil).Status)
	got := postResponse(w, "", `"input":"x","previous_response_id":"`+id+`"`)
	require.Equal(t, "previous_response_not_found", openaiError(t, got).Code)
}

// previous_response_id is a place: behind the newest answer the chat goes on; behind an older one it goes on in a fork,
// and what was said there stays.
func TestResponsesPreviousIsAPlace(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	other := w.StartOpenAI()
	after := func(id, text string) string { return `"input":"` + text + `","previous_response_id":"` + id + `"` }
	a, _, _ := requireResponse(w, "", `"conversation":"c","input":"a"`)
	b, _, r := requireResponse(w, "", after(a, "b"))
	require.Equal(t, a, r.Get("previous_response_id").Str)
	w.Target(other, func() { requireResponse(w, "", after(b, "c")) })
	require.Equal(t, "a b c", userWords(w, "c"))

	got := postResponse(w, "/c/c", after(a, "x"))
	require.Equal(t, 200, got.Status, string(got.Body))
	fork := got.Header.Get("Mneme-Chat-Id")
	require.True(t, strings.HasPrefix(fork, "c.fork-"), fork)
	require.Equal(t, "a x", userWords(w, fork))
	require.Equal(t, "a b c", userWords(w, "c"))
	require.Nil(t, asideSizes(w, "c"))
	requireResponse(w, "/c/c", after(gjson.GetBytes(got.Body, "id").Str, "y"))
	require.Equal(t, "a x y", userWords(w, fork), "the fork goes on below the chat's own path")
	require.Equal(t, 400, postResponse(w, "/c/d", after(a, "x")).Status, "it is no place of another chat")

	// Somebody else's words are in the way only behind that place.
	require.Equal(t, 200, postCompletion(w, "c", users("d"), "User-Agent", "a bot").Status)
	require.Equal(t, "c", postResponse(w, "", `"conversation":"c","input":"e"`).Header.Get("Mneme-Chat-Id"))
	require.Equal(t, "a b c d e", userWords(w, "c"))

	// One with its key is answered once, wherever it went.
	for _, from := range []string{a, b} {
		first := postResponse(w, "", after(from, "k"), "Idempotency-Key", "k-"+from)
		require.Equal(t, 200, first.Status, string(first.Body))
		again := postResponse(w, "", after(from, "k"), "Idempotency-Key", "k-"+from)
		require.Equal(t, string(first.Body), string(again.Body))
	}
	keyed := []string{"Idempotency-Key", "n"}
	for _, members := range []string{`"input":"n"`, `"input":[{"role":"user","content":"l"},{"role":"assistant","content":"m"},{"role":"user","content":"n"}]`} {
		first := postResponse(w, "", members, keyed...)
		require.Equal(t, string(first.Body), string(postResponse(w, "", members, keyed...).Body))
		require.Equal(t, 200, first.Status, string(first.Body))
		keyed[1] = "n2"
	}
	n, _, _ := requireResponse(w, "", `"input":"n"`)
	first := postResponse(w, "", after(n, "m"), "Idempotency-Key", "km")
	require.Equal(t, string(first.Body), string(postResponse(w, "", after(n, "m"), "Idempotency-Key", "km").Body))
	require.NotContains(t, first.Header.Get("Mneme-Chat-Id"), "fork")
}

// Of many messages behind one answer each is answered, one in the chat and the others in forks of it.
func TestResponsesAtOnce(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	urls := []string{w.URL, w.StartOpenAI()}
	a, _, _ := requireResponse(w, "", `"conversation":"c","input":"a"`)
	chats := make([]string, 6)
	var all sync.WaitGroup
	for i := range chats {
		var req *http.Request
		w.Target(urls[i%2], func() {
			req = w.NewRequest("POST", "/v1/responses", fmt.Sprintf(`{"model":"mneme","input":"x%d","previous_response_id":%q}`, i, a))
		})
		all.Go(func() {
			got := w.Send(req)
			if got.Status != 200 {
				t.Errorf("%d: %s", got.Status, got.Body)
			}
			chats[i] = got.Header.Get("Mneme-Chat-Id")
		})
	}
	all.Wait()
	forks := 0
	for i, chat := range chats {
		require.Equal(t, fmt.Sprintf("a x%d", i), userWords(w, chat))
		if chat != "c" {
			forks++
		}
	}
	require.Equal(t, 5, forks)
	require.Nil(t, asideSizes(w, "c"))
}

// A retry of a message behind an older answer is stored once, in the chat or in the fork of the first attempt. The same
// message without a retry gets an answer of its own. No exchange goes.
func TestResponsesRetriesShareAFork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		onDisconnect string
		older        string // what follows the answer already
	}{
		{openaiapi.Stop, ""}, {openaiapi.Continue, ""}, {openaiapi.Stop, "b"}, {openaiapi.Continue, "b"},
	} {
		t.Run(fmt.Sprintf("%s behind %q", c.onDisconnect, c.older), func(t *testing.T) {
			t.Parallel()
			release, runs := make(chan struct{}), atomic.Int64{}
			w := openaiWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
				emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
					Metadata: r.Metadata})
				if r.Message == "x" && runs.Add(1) == 1 {
					select {
					case <-release:
					case <-ctx.Done():
						emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
						return
					}
				}
				emit(event.Head{}, &event.Assistant{Content: "re " + r.Message})
				emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
			}, func(o *openaiapi.Config) { o.OnDisconnect = c.onDisconnect })
			a, _, _ := requireResponse(w, "", `"conversation":"c","input":"a"`)
			if c.older != "" {
				requireResponse(w, "", `"input":"`+c.older+`","previous_response_id":"`+a+`"`)
			}
			members := `"input":"x","previous_response_id":"` + a + `"`
			ctx, giveUp := context.WithCancel(t.Context())
			req := w.NewRequest("POST", "/v1/responses", `{"model":"mneme",`+members+"}").WithContext(ctx)
			left := make(chan struct{})
			go func() {
				defer close(left)
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			webmemorytest.Eventually(t, "the run is followed", func() bool {
				return runs.Load() == 1 && w.Metric("mneme_event_streams") == 1
			})
			giveUp()
			<-left
			webmemorytest.Eventually(t, "the client left", func() bool { return w.Metric("mneme_event_streams") == 0 })
			again := make(chan webmemorytest.Response, 1)
			retry := w.NewRequest("POST", "/v1/responses", `{"model":"mneme",`+members+"}", "X-Stainless-Retry-Count", "1")
			go func() { again <- w.Send(retry) }()
			if c.onDisconnect == openaiapi.Continue {
				webmemorytest.Eventually(t, "the retry joins the run", func() bool {
					return w.Metric("mneme_event_streams") == 1
				})
				close(release)
			}
			got := <-again
			require.Equal(t, 200, got.Status, string(got.Body))
			chat := got.Header.Get("Mneme-Chat-Id")
			require.Equal(t, c.older != "", chat != "c")
			require.Equal(t, []string{"user: a", "assistant: re a", "user: x", "assistant: re x"},
				w.History("chat_history:"+chat))

			chats := map[string]bool{"c": true, chat: true}
			for range 20 {
				other := postResponse(w, "", members).Header.Get("Mneme-Chat-Id")
				require.False(t, chats[other], "it is no retry, so it has a fork of its own")
				require.Equal(t, "a x", userWords(w, other))
				chats[other] = true
			}
			list := gjson.GetBytes(w.Do("GET", "/v1/chats", nil).Body, "chats.#")
			require.EqualValues(t, len(chats), list.Int(), "no attempt left a chat behind")
		})
	}
}

// A message that failed is answered in its place when it comes again.
func TestResponsesAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	fails := true
	w := openaiWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		if r.Message == "b" && fails {
			fails = false
			emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model did not answer.", Retryable: true})
			emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
			return
		}
		emit(event.Head{}, &event.Assistant{Content: "re " + r.Message})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	a, _, _ := requireResponse(w, "", `"conversation":"c","input":"a"`)
	ask := `"input":"b","previous_response_id":"` + a + `"`
	got := postResponse(w, "", ask)
	require.Equal(t, 502, got.Status, string(got.Body))
	require.Equal(t, "model_failed", openaiError(t, got).Code)
	got = postResponse(w, "", ask)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "c", got.Header.Get("Mneme-Chat-Id"))
	require.Equal(t, []string{"user: a", "assistant: re a", "user: b", "assistant: re b"}, w.History("chat_history:c"))
}

// A transcript of items that were given here goes on where they stand: as references, or in full, and nothing of its
// words is compared. A stranger's are as if they had none.
func TestResponsesTranscripts(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"references", "items"} {
		w := openaiWorld(t, repeats())
		var input []string
		say := func(text string) (chat string) {
			input = append(input, `{"role":"user","content":[{"type":"input_text","text":"`+text+`"}]}`)
			got := postResponse(w, "", `"input":[`+strings.Join(input, ",")+"]")
			require.Equal(t, 200, got.Status, string(got.Body))
			for _, item := range gjson.GetBytes(got.Body, "output").Array() {
				one := item.Raw
				if way == "references" {
					one = `{"type":"item_reference","id":"` + item.Get("id").Str + `"}`
				}
				input = append(input, one)
			}
			return got.Header.Get("Mneme-Chat-Id")
		}
		chat := say("a")
		require.Equal(t, chat, say("b"))
		held := input
		require.Equal(t, chat, say("c"))
		require.Equal(t, "a b c", userWords(w, chat))
		input = held
		fork := say("x")
		require.Equal(t, "a b x", userWords(w, fork), way)
		require.Equal(t, "a b c", userWords(w, chat))
		require.Equal(t, fork, say("y"), "the newest answer says which chat it is")
		if way == "references" { // nobody else has their words
			got := postResponse(w, "", `"store":false,"input":[`+strings.Join(append(input, `{"role":"user","content":"q"}`), ",")+"]")
			require.Equal(t, fork, got.Header.Get("Mneme-Chat-Id"), string(got.Body))
		}

		require.Equal(t, 200, w.Do("DELETE", "/v1/chats/"+fork, nil).Status)
		got := postResponse(w, "", `"input":[`+strings.Join(append(input, `{"role":"user","content":"z"}`), ",")+"]")
		if way == "references" {
			require.Equal(t, 404, got.Status)
			require.Equal(t, "item_not_found", openaiError(t, got).Code)
			continue
		}
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, "a b x y z", userWords(w, got.Header.Get("Mneme-Chat-Id")), "it has all that was said")
	}
}

const lightTool = `"tools":[{"type":"function","name":"light","parameters":{"type":"object"}},{"type":"function","name":"radio"}]`

// The client's own tools: the answer ends with calls, and goes on with their results, whichever way the next request
// says where it stands, through whichever process.
func TestResponsesClientTools(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := openaiWorld(t, nil)
	s := w.ScriptApiserver(clientCalls)
	other := w.StartOpenAI()
	for _, stream := range []string{"", `"stream":true,`} {
		for name, next := range map[string]func(id string, out []gjson.Result, results string) (base, members string){
			"previous": func(id string, _ []gjson.Result, results string) (string, string) {
				return "", `"previous_response_id":"` + id + `","input":[` + results + `]`
			},
			"references": func(_ string, out []gjson.Result, results string) (string, string) {
				input := `{"role":"user","content":"turn it on"},`
				for _, item := range out {
					input += `{"type":"item_reference","id":"` + item.Get("id").Str + `"},`
				}
				return "", `"input":[` + input + results + `]`
			},
			"items": func(_ string, out []gjson.Result, results string) (string, string) {
				input := `{"role":"user","content":"turn it on"},`
				for _, item := range out {
					input += item.Raw + ","
				}
				return "", `"input":[` + input + results + `]`
			},
			"calls alone": func(_ string, _ []gjson.Result, results string) (string, string) {
				return "", `"input":[` + results + `]`
			},
			"in the chat": func(_ string, _ []gjson.Result, results string) (string, string) {
				return "/c/chat", `"input":[` + results + `]`
			},
			"nothing kept": func(_ string, out []gjson.Result, results string) (string, string) {
				input := `{"role":"user","content":"turn it on"},`
				for _, item := range out {
					input += item.Raw + ","
				}
				return "", `"store":false,"input":[` + input + results + `]`
			},
		} {
			base, store := "", ""
			switch name {
			case "in the chat":
				base = "/c/chat"
			case "nothing kept":
				store = `"store":false,`
			}
			id, text, r := requireResponse(w, base, stream+store+lightTool+`,"input":"turn it on"`)
			require.Equal(t, "I try.", text, name)
			require.Equal(t, "completed", r.Get("status").Str)
			require.JSONEq(t, `["light","radio"]`, r.Get(`output.#(type=="function_call")#.name`).Raw)
			require.Equal(t, `{"n":1}`, r.Get("output.1.arguments").Str)
			require.EqualValues(t, 7, r.Get("usage.total_tokens").Int())
			calls := r.Get(`output.#(type=="function_call")#.call_id`).Array()
			result := func(i int, text string) string {
				return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, calls[i].Str, text)
			}
			w.Target(other, func() {
				base, members := next(id, r.Get("output").Array(), result(0, "it shines"))
				got := postResponse(w, base, members)
				require.Equal(t, 400, got.Status, "%s: %s", name, got.Body)
				require.Contains(t, openaiError(t, got).Message, "there is none for "+calls[1].Str)
			})
			w.Target(other, func() {
				base, members := next(id, r.Get("output").Array(), result(0, "it shines")+","+result(1, "loud"))
				done, text, r := requireResponse(w, base, stream+members)
				require.NotEqual(t, id, done)
				if store != "" { // the transcript has the results
					posted := s.Requests()
					context := fmt.Sprintf("%s", posted[len(posted)-1].Context)
					require.Contains(t, context, "it shines")
					require.Contains(t, context, "loud")
					return
				}
				require.Equal(t, `approve "it shines", approve "loud"`, text, name)
				require.EqualValues(t, 8, r.Get("usage.total_tokens").Int())
				again, _, _ := requireResponse(w, base, stream+members)
				require.Equal(t, done, again, "the same results again join the run")
			})
		}
	}
	// A client that never comes back hinders nothing, and its results are late.
	id, _, r := requireResponse(w, "", lightTool+`,"input":"turn it on"`)
	_, text, _ := requireResponse(w, "", `"input":"never mind","previous_response_id":"`+id+`"`)
	require.Equal(t, "plainly never mind", text)
	late := postResponse(w, "", `"input":[{"type":"function_call_output","call_id":"`+r.Get("output.1.call_id").Str+
		`","output":"x"},{"type":"function_call_output","call_id":"`+r.Get("output.2.call_id").Str+`","output":"x"}]`)
	require.Equal(t, "not_waiting", openaiError(t, late).Code, string(late.Body))
	// Somebody else's call is no run here.
	_, _, r = requireResponse(w, "", lightTool+`,"input":"turn it on"`)
	call := r.Get("output.1.call_id").Str
	foreign := strings.Replace(call, call[5:31], strings.Repeat("A", 26), 1)
	got := postResponse(w, "", `"input":[{"type":"function_call_output","call_id":"`+foreign+`","output":"x"}]`)
	require.Contains(t, []int{404, 409, 410}, got.Status, string(got.Body))
}

// text.format goes to the master's model, and of the answer there is nothing but the JSON.
func TestResponsesFormat(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	s := w.ScriptApiserver(func(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.AssistantDelta{Text: "I look it up."})
		emit(event.Head{Subagent: "analytic", CallID: "c"}, &event.Delegation{Task: "x", Calls: event.Serial})
		emit(event.Head{}, &event.AssistantDelta{Text: `{"city":`})
		emit(event.Head{}, &event.Assistant{Content: `{"city":"Rome"}`})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	const format = `"text":{"format":{"type":"json_schema","name":"place","strict":true,"schema":{"type":"object","required":["city"]}}}`
	for _, stream := range []string{"", `"stream":true,`} {
		_, text, r := requireResponse(w, "", stream+format+`,"input":"Where?"`)
		require.Equal(t, `{"city":"Rome"}`, text)
		require.Equal(t, "place", r.Get("text.format.name").Str)
	}
	requireResponse(w, "", `"text":{"format":{"type":"json_object"},"verbosity":"low"},"input":"Where?"`)
	requests := s.Requests()
	require.Equal(t, "place", gjson.GetBytes(requests[0].ResponseFormat, "json_schema.name").Str)
	require.Contains(t, requests[0].Instructions, `JSON schema: {"type":"object","required":["city"]}`)
	require.Equal(t, "json_object", gjson.GetBytes(requests[2].ResponseFormat, "type").Str)
}

// A run that fails is a status, or the end of a stream that has begun.
func TestResponsesFail(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		if r.Message == "late" {
			emit(event.Head{}, &event.AssistantDelta{Text: "Well"})
		}
		emit(event.Head{}, &event.Error{Code: "model_failed", Message: "The model did not answer.", Retryable: true})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
	})
	for _, members := range []string{`"input":"late"`, `"stream":true,"input":"early"`} {
		got := postResponse(w, "", members)
		require.Equal(t, 502, got.Status, string(got.Body))
		require.Equal(t, "model_failed", openaiError(t, got).Code)
		require.Equal(t, "2", got.Header.Get("Retry-After"))
	}
	events := responseEvents(t, string(postResponse(w, "", `"stream":true,"input":"late"`).Body))
	failed, last := events[len(events)-2], events[len(events)-1]
	require.Equal(t, "error model_failed The model did not answer.",
		failed.Get("type").Str+" "+failed.Get("code").Str+" "+failed.Get("message").Str)
	require.Equal(t, "response.failed failed model_failed", last.Get("type").Str+" "+last.Get("response.status").Str+" "+
		last.Get("response.error.code").Str)
}

// A client that hangs up stops the run, and a stream in which nothing happens has comments.
func TestResponsesClientLeaves(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	w := openaiWorld(t, webmemorytest.AnswersAfter(release), func(o *openaiapi.Config) { o.Heartbeat = time.Millisecond })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/c/c/v1/responses",
		`{"model":"mneme","stream":true,"input":"hi"}`).WithContext(ctx))
	require.NoError(t, err)
	defer resp.Body.Close()
	text := ""
	for piece := make([]byte, 1000); !strings.Contains(text, "event: response.output_item.added") ||
		!strings.Contains(text, ": ping\n\n: ping\n\n"); {
		n, err := resp.Body.Read(piece)
		require.NoError(t, err)
		text += string(piece[:n])
	}
	leave()
	_, _ = io.Copy(io.Discard, resp.Body)
	webmemorytest.Eventually(t, "the run is over", func() bool { return len(w.History("chat_history:c")) == 2 })
	var page webapi.HistoryPage
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats/c/history", nil).Body, &page))
	require.True(t, gjson.GetBytes(page.Messages[1], "partial").Bool())
	run, _, _ := strings.Cut(gjson.GetBytes(page.Messages[1], "id").Str, ".")
	got := w.Do("GET", "/v1/responses/resp_"+run+".1_c", nil)
	require.Equal(t, "incomplete stopped", gjson.GetBytes(got.Body, "status").Str+" "+
		gjson.GetBytes(got.Body, "incomplete_details.reason").Str, string(got.Body))
}

// An answer that its model did not complete says so in every dialect, and as its chat remembers it.
func TestAnswersThatWereCut(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct{ responses, ui string }{
		memory.FinishLength: {"max_output_tokens", "length"}, memory.FinishFilter: {"content_filter", "content-filter"},
	} {
		w := openaiWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
			ferry(ctx, r, func(h event.Head, p event.Payload) {
				if said, ok := p.(*event.Assistant); ok {
					said.FinishReason = reason
				}
				emit(h, p)
			})
		})
		for _, stream := range []string{"", `,"stream":true`} {
			got := postCompletion(w, "c", `{"model":"mneme","messages":[{"role":"user","content":"a"}]`+stream+`}`)
			require.Contains(t, string(got.Body), `"finish_reason":"`+reason+`"`)
			got = w.Do("POST", "/v1/responses", `{"model":"mneme","input":"b"`+stream+`}`)
			require.Contains(t, string(got.Body), `"status":"incomplete"`)
			require.Contains(t, string(got.Body), `"incomplete_details":{"reason":"`+c.responses+`"}`)
		}
		got := w.Do("POST", "/v1/responses", `{"model":"mneme","input":"b"}`, "Mneme-Chat-Id", "d")
		webmemorytest.Eventually(t, "the answer is stored", func() bool { return len(w.History("chat_history:d")) == 2 })
		got = w.Do("GET", "/v1/responses/"+gjson.GetBytes(got.Body, "id").Str, nil)
		require.Equal(t, c.responses, gjson.GetBytes(got.Body, "incomplete_details.reason").Str, string(got.Body))
		history := w.Do("GET", "/v1/chats/d/history", nil).Body
		require.Equal(t, reason, gjson.GetBytes(history, "messages.1.finish_reason").Str)
		got = w.Do("POST", "/v1/chats/e/messages", `{"message":"a"}`)
		require.Equal(t, reason, gjson.GetBytes(got.Body, "finish_reason").Str, string(got.Body))
		got = w.Do("POST", "/v1/chats/f/ui", `{"trigger":"submit-message","messages":[{"id":"m","role":"user",`+
			`"parts":[{"type":"text","text":"a"}]}]}`)
		require.Contains(t, string(got.Body), `"finishReason":"`+c.ui+`"`)
	}
}

// A response can be had again as its chat remembers it, by its own chat's path alone, until it is deleted: then its words
// are nowhere.
func TestResponsesGetAndDelete(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		ferry(ctx, r, func(h event.Head, p event.Payload) {
			if said, ok := p.(*event.Assistant); ok {
				said.Run = &event.Record{Usage: event.Usage{InputTokens: 100, OutputTokens: 20}}
			}
			emit(h, p)
		})
	})
	a, _, _ := requireResponse(w, "/c/c", `"input":"What does the heron cost?"`)
	b, _, _ := requireResponse(w, "/c/c", `"input":"And back?"`)
	for _, base := range []string{"", "/c/c"} {
		got := w.Do("GET", base+"/v1/responses/"+a, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		r := gjson.ParseBytes(got.Body)
		require.Equal(t, a+" completed It <b>costs</b> 14 [1].", r.Get("id").Str+" "+r.Get("status").Str+" "+
			r.Get("output.0.content.0.text").Str)
		require.EqualValues(t, 120, r.Get("usage.total_tokens").Int())
		require.Equal(t, "https://x.y/ferry", r.Get("output.0.content.0.annotations.0.url").Str)
	}
	none := "resp_" + strings.Repeat("A", 26) + ".1_c"
	for _, path := range []string{"/c/d/v1/responses/" + a, "/v1/responses/" + none, "/v1/responses/resp_x",
		"/v1/responses/" + strings.Replace(a, "resp_", "msg_", 1), "/v1/responses/" + strings.TrimSuffix(a, "c") + "d"} {
		for _, method := range []string{"GET", "DELETE"} {
			got := w.Do(method, path, nil)
			require.Equal(t, 404, got.Status, "%s %s: %s", method, path, got.Body)
			require.Equal(t, "response_not_found", openaiError(t, got).Code)
		}
	}
	got := w.Do("DELETE", "/v1/responses/"+a, nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.JSONEq(t, `{"id":"`+a+`","object":"response","deleted":true}`, string(got.Body))
	require.Equal(t, 404, w.Do("GET", "/v1/responses/"+a, nil).Status)
	require.Equal(t, 404, w.Do("DELETE", "/v1/responses/"+a, nil).Status)
	require.NotContains(t, string(w.Do("GET", "/v1/chats/c/export", nil).Body), "heron")
	require.Equal(t, "previous_response_not_found",
		openaiError(t, postResponse(w, "", `"input":"x","previous_response_id":"`+a+`"`)).Code)
	require.Equal(t, 200, w.Do("GET", "/v1/responses/"+b, nil).Status)
}

// A response that goes on has no answer yet.
func TestResponsesGetOneThatGoesOn(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := openaiWorld(t, webmemorytest.AnswersAfter(release))
	resp, err := http.DefaultClient.Do(w.NewRequest("POST", "/c/c/v1/responses", `{"model":"mneme","stream":true,"input":"hi"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	run := resp.Header.Get(webapi.RunID)
	require.Equal(t, 404, w.Do("GET", "/v1/responses/resp_"+run+".1_c", nil).Status)
	close(release)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, w.Do("GET", "/v1/responses/resp_"+run+".1_c", nil).Status)
}
