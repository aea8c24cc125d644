package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
	"mneme/scripts/outsidedata"
)

const (
	badSignature = "messages.1.content.0: Invalid `signature` in `thinking` block"
	forgedBlock  = `{"type":"thinking","thinking":"forged","signature":"Zm9yZ2Vk"}`
)

// remembering is a client with a history that holds unknown thinking.
func (g *front) remembering(model string) *messagesClient {
	c := g.messages(model)
	c.within("c1")
	c.history = []message{
		{role: "user", content: []block{textOf("Hi")}},
		{role: "assistant", content: []block{{Type: "thinking", raw: []byte(forgedBlock)}, textOf("Hello.")}},
	}
	return c
}

// Fault: a refusal of thinking is not seen for what it is, since a gateway in between
// gave it another status or another shape, or it is sent again as it is and burns
// the keys of a failover.
func TestConformanceRefusalsInOtherClothes(t *testing.T) {
	status := func(status int) func(int, []byte) (int, []byte) {
		return func(_ int, body []byte) (int, []byte) { return status, body }
	}
	inside := func(format string) func(int, []byte) (int, []byte) {
		return func(status int, body []byte) (int, []byte) {
			return status, fmt.Appendf(nil, format, wire.Quote(string(body)))
		}
	}
	for name, wrap := range map[string]func(int, []byte) (int, []byte){
		"422":              status(422),
		"429":              status(429),
		"403":              status(403),
		"500":              status(500),
		"502":              status(502),
		"529":              status(529),
		"JSON in a string": inside(`{"error":{"message":%s,"code":400}}`),
		"JSON in a string, as a 429": func(_ int, body []byte) (int, []byte) {
			return 429, fmt.Appendf(nil, `{"error":{"message":%s}}`, wire.Quote(string(body)))
		},
		"metadata.raw": inside(`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":%s}}}`),
		"a list":       func(status int, body []byte) (int, []byte) { return status, []byte("[" + string(body) + "]") },
		"upper case":   func(status int, body []byte) (int, []byte) { return status, bytes.ToUpper(body) },
		"plain text": func(status int, body []byte) (int, []byte) {
			return status, []byte("upstream said: " + gjson.GetBytes(body, "error.message").Str)
		},
		"without backticks": func(status int, body []byte) (int, []byte) {
			return status, bytes.ReplaceAll(body, []byte("`"), nil)
		},
		"masked path": func(status int, body []byte) (int, []byte) {
			return status, regexp.MustCompile(`messages\.\d+\.content\.\d+`).ReplaceAll(body, []byte("***.***.content.***"))
		},
	} {
		for _, endpoint := range []string{"/v1/messages", "/teammate/v1/messages"} {
			t.Run(name+", "+endpoint, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, claude.with("claude", func(c *upstreamtest.Config) { c.Wrap = wrap }))
				g := w.gateway()
				c := g.remembering("claude-opus-4-8")
				c.prefix = strings.TrimSuffix(endpoint, "/v1/messages")
				c.say("One")
				require.Equal(t, 2, w.vendors["claude"].Count(), "one refusal, one retry")
				c.say("Two")
				require.Equal(t, 3, w.vendors["claude"].Count())
				w.conforms(1)
			})
		}
	}
}

// Fault: a stream's first event is the refusal, and its status says that all is well.
func TestConformanceARefusalAsTheFirstEvent(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(fmt.Sprint(endpoint, ", stream=", stream), func(t *testing.T) {
				w := newWorld(t, claude.told(budgeted))
				v := w.vendors["claude"]
				g := w.gateway()
				toolTurn(v, "one")
				if endpoint == "messages" {
					c := g.messages("claude-opus-4-8")
					c.stream = stream
					c.say("First")
					v.Fail(upstreamtest.ErrorFirst(wire.Messages, 400, badSignature))
					c.say("Second")
				} else {
					c := g.chat("claude-opus-4-8")
					c.stream = stream
					c.say("First")
					v.Fail(upstreamtest.ErrorFirst(wire.Messages, 400, badSignature))
					c.say("Second")
				}
				require.Equal(t, 4, v.Count(), "two for the first turn, one that was refused, one more")
				require.NotContains(t, string(v.Last().Body), `"thinking":"one`)
				w.conforms(0)
			})
		}
	}
}

