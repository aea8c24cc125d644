package proxy_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/outsidedata"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

const (
	badSignature = "messages.1.content.0: Invalid `signature` in `thinking` block"
	forgedBlock  = `{"type":"thinking","thinking":"forged","signature":"Zm9yZ2Vk"}`

	firstError = `{ "type":"error","error":{"message":"` + badSignature +
		`","type":"invalid_request_error"},"request_id":"req_first"}` + "\n"
	secondError = `{"type":"error","error":{"type":"invalid_request_error","message":"messages: something else"},` +
		`"request_id":"req_second"}`
)

// refusalForms are Claudes behind gateways that change the form of a refusal.
func refusalForms() (forms []backendCase) {
	form := func(name string, status int, change func([]byte) []byte) {
		forms = append(forms, claude.with(name, func(c *upstreamtest.Config) {
			c.Wrap = func(was int, body []byte) (int, []byte) { return cmp.Or(status, was), change(body) }
		}))
	}
	quoted := func(format string) func([]byte) []byte {
		return func(body []byte) []byte { return fmt.Appendf(nil, format, wire.Quote(string(body))) }
	}
	for _, status := range []int{422, 429, 403, 500, 502, 529} {
		form(fmt.Sprint(status), status, bytes.Clone)
	}
	form("JSON in a string", 0, quoted(`{"error":{"message":%s,"code":400}}`))
	form("JSON in a string, as a 429", 429, quoted(`{"error":{"message":%s}}`))
	form("metadata.raw", 0, quoted(`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":%s}}}`))
	form("a list", 0, func(body []byte) []byte { return fmt.Appendf(nil, "[%s]", body) })
	form("upper case", 0, bytes.ToUpper)
	form("plain text", 0, func(body []byte) []byte {
		return []byte("upstream said: " + gjson.GetBytes(body, "error.message").Str)
	})
	form("without backticks", 0, func(body []byte) []byte { return bytes.ReplaceAll(body, []byte("`"), nil) })
	path := regexp.MustCompile(`messages\.\d+\.content\.\d+`)
	form("masked path", 0, func(body []byte) []byte { return path.ReplaceAll(body, []byte("***.***.content.***")) })
	return forms
}

// refuseAll refuses the thinking of 15 conversations with this status, and their retries.
func refuseAll(status int) turn {
	fault := upstreamtest.Canned(status, `{"error":{"message":"`+badSignature+`"}}`)
	return func(p *play) {
		for i := range 15 {
			name := fmt.Sprint("c", i)
			steps(as(name, header("X-AG-Conversation-Id", name)), unknownThinking, fail(fault, fault),
				request("One", status))(p)
		}
	}
}

// missingReasoning returns a dialogue with a vendor's false error about missing reasoning.
func missingReasoning(b backendCase, source, message string) transcript {
	fault := upstreamtest.Canned(400,
		`{"type":"error","error":{"type":"invalid_request_error","message":`+string(wire.Quote(message))+`}}`)
	return row("missing reasoning at "+b.name, "reasoning is missing, and the gateway removes more of it.",
		runEach(b).cite(source).asking(manual.model),
		useTool("First", "one"), fail(fault),
		func(p *play) {
			p.me().question("Second")
			got := p.me().post()
			for _, r := range p.vendor().Requests()[2:] {
				require.Contains(p, string(r.Body), "one thinks before")
			}
			if got.status != 200 { // nothing to put back: the client gets the vendor's words
				vendorCalls(3)(p)
				require.Contains(p, got.body, string(wire.Quote(message)))
				p.world.forgive()
			}
		},
		finish())
}

// echo returns a dialogue with an error that repeats the user's text.
func echo(name, body string) transcript {
	return row("echo of the user, "+name, "the user's own words in an error decide on the error's cause.",
		runEach(claude),
		unknownThinking, fail(upstreamtest.Canned(400, body)), request("why "+badSignature+"?", 400),
		clientGotBody(body), vendorCalls(1))
}

