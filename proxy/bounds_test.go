package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/access/limit"
	"mneme/internal/testtier"
	"mneme/proxy"
	"mneme/proxy/usage"
)

// unbounded is how long an answer of the greedy vendor is that nothing bounds, in tokens.
const unbounded = 60_000

// greedy is a vendor of all dialects with answers of as many tokens as their bound allows. It takes no bound that
// OpenAI or Anthropic would refuse, nor a name of another dialect. Its input is what the gateway estimates.
type greedy struct {
	arrive func() // is called for each request, before its answer
	sent   chan []byte
}

func (g *greedy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	select {
	case g.sent <- body:
	default:
	}
	g.arrive()
	dialect := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	output, bad := int64(unbounded), false
	for name, value := range gjson.ParseBytes(body).Map() {
		switch {
		case !strings.HasPrefix(name, "max_"):
		case dialect == "messages" != (name == "max_tokens") && dialect != "completions",
			dialect == "responses" != (name == "max_output_tokens"):
			bad = true
		case value.Type == gjson.Null && dialect != "messages":
		default:
			least := map[string]float64{"messages": 0, "completions": 1, "responses": 16}[dialect]
			bad = bad || value.Type != gjson.Number || value.Num < least || value.Num != math.Trunc(value.Num)
			output = min(unbounded, value.Int())
		}
	}
	if both := gjson.GetManyBytes(body, "max_tokens", "max_completion_tokens"); both[0].Int() > 0 && both[1].Int() > 0 {
		output = min(unbounded, max(both[0].Int(), both[1].Int())) // as vendors have it that take both
	}
	if bad || dialect == "messages" && !gjson.GetBytes(body, "max_tokens").Exists() {
		http.Error(w, `{"error":{"type":"invalid_request_error","message":"the bound of the answer is invalid"}}`,
			http.StatusBadRequest)
		return
	}
	if n := gjson.GetBytes(body, "n"); dialect == "completions" && n.Int() > 1 {
		output *= n.Int()
	}
	answer := map[string]string{
		"messages": `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],` +
			`"stop_reason":"max_tokens","usage":{"input_tokens":%[1]d,"output_tokens":%[2]d}}`,
		"completions": `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"length",` +
			`"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":%[1]d,"completion_tokens":%[2]d,` +
			`"total_tokens":%[3]d}}`,
		"responses": `{"id":"resp_1","object":"response","status":"incomplete","model":"m","incomplete_details":` +
			`{"reason":"max_output_tokens"},"output":[{"type":"message","id":"msg_1","role":"assistant","status":"incomplete",` +
			`"content":[{"type":"output_text","text":"hi","annotations":[]}]}],"usage":{"input_tokens":%[1]d,` +
			`"output_tokens":%[2]d,"total_tokens":%[3]d}}`,
	}[dialect]
	kind := "application/json"
	if gjson.GetBytes(body, "stream").Bool() {
		kind, answer = "text/event-stream", map[string]string{
			"messages": eventStream(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m",`+
				`"content":[],"usage":{"input_tokens":%[1]d,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":%[2]d}}`,
				`{"type":"message_stop"}`),
			"completions": "data: " + strings.Replace(strings.Replace(answer, ".completion", ".completion.chunk", 1), `"message"`,
				`"delta"`, 1) + "\n\ndata: [DONE]\n\n",
			"responses": eventStream(`{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress"}}`,
				`{"type":"response.incomplete","response":`+answer+`}`),
		}[dialect]
	}
	input := usage.EstimateInput(body)
	w.Header().Set("Content-Type", kind)
	_, _ = fmt.Fprintf(w, answer, input, output, input+output)
}

// eventStream is a stream of events named by their types.
func eventStream(all ...string) (stream string) {
	for _, data := range all {
		stream += "event: " + gjson.Get(data, "type").Str + "\ndata: " + data + "\n\n"
	}
	return stream
}

