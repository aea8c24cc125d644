package proxy_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
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

// recordedReasons is what X-AG-Error says of the families of recorded errors; of any other it is "rejected".
var recordedReasons = map[string]string{
	"auth": "key_refused", "r_auth": "key_refused", "r_policy": "content_refused", "g_model": "model_unknown",
	"r_opaque": "vendor_failed", "length": "context_length_exceeded", "g_length": "context_length_exceeded",
	"r_length": "context_length_exceeded", "r_rate": "rate_limited",
}

// Every recorded error, from a backend of either dialect to a client of either: it is known for what it is,
// costs no more calls than its cure needs, and a client of the backend's own dialect gets the vendor's words
// byte for byte.
func TestConformanceRecordedErrorsOutsideData(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const said = `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":%s},` +
		`{"role":"user","content":"go on"}]}`
	bodies := map[string]string{
		"messages": `{"model":"m%d","max_tokens":9000,"thinking":{"type":"adaptive"},` + fmt.Sprintf(said,
			`[`+forgedBlock+`,{"type":"text","text":"Hello."}]`),
		"chat": `{"model":"m%d","reasoning_effort":"low",` + fmt.Sprintf(said, `"Hello."`),
	}
	paths := map[string]string{"messages": "/v1/messages", "chat": "/v1/chat/completions"}
	for _, endpoint := range []string{"messages", "chat"} {
		for _, kind := range []string{proxy.KindAnthropic, proxy.KindOpenAI} {
			for _, route := range []string{"", "/teammate/x"} {
				var fault upstreamtest.Fault
				b := backendCase{name: "b", config: proxy.BackendConfig{Kind: kind, Vendor: "generic"}}
				b.vendor.Vendor = upstreamtest.Kimi
				b.vendor.Fault = func(*upstreamtest.Request) *upstreamtest.Fault { return &fault }
				w := knocked(t, b)
				v, g := w.vendors["b"], w.gateway()
				same := (endpoint == "messages") == (kind == proxy.KindAnthropic)
				for i, e := range recordedRows(t) {
					at := fmt.Sprintf("%s to %s%s, %s: %s", endpoint, kind, route, e.Get("family"), e.Get("body").Str)
					body, status := e.Get("body").Str, int(e.Get("status").Int())
					fault = upstreamtest.Canned(status, body)
					request := fmt.Sprintf(bodies[endpoint], i)
					if status == 200 && !gjson.Valid(body) {
						continue
					}
					if status == 200 && route == "" { // a stream's first event, else the whole answer
						fault.ContentType, fault.Body = "text/event-stream", "data: "+body+"\n\n"
						request = `{"stream":true,` + request[1:]
					}
					before := v.Count()
					got := g.ask(route+paths[endpoint], request)
					calls := v.Count() - before
					class := thinking.Classify(status, []byte(body))

					want := "rejected"
					if named, ok := recordedReasons[e.Get("family").Str]; ok {
						want = named
					}
					if e.Get("look_alike").Bool() {
						want = "request_too_large"
					}
					require.Equal(t, want, got.header.Get("X-AG-Error"), at)
					switch {
					case want == "context_length_exceeded":
						require.Equal(t, 400, got.status, at)
					case same:
						require.Equal(t, status, got.status, at)
						require.Equal(t, body, got.body, at)
					default:
						require.Equal(t, status, got.status, at)
						require.Equal(t, wire.ReadFailure(status, []byte(body)).Message,
							gjson.Get(got.body, "error.message").Str, at)
						require.Equal(t, endpoint == "messages", gjson.Get(got.body, "type").Str == "error", at)
					}
					switch {
					case class == thinking.ClassStrip:
						require.LessOrEqual(t, calls, 2, at)
					case class == thinking.ClassRestore:
						require.LessOrEqual(t, calls, 3, at)
					case status < 500 && status != http.StatusTooManyRequests:
						require.LessOrEqual(t, calls, 2, at)
					}
				}
				for _, kind := range []string{"signature", "modified", "place", "disabled", "missing", "schema"} {
					require.Contains(t, g.metrics("upstream_refusals_total"), `kind="`+kind+`"`)
				}
			}
		}
	}
}

// recordedRows are the recorded errors of all files.
func recordedRows(t *testing.T) (rows []gjson.Result) {
	for _, name := range []string{"dev", "parameters", "context-length", "responses-gemini"} {
		data, err := os.ReadFile(outsidedata.Path(t, "errors", name+".jsonl"))
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			rows = append(rows, gjson.Parse(line))
		}
	}
	return rows
}
