package upstreamtest_test

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
	"go.uber.org/goleak"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// require's own interface, so that rapid's tests can use the helpers, too.
type tester interface {
	require.TestingT
	Helper()
}

// post sends a request straight into the vendor. Headers come in pairs; the
// version that Anthropic wants is set.
func post(t tester, v http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	return w
}

// message is the text of an error body of either dialect.
func message(body string) string { return gjson.Get(body, "error.message").String() }

func TestDoors(t *testing.T) {
	anthropic := upstreamtest.New(upstreamtest.Config{Models: []string{"m", "n"}})
	kimi := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Kimi})
	chatter := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Models: []string{"m"}})

	openai := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.OpenAI, Models: []string{"m", "gpt-5"}})

	for _, path := range []string{"/v1/responses", "/responses", "/openai/v1/responses?api-version=preview"} {
		w := post(t, openai, path, `{"model":"m","input":"ask"}`)
		require.Equal(t, "You said: ask", gjson.Get(w.Body.String(), "output.1.content.0.text").String(), w.Body)
	}
	w := post(t, openai, "/v1/responses", `{"model":"n","input":"ask"}`)
	require.Equal(t, "The requested model 'n' does not exist.", message(w.Body.String()))
	w = post(t, openai, "/v1/chat/completions", strings.Replace(chat(ask), `"m"`, `"gpt-5","max_tokens":9`, 1))
	require.Contains(t, message(w.Body.String()), "Use 'max_completion_tokens' instead.")

	w = post(t, anthropic, "/v1/messages?beta=true", messages(ask))
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, "You said: ask", gjson.Get(w.Body.String(), "content.0.text").String())
	require.Equal(t, "m", gjson.Get(w.Body.String(), "model").String())
	require.NotEmpty(t, w.Header().Get("Request-Id"))
	require.Equal(t, "/v1/messages?beta=true", anthropic.Last().Path)

	w = post(t, anthropic, "/v1/messages/count_tokens", `{"model":"m","messages":[`+ask+`]}`)
	require.Equal(t, 200, w.Code, w.Body)
	require.Positive(t, gjson.Get(w.Body.String(), "input_tokens").Int())

	for _, path := range []string{"/v1/chat/completions", "/chat/completions"} {
		for _, v := range []*upstreamtest.Server{kimi, chatter} {
			w = post(t, v, path, chat(ask))
			require.Equal(t, 200, w.Code, w.Body)
			require.Equal(t, "You said: ask", gjson.Get(w.Body.String(), "choices.0.message.content").String())
		}
	}
	w = post(t, kimi, "/anthropic/v1/messages", messages(ask))
	require.Equal(t, 200, w.Code, w.Body)

	w = httptest.NewRecorder()
	anthropic.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	require.Equal(t, `["m","n"]`, gjson.Get(w.Body.String(), "data.#.id").Raw)

	for _, c := range []struct {
		v          *upstreamtest.Server
		path, want string
	}{
		{anthropic, "/v1/chat/completions", "not_found_error"}, {chatter, "/v1/messages", "not_found_error"},
		{kimi, "/v1/responses", "not_found_error"}, {anthropic, "/v1/responses", "not_found_error"},
		{chatter, "/v1/responses", "not_found_error"}, {openai, "/v1/messages", "not_found_error"},
	} {
		w = post(t, c.v, c.path, messages(ask))
		require.Equal(t, 404, w.Code)
		require.Equal(t, c.want, gjson.Get(w.Body.String(), "error.type").String())
	}
}

func TestModelsThatAreNotServed(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Models: []string{"other"}})
	w := post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 404, w.Code)
	require.Equal(t, "model: m", message(w.Body.String()))
	v = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Models: []string{"other"}})
	w = post(t, v, "/v1/chat/completions", chat(ask))
	require.Equal(t, 404, w.Code)
	require.Contains(t, message(w.Body.String()), "The model `m` does not exist")
	v = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.DeepSeek, Models: []string{"other"}})
	w = post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 400, w.Code)
	require.Equal(t, 200, post(t, v, "/v1/messages", strings.Replace(messages(ask), `"m"`, `"claude-x"`, 1)).Code)
}

