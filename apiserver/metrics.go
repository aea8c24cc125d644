package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"mneme/memory/event"
	"mneme/memory/telemetry"
)

// metrics is what an operator watches beside what every service has.
type metrics struct {
	started prometheus.Counter
	refused *prometheus.CounterVec   // by the problem's code
	seconds *prometheus.HistogramVec // of finished runs, by outcome
	streams prometheus.Gauge
	unkept  prometheus.Counter
}

func newMetrics(s *Server) metrics {
	factory := s.svc.Make()
	m := metrics{
		started: factory.NewCounter(prometheus.CounterOpts{
			Name: "mneme_apiserver_runs_started_total", Help: "Runs accepted."}),
		refused: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_apiserver_runs_refused_total", Help: "Runs refused for want of room, by reason."}, []string{"code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mneme_apiserver_run_seconds", Help: "Time from a run's acceptance to its end.", Buckets: telemetry.Buckets},
			[]string{"outcome"}),
		streams: factory.NewGauge(prometheus.GaugeOpts{
			Name: "mneme_apiserver_event_streams", Help: "Open event streams."}),
	}
	m.unkept = factory.NewCounter(prometheus.CounterOpts{
		Name: "mneme_apiserver_conversations_not_kept_total",
		Help: "Runs that wait whose conversation the gateway did not agree to keep until then."})
	for _, p := range []string{errDraining.Code, errTooManyRuns.Code} {
		m.refused.WithLabelValues(p)
	}
	for _, outcome := range []string{event.Completed, event.Stopped, event.Failed, waiting} {
		m.seconds.WithLabelValues(outcome)
	}
	gauge := func(name, help string, value func() int) {
		s.svc.Gauge("mneme_apiserver_"+name, help, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(value())
		})
	}
	gauge("runs_running", "Runs going on now.", s.places.InUse)
	gauge("finished_runs", "Finished runs still known.", func() int { return len(s.finished) })
	gauge("finished_bytes", "Bytes of events held for finished runs.", func() int { return s.finishedBytes })
	if library := s.documents.library; library != nil {
		s.svc.Gauge("mneme_documents_behind",
			"Changes of documents that searches here do not know yet, of the collection with the most.",
			func() float64 { return float64(library.Lag().Changes) })
		s.svc.Gauge("mneme_documents_behind_seconds",
			"For how long changes of documents have been missing here; 0 while none are.",
			func() float64 { return library.Lag().For.Seconds() })
	}
	s.toolMetrics()
	return m
}
