package webmemory

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mneme/apiserver/api"
	"mneme/memory"
)

// checkEvery is how often the store is asked whether it answers.
const checkEvery = 2 * time.Second

// health is what the service knows of what it depends on.
type health struct {
	mu    sync.Mutex
	seen  bool      // guarded by mu: the store has answered once
	since time.Time // guarded by mu: when it stopped answering; zero while it does
	// refusal is why nothing can be written although the store answers; guarded by
	// mu, nil while it can.
	refusal error
}

func (h *health) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.seen, h.since = true, time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
	}
}

// noteRefusal says whether there is a reason that was not there before.
func (h *health) noteRefusal(why error) (fresh bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh = why != nil && h.refusal == nil
	h.refusal = why
	return fresh
}

func (h *health) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusal
}

func (h *health) get() (seen bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen, h.since
}

// watchStore keeps health up to date.
func (s *Server) watchStore() {
	for {
		ctx, cancel := context.WithTimeout(s.life, checkEvery)
		epoch, err := s.store.Epoch(ctx)
		servers, unknown := s.store.Servers(ctx)
		refusal := errors.Join(s.store.Sound(ctx), s.store.Writable(ctx), s.spool.Check())
		if err == nil {
			if failed := s.followErasures(ctx); failed != nil && s.life.Err() == nil {
				s.log.Debug().Err(failed).Msg("what others erased is not known yet")
			}
		}
		cancel()
		if errors.Is(err, memory.ErrDamaged) {
			err = nil // it answered; the refusal says of what
		}
		if s.health.noteRefusal(refusal) {
			s.log.Error().Err(refusal).Msg("messages cannot be stored, or not while Redis is away; reading works")
		}
		if err == nil && epoch != "" {
			s.noteEpoch(epoch)
		}
		if err == nil && unknown == nil {
			s.noteServers(servers)
		}
		if s.life.Err() == nil {
			s.health.note(err)
		}
		select {
		case <-s.life.Done():
			return
		case <-time.After(checkEvery):
		}
	}
}

type ready struct {
	Status string     `json:"status"` // ready, degraded, starting or draining
	Redis  *awayState `json:"redis,omitempty"`
	Reason string     `json:"reason,omitempty"` // why nothing can be stored although Redis answers
}

type awayState struct {
	AwaySince time.Time `json:"away_since"`
}

// healthz says that the process lives.
func (s *Server) healthz(c *gin.Context) error {
	api.WriteJSON(c.Writer, http.StatusOK, ready{Status: "ok"})
	return nil
}

// readyz says whether messages should be sent here. Redis being away makes the
// service degraded, not unready: it still answers, if only with a clear 503.
func (s *Server) readyz(c *gin.Context) error {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	seen, since := s.health.get()
	out, status := ready{Status: "ready"}, http.StatusOK
	if !since.IsZero() {
		out.Status, out.Redis = "degraded", &awayState{since}
	}
	if refused := s.health.refused(); refused != nil {
		out.Status, out.Reason = "degraded", refused.Error()
	}
	if !seen {
		out.Status, status = "starting", http.StatusServiceUnavailable
	}
	if draining {
		out.Status, status = "draining", http.StatusServiceUnavailable
	}
	api.WriteJSON(c.Writer, status, out)
	return nil
}

// metrics are this service's own, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	runs     *prometheus.CounterVec

	takeovers prometheus.Counter
	resets    prometheus.Counter
	changes   prometheus.Counter
	retold    prometheus.Counter
	regained  prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_runs_total", Help: "Runs by how they ended.",
		}, []string{"outcome"}),
	}
	m.takeovers = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mneme_takeovers_total", Help: "Runs that another process left and this one finished.",
	})
	m.resets = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mneme_redis_resets_total", Help: "Times that Redis was found to have lost its data.",
	})
	m.changes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mneme_redis_changes_total", Help: "Times that Redis was found to be another server than before: restarted, or failed over.",
	})
	m.retold = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mneme_retold_runs_total", Help: "Runs of which Redis had lost events that a process or a disk still knew.",
	})
	m.regained = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mneme_regained_turns_total", Help: "Turns that Redis lost in the middle of a run, and that were taken again.",
	})
	m.registry.MustRegister(m.runs, m.takeovers, m.resets, m.changes, m.retold, m.regained)
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	counter := func(name, help string, value func() int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("mneme_redis_away_seconds", "For how long Redis has not answered; 0 while it does.", func() float64 {
		if _, since := s.health.get(); !since.IsZero() {
			return time.Since(since).Seconds()
		}
		return 0
	})
	gauge("mneme_spool_bytes", "Appends on disk that Redis has not taken yet.", func() float64 { return float64(s.spool.Bytes()) })
	gauge("mneme_waiting_messages", "Messages that wait for their chat's turn.", func() float64 { return float64(s.queue.length()) })
	gauge("mneme_finished_run_bytes", "Memory that finished runs take; what is over webmemory.finished_bytes leaves.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.finished.bytes)
	})
	counts := &s.store.Counts
	counter("mneme_memory_late_total", "Messages that came out of the spool after their turn.", counts.Late.Load)
	counter("mneme_memory_stale_total", "Appends that found their copy out of date.", counts.Stale.Load)
	counter("mneme_memory_adopted_total", "Histories of foreign writers taken over.", counts.Adopted.Load)
	counter("mneme_memory_damaged_total", "Histories set aside: damaged ones, and copies with other contents under the same ids.", counts.Damaged.Load)
	counter("mneme_memory_deleted_total", "Histories found deleted by hand.", counts.Deleted.Load)
	counter("mneme_memory_lost_total", "Histories that Redis lost, whole or in part, and a copy brought back.", counts.Lost.Load)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
