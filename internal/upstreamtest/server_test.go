package upstreamtest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/wire"
)

// The record has the path with its query. The targets of TestRefusals have all other paths.
func TestPaths(t *testing.T) {
	v := New(Config{Models: []string{"m", "n"}})
	w := post(t, v, "/v1/messages?beta=true", msg("m", ""))
	require.Equal(t, "You said: ask", gjson.Get(w.Body.String(), "content.0.text").Str)
	require.NotEmpty(t, w.Header().Get("Request-Id"))
	require.Equal(t, "/v1/messages?beta=true", v.Last().Path)
	count := ok(t, v, "/v1/messages/count_tokens", `{"model":"m","messages":[`+ask+`]}`)
	require.Positive(t, gjson.Get(count, "input_tokens").Int())
	w = httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	require.Equal(t, `["m","n"]`, gjson.Get(w.Body.String(), "data.#.id").Raw)
}

// The default answer keeps to a requested format, also if only the prompt requests it.
func TestAnswersOfAFormat(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	format := `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`
	object := `"response_format":{"type":"json_object"}`
	prompt := message("system", strconv.Quote("Answer in JSON: "+schema+" Nothing else."))
	for _, c := range []struct {
		vendor        Vendor
		request, want string
	}{
		{Chat, chat("m", format), `{"n":1}`}, {Kimi, chat("m", format), `{"n":1}`},
		{DeepSeek, chat("m", object, prompt, ask), `{"n":1}`},
		{DeepSeek, chat("m", object, message("system", `"JSON"`), ask), `{}`},
	} {
		body := ok(t, New(Config{Vendor: c.vendor}), "/v1/chat/completions", c.request)
		require.JSONEq(t, c.want, gjson.Get(body, "choices.0.message.content").Str)
	}
}

func TestEmbeddings(t *testing.T) {
	v := New(Config{Vendor: Chat})
	body := ok(t, v, "/v1/embeddings", `{"model":"e","input":["red apples","red apples too","blue sky"]}`)
	vectors := gjson.Get(body, "data.#.embedding").Array()
	require.Len(t, vectors, 3)
	near := func(a, b gjson.Result) (dot float64) {
		for i, x := range a.Array() {
			dot += x.Float() * b.Array()[i].Float()
		}
		return dot
	}
	require.Len(t, vectors[0].Array(), embeddingSize)
	require.InDelta(t, 1, near(vectors[0], vectors[0]), 1e-5)
	require.Greater(t, near(vectors[0], vectors[1]), near(vectors[0], vectors[2]))

	again := ok(t, v, "/embeddings", `{"model":"e","input":"red apples","encoding_format":"base64"}`)
	raw, err := base64.StdEncoding.DecodeString(gjson.Get(again, "data.0.embedding").String())
	require.NoError(t, err)
	first := math.Float32frombits(binary.LittleEndian.Uint32(raw))
	require.InDelta(t, vectors[0].Array()[0].Float(), float64(first), 1e-6)
	require.Zero(t, v.Count(), "only requests to a model are recorded")
}

// A model without thinking ignores the thinking of older turns, unless the vendor keeps all.
func TestOldThinkingIsCountedWhereItIsKept(t *testing.T) {
	big := `{"type":"thinking","thinking":"` + strings.Repeat("t", 4000) + `","signature":"s"}`
	older := []string{ask, answer(big, text), ask}
	latest := []string{ask, answer(big, toolUse("a")), question(toolResult("a"))}
	for _, c := range []struct {
		keep     bool
		messages []string
		counted  bool
	}{{true, older, true}, {false, older, false}, {false, latest, true}} {
		v := New(Config{Thinking: ThinkingRules{KeepAll: c.keep, SkipSignatures: true}})
		body := ok(t, v, "/v1/messages", msg(opus48, adaptive, c.messages...))
		require.Equal(t, c.counted, gjson.Get(body, "usage.input_tokens").Int() > 1000)
	}
}

func TestRecordIsBounded(t *testing.T) {
	v := New(Config{Remember: 3})
	require.Zero(t, v.Last())
	for i := range 5 {
		ok(t, v, "/v1/messages", msg("m", "", message(user, fmt.Sprintf(`"ask %d"`, i))))
	}
	post(t, v, "/v1/messages", msg("m", "", answer()))
	require.Equal(t, 6, v.Count())
	got := v.Requests()
	require.Len(t, got, 3)
	require.Equal(t, []any{"ask 3", 200, EndpointMessages, msg("m", "", message(user, `"ask 3"`))},
		[]any{got[0].User, got[0].Status, got[0].Endpoint, string(got[0].Body)})
	require.Equal(t, v.Rejections(), got[2:])
}

