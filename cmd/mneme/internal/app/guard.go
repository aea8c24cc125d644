package app

import (
	"errors"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"slices"
	"time"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/crossorigin"
	"mneme/memory/telemetry"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// guarded is a service's handler behind the guards against web pages and against bodies
// that never end. Their refusals count among the service's requests.
//
// A name in the certificate is the operator's, and no stranger can point it here.
func (a *app) guarded(
	cfg config.Config, h http.Handler, refuse crossorigin.Refuse, svc *telemetry.Service,
) http.Handler {
	hosts := slices.Concat(ownHosts(cfg), cfg.HTTP.AllowedHosts)
	if a.addrs.Certificate != nil {
		hosts = append(hosts, plainNames(a.addrs.Certificate)...)
	}
	counted := func(w http.ResponseWriter, r *http.Request, no *api.Problem) {
		svc.Count("(refused)", r.Method, no.Status, 0)
		refuse(w, r, no)
	}
	guard := crossorigin.New(hosts, cfg.HTTP.AllowedOrigins, svc.Often)
	return bounded(guard.Protect(h, counted), cfg.HTTP.BodyTimeout, counted)
}

// ownHosts are the names under which the services listen and call each other.
func ownHosts(cfg config.Config) (hosts []string) {
	for _, addr := range []string{cfg.Webmemory.Listen, cfg.Apiserver.Listen, cfg.Proxy.Listen} {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	for _, base := range []string{cfg.Webmemory.Apiserver, cfg.Webmemory.Advertise, cfg.Apiserver.Advertise,
		cfg.Apiserver.Proxy, cfg.Proxy.Advertise} {
		if u, err := neturl.Parse(base); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// refuseRequest answers as webmemory and the apiserver do.
func refuseRequest(w http.ResponseWriter, _ *http.Request, no *api.Problem) {
	api.WriteProblem(w, no)
}

// refuseCall answers as the gateway does.
func refuseCall(w http.ResponseWriter, r *http.Request, no *api.Problem) {
	proxy.Refuse(w, r, wire.Failure{Status: no.Status, Code: no.Code, Message: no.Message})
}

// minRate is how many bytes of a body earn one more second of waiting: with it the
// longest body of 2 MiB may take nine minutes.
const minRate = 4 << 10

// streamed is how many times as long documents that are loaded as a stream may take.
const streamed = 20

// maxUnread is how much of a body that no handler wants is read, in bytes.
const maxUnread = 256 << 10

// bounded is a handler of requests with bodies that must come in time: they are waited
// for wait in all, and a second more for every minRate bytes that have come. Reading one
// fails with os.ErrDeadlineExceeded after that. Only waiting counts, not what the handler
// does in between, and nothing bounds the answer.
//
// Documents that are loaded as a stream have longer: their sender works in between.
//
// http.Server.ReadTimeout would not do: it is one for all sizes, and runs on while
// the answer is written.
func bounded(h http.Handler, wait time.Duration, refuse crossorigin.Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			b := &body{ReadCloser: r.Body, control: *http.NewResponseController(w), remaining: wait}
			if r.URL.RawQuery != "" && r.URL.Query().Get("stream") == "true" {
				b.remaining *= streamed
			}
			// Also for a body that the handler never reads: the server does, before and
			// after it answers.
			b.begin()
			r.Body = b
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				// None of these reads its body. The server would do it when the answer begins,
				// and the time that is running then would end an answer that is a stream.
				if _, err := io.CopyN(io.Discard, b, maxUnread); errors.Is(err, os.ErrDeadlineExceeded) {
					late := api.ErrBodyTimeout
					refuse(w, r, &api.Problem{Status: late.Status, Code: late.Code, Message: late.Message})
					return
				}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// body is a request's body while it is read, by one goroutine.
type body struct {
	io.ReadCloser
	control   http.ResponseController
	remaining time.Duration // of waiting
	until     time.Time     // when that ends for one read, as the connection was told
	came      int           // bytes that have not earned a second yet
}

// begin starts the time for one read. A connection that knows no deadlines has none.
func (b *body) begin() {
	until := time.Now().Add(b.remaining)
	if until.Sub(b.until).Abs() > 100*time.Millisecond { // telling costs more than a read
		b.until = until
		_ = b.control.SetReadDeadline(until)
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.begin()
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.came += n
	b.remaining += time.Duration(b.came/minRate)*time.Second - time.Since(began)
	b.came %= minRate
	if err == io.EOF {
		// The server goes on reading to learn when the client leaves, and would take the
		// end of this time for that.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