// Fault: refusals of thinking that come as a 500 or a 429 count as failures of the
// backend, and its circuit opens for all callers.
func TestConformanceRefusalsAreNoFailures(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var failing atomic.Pointer[upstreamtest.Fault]
			w := newWorld(t, claude.with("claude", func(c *upstreamtest.Config) {
				c.Fault = func(*upstreamtest.Request) *upstreamtest.Fault { return failing.Load() }
			}))
			v := w.vendors["claude"]
			g := w.gateway()
			failing.Store(&upstreamtest.Fault{Status: status, Body: `{"error":{"message":"` + badSignature + `"}}`})
			for i := range 15 {
				c := g.remembering("claude-opus-4-8")
				c.within(fmt.Sprint("c", i))
				c.user(textOf("One"))
				require.Equal(t, status, c.post().status)
			}
			require.Equal(t, 30, v.Count(), "each has one retry, and none is sent again as it was")
			failing.Store(nil)
			w.forgive()
			g.messages("claude-opus-4-8").say("Hello")
			w.conforms(0)
		})
	}
}

// Fault: reasoning is missing and the gateway takes more of it away. It puts back
// what it knows, else the vendor's placeholder, else thinking is off.
func TestConformanceMissingReasoningIsNeverStripped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backend backendCase
		fault   string
	}{
		"deepseek": {deepSeek, "The `content[].thinking` in the thinking mode must be passed back to the API."},
		"kimi":     {kimi, "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"},
		"claude": {
			claude,
			"messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is " +
				"enabled, a final `assistant` message must start with a thinking block",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.backend)
			v := w.vendors[c.backend.name]
			client := w.gateway().messages("claude-sonnet-4-5")
			client.within("c1")
			toolTurn(v, "one")
			client.say("First")
			v.Fail(upstreamtest.Canned(400, `{"type":"error","error":{"type":"invalid_request_error","message":`+
				string(wire.Quote(c.fault))+`}}`))
			client.user(textOf("Second"))
			got := client.post()
			for _, r := range v.Requests()[2:] {
				require.Contains(t, string(r.Body), "one thinks before")
			}
			if got.status != 200 {
				// There was nothing to put back: the vendor's own words.
				require.Equal(t, 3, v.Count())
				require.Contains(t, got.body, string(wire.Quote(c.fault)))
				w.forgive()
			}
			client.proceed()
			w.conforms(0)
		})
	}
}

// Fault: the profile knows nothing of a vendor that wants its reasoning back, or says otherwise, and
// every request is refused once, or for good. One refusal teaches better.
func TestConformanceWhatMustBePassedBackWhateverTheProfile(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, b := range []backendCase{deepSeek, deepSeekChat, kimi, kimiChat} {
		for _, vendor := range []string{"", "anthropic", "openai", "gemini"} {
			for _, agent := range [][2]string{{"messages", "claude-sonnet-4-5"}, {"chat", "claude-sonnet-4-5"},
				{"chat", "my-model"}} {
				t.Run(fmt.Sprint(b.name, " as ", vendor, ", ", agent), func(t *testing.T) {
					w := newWorld(t, b.told(func(c *proxy.BackendConfig) { c.Vendor = vendor }))
					v := w.vendors[b.name]
					client := agents(w.gateway(), agent[1], "")[agent[0]]
					for _, name := range []string{"one", "two", "three"} {
						toolTurn(v, name)
						client.say(name)
					}
					if len(v.Rejections()) > 0 {
						require.Contains(t, string(v.Last().Body), "one thinks before")
					}
					w.refusedAtMost(1)
				})
			}
		}
	}
}

