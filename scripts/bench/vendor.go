package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mneme/internal/upstreamtest"
)

// answerHeader names one of the answers in chat completions by its number; without it
// the request's text tells which is wanted.
const answerHeader = "X-Bench-Answer"

// vendor answers at once what the strict fake vendor of the tests said before. In chat
// completions the master delegates, the subagent answers in ten deltas, the master in
// ten more; a message gets the same text behind some thinking.
type vendor struct {
	*httptest.Server
	chat    [3][][]byte         // streams, each by its events
	answers map[string][][]byte // the others, by the end of the path and whether they are streams
	hold    <-chan struct{}
	Waiting atomic.Int64 // answers that wait for hold
}

// newVendor starts it. The last answer of a turn stops half-way until hold is closed.
func newVendor(hold <-chan struct{}) *vendor {
	v := &vendor{hold: hold, answers: map[string][][]byte{}}
	text := upstreamtest.Say(strings.Repeat("June, as in 2024, is", 10))
	for i, block := range []upstreamtest.Block{upstreamtest.Use("analytic", `{"task":"Which month sold the most?"}`), text,
		text} {
		v.chat[i] = recorded(upstreamtest.Chat, "/v1/chat/completions",
			`{"model":"m","stream":true,"messages":[{"role":"user","content":"?"}],
			"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"analytic","parameters":{"type":"object"}}}]}`, block)
	}
	v.answers["completions false"] = recorded(upstreamtest.Chat, "/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"?"}]}`, text)
	thought := upstreamtest.Think(strings.Repeat("Where do sales stand?", 10))
	for _, stream := range []bool{false, true} {
		v.answers[fmt.Sprint("messages ", stream)] = recorded(upstreamtest.Anthropic, "/v1/messages",
			fmt.Sprintf(`{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048},
			"messages":[{"role":"user","content":"?"}],"stream":%v}`, stream), thought, text)
		v.answers[fmt.Sprint("responses ", stream)] = recorded(upstreamtest.OpenAI, "/v1/responses",
			fmt.Sprintf(`{"model":"gpt-5.1","reasoning":{"effort":"medium","summary":"auto"},"store":false,"input":"?",
			"include":["reasoning.encrypted_content"],"stream":%v}`, stream), thought, text)
	}
	v.Server = httptest.NewServer(v)
	return v
}

// recorded is what the fake vendor answers to a request, event by event.
func recorded(vendor upstreamtest.Vendor, target, body string, blocks ...upstreamtest.Block) [][]byte {
	fake := upstreamtest.New(upstreamtest.Config{Vendor: vendor, Stream: upstreamtest.StreamOptions{Chunk: 20}})
	fake.Queue(upstreamtest.Reply(blocks...))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	if fake.ServeHTTP(w, r); w.Code != http.StatusOK {
		panic(fmt.Errorf("the fake vendor refuses the benchmark: %s", w.Body))
	}
	return bytes.SplitAfter(bytes.TrimSuffix(w.Body.Bytes(), []byte("\n\n")), []byte("\n\n"))
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		return // the caller is gone, or only looks whether a server is here
	}
	w.Header().Set("Content-Type", "text/event-stream")
	stream := bytes.Contains(body, []byte(`"stream":true`))
	events := v.answers[fmt.Sprint(path.Base(r.URL.Path), " ", stream)]
	if events != nil && !stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(events[0])
		return
	}
	n, err := strconv.Atoi(r.Header.Get(answerHeader))
	last := body[max(0, bytes.LastIndex(body, []byte(`"role":`))):]
	switch {
	case err == nil:
	case bytes.Contains(body, []byte(`"model":"back"`)):
		n = 1
	case bytes.HasPrefix(last, []byte(`"role":"tool"`)):
		n = 2
	}
	if events == nil {
		events = v.chat[n]
	}
	for i, event := range events {
		if n == 2 && i == 5 && v.hold != nil {
			v.Waiting.Add(1)
			for waiting := true; waiting; { // a vendor that is silent for a minute is given up
				select {
				case <-v.hold:
					waiting = false
				case <-time.After(15 * time.Second):
					_, _ = io.WriteString(w, ": keep-alive\n\n")
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}
