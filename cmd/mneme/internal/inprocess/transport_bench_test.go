package inprocess_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"mneme/cmd/mneme/internal/inprocess"
)

// clients returns a client of h by a pipe and one by a socket, each with the address of h.
func clients(b *testing.B, h http.Handler) map[string]func(path string) (*http.Response, error) {
	var hosts inprocess.Hosts
	stop := hosts.Serve("test.local:80", h)
	b.Cleanup(func() { _ = stop(context.Background()) })
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	pipe, socket := &http.Client{Transport: hosts.Transport(&http.Transport{MaxIdleConnsPerHost: 64})}, server.Client()
	return map[string]func(string) (*http.Response, error){
		"pipe":   func(path string) (*http.Response, error) { return pipe.Get("http://test.local:80" + path) },
		"socket": func(path string) (*http.Response, error) { return socket.Get(server.URL + path) },
	}
}

func BenchmarkRequests(b *testing.B) {
	for name, get := range clients(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	})) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				resp, err := get("/")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkOpenStreams reports the memory of a stream that waits for its next event.
func BenchmarkOpenStreams(b *testing.B) {
	const streams = 1000
	for name, get := range clients(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})) {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				before := inUse()
				var open []*http.Response
				for range streams {
					resp, err := get("/")
					if err != nil {
						b.Fatal(err)
					}
					open = append(open, resp)
				}
				b.ReportMetric((inUse()-before)/streams, "B/stream")
				for _, resp := range open {
					_ = resp.Body.Close()
				}
			}
		})
	}
}

func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}
