package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

// BenchmarkDialects compares what the gateway itself does to a small request of Responses, with and without a stored
// answer, with what it does to one of messages, by turns in one run and without a socket. It reports the CPU of each
// and their ratio to that of messages, as JSON and as a stream.
func BenchmarkDialects(b *testing.B) {
	for _, stream := range []bool{false, true} {
		b.Run(fmt.Sprintf("all,stream=%v", stream), func(b *testing.B) {
			calls := dialects(b, stream)
			var spent [3]time.Duration
			const batch = 50
			n := 0
			for b.Loop() {
				for i, call := range calls {
					began := cpu(b)
					for range batch {
						n++
						call(fmt.Sprintf("bench-%d", n))
					}
					spent[i] += cpu(b) - began
				}
			}
			for i, name := range []string{"messages", "responses", "stored"} {
				b.ReportMetric(float64(spent[i].Microseconds())/float64(b.N*batch), "µs/"+name)
				if i > 0 {
					b.ReportMetric(float64(spent[i])/float64(spent[0]), name+"÷messages")
				}
			}
		})
		for i, name := range []string{"messages", "responses", "stored"} {
			b.Run(fmt.Sprintf("%s,stream=%v", name, stream), func(b *testing.B) {
				call := dialects(b, stream)[i]
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n++
					call(fmt.Sprintf("bench-%d", n))
				}
			})
		}
	}
}

// dialects are calls of a gateway before vendors that answer at once: of messages, of Responses without storing and of
// Responses that are stored, each the first of the conversation that it is given.
func dialects(b *testing.B, stream bool) [3]func(conversation string) {
	const message = `{"model":"claude-sonnet-4-5","max_tokens":8192,"thinking":{"type":"enabled","budget_tokens":2048},` +
		`"stream":%v,"messages":[{"role":"user","content":"Order %s: what is to be checked?"}]}`
	const response = `{"model":"gpt-5.1","reasoning":{"effort":"medium","summary":"auto"},"max_output_tokens":8192,` +
		`"include":["reasoning.encrypted_content"],"store":%v,"stream":%v,` +
		`"input":[{"role":"user","content":"Order %s: what is to be checked?"}]}`
	made := func(vendor upstreamtest.Vendor, path, format string, more ...any) func(string) {
		body := func(conversation string) string {
			return fmt.Sprintf(format, append(more, stream, conversation)...)
		}
		fake := upstreamtest.New(upstreamtest.Config{Vendor: vendor, Stream: upstreamtest.StreamOptions{Chunk: 20}})
		fake.Queue(upstreamtest.Reply(upstreamtest.Think(strings.Repeat("Where do sales stand?", 10)),
			upstreamtest.Say(strings.Repeat("June, as in 2024, is", 10))))
		said, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(body("?")))
		r.Header.Set("Anthropic-Version", "2023-06-01")
		fake.ServeHTTP(said, r)
		require.Equal(b, http.StatusOK, said.Code, said.Body)
		kind := map[bool]string{true: proxy.KindAnthropic, false: proxy.KindResponses}[vendor == upstreamtest.Anthropic]
		gateway, err := proxy.New(proxy.Config{Active: "vendor", Backends: map[string]proxy.BackendConfig{
			"vendor": {Kind: kind, BaseURL: "http://vendor.test"},
		}, Transport: answering{said.Result().Header, said.Body.Bytes()}}, zerolog.New(io.Discard))
		require.NoError(b, err)
		b.Cleanup(func() { _ = gateway.Close() })
		handler := gateway.Handler()
		return func(conversation string) {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body(conversation)))
			r.Header.Set("X-Ag-Conversation-Id", conversation)
			w := discarding{header: http.Header{}}
			if handler.ServeHTTP(&w, r); w.status != http.StatusOK {
				b.Fatalf("%s answers with %d", path, w.status)
			}
		}
	}
	return [3]func(string){
		made(upstreamtest.Anthropic, "/v1/messages", message),
		made(upstreamtest.OpenAI, "/v1/responses", response, false),
		made(upstreamtest.OpenAI, "/v1/responses", response, true),
	}
}

// answering is a vendor that says one thing.
type answering struct {
	header http.Header
	body   []byte
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: -1, Request: r}, err
}

// discarding is a client that reads everything and keeps nothing.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(status int)      { d.status = status }
func (d *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarding) Flush()                      {}