var errorRows = []transcript{
	row("refusals in other forms", "a refusal in another form is not recognized, or burns the keys of a failover.",
		runEach(refusalForms()...).vary(variants{{"main", nil}, {"teammate", route("/teammate")}}),
		costs(1), unknownThinking, say("One"), vendorCalls(2), say("Two"), vendorCalls(3)),
	row("refusals are no failures", "refusals as a 429 or 500 count as failures and open the circuit for all callers.",
		runEach(claude).vary(variants{{"429", later(refuseAll(429))}, {"500", later(refuseAll(500))}}),
		now, vendorCalls(30), forgive, as("another"), say("Hello")),
	row("a refusal as the first event", "a stream's first event is the refusal, and its status is 200.",
		runEach(claude).clients(both...).vary(streams),
		unnamed, useTool("First", "one"), fail(upstreamtest.ErrorFirst(wire.Messages, 400, badSignature)), say("Second"),
		vendorCalls(4), vendorLacks(`"thinking":"one`)),
	missingReasoning(deepSeek, "decolua/9router#2397",
		"The `content[].thinking` in the thinking mode must be passed back to the API."),
	missingReasoning(kimi, "YishenTu/claudian#759",
		"thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"),
	missingReasoning(claude, "anthropics/claude-code#20727",
		"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is "+
			"enabled, a final `assistant` message must start with a thinking block"),
	row("the first error is the client's", "the retry fails too, and the client gets the retry's error or neither.",
		runEach(claude).vary(streams, variants{
			{"another cause", later(fail(upstreamtest.Canned(400, secondError)))},
			{"the same cause", later(fail(upstreamtest.Canned(400, strings.Replace(firstError, "first", "second", 1))))},
			{"the vendor down", later(fail(upstreamtest.Canned(501, secondError)))},
			{"no answer", later(fail(upstreamtest.Fault{Status: 400, Body: secondError, ContentType: "text/plain"}))},
		}),
		costs(1), unknownThinking,
		fail(upstreamtest.Fault{Status: 400, Body: firstError, Header: http.Header{"Request-Id": {"one"}}}), now,
		request("One", 400), clientGotBody(firstError), clientGotHeader("Request-Id", "one"),
		clientGotHeader("Content-Type", "application/json"), vendorCalls(2),
		metricHas("thinking_retries", `outcome="refused"`),
		finish(), // without proof nothing is remembered
		func(p *play) { require.Contains(p, string(p.vendor().Requests()[2].Body), "forged") },
		forgive),
	row("the first error in chat completions", "the client gets the retry's error, or changed bytes of the vendor's own.",
		runEach(claude, deepSeekChat).cite("NousResearch/hermes-agent#18263").clients("chat"),
		useTool("First", "one"), func(p *play) {
			first := map[string]string{claude.name: firstError, deepSeekChat.name: passBack}[p.run.vendors[0].name]
			steps(fail(upstreamtest.Canned(400, first), upstreamtest.Canned(400, secondError)), request("Second", 400))(p)
			require.Equal(p, gjson.Get(first, "error.message").Str, gjson.Get(p.answer().body, "error.message").Str)
			if first == passBack {
				clientGotBody(first)(p)
			}
		}, forgive),
	echo("FastAPI", `{"detail":[{"type":"missing","loc":["body","messages",0,"name"],"msg":"Field required","input":`+
		`{"content":"why `+badSignature+`?"}}]}`),
	echo("prose", `{"type":"error","error":{"type":"invalid_request_error","message":"messages: the thinking model is `+
		`invalid, signature required"}}`),
	echo("too long", `{"type":"error","error":{"type":"invalid_request_error",`+
		`"message":"prompt is too long: 200452 tokens > 200000 maximum"}}`),
	row("rate limits", "a rate limit counts as a failure of the backend, is retried at once, or loses its Retry-After.",
		runEach(claude).clients(both...).vary(variants{{"429", later(rateLimited(429))}, {"529", later(rateLimited(529))}}),
		useTool("First", "one"), now),
}

const passBack = `{"error" : {"message":"The reasoning_content in the thinking mode must be passed back to the API.",` +
	`"type":"invalid_request_error"}}`

// rateLimited limits one call for a moment, so the gateway retries, and another one for long, so the client must wait.
func rateLimited(status int) turn {
	limit := func(seconds string) turn {
		return fail(upstreamtest.Fault{Status: status, Header: http.Header{"Retry-After": {seconds}}})
	}
	return steps(
		limit("0"), useTool("Second", "two"), vendorCalls(5),
		limit("60"), request("Third", status), clientGotHeader("Retry-After", "60"), vendorCalls(6))
}

// recordedReasons are the values of X-AG-Error for the families of recorded errors. For any other it is "rejected".
var recordedReasons = map[string]string{
	"auth": "key_refused", "r_auth": "key_refused", "r_policy": "content_refused", "g_model": "model_unknown",
	"r_opaque": "vendor_failed", "length": "context_length_exceeded", "g_length": "context_length_exceeded",
	"r_length": "context_length_exceeded", "r_rate": "rate_limited",
}

