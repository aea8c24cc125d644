package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"time"
)

// Relay is the body of the process that is the smallest reverse proxy of net/http:
// it sends what it is asked to the vendor and copies the answer, nothing else. Both
// addresses are host:port. It ends with ctx.
func Relay(ctx context.Context, listen, vendor string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening as the smallest proxy: %w", err)
	}
	// As the gateway keeps its connections, so that neither connects more often.
	transport := &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
	defer transport.CloseIdleConnections()
	if err := serve(ctx, l, relay{vendor, transport}); err != nil {
		return fmt.Errorf("serving as the smallest proxy: %w", err)
	}
	return nil
}

// relay is an http.Handler.
type relay struct {
	vendor    string // host:port
	transport *http.Transport
}

// ServeHTTP wants a request with a length, as the benchmark's are.
func (p relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		http.Error(w, "a request needs a length", http.StatusLengthRequired)
		return
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return // the caller is gone
	}
	call, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+p.vendor+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.Header = r.Header
	resp, err := p.transport.RoundTrip(call)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if resp.ContentLength < 0 {
		relayStream(w, resp.Body)
		return
	}
	answer := make([]byte, resp.ContentLength)
	n, _ := io.ReadFull(resp.Body, answer) // the server cuts an answer that is shorter than its length
	_, _ = w.Write(answer[:n])             // a caller that is gone needs no answer
}

// relayStream sends what is there at once, so that no event waits for the next.
func relayStream(w http.ResponseWriter, stream io.Reader) {
	control := http.NewResponseController(w)
	buffer := make([]byte, 4<<10)
	for {
		n, err := stream.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			_ = control.Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // a cut stream must not look like a whole one
		}
	}
}