// Fault: the retry fails too, and the client is told of the retry, or of neither. It
// gets the first error, byte for byte where it speaks the vendor's dialect.
func TestConformanceTheFirstErrorIsWhatTheClientGets(t *testing.T) {
	t.Parallel()
	first := `{ "type":"error","error":{"message":"` + badSignature +
		`","type":"invalid_request_error"},"request_id":"req_first"}` + "\n"
	second := `{"type":"error","error":{"type":"invalid_request_error","message":"messages: something ` +
		`else"},"request_id":"req_second"}`
	for name, fault := range map[string]upstreamtest.Fault{
		"another cause":   upstreamtest.Canned(400, second),
		"the same cause":  upstreamtest.Canned(400, strings.Replace(first, "req_first", "req_second", 1)),
		"the vendor down": upstreamtest.Canned(501, second),
		"no answer":       {Status: 400, Body: second, ContentType: "text/plain"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", stream=", stream), func(t *testing.T) {
				w := newWorld(t, claude)
				v := w.vendors["claude"]
				g := w.gateway()
				v.Fail(upstreamtest.Fault{Status: 400, Body: first, Header: http.Header{"Request-Id": {"one"}}}, fault)
				c := g.remembering("claude-opus-4-8")
				c.stream = stream
				c.user(textOf("One"))
				got := c.post()
				require.Equal(t, 400, got.status)
				require.Equal(t, first, got.body)
				require.Equal(t, "one", got.header.Get("Request-Id"))
				require.Equal(t, "application/json", got.header.Get("Content-Type"))
				require.Equal(t, 2, v.Count())
				require.Contains(t, g.metrics("thinking_retries"), `outcome="refused"`)

				// What was not proven is not remembered.
				c.proceed()
				require.Contains(t, string(v.Requests()[2].Body), "forged")
				w.forgive()
				w.conforms(1)
			})
		}
	}
	t.Run("chat endpoint", func(t *testing.T) {
		w := newWorld(t, claude.told(budgeted))
		v := w.vendors["claude"]
		c := w.gateway().chat("claude-opus-4-8")
		c.within("c1")
		toolTurn(v, "one")
		c.say("First")
		v.Fail(upstreamtest.Canned(400, first), upstreamtest.Canned(400, second))
		c.user("Second")
		got := c.post()
		require.Equal(t, 400, got.status)
		require.Equal(t, badSignature, gjson.Get(got.body, "error.message").Str)
		w.forgive()
		w.conforms(0)
	})
	t.Run("chat all the way", func(t *testing.T) {
		w := newWorld(t, deepSeekChat)
		v := w.vendors["deepseek-chat"]
		c := w.gateway().chat("deepseek-reasoner")
		c.within("c1")
		toolTurn(v, "one")
		c.say("First")
		body := `{"error" : {"message":"The reasoning_content in the thinking mode must be passed back to the ` +
			`API.","type":"invalid_request_error"}}`
		v.Fail(upstreamtest.Canned(400, body), upstreamtest.Canned(400, second))
		c.user("Second")
		got := c.post()
		require.Equal(t, body, got.body)
		w.forgive()
		w.conforms(0)
	})
}

// recordedError is one of the real errors that were collected.
type recordedError struct {
	Status int
	Body   string
	Label  string
	Source string
}