func TestConcurrentRequests(t *testing.T) {
	observed := 0
	v := New(Config{Remember: 10, Observe: func(Request) { observed++ }})
	openAI := New(Config{Vendor: OpenAI, Remember: 2})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			q := fmt.Sprintf("ask %d", i)
			if i%2 == 0 {
				v.Queue(Reply(Say("queued")))
			}
			w := post(t, v, "/v1/messages", msg("m", "", message(user, strconv.Quote(q))))
			if s := gjson.Get(w.Body.String(), "content.0.text").String(); s != "queued" {
				require.Equal(t, "You said: "+q, s)
			}
			v.Requests()
			body := post(t, openAI, "/v1/responses", resp("m", encrypted, hi)).Body.String()
			post(t, openAI, "/v1/responses", resp("m", encrypted, hi, strings.Trim(gjson.Get(body, "output").Raw, "[]"), hi))
		})
	}
	all.Wait()
	require.Equal(t, []int{50, 50, 0, 100}, []int{v.Count(), observed, v.Pending(), openAI.Count()})
	require.Empty(t, openAI.Rejections())
}

// Queued answers come first, then those of Config.Answer, then the default answer.
func TestAnswers(t *testing.T) {
	v := New(Config{Answer: func(r *Request) *Answer {
		if r.User != "function" {
			return nil
		}
		return &Answer{Blocks: []Block{Say("from the function")}, StopReason: "max_tokens"}
	}})
	v.Queue(Reply(Say("first")))
	require.Equal(t, 400, post(t, v, "/v1/messages", msg("m", "", answer())).Code, "a refused request uses no answer up")
	ok(t, v, "/v1/messages/count_tokens", msg("m", "")) // neither does a count
	for _, c := range []struct{ ask, want, stop string }{
		{"x", "first", "end_turn"}, {"function", "from the function", "max_tokens"}, {"x", "You said: x", "end_turn"},
	} {
		body := ok(t, v, "/v1/messages", msg("m", "", message(user, strconv.Quote(c.ask))))
		require.Equal(t, []string{c.want, c.stop},
			[]string{gjson.Get(body, "content.0.text").String(), gjson.Get(body, "stop_reason").String()})
	}
}

// The default answers lead through a tool loop.
func TestDefaultAnswers(t *testing.T) {
	v := New(Config{})
	please := message(user, `"please use the tool"`)
	body := ok(t, v, "/v1/messages", msg(opus48, adaptive+","+weather, please))
	require.Equal(t, `["thinking","text","tool_use"]`, gjson.Get(body, "content.#.type").Raw, body)
	require.Equal(t, `{"city":"sample","days":1,"unit":"C"}`, gjson.Get(body, "content.2.input").Raw)
	require.Equal(t, "tool_use", gjson.Get(body, "stop_reason").String())
	id := gjson.Get(body, "content.2.id").String()
	require.Regexp(t, "^toolu_01", id)
	body = ok(t, v, "/v1/messages", msg(opus48, adaptive+","+weather, please,
		message(assistant, gjson.Get(body, "content").Raw), question(toolResult(id))))
	require.Equal(t, "The tool gave: 4", gjson.Get(body, "content.1.text").String(), body)
	require.True(t, v.Last().Thinking)
	require.Equal(t, []string{"4"}, v.Last().Results)

	for choice, want := range map[string]string{"tool": `["text","tool_use"]`, "none": `["text"]`} {
		body = ok(t, v, "/v1/messages", msg(opus48, weather+`,"tool_choice":{"type":"`+choice+`","name":"weather"}`, please))
		require.Equal(t, want, gjson.Get(body, "content.#.type").Raw, body)
	}
}

func TestFaults(t *testing.T) {
	v := New(Config{Vendor: Kimi, Fault: func(r *Request) *Fault {
		if r.Header.Get("X-Fail") == "" {
			return nil
		}
		return &Fault{Status: 503, Body: "<html>", ContentType: "text/html"}
	}})
	v.Fail(RateLimited(7), Overloaded(), RateLimited(-1), Opaque(), ErrorFirst(wire.Messages, 400, "no"),
		ErrorFirst(wire.Chat, 429, "slow"), ErrorFirst(wire.Interactions, 503, "busy"))
	ok(t, v, "/v1/messages/count_tokens", msg("m", "")) // uses no fault up
	const messages, chats = "/v1/messages", "/v1/chat/completions"
	for _, c := range []struct {
		path, fail string
		status     int
		wait, body string
	}{
		{messages, "", 429, "7", `^\{"type":"error","error":\{"type":"rate_limit_error"`},
		{messages, "", 529, "", `^\{"type":"error","error":\{"type":"overloaded_error"`},
		{chats, "", 429, "", `^\{"error":\{"message":".*","type":"rate_limit_error"`},
		{messages, "", 400, "", `^\{"error":\{"message":"invalid request body","code":"invalid_request_body"\}\}$`},
		{messages, "", 200, "", `^event: error\ndata: \{"type":"error","error":\{"type":"invalid_request_error","message":"no"\}`},
		{chats, "", 200, "", `^data: \{"error":\{"message":"slow","type":"rate_limit_error"`},
		{chats, "", 200, "", `^event: error\ndata: \{"error":\{"message":"busy","code":"service_unavailable"\}`},
		{messages, "1", 503, "", `^<html>$`},
	} {
		w := post(t, v, c.path, msg("m", ""), "X-Fail", c.fail)
		require.Equal(t, []any{c.status, c.wait}, []any{w.Code, w.Header().Get("Retry-After")})
		require.Regexp(t, c.body, w.Body.String())
		require.Equal(t, c.status == 200, w.Header().Get("Content-Type") == "text/event-stream")
	}
	require.Equal(t, 503, v.Last().Status)
	require.Empty(t, v.Rejections(), "a fault is no rejection")
	v.Fail(Overloaded())
	v.Fail()
	require.Zero(t, v.Pending())
}

