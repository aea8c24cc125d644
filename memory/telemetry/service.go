package telemetry

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// Service is one service's metrics, which begin with those that every service has, and
// its two logs. Safe for concurrent use.
type Service struct {
	*prometheus.Registry
	Log zerolog.Logger
	// Often is for lines that may come many times a minute and say the same of
	// everything: most of them are counted, not written. What is about one request or
	// one run belongs into Log.
	Often zerolog.Logger
	// Requests says which requests have a line in Log: RequestsOff, RequestsErrors, or all for any other text. Set it
	// before the first request.
	Requests string

	repeats  *repeats
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	flying   prometheus.Gauge

	calling     sync.Once
	calls       *prometheus.CounterVec   // set by calling
	callSeconds *prometheus.HistogramVec // set by calling
}

// Values of Service.Requests.
const (
	RequestsOff    = "off"
	RequestsErrors = "errors" // those that are answered with a status of 400 or more
)

// Buckets are those of times between a moment and a run's longest, in seconds.
var Buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Open makes the metrics of a service of this version. Close it.
func Open(version string, log zerolog.Logger) *Service {
	s := &Service{Registry: prometheus.NewRegistry(), Log: log, repeats: &repeats{log: log, lines: map[line]*count{}}}
	s.Often = s.Limited(log)
	s.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.Make().NewGaugeVec(prometheus.GaugeOpts{
		Name: "mneme_build_info", Help: "1; its labels say what runs.",
	}, []string{"version", "revision", "goversion"}).WithLabelValues(version, Revision(), runtime.Version()).Set(1)
	s.requests = s.Make().NewCounterVec(prometheus.CounterOpts{
		Name: "mneme_http_requests_total", Help: "HTTP requests that were answered.",
	}, []string{"route", "method", "status"})
	s.seconds = s.Make().NewHistogramVec(prometheus.HistogramOpts{
		Name: "mneme_http_request_duration_seconds", Help: "Time to the end of the answer, that of event streams included.",
		Buckets: Buckets,
	}, []string{"route", "method"})
	s.flying = s.Make().NewGauge(prometheus.GaugeOpts{
		Name: "mneme_http_requests_in_flight", Help: "HTTP requests that are being answered, event streams included.",
	})
	return s
}

// Limited returns log with the limit of Often, for lines that a single cause writes for each of many runs.
func (s *Service) Limited(log zerolog.Logger) zerolog.Logger { return log.Hook(s.repeats) }

// Close writes what is counted still of lines that repeat.
func (s *Service) Close() error {
	s.repeats.flush()
	return nil
}

// Make makes metrics that are registered here.
func (s *Service) Make() promauto.Factory { return promauto.With(s.Registry) }

// Gauge registers a value that is asked for when it is read.
func (s *Service) Gauge(name, help string, value func() float64) {
	s.Make().NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// Counter registers a count that is kept elsewhere.
func (s *Service) Counter(name, help string, value func() int64) {
	s.Make().NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

// Metrics serves them as Prometheus reads them.
func (s *Service) Metrics() http.Handler {
	return promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{})
}

// Revision is the commit that runs, +changes behind it if the sources were changed; empty
// if the build does not say.
func Revision() (revision string) {
	changes := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				changes = "+changes"
			}
		}
	}
	return revision + changes
}

// Readiness answers GET /readyz.
type Readiness struct {
	Status  string   `json:"status"`            // ready, degraded, refused, starting or draining
	Reasons []string `json:"reasons,omitempty"` // why it is not ready, or degraded; sentences
}