// Fault: an error is not recognized, costs more calls or thinking than its cure needs, or reaches a client of the
// vendor's dialect with other bytes. Every recorded error goes from a backend of either dialect to a client of either.
// Package thinking tests how well errors are classified.
func TestConformanceRecordedErrorsOutsideData(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const history = `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":%s},` +
		`{"role":"user","content":"go on"}]}`
	bodies := map[string]string{
		"messages": `{"model":"m%d","max_tokens":9000,"thinking":{"type":"adaptive"},` + fmt.Sprintf(history,
			`[`+forgedBlock+`,{"type":"text","text":"Hello."}]`),
		"chat": `{"model":"m%d","reasoning_effort":"low",` + fmt.Sprintf(history, `"Hello."`),
	}
	paths := map[string]string{"messages": "/v1/messages", "chat": "/v1/chat/completions"}
	dev := recordedRows(t, "dev")
	rows := append(dev, recordedRows(t, "parameters", "context-length", "responses-gemini")...)
	for _, endpoint := range both {
		for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
			for _, route := range []string{"", "/teammate/x"} {
				var fault *upstreamtest.Fault
				b := backendCase{name: "b", config: proxy.BackendConfig{Kind: kind, Vendor: "generic"}}
				b.vendor.Vendor = upstreamtest.Kimi
				b.vendor.Fault = func(*upstreamtest.Request) *upstreamtest.Fault { return fault }
				w := knocked(t, b)
				v, g := w.vendors["b"], w.gateway()
				same := (endpoint == "messages") == (kind == proxy.KindAnthropic)
				for i, e := range rows {
					at := fmt.Sprintf("%s to %s%s, %s: %s", endpoint, kind, route, e.Get("family"), e.Get("body").Str)
					body, status := e.Get("body").Str, int(e.Get("status").Int())
					fails := upstreamtest.Canned(status, body)
					request := fmt.Sprintf(bodies[endpoint], i)
					switch {
					case status == 200 && !gjson.Valid(body):
						continue
					case status == 200 && route == "": // a stream's first event, else the whole answer
						fails.ContentType, fails.Body = "text/event-stream", "data: "+body+"\n\n"
						request = `{"stream":true,` + request[1:]
					case route == "":
						fails.ContentType = "text/plain"
					}
					fault = &fails
					before := v.Count()
					got := g.ask(route+paths[endpoint], request)
					calls := v.Count() - before
					class := thinking.Classify(status, []byte(body))

					want := cmp.Or(recordedReasons[e.Get("family").Str], "rejected")
					if e.Get("look_alike").Bool() {
						want = "request_too_large"
					}
					require.Equal(t, want, got.header.Get("X-AG-Error"), at)
					if want == "context_length_exceeded" {
						status = 400
					}
					require.Equal(t, status, got.status, at)
					switch {
					case want == "context_length_exceeded":
					case same:
						require.Equal(t, body, got.body, at)
					default:
						require.Equal(t, wire.ReadFailure(status, []byte(body)).Message,
							gjson.Get(got.body, "error.message").Str, at)
						require.Equal(t, endpoint == "messages", gjson.Get(got.body, "type").Str == "error", at)
					}
					_, parameter := thinking.RefusedParameter(status, []byte(body))
					switch {
					case class == thinking.ClassOther && !parameter && i < len(dev) && status < 429:
						require.Equal(t, 1, calls, at)
					case class == thinking.ClassRestore:
						require.LessOrEqual(t, calls, 3, at)
					case class == thinking.ClassStrip || status < 500 && status != http.StatusTooManyRequests:
						require.LessOrEqual(t, calls, 2, at)
					}
					if !same || endpoint != "messages" || i >= len(dev) {
						continue
					}
					if class == thinking.ClassStrip { // without the thinking, the vendor answers
						require.Equal(t, "strip_helps", e.Get("label").Str, at)
						fault = nil
						v.Fail(fails)
						got = g.ask(route+paths[endpoint], fmt.Sprintf(bodies[endpoint], len(rows)+i))
						require.Equal(t, 200, got.status, got.body)
						require.NotContains(t, string(v.Last().Body), "forged", at)
						continue
					}
					for _, r := range v.Requests()[before:] {
						require.Contains(t, string(r.Body), "forged", "nothing is stripped for it: %s", at)
					}
				}
				for _, kind := range []string{"signature", "modified", "place", "disabled", "missing", "schema"} {
					require.Contains(t, g.metrics("upstream_refusals_total"), `kind="`+kind+`"`)
				}
			}
		}
	}
}

// recordedRows returns the recorded errors of these files, which are outside data. Without it the test is skipped.
func recordedRows(t *testing.T, names ...string) (rows []gjson.Result) {
	for _, name := range names {
		data, err := os.ReadFile(outsidedata.Path(t, "errors", name+".jsonl"))
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			rows = append(rows, gjson.Parse(line))
		}
	}
	return rows
}
