package apiserver

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is what an operator watches, in a registry of the server's own.
type metrics struct {
	registry *prometheus.Registry
	started  prometheus.Counter
	refused  *prometheus.CounterVec   // by the problem's code
	seconds  *prometheus.HistogramVec // of finished runs, by outcome
	streams  prometheus.Gauge
}

func newMetrics(s *Server) metrics {
	m := metrics{
		registry: prometheus.NewRegistry(),
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mneme_apiserver_runs_started_total", Help: "Runs accepted."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_apiserver_runs_refused_total", Help: "Runs refused for want of room, by reason."}, []string{"code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mneme_apiserver_run_seconds", Help: "Time from a run's acceptance to its end.",
			Buckets: []float64{.1, .3, 1, 3, 10, 30, 60, 120, 300, 600}}, []string{"outcome"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mneme_apiserver_event_streams", Help: "Open event streams."}),
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mneme_apiserver_" + name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(value())
		})
	}
	m.registry.MustRegister(m.started, m.refused, m.seconds, m.streams,
		gauge("runs_running", "Runs going on now.", func() int { return s.running }),
		gauge("finished_runs", "Finished runs still known.", func() int { return len(s.finished) }),
		gauge("finished_bytes", "Bytes of events held for finished runs.", func() int { return s.kept }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
