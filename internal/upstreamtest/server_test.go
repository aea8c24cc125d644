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
	require.NotEmpty(t, post(t, v, "/v1/messages?beta=true", msg("m", "")).Header().Get("Request-Id"))
	require.Equal(t, "/v1/messages?beta=true", v.Last().Path)
	w := httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	require.Equal(t, `["m","n"]`, gjson.Get(w.Body.String(), "data.#.id").Raw)
}

// Each row is a request and a part of the answer, as a path and a pattern.
func TestPartsOfAnswers(t *testing.T) {
	const (
		messages, chats, responses = "/v1/messages", "/v1/chat/completions", "/v1/responses"
		counting, text             = "/v1/messages/count_tokens", "choices.0.message.content"
		types, tool                = "content.#.type", "output.@reverse.0.name"
		messageIDs, chatIDs        = `content.#(type=="tool_use")#.id`, "choices.0.message.tool_calls.#.id"
		reasoning                  = "[output.#.type,output.0.summary,output.0.encrypted_content,output.0.status]"
		schema                     = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
		format                     = `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` +
			schema + `}}`
		object  = `"response_format":{"type":"json_object"}`
		display = `"thinking":{"type":"adaptive","display":`
		tools   = `"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],"tool_choice":`
	)
	answering := func(c Config, blocks ...Block) Config {
		c.Answer = func(*Request) *Answer { return &Answer{Blocks: blocks} }
		return c
	}
	hm, called := []Block{Think("Hm."), Say("Yes.")}, everything.Blocks
	prompt := message("system", strconv.Quote("Answer in JSON: "+schema+" Nothing else."))
	please := message(user, `"please use the tool"`)
	long := `{"type":"thinking","thinking":"` + strings.Repeat("t", 4000) + `","signature":"s"}`
	older := msg(opus48, adaptive, ask, answer(long, `{"type":"text","text":"a"}`), ask)
	latest := msg(opus48, adaptive, ask, answer(long, toolUse("a")), question(toolResult("a")))
	keepsAll := Config{Thinking: ThinkingRules{KeepAll: true, SkipSignatures: true}}
	keepsTurn, openAI := Config{Thinking: ThinkingRules{SkipSignatures: true}}, Config{Vendor: OpenAI}
	omits, thinks := answering(Config{Thinking: ThinkingRules{Omit: true}}, hm...), answering(openAI, hm...)
	for i, c := range []struct {
		config                    Config
		path, request, part, want string
	}{
		{Config{}, messages, msg("m", ""), "content.0.text", "You said: ask"},
		{Config{}, counting, `{"model":"m","messages":[` + ask + `]}`, "input_tokens", `[1-9]\d*`},
		// The default answer keeps to a requested format, also if only the prompt requests it.
		{Config{Vendor: Chat}, chats, chat("m", format), text, `{"n":1}`},
		{Config{Vendor: Kimi}, chats, chat("m", format), text, `{"n":1}`},
		{Config{Vendor: DeepSeek}, chats, chat("m", object, prompt, ask), text, `{"n":1}`},
		{Config{Vendor: DeepSeek}, chats, chat("m", object, message("system", `"JSON"`), ask), text, `{}`},
		// The default answers lead through a tool loop. In manual mode the model thinks only before its first call.
		{Config{}, messages, msg(opus48, adaptive+","+weather, please),
			"[content.#.type,content.2.input,stop_reason,content.2.id]",
			`\[\["thinking","text","tool_use"\],{"city":"sample","days":1,"unit":"C"},"tool_use","toolu_01\w+"\]`},
		{keepsTurn, messages, msg(opus48, adaptive, please, answer(toolUse("a")), question(toolResult("a"))),
			"[content.#.type,content.1.text]", `\[\["thinking","text"\],"The tool gave: 4"\]`},
		{Config{}, messages, msg(sonnet45, enabled+","+weather, please), types, `\["thinking","text","tool_use"\]`},
		{keepsTurn, messages, msg(sonnet45, enabled, loop(thought)...), types, `\["text"\]`},
		// Thinking is shown if the request and the vendor have it so.
		{answering(Config{}, hm...), messages, msg(opus48, disabled), types, `\["text"\]`},
		{omits, messages, msg(opus48, adaptive), "[content.0.thinking,content.0.signature]", `\["","\w[^"]+"\]`},
		{omits, messages, msg(opus48, display+`"summarized"}`), "content.0.thinking", "Hm."},
		{omits, messages, msg(opus48, display+`"omitted"}`), "content.0.thinking", ""},
		// A tool is called if it is requested and allowed.
		{Config{}, messages, msg(opus48, weather+`,"tool_choice":{"type":"tool","name":"weather"}`, please), types,
			`\["text","tool_use"\]`},
		{Config{}, messages, msg(opus48, weather+`,"tool_choice":{"type":"none"}`, please), types, `\["text"\]`},
		{openAI, responses, resp("m", tools+`"required"`, hi), tool, "f"},
		{openAI, responses, resp("m", tools+`{"type":"function","name":"g"}`, hi), tool, "g"},
		{openAI, responses, resp("m", tools+
			`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}`, hi), tool, "g"},
		{openAI, responses, resp("m", tools+`"none"`, hi), tool, ""},
		{openAI, responses, resp("m", tools+`"auto"`, hi), tool, ""},
		// A model without thinking ignores the thinking of older turns, unless the vendor keeps all.
		{keepsAll, messages, older, "usage.input_tokens", `\d{4,}`},
		{keepsTurn, messages, older, "usage.input_tokens", `\d{1,3}`},
		{keepsTurn, messages, latest, "usage.input_tokens", `\d{4,}`},
		// Vendors differ in the ids of calls.
		{answering(Config{Vendor: Kimi}, called...), messages, msg("m", ""), messageIDs, `\["tool_0","tool_1"\]`},
		{answering(Config{Vendor: Kimi}, called...), chats, chat("m", ""), chatIDs,
			`\["functions.weather:0","functions.weather:1"\]`},
		{answering(Config{Vendor: DeepSeek}, called...), messages, msg("m", ""), messageIDs,
			`\["call_00_\w{24}","call_01_\w{24}"\]`},
		{answering(Config{Vendor: Chat}, called...), chats, chat("m", ""), chatIDs, `\["call_\w{24}","call_\w{24}"\]`},
		{answering(Config{Vendor: Chat, Chat: ChatRules{ToolIDs: MistralIDs}}, called...), chats, chat("m", ""), chatIDs,
			`\["\w{9}","\w{9}"\]`},
		// Reasoning is encrypted, summarized or absent, as the request and the model have it.
		{thinks, responses, resp("m", "", hi), reasoning, `\[\["reasoning","message"\],\[\]\]`},
		{thinks, responses, resp("m", encrypted, hi), reasoning, `\[\["reasoning","message"\],\[\],"gAAAA[^"]*"\]`},
		{thinks, responses, resp("m", `"reasoning":{"summary":"auto"}`, hi), reasoning,
			`\[\["reasoning","message"\],\[{"type":"summary_text","text":"Hm."}\]\]`},
		{answering(Config{Vendor: DeepSeek}, hm...), "/responses", resp("m", "", hi),
			"[output.0.content,output.0.encrypted_content]", `\[\[{"type":"reasoning_text","text":"Hm."}\]\]`},
		{thinks, responses, resp("gpt-5", "", hi), reasoning, `\[\["reasoning","message"\],\[\]\]`},
		{thinks, responses, resp("m", `"reasoning":{"effort":"none"}`, hi), "output.#.type", `\["message"\]`},
		{thinks, responses, resp("gpt-4o", "", hi), "output.#.type", `\["message"\]`},
		{thinks, responses, resp("gpt-5.2", "", hi), "output.#.type", `\["message"\]`},
	} {
		answer := ok(t, New(c.config), c.path, c.request)
		require.Regexp(t, "^"+c.want+"$", gjson.Get(answer, c.part).String(), "row %d", i)
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
	ok(t, v, "/v1/messages", msg("m", "", ask, answer(toolUse("a")), question(toolResult("a"))))
	require.Equal(t, []string{"4"}, v.Last().Results)
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
		{&Cut{Events: 3}, "true", io.ErrUnexpectedEOF, 3, "\n\n"},
		{&Cut{Events: 3, Inside: true}, "true", io.ErrUnexpectedEOF, 3, `{"type":"content_block_delt`},
		{&Cut{Events: 3, Error: 529}, "true", nil, 4, ""},
		{&Cut{Events: 3, Clean: true}, "true", nil, 3, "\n\n"},
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
	require.Equal(t, Answer{Blocks: hello.Blocks, Cut: &Cut{Events: 2, Inside: true}}, hello.CutAfter(2, true))
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
