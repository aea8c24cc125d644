package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// scriptHeader asks the vendor for a message: its index in the history, or the
// number of turns of a long conversation, a slash and its index there.
const scriptHeader = "X-Bench-Message"

// Vendor is the body of the process that plays the vendor: it answers calls of
// the messages dialect as fast as it can, in JSON or as a stream, each answer with
// a signed thinking block. It writes its address, host:port, as JSON to out and
// ends with in or ctx.
func Vendor(ctx context.Context, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening as the vendor: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with in, at the latest with the process
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	if err := json.NewEncoder(out).Encode(l.Addr().String()); err != nil {
		_ = l.Close()
		return err
	}
	if err := serve(ctx, l, newVendor()); err != nil {
		return fmt.Errorf("serving as the vendor: %w", err)
	}
	return nil
}

// serve answers on l until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// vendor is an http.Handler.
type vendor struct {
	calls   atomic.Int64
	buffers sync.Pool // of *bytes.Buffer
	whole   template
	stream  template
	events  []int             // where each of the stream's events ends
	script  map[string][]byte // answers, by the index of the message in the history

	mu   sync.Mutex
	long map[int][]utterance // conversations by their turns; guarded by mu
}

func newVendor() *vendor {
	v := &vendor{script: map[string][]byte{}, long: map[int][]utterance{}}
	v.buffers.New = func() any { return new(bytes.Buffer) }
	v.whole = newTemplate(encode(newAnswer("end_turn", usual()...)))
	stream, events := usualStream()
	v.stream, v.events = newTemplate(stream), events
	for i, u := range history().Messages {
		v.script[strconv.Itoa(i)] = scripted(u)
	}
	return v
}

// ServeHTTP answers. What is no call is answered too: somebody looks whether the
// way to the vendor is open.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	buffer := v.buffers.Get().(*bytes.Buffer)
	defer v.buffers.Put(buffer)
	buffer.Reset()
	if _, err := buffer.ReadFrom(r.Body); err != nil {
		return // the caller is gone
	}
	n := v.calls.Add(1)
	h := w.Header()
	h.Set("Request-Id", "req_011C"+strconv.FormatInt(n, 10))
	h.Set("Anthropic-Organization-Id", "0b1c9c1e-2f7a-4a60-9a52-6c1f1d6f3b5e")
	h.Set("Anthropic-Ratelimit-Requests-Limit", "4000")
	h.Set("Anthropic-Ratelimit-Requests-Remaining", "3999")
	h.Set("Anthropic-Ratelimit-Tokens-Remaining", "390000")
	if bytes.Contains(buffer.Bytes(), []byte(`"stream":true`)) {
		v.answerStream(w, buffer, n)
		return
	}
	body := v.scripted(r.Header.Get(scriptHeader))
	if body == nil {
		buffer.Reset()
		body = v.whole.numbered(buffer.AvailableBuffer(), n)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a caller that is gone needs no answer
}

// scripted is the answer that scriptHeader asks for, nil for none.
func (v *vendor) scripted(name string) []byte {
	turns, index, ofLong := strings.Cut(name, "/")
	if !ofLong {
		return v.script[name]
	}
	n, _ := strconv.Atoi(turns)
	i, _ := strconv.Atoi(index)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.long[n] == nil {
		v.long[n] = long(n).Messages
	}
	return scripted(v.long[n][i])
}

// answerStream sends each event on its own and at once.
func (v *vendor) answerStream(w http.ResponseWriter, buffer *bytes.Buffer, n int64) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	buffer.Reset()
	stream := v.stream.numbered(buffer.AvailableBuffer(), n)
	control := http.NewResponseController(w)
	start := 0
	for _, end := range v.events {
		if _, err := w.Write(stream[start:end]); err != nil {
			return
		}
		_ = control.Flush()
		start = end
	}
}
