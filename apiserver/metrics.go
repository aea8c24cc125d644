package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/memory/event"
)

// metrics counts what an operator watches.
type metrics struct {
	started, completed, stopped, failed atomic.Int64 // runs
	tooMany, draining                   atomic.Int64 // refused runs, by why
	followers                           atomic.Int64 // open event streams
	took                                atomic.Int64 // nanoseconds of all finished runs
}

func (m *metrics) finish(outcome string, took time.Duration) {
	switch outcome {
	case event.Completed:
		m.completed.Add(1)
	case event.Stopped:
		m.stopped.Add(1)
	default:
		m.failed.Add(1)
	}
	m.took.Add(int64(took))
}

// getMetrics answers in the Prometheus text format.
func (s *Server) getMetrics(c *gin.Context) error {
	m := &s.metrics
	s.mu.Lock()
	running, kept, bytes := s.running, len(s.finished), s.kept
	s.mu.Unlock()
	completed, stopped, failed := m.completed.Load(), m.stopped.Load(), m.failed.Load()

	var b strings.Builder
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP mneme_apiserver_%[1]s %[3]s\n# TYPE mneme_apiserver_%[1]s %[2]s\n", name, kind, help)
	}
	sample := func(name string, value any) { fmt.Fprintf(&b, "mneme_apiserver_%s %v\n", name, value) }
	family("runs_started_total", "counter", "Runs accepted.")
	sample("runs_started_total", m.started.Load())
	family("runs_finished_total", "counter", "Runs that ended, by outcome.")
	sample(`runs_finished_total{outcome="completed"}`, completed)
	sample(`runs_finished_total{outcome="stopped"}`, stopped)
	sample(`runs_finished_total{outcome="failed"}`, failed)
	family("runs_refused_total", "counter", "Runs refused, by reason.")
	sample(`runs_refused_total{code="too_many_runs"}`, m.tooMany.Load())
	sample(`runs_refused_total{code="draining"}`, m.draining.Load())
	family("run_seconds", "summary", "Time from a run's acceptance to its end.")
	sample("run_seconds_sum", time.Duration(m.took.Load()).Seconds())
	sample("run_seconds_count", completed+stopped+failed)
	family("runs_running", "gauge", "Runs going on now.")
	sample("runs_running", running)
	family("event_streams", "gauge", "Open event streams.")
	sample("event_streams", m.followers.Load())
	family("finished_runs", "gauge", "Finished runs still known.")
	sample("finished_runs", kept)
	family("finished_bytes", "gauge", "Bytes of events held for finished runs.")
	sample("finished_bytes", bytes)

	c.Data(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
	return nil
}
