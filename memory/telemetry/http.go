package telemetry

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// maxName bounds what is logged of an id in a path, in bytes.
const maxName = 128

// Status codes under which an answer is counted and logged that broke off after its
// head was sent.
const (
	statusLeft   = 499 // as the client left
	statusBroken = http.StatusInternalServerError
)

// middleware begins the request's trail, and counts and logs it at its end. It stands
// before all others. Ids are read from the parameters :run and :chat of the route;
// errors of the handler are those that it gave to gin's Error.
//
// A stream's goroutine waits below it for as long as the stream lasts. What is done before is
// in a function that is not inlined, so that the frame in which it waits is small.
func (s *Service) middleware(c *gin.Context) {
	began := time.Now()
	r := begin(c)
	s.flying.Inc()
	defer s.flying.Dec()
	broken := true // unless Next returns, rather than panics
	defer func() { s.tell(c, r, broken, time.Since(began)) }()
	c.Next()
	broken = false
}

// noSniff keeps browsers from taking an answer for a page or a script that is none. All headers share it.
var noSniff = []string{"nosniff"}

//go:noinline
func begin(c *gin.Context) *request {
	r := &request{Trail: Take(c.Request.Header)}
	r.Run, r.Chat = clip(c.Param("run")), clip(c.Param("chat"))
	c.Request = c.Request.WithContext(r.in(c.Request.Context()))
	c.Writer.Header()["X-Content-Type-Options"] = noSniff
	// An event stream that was the connection's answer before has left its write deadline,
	// which net/http keeps for the end of that answer and for all that follow.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}) // not every connection has deadlines
	return r
}

// tell counts and logs a request that is over.
func (s *Service) tell(c *gin.Context, r *request, broken bool, took time.Duration) {
	status := c.Writer.Status()
	if broken {
		status = statusBroken
		if c.Request.Context().Err() != nil {
			status = statusLeft
		}
	}
	s.Count(c.FullPath(), c.Request.Method, status, took)
	if r.logged || s.Requests == RequestsOff || s.Requests == RequestsErrors && status < http.StatusBadRequest {
		return
	}
	line := s.Log.WithLevel(level(c.FullPath(), status)).EmbedObject(r.Trail)
	if len(c.Errors) > 0 {
		causes := make([]error, len(c.Errors))
		for i, e := range c.Errors {
			causes[i] = e.Err
		}
		line.Errs("causes", causes)
	}
	line.Str("method", c.Request.Method).Str("path", c.Request.URL.Path).
		Int("status", status).Dur("took", took).Msg("request")
}

func clip(s string) string { return s[:min(len(s), maxName)] }

// level is that of a request's line. What probes ask all the time is for debugging.
func level(route string, status int) zerolog.Level {
	switch {
	case slices.Contains([]string{"/healthz", "/health", "/readyz", "/metrics"}, route):
		return zerolog.DebugLevel
	case status >= http.StatusInternalServerError:
		return zerolog.ErrorLevel
	}
	return zerolog.InfoLevel
}

// methods are those that are told apart; clients can send any other.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions}

// Count counts a request that was answered. The route is its template, never a path;
// empty for one that has none.
func (s *Service) Count(route, method string, status int, took time.Duration) {
	if route == "" {
		route = "(none)"
	}
	if !slices.Contains(methods, method) {
		method = "(other)"
	}
	s.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	s.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}

// NoRedirect is an http.Client's CheckRedirect that follows no redirect, which would take keys and texts to another server.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Transport is next for requests to one other service: they carry the traceparent of
// their context, and are counted. A nil next is http.DefaultTransport.
func (s *Service) Transport(target string, next http.RoundTripper) http.RoundTripper {
	s.calling.Do(func() {
		s.calls = s.Make().NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_client_requests_total",
			Help: "Requests to other services, by the status of the answer; error for none.",
		}, []string{"to", "status"})
		s.callSeconds = s.Make().NewHistogramVec(prometheus.HistogramOpts{
			Name: "mneme_client_request_duration_seconds", Help: "Time to the head of another service's answer.",
			Buckets: Buckets,
		}, []string{"to"})
	})
	if next == nil {
		next = http.DefaultTransport
	}
	return &transport{s, target, next}
}

type transport struct {
	service *Service
	target  string
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if trail := FromContext(r.Context()); trail.Trace != "" {
		out := *r
		out.Header = r.Header.Clone()
		out.Header.Set(Header, trail.Parent())
		r = &out
	}
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	status := "error"
	if err == nil {
		status = strconv.Itoa(resp.StatusCode)
		t.service.callSeconds.WithLabelValues(t.target).Observe(time.Since(began).Seconds())
	}
	t.service.calls.WithLabelValues(t.target, status).Inc()
	return resp, err
}

// CloseIdleConnections is for http.Client's.
func (t *transport) CloseIdleConnections() { (&http.Client{Transport: t.next}).CloseIdleConnections() }
