package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Outcomes of a request, as metrics and the log call them.
const (
	outcomeOK       = "ok"
	outcomeRefused  = "refused"  // a 4xx, ours or the backend's
	outcomeFailed   = "failed"   // the backend failed or could not be reached
	outcomeCut      = "cut"      // the answer broke off after it had begun
	outcomeCanceled = "canceled" // the client left
)

// metrics are the gateway's counters. Labels take values of the configuration
// and of fixed sets only, never what clients send.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	upstream *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_proxy_requests_total", Help: "Requests for a model, by outcome.",
		}, []string{"door", "pipeline", "backend", "outcome"}),
		upstream: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_proxy_upstream_responses_total", Help: "Answers of backends, by HTTP status.",
		}, []string{"backend", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mneme_proxy_request_duration_seconds", Help: "Time from a request's first byte to its answer's last.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}, []string{"door", "pipeline"}),
	}
	m.registry.MustRegister(m.requests, m.upstream, m.duration)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// observe counts a request that is over.
func (m *metrics) observe(x *Exchange, pipeline, outcome string, took time.Duration) {
	backend := ""
	if x.backend != nil {
		backend = x.backend.name
	}
	m.requests.WithLabelValues(x.door.name, pipeline, backend, outcome).Inc()
	m.duration.WithLabelValues(x.door.name, pipeline).Observe(took.Seconds())
	if x.resp != nil {
		m.upstream.WithLabelValues(backend, strconv.Itoa(x.resp.StatusCode)).Inc()
	}
}