// recordedErrors are outside data: without it the case is skipped, so they are read
// before a world is made.
func recordedErrors(t *testing.T) (all []recordedError) {
	t.Helper()
	data, err := os.ReadFile(outsidedata.Path(t, "errors", "dev.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(data) {
		var e recordedError
		require.NoError(t, json.Unmarshal(line, &e))
		all = append(all, e)
	}
	return all
}

// Fault: "thinking" in prose, or any other 400, is taken for a refusal of thinking;
// or what is one is passed on. Real errors of vendors, each through the gateway. How
// well they are told apart is a matter of package thinking.
func TestConformanceErrorsOutsideData(t *testing.T) {
	t.Parallel()
	recorded := recordedErrors(t)
	var failing atomic.Pointer[upstreamtest.Fault]
	w := newWorld(t, claude.with("claude", func(c *upstreamtest.Config) {
		c.Fault = func(*upstreamtest.Request) *upstreamtest.Fault { return failing.Load() }
	}))
	v := w.vendors["claude"]
	g := w.gateway()
	for i, e := range recorded {
		before := v.Count()
		c := g.messages("claude-opus-4-8")
		c.within(fmt.Sprint("c", i))
		v.Queue(upstreamtest.Reply(upstreamtest.Think("thought"), upstreamtest.Say("Hello.")))
		c.say("Hi")
		fault := upstreamtest.Canned(e.Status, e.Body)
		fault.ContentType = "text/plain"
		class := thinking.Classify(e.Status, []byte(e.Body))
		if class == thinking.ClassStrip {
			require.Equal(t, "strip_helps", e.Label, e.Body)
			v.Fail(fault)
			c.say("And?")
			require.Equal(t, 3, v.Count()-before, "%s\n%s", e.Source, e.Body)
			require.NotContains(t, string(v.Last().Body), `"thought"`)
			continue
		}
		failing.Store(&fault)
		c.user(textOf("And?"))
		got := c.post()
		failing.Store(nil)
		require.Equal(t, e.Status, got.status, e.Source)
		if thinking.ReadLength(e.Status, []byte(e.Body)).Excess == thinking.OverWindow {
			require.Contains(t, got.body, `"message":"prompt is too long`)
		} else {
			require.Equal(t, e.Body, got.body, e.Source)
		}
		for _, r := range v.Requests()[before+1:] {
			require.Contains(t, string(r.Body), `"thought"`, "nothing is stripped for it: %s", e.Body)
		}
		if _, parameter := thinking.RefusedParameter(e.Status, []byte(e.Body)); e.Status < 429 &&
			class == thinking.ClassOther && !parameter {
			require.Equal(t, 2, v.Count()-before, "%s\n%s", e.Source, e.Body)
		}
	}
	w.forgive()
	w.conforms(0)
}

// Fault: the user's own words, echoed in an error, decide of the error.
func TestConformanceAnEchoOfTheUserDecidesNothing(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"FastAPI": `{"detail":[{"type":"missing","loc":["body","messages",0,"name"],"msg":"Field ` +
			`required","input":{"content":"why ` + badSignature + `?"}}]}`,
		"prose": `{"type":"error","error":{"type":"invalid_request_error","message":"messages: the thinking model is ` +
			`invalid, signature required"}}`,
		"too long": `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 200452 tokens ` +
			`> 200000 maximum"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, claude)
			v := w.vendors["claude"]
			c := w.gateway().remembering("claude-opus-4-8")
			v.Fail(upstreamtest.Canned(400, body))
			c.user(textOf("why " + badSignature + "?"))
			got := c.post()
			require.Equal(t, 400, got.status)
			require.Equal(t, body, got.body)
			require.Equal(t, 1, v.Count())
			w.conforms(0)
		})
	}
}

// Fault: a rate limit counts as a failure of the backend, is tried again at once, or
// its Retry-After is lost.
func TestConformanceRateLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault upstreamtest.Fault
		after string
	}{
		"429": {upstreamtest.RateLimited(60), "60"},
		"529": {upstreamtest.Fault{Status: 529, Header: http.Header{"Retry-After": {"60"}}}, "60"},
	} {
		for _, endpoint := range []string{"messages", "chat"} {
			t.Run(name+", "+endpoint, func(t *testing.T) {
				w := newWorld(t, claude.told(budgeted))
				v := w.vendors["claude"]
				client := agents(w.gateway(), "claude-opus-4-8", "c1")[endpoint]
				toolTurn(v, "one")
				client.say("First")
				now := c.fault
				now.Header = http.Header{"Retry-After": {"0"}}
				v.Fail(now)
				toolTurn(v, "two")
				require.Equal(t, "two is done.", client.say("Second"), "soon enough: it is tried again")
				require.Equal(t, 5, v.Count())

				v.Fail(c.fault)
				var got answered
				switch client := client.(type) {
				case *messagesClient:
					client.user(textOf("Third"))
					got = client.post()
				case *chatClient:
					client.user("Third")
					got = client.post()
				}
				require.Equal(t, c.fault.Status, got.status)
				require.Equal(t, c.after, got.header.Get("Retry-After"))
				require.Equal(t, 6, v.Count(), "it is for the client to wait")
				w.conforms(0)
			})
		}
	}
}