func TestKey(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Kimi, APIKey: "k"})
	w := post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 401, w.Code)
	require.Equal(t, "authentication_error", gjson.Get(w.Body.String(), "error.type").String())
	require.Equal(t, "error", gjson.Get(w.Body.String(), "type").String())
	w = post(t, v, "/v1/chat/completions", chat(ask), "Authorization", "Bearer wrong")
	require.Equal(t, 401, w.Code)
	require.Equal(t, "invalid_api_key", gjson.Get(w.Body.String(), "error.code").String())
	require.Equal(t, 200, post(t, v, "/v1/messages", messages(ask), "X-Api-Key", "k").Code)
	require.Equal(t, 200, post(t, v, "/v1/messages", messages(ask), "Authorization", "Bearer k").Code)
}

// A model keeps to the form that it is asked for, also where it is told in words.
func TestAnswersOfAForm(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	asking := func(vendor upstreamtest.Vendor, format string, list ...string) string {
		v := upstreamtest.New(upstreamtest.Config{Vendor: vendor})
		body := post(t, v, "/v1/chat/completions", strings.TrimSuffix(chat(list...), "}")+`,"response_format":`+format+"}")
		return gjson.Get(body.Body.String(), "choices.0.message.content").Str + message(body.Body.String())
	}
	form := `{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`
	require.JSONEq(t, `{"n":1}`, asking(upstreamtest.Chat, form, ask))
	require.JSONEq(t, `{"n":1}`, asking(upstreamtest.Kimi, form, ask))
	require.Contains(t, asking(upstreamtest.Chat, `{"type":"json_schema"}`, ask), "Missing required parameter")
	require.Equal(t, "This response_format type is unavailable now", asking(upstreamtest.DeepSeek, form, ask))
	told := says("system", strconv.Quote("Answer in JSON: "+schema+" Nothing else."))
	require.JSONEq(t, `{"n":1}`, asking(upstreamtest.DeepSeek, `{"type":"json_object"}`, told, ask))
	require.JSONEq(t, `{}`, asking(upstreamtest.DeepSeek, `{"type":"json_object"}`, says("system", `"JSON"`), ask))
}

func TestEmbeddings(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat})
	w := post(t, v, "/v1/embeddings", `{"model":"e","input":["red apples","red apples too","blue sky"]}`)
	require.Equal(t, 200, w.Code, w.Body)
	vectors := gjson.Get(w.Body.String(), "data.#.embedding").Array()
	require.Len(t, vectors, 3)
	near := func(a, b gjson.Result) (dot float64) {
		for i, x := range a.Array() {
			dot += x.Float() * b.Array()[i].Float()
		}
		return dot
	}
	require.Len(t, vectors[0].Array(), upstreamtest.EmbeddingSize)
	require.InDelta(t, 1, near(vectors[0], vectors[0]), 1e-5)
	require.Greater(t, near(vectors[0], vectors[1]), near(vectors[0], vectors[2]))

	again := post(t, v, "/embeddings", `{"model":"e","input":"red apples","encoding_format":"base64"}`)
	raw, err := base64.StdEncoding.DecodeString(gjson.Get(again.Body.String(), "data.0.embedding").String())
	require.NoError(t, err)
	require.InDelta(t, vectors[0].Array()[0].Float(), float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), 1e-6)
	require.Equal(t, 400, post(t, v, "/v1/embeddings", `{"model":"e","input":7}`).Code)
	require.Zero(t, v.Count(), "only the endpoints of models are recorded")
}