// bounding are requests of each endpoint with what may bound their answer.
var bounding = map[string]struct {
	path, body string
	bounds     []string // the names of the bound there; the first is that of the table
}{
	"messages":  {"/v1/messages", `"messages":[{"role":"user","content":"hi"}]`, []string{"max_tokens"}},
	"chat":      {"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`, []string{"max_completion_tokens"}},
	"chat, old": {"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`, []string{"max_tokens"}},
	"responses": {"/v1/responses", `"input":"hi"`, []string{"max_output_tokens"}},
}

// Where a budget holds, calls at once take no more than what it has, whatever bounds their answers, and a bound that is
// none is said to the client.
func TestCallsAtOnceKeepABudget(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const calls, budget = 12, 100_000
	vendor := &greedy{}
	l := newLimited(t, "", "", vendor.ServeHTTP, vendor.ServeHTTP, limit.Options{})
	for _, prefix := range []string{"", "/teammate", "/teammate/responses"} { // the vendors' dialects
		for _, endpoint := range slices.Sorted(maps.Keys(bounding)) {
			for value, status := range map[string]int{
				"": 200, "null": 200, "50": 200, "60000": 200, "6e4": 200, "60000.0": 200, "2147483648": 200,
				"0": 400, "-1": 400, "1.5": 400, `"50"`: 400, "1000000000000000000": 400, "2147483649": 400, "true": 400,
				"50,\"n\":40": 200, "50,\"max_completion_tokens\":60000": 200, "60000,\"max_completion_tokens\":50": 200,
			} {
				to := bounding[endpoint]
				beside := strings.Contains(value, ",")
				if beside && (endpoint != "chat, old" || prefix != "/teammate" && strings.Contains(value, `"n"`)) {
					continue // members of chat completions, of which another dialect has no n
				}
				if value == "0" && endpoint == "messages" && prefix == "" {
					status = 200 // by which Anthropic fills its cache
				}
				if value == "-1" && strings.HasPrefix(endpoint, "chat") && prefix == "/teammate" {
					status = 200 // by which LM Studio and others bound nothing, so that the gateway does
				}
				bound := ""
				if value != "" {
					bound = `,"` + to.bounds[0] + `":` + value
				}
				for _, stream := range []string{"false", "true"} {
					body := `{"model":"m","stream":` + stream + "," + to.body + bound + "}"
					name := strings.TrimSpace(endpoint + prefix + " " + body)
					var seen atomic.Int64
					all := make(chan struct{})
					vendor.arrive = func() {
						if seen.Add(1) == calls {
							close(all)
						}
						<-all // no request is answered before all are admitted or refused
					}
					l.limits(t, name, fmt.Sprintf("%dtokens/total", budget))
					var got [600]atomic.Int64
					var asking sync.WaitGroup
					for range calls {
						asking.Go(func() {
							resp, err := http.Post(l.URL+prefix+to.path, "application/json", strings.NewReader(body))
							if !assert.NoError(t, err) {
								return
							}
							_, err = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
							assert.NoError(t, err)
							if got[resp.StatusCode].Add(1); resp.StatusCode != http.StatusOK && seen.Add(1) == calls {
								close(all)
							}
						})
					}
					asking.Wait()
					require.Equal(t, int64(calls), got[status].Load()+got[http.StatusTooManyRequests].Load(), name)
					require.LessOrEqual(t, l.spent(t), int64(budget), name)
					if status == http.StatusOK && value != "2147483648" {
						require.Positive(t, got[http.StatusOK].Load(), name)
					}
				}
			}
		}
	}
}

// spent awaits what a budget has spent when it holds nothing.
func (l *limited) spent(t *testing.T) (spent int64) {
	field := "key:" + l.key.Key + ":tokens"
	require.Eventually(t, func() bool {
		got, err := l.redis.HMGet(t.Context(), limit.Prefix+"{default}:total", field, field+":held").Result()
		require.NoError(t, err)
		_, _ = fmt.Sscan(fmt.Sprint(got[0]), &spent)
		return got[1] == nil || got[1] == "0"
	}, time.Minute, time.Millisecond)
	return spent
}

// A bound that is the gateway's is told, has room for the thinking, and is sent where a budget holds alone.
func TestABoundOfTheGatewayIsTold(t *testing.T) {
	t.Parallel()
	vendor := &greedy{arrive: func() {}, sent: make(chan []byte, 1)}
	l := newLimited(t, "", "", vendor.ServeHTTP, vendor.ServeHTTP, limit.Options{})
	for name, c := range map[string]struct {
		path, body string
		member     string // of the bound that is sent
		want       int64
		mended     string
	}{
		"messages":             {"/v1/messages", `"max_tokens":null,"messages":[{"role":"user","content":"hi"}]`, "max_tokens", 100, "answer_bounded"},
		"with its own":         {"/v1/messages", `"max_tokens":70,"messages":[{"role":"user","content":"hi"}]`, "max_tokens", 70, ""},
		"thinking":             {"/v1/messages", `"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"user","content":"hi"}]`, "max_tokens", 2100, "answer_bounded"},
		"chat":                 {"/teammate/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`, "max_tokens", 100, "answer_bounded"},
		"chat of a low effort": {"/teammate/v1/chat/completions", `"reasoning_effort":"low","messages":[{"role":"user","content":"hi"}]`, "max_tokens", 4196, "answer_bounded"},
		"another dialect":      {"/v1/chat/completions", `"messages":[{"role":"user","content":"hi"}]`, "max_tokens", 100, "answer_bounded"},
		"responses":            {"/teammate/responses/v1/responses", `"input":"hi"`, "max_output_tokens", 100, "answer_bounded"},
		"a name that servers ignore": {"/teammate/v1/chat/completions", `"max_completion_tokens":70,"messages":[{"role":"user","content":"hi"}]`,
			"max_tokens", 70, ""},
	} {
		l.limits(t, name, "100000tokens/total")
		resp, text := l.post(t, c.path, `{"model":"m",`+c.body+`}`)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", name, text)
		sent := <-vendor.sent
		require.Equal(t, c.want, gjson.GetBytes(sent, c.member).Int(), "%s: %s", name, sent)
		require.Equal(t, c.mended, resp.Header.Get("X-AG-Mended"), name)
	}
	for _, budget := range []string{"", "1usd/total"} {
		l.limits(t, "rate "+budget, budget)
		const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
		l.post(t, "/teammate/v1/chat/completions", body)
		sent := <-vendor.sent
		require.Equal(t, budget == "", bytes.Equal([]byte(body), sent), "%s", sent)
	}
}

// A bound that no vendor takes is refused in words, whether a budget holds or not; one that a vendor gives a meaning to
// is sent to that vendor as it came.
func TestOddBoundsAreRefused(t *testing.T) {
	t.Parallel()
	vendor := &greedy{arrive: func() {}, sent: make(chan []byte, 1)}
	l := newLimited(t, "", "", vendor.ServeHTTP, vendor.ServeHTTP, limit.Options{})
	for _, to := range bounding {
		for _, odd := range []string{"-2", "1.5", `"9"`, "[]", "1e300", "2147483649"} {
			resp, text := l.post(t, to.path, `{"model":"m",`+to.body+`,"`+to.bounds[0]+`":`+odd+`}`)
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, odd)
			require.Contains(t, text, to.bounds[0]+" bounds the answer, in tokens: it must be a whole number from 1 to "+
				"2147483648")
		}
	}
	for path, bound := range map[string]string{"/v1/messages": `"max_tokens":0`, "/teammate/v1/chat/completions": `"max_tokens":-1`,
		"/teammate/v1/messages": `"max_tokens":6e4`} {
		l.post(t, path, `{"model":"m",`+bound+`,"messages":[{"role":"user","content":"hi"}]}`)
		sent, want := map[string]any{}, map[string]any{}
		require.NoError(t, json.Unmarshal(<-vendor.sent, &sent))
		require.NoError(t, json.Unmarshal([]byte("{"+bound+"}"), &want))
		require.Equal(t, want["max_tokens"], sent["max_tokens"], path)
	}
}

// What a budget in USD cannot count is refused in words, unless it is allowed; on this machine a model costs nothing.
func TestAModelWithoutAPriceIsRefused(t *testing.T) {
	t.Parallel()
	local := vendor(t, (&greedy{arrive: func() {}}).ServeHTTP)
	address, err := url.Parse(local.server.URL)
	require.NoError(t, err)
	for _, allow := range []bool{false, true} {
		l := limitedBy(t, limit.Options{}, func(c *proxy.Config) {
			c.AllowUnpriced = allow
			c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				r.URL.Host = address.Host
				return http.DefaultTransport.RoundTrip(r)
			})
			c.Active, c.TeammateBackend, c.EmbeddingsBackend = "far", "near", "far"
			c.Teammates = map[string]string{"inside": "inside"}
			c.Backends = map[string]proxy.BackendConfig{
				"far":    {Kind: proxy.KindOpenAI, BaseURL: "http://vendor.example/v1"},
				"near":   {Kind: proxy.KindOpenAI, BaseURL: "http://127.0.0.1:1/v1"},
				"inside": {Kind: proxy.KindOffline},
			}
		})
		reason := ""
		ask := func(budget, path, model string) (int, string) {
			l.limits(t, "k", budget)
			resp, text := l.post(t, path, `{"model":"`+model+`","max_tokens":9,"input":"hi","messages":[{"role":"user","content":"hi"}]}`)
			reason = resp.Header.Get("X-Ag-Error")
			return resp.StatusCode, text
		}
		for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/v1/embeddings"} {
			status, text := ask("0.0001usd/day", path, "odd")
			if !allow {
				require.Equal(t, http.StatusBadRequest, status, path)
				require.Contains(t, text, "there is no price of the model \\\"odd\\\" (backend \\\"far\\\")", path)
				require.Equal(t, "unpriced_model", reason, path)
				if path != "/v1/messages" {
					require.Equal(t, "unpriced_model", gjson.Get(text, "error.code").Str)
				}
				continue
			}
			require.NotContains(t, text, "price", path)
		}
		status, text := ask("1000tokens/day", "/v1/chat/completions", "odd")
		require.Equal(t, http.StatusOK, status, text)
		for _, path := range []string{"/teammate/v1/chat/completions", "/teammate/inside/v1/chat/completions"} {
			status, text = ask("0.0001usd/day", path, "odd")
			require.Equal(t, http.StatusOK, status, text)
		}
		status, text = ask("0.00001usd/day", "/v1/chat/completions", "m")
		require.Equal(t, http.StatusTooManyRequests, status, text)
		status, text = ask("0.00001usd/day", "/teammate/inside/v1/chat/completions", "m")
		require.Equal(t, http.StatusOK, status, "the offline model costs nothing under any name: %s", text)
	}
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What the gateway puts back into a request is reserved, too, and what it tries again is one call.
func TestWhatIsPutBackIsReserved(t *testing.T) {
	t.Parallel()
	answer := strings.Replace(messagesAnswer, `[{"type":"text"`,
		`[{"type":"thinking","thinking":"`+strings.Repeat("a", 40_000)+`","signature":"s"},{"type":"text"`, 1)
	var l *limited
	var held []int64
	l = newLimited(t, "", "", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n, err := l.redis.HGet(r.Context(), limit.Prefix+"{default}:total", "key:k:tokens:held").Int64()
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, n, usage.EstimateInput(body)+gjson.GetBytes(body, "max_tokens").Int())
		if held = append(held, n); gjson.GetBytes(body, "top_k").Exists() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"top_k: Extra inputs `+
				`are not permitted"}}`)
			return
		}
		says("application/json", answer)(w, r)
	}, nil, limit.Options{})
	l.limits(t, "k", "1000000tokens/total")
	l.key.Limits.Rate = access.Rates{{N: 2, Unit: access.Requests, Per: time.Hour}}
	const hi, more = `{"role":"user","content":"hi"}`, `,{"role":"assistant","content":[{"type":"text","text":"hi"}]},` +
		`{"role":"user","content":"more"}`
	for i, c := range []struct{ messages, mended string }{
		{hi, ""}, {hi + more, "thinking_restored,refused_parameter,left_out:top_k"},
	} {
		r, err := http.NewRequest(http.MethodPost, l.URL+"/v1/messages", strings.NewReader(`{"model":"m","max_tokens":2000,`+
			`"thinking":{"type":"enabled","budget_tokens":1024},`+[]string{"", `"top_k":5,`}[i]+`"messages":[`+c.messages+`]}`))
		require.NoError(t, err)
		r.Header.Set("X-AG-Conversation-Id", "c")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, c.mended, resp.Header.Get("X-AG-Mended"))
		l.spent(t)
	}
	require.Len(t, held, 3)
	require.Greater(t, held[1], held[0]+10_000-100)
}
