package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"

	"mneme/internal/upstreamtest"
)

// answerHeader names one of the vendor's answers by its number; without it the
// request's text tells which is wanted.
const answerHeader = "X-Bench-Answer"

// vendor answers at once what the strict fake vendor of the tests said before: the
// master delegates, the subagent answers in ten deltas, the master in ten more.
type vendor struct {
	*httptest.Server
	answers [3][][]byte // each by its events
	hold    <-chan struct{}
	held    atomic.Int64 // answers that wait for hold
}

// newVendor starts it. The last answer of a turn stops half-way until hold is closed.
func newVendor(hold <-chan struct{}) *vendor {
	v := &vendor{hold: hold}
	fake := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Stream: upstreamtest.StreamOptions{Chunk: 20}})
	text := strings.Repeat("June, as in 2024, is", 10)
	for i, say := range []upstreamtest.Block{
		upstreamtest.Use("analytic", `{"task":"Which month sold the most?"}`), upstreamtest.Say(text), upstreamtest.Say(text),
	} {
		fake.Queue(upstreamtest.Reply(say))
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,
			"messages":[{"role":"user","content":"?"}],"stream_options":{"include_usage":true},
			"tools":[{"type":"function","function":{"name":"analytic","parameters":{"type":"object"}}}]}`)))
		if w.Code != http.StatusOK {
			panic(fmt.Errorf("the fake vendor refuses the benchmark: %s", w.Body))
		}
		v.answers[i] = bytes.SplitAfter(bytes.TrimSuffix(w.Body.Bytes(), []byte("\n\n")), []byte("\n\n"))
	}
	v.Server = httptest.NewServer(v)
	return v
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		return // the caller is gone, or only looks whether somebody is here
	}
	n, err := strconv.Atoi(r.Header.Get(answerHeader))
	if err != nil {
		last := body[max(0, bytes.LastIndex(body, []byte(`"role":`))):]
		switch {
		case bytes.Contains(body, []byte(`"model":"back"`)):
			n = 1
		case bytes.HasPrefix(last, []byte(`"role":"tool"`)):
			n = 2
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, event := range v.answers[n] {
		if n == 2 && i == 5 && v.hold != nil {
			v.held.Add(1)
			select {
			case <-v.hold:
			case <-r.Context().Done():
				return
			}
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}