func TestRecordIsBounded(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Remember: 3})
	require.Zero(t, v.Last())
	for i := range 5 {
		post(t, v, "/v1/messages", messages(says("user", fmt.Sprintf(`"ask %d"`, i))))
	}
	post(t, v, "/v1/messages", messages())
	require.Equal(t, 6, v.Count())
	got := v.Requests()
	require.Len(t, got, 3)
	require.Equal(t, "ask 3", got[0].User)
	require.Equal(t, 200, got[0].Status)
	require.Equal(t, upstreamtest.EndpointMessages, got[0].Endpoint)
	require.Equal(t, messages(says("user", `"ask 3"`)), string(got[0].Body))
	require.Len(t, v.Rejections(), 1)
	require.Equal(t, v.Last(), v.Rejections()[0])
	require.Equal(t, "messages: at least one message is required", v.Last().Rejection)
	require.Equal(t, 400, v.Last().Status)
}

// firstWrite calls before ahead of the first byte of an answer.
type firstWrite struct {
	*httptest.ResponseRecorder
	before func()
}

func (w firstWrite) Write(b []byte) (int, error) {
	if w.Body.Len() == 0 {
		w.before()
	}
	return w.ResponseRecorder.Write(b)
}

// A client that has read a part of an answer finds the verdict on its request.
func TestVerdictsAreRecordedBeforeAnswers(t *testing.T) {
	forged := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAAA"}`
	refused := response("", said, forged, said)
	inStream := upstreamtest.ResponsesRules{InStream: true}
	for name, c := range map[string]struct {
		config   upstreamtest.Config
		body     string
		status   int
		rejected bool
	}{
		"accepted": {body: response("", said), status: 200},
		"refused":  {body: refused, status: 400, rejected: true},
		"refused in a stream": {upstreamtest.Config{Responses: inStream},
			response(`"stream":true,`, said, forged, said), 200, true},
		"wrong key": {upstreamtest.Config{APIKey: "sk-1"}, response("", said), 401, true},
	} {
		t.Run(name, func(t *testing.T) {
			v, writes := openAI(c.config), 0
			r := httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(c.body))
			w := firstWrite{httptest.NewRecorder(), func() {
				writes++
				require.Equal(t, c.status, v.Last().Status)
				require.Equal(t, c.rejected, v.Last().Rejection != "", v.Last().Rejection)
			}}
			v.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, w.Body)
			require.Equal(t, 1, writes)
		})
	}
}

func TestConcurrentRequests(t *testing.T) {
	observed := 0
	v := upstreamtest.New(upstreamtest.Config{Remember: 10, Observe: func(upstreamtest.Request) { observed++ }})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			q := fmt.Sprintf("ask %d", i)
			if i%2 == 0 {
				v.Queue(upstreamtest.Reply(upstreamtest.Say("queued")))
			}
			w := post(t, v, "/v1/messages", messages(says("user", fmt.Sprintf("%q", q))))
			if s := gjson.Get(w.Body.String(), "content.0.text").String(); s != "queued" {
				require.Equal(t, "You said: "+q, s)
			}
			v.Requests()
		})
	}
	all.Wait()
	require.Equal(t, 50, v.Count())
	require.Equal(t, 50, observed)
	require.Zero(t, v.Pending())
}

func TestAnswers(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
		if r.User != "function" {
			return nil
		}
		a := upstreamtest.Reply(upstreamtest.Say("from the function"))
		a.StopReason = "max_tokens"
		return &a
	}})
	v.Queue(upstreamtest.Reply(upstreamtest.Say("first")))
	require.Equal(t, 400, post(t, v, "/v1/messages", messages()).Code, "a refused request uses no answer up")
	require.Equal(t, 200, post(t, v, "/v1/messages/count_tokens", messages(ask)).Code, "nor does a count")
	for _, c := range []struct{ ask, want, stop string }{
		{"x", "first", "end_turn"}, {"function", "from the function", "max_tokens"}, {"x", "You said: x", "end_turn"},
	} {
		body := post(t, v, "/v1/messages", messages(says("user", `"`+c.ask+`"`))).Body.String()
		require.Equal(t, c.want, gjson.Get(body, "content.0.text").String())
		require.Equal(t, c.stop, gjson.Get(body, "stop_reason").String())
	}
}