func TestWrappedRefusals(t *testing.T) {
	v := New(Config{Wrap: func(status int, body []byte) (int, []byte) {
		return 429, []byte(`{"error":{"message":` + strconv.Quote(fmt.Sprint(status, string(body))) + `}}`)
	}})
	w := post(t, v, "/v1/messages", msg("m", "", answer()))
	require.Equal(t, []int{429, 429}, []int{w.Code, v.Last().Status})
	require.Contains(t, errorText(w.Body.String()), `400{"type":"error"`)
}

// client returns a function that posts a question to a vendor behind a real connection.
func client(t *testing.T, v *Server) func(ctx context.Context, members string) (io.ReadCloser, error) {
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	return func(ctx context.Context, members string) (io.ReadCloser, error) {
		body := strings.NewReader(msg("m", members))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/messages", body)
		require.NoError(t, err)
		r.Header.Set("Anthropic-Version", "1")
		res, err := server.Client().Do(r)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res.Body, nil
	}
}

func TestCutAnswers(t *testing.T) {
	v := New(Config{})
	send := client(t, v)
	hello := Reply(Say("hello"))
	for _, c := range []struct {
		cut    *Cut
		stream string
		err    error
		events int // that arrive whole
		end    string
	}{
		{&Cut{After: 3}, "true", io.ErrUnexpectedEOF, 3, "\n\n"},
		{&Cut{After: 3, Inside: true}, "true", io.ErrUnexpectedEOF, 3, `{"type":"content_block_delt`},
		{&Cut{After: 3, Error: 529}, "true", nil, 4, ""},
		{&Cut{After: 3, Clean: true}, "true", nil, 3, "\n\n"},
		{&Cut{}, "false", io.ErrUnexpectedEOF, 0, ""},
		{nil, "true", nil, 7, "data: {\"type\":\"message_stop\"}\n\n"},
	} {
		v.Queue(Answer{Blocks: hello.Blocks, Cut: c.cut})
		answer, err := send(t.Context(), `"stream":`+c.stream)
		require.NoError(t, err)
		body, err := io.ReadAll(answer)
		require.Equal(t, c.err, err)
		require.NotEmpty(t, body)
		require.Equal(t, c.events, strings.Count(string(body), "\n\n"))
		require.True(t, strings.HasSuffix(string(body), c.end), "%q", body)
		if c.cut != nil && c.cut.Error != 0 {
			require.Regexp(t, `\n\nevent: error\ndata: .*"overloaded_error".*\n\n$`, string(body))
		}
	}
	require.Equal(t, Answer{Blocks: hello.Blocks, Cut: &Cut{After: 2, Inside: true}}, hello.CutAfter(2, true))
	v.Fail(Dropped())
	_, err := send(t.Context(), "")
	require.ErrorIs(t, err, io.EOF)
}

// A held answer waits until the test releases it or its client leaves.
func TestHeldAnswers(t *testing.T) {
	released := make(chan struct{})
	v := New(Config{})
	held := Reply(Say("hello"))
	held.Pause = func(ctx context.Context, event int) {
		if event == 2 {
			Until(released)(ctx, 0)
		}
	}
	v.Queue(held, held)
	send := client(t, v)
	ctx, leave := context.WithCancel(t.Context())
	body, err := send(ctx, `"stream":true`)
	require.NoError(t, err)
	stuck := bufio.NewReader(body)
	line, err := stuck.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "event: message_start\n", line)
	require.Equal(t, 200, v.Last().Status, "the verdict is known while the answer waits")
	leave()
	_, err = io.ReadAll(stuck)
	require.ErrorIs(t, err, context.Canceled)

	patient, err := send(t.Context(), `"stream":true`)
	require.NoError(t, err)
	close(released)
	rest, err := io.ReadAll(patient)
	require.NoError(t, err)
	require.Contains(t, string(rest), "message_stop")
}