const weather = `"tools":[{"name":"weather","input_schema":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F"]}},"required":["city","days","unit"]}}]`

// The default answer leads through a tool loop by itself.
func TestDefaultAnswers(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	open := `{"model":"claude-opus-4-8","max_tokens":9000,"thinking":{"type":"adaptive"},` + weather + `,"messages":[`
	body := post(t, v, "/v1/messages", open+says("user", `"please use the tool"`)+`]}`).Body.String()
	require.Equal(t, `["thinking","text","tool_use"]`, gjson.Get(body, "content.#.type").Raw, body)
	require.Equal(t, `{"city":"sample","days":1,"unit":"C"}`, gjson.Get(body, "content.2.input").Raw)
	require.Equal(t, "tool_use", gjson.Get(body, "stop_reason").String())
	require.Regexp(t, "^toolu_01", gjson.Get(body, "content.2.id").String())
	require.Regexp(t, "^E", gjson.Get(body, "content.0.signature").String())
	body = post(t, v, "/v1/messages", open+says("user", `"please use the tool"`)+","+
		says("assistant", gjson.Get(body, "content").Raw)+","+
		says("user", `[`+gives(gjson.Get(body, "content.2.id").String())+`]`)+`]}`).Body.String()
	require.Equal(t, "The tool gave: 4", gjson.Get(body, "content.1.text").String(), body)
	require.True(t, v.Last().Thinking)
	require.Equal(t, []string{"4"}, v.Last().Results)

	forced := strings.Replace(open, `"thinking":{"type":"adaptive"}`, `"tool_choice":{"type":"tool","name":"weather"}`, 1)
	body = post(t, v, "/v1/messages", forced+ask+`]}`).Body.String()
	require.Equal(t, `["text","tool_use"]`, gjson.Get(body, "content.#.type").Raw, body)
	none := strings.Replace(forced, `"type":"tool"`, `"type":"none"`, 1)
	body = post(t, v, "/v1/messages", none+says("user", `"use the tool"`)+`]}`).Body.String()
	require.Equal(t, `["text"]`, gjson.Get(body, "content.#.type").Raw, body)
}

func TestFaults(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Kimi,
		Fault: func(r *upstreamtest.Request) *upstreamtest.Fault {
			if r.Header.Get("X-Fail") == "" {
				return nil
			}
			f := upstreamtest.Canned(503, "<html>")
			f.ContentType = "text/html"
			return &f
		}})
	v.Fail(upstreamtest.RateLimited(7), upstreamtest.Overloaded(), upstreamtest.RateLimited(-1), upstreamtest.Opaque(),
		upstreamtest.ErrorFirst(wire.Messages, 400, "no"), upstreamtest.ErrorFirst(wire.Chat, 429, "slow"))
	w := post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 429, w.Code)
	require.Equal(t, "7", w.Header().Get("Retry-After"))
	require.Equal(t, "rate_limit_error", gjson.Get(w.Body.String(), "error.type").String())
	require.Equal(t, 200, post(t, v, "/v1/messages/count_tokens", messages(ask)).Code, "a count uses no fault up")
	w = post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 529, w.Code)
	require.Equal(t, "overloaded_error", gjson.Get(w.Body.String(), "error.type").String())
	w = post(t, v, "/v1/chat/completions", chat(ask))
	require.Equal(t, 429, w.Code)
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Empty(t, gjson.Get(w.Body.String(), "type").String(), "the other dialect")
	w = post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 400, w.Code)
	require.Equal(t, `{"error":{"message":"invalid request body","code":"invalid_request_body"}}`, w.Body.String())
	w = post(t, v, "/v1/messages", messages(ask))
	require.Equal(t, 200, w.Code)
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Regexp(t, `^event: error\ndata: \{"type":"error","error":\{"type":"invalid_request_error","message":"no"\}`,
		w.Body.String())
	w = post(t, v, "/v1/chat/completions", chat(ask))
	require.Regexp(t, `^data: \{"error":\{"message":"slow","type":"rate_limit_error"`, w.Body.String())
	w = post(t, v, "/v1/messages", messages(ask), "X-Fail", "1")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "<html>", w.Body.String())
	require.Equal(t, 503, v.Last().Status)
	require.Empty(t, v.Rejections(), "a fault is no rejection")
	require.Zero(t, v.Pending())
}

func TestWrappedRefusals(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Wrap: func(status int, body []byte) (int, []byte) {
		return 429, []byte(`{"error":{"message":` + fmt.Sprintf("%q", fmt.Sprint(status, string(body))) + `}}`)
	}})
	w := post(t, v, "/v1/messages", messages())
	require.Equal(t, 429, w.Code)
	require.Contains(t, message(w.Body.String()), `400{"type":"error"`)
	require.Equal(t, 429, v.Last().Status)
}

func TestCutAnswers(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{})
	server := httptest.NewServer(v)
	defer server.Close()
	send := func(stream string) (string, error) {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/v1/messages", strings.NewReader(one+`,"stream":`+stream+`}`))
		require.NoError(t, err)
		r.Header.Set("Anthropic-Version", "1")
		res, err := server.Client().Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	hello := upstreamtest.Reply(upstreamtest.Say("hello"))
	v.Queue(hello.CutAfter(3, false), hello.CutAfter(3, true), hello.FailAfter(3), hello.CutAfter(0, false), hello)

	body, err := send("true")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, 3, strings.Count(body, "\n\n"))
	require.True(t, strings.HasSuffix(body, "\n\n"))
	body, err = send("true")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, 3, strings.Count(body, "\n\n"))
	require.False(t, strings.HasSuffix(body, "\n\n"))
	body, err = send("true")
	require.NoError(t, err)
	require.Contains(t, body[strings.LastIndex(body[:len(body)-2], "\n\n"):], "event: error\n")
	require.Contains(t, body, `"overloaded_error"`)
	body, err = send("false")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotEmpty(t, body)
	body, err = send("true")
	require.NoError(t, err)
	require.Contains(t, body, "message_stop")
	v.Queue(upstreamtest.Answer{Blocks: hello.Blocks, Cut: &upstreamtest.Cut{After: 3, Clean: true}})
	body, err = send("true")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(body, "\n\n"))
	v.Fail(upstreamtest.Dropped())
	_, err = send("true")
	require.ErrorIs(t, err, io.EOF)
}

// A held answer waits for the test, or for its client to leave.
func TestHeldAnswers(t *testing.T) {
	released := make(chan struct{})
	v := upstreamtest.New(upstreamtest.Config{})
	server := httptest.NewServer(v)
	defer server.Close()
	held := upstreamtest.Reply(upstreamtest.Say("hello"))
	held.Pause = func(ctx context.Context, event int) {
		if event == 2 {
			upstreamtest.Until(released)(ctx, 0)
		}
	}
	v.Queue(held, held)
	ctx, leave := context.WithCancel(t.Context())
	send := func() *bufio.Reader {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/messages",
			strings.NewReader(one+`,"stream":true}`))
		require.NoError(t, err)
		r.Header.Set("Anthropic-Version", "1")
		res, err := server.Client().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return bufio.NewReader(res.Body)
	}
	stuck := send()
	line, err := stuck.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "event: message_start\n", line)
	require.Equal(t, 200, v.Last().Status, "the verdict is known while the answer waits")
	leave()
	_, err = io.ReadAll(stuck)
	require.ErrorIs(t, err, context.Canceled)

	ctx = t.Context()
	patient := send()
	close(released)
	rest, err := io.ReadAll(patient)
	require.NoError(t, err)
	require.Contains(t, string(rest), "message_stop")
}
