package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// CheckEvery is the interval of health checks of Redis.
const CheckEvery = 2 * time.Second

// Metrics holds the metrics of this service, in their own registry.
type Metrics struct {
	Runs       *prometheus.CounterVec
	RunSeconds *prometheus.HistogramVec
	Running    prometheus.Gauge
	Readers    prometheus.Gauge
	FirstEvent prometheus.Histogram
	FirstText  prometheus.Histogram
	Logged     prometheus.Counter

	Takeovers prometheus.Counter
	Resumed   prometheus.Counter
	Claims    *prometheus.CounterVec
	Webhook   *prometheus.CounterVec
	unaudited prometheus.Counter
	cold      *prometheus.CounterVec
	resets    prometheus.Counter
	changes   prometheus.Counter
	Retold    prometheus.Counter
	Regained  prometheus.Counter
	Faults    *prometheus.CounterVec
}

// Values of the label of Metrics.Faults.
const (
	DeadPost    = "dead_post"
	HalfChange  = "half_change"
	LostRun     = "lost_run"
	UnsureGrant = "unsure_grant"
	DamagedRun  = "damaged_run"
)

// Values of the label of Metrics.cold.
const (
	frozen     = "frozen"
	thawed     = "thawed"
	coldFailed = "failed"
)

// NewMetrics registers the metrics of webmemory, except for those of runs and posts in this process.
func NewMetrics(s *Core, watch *StoreWatch) *Metrics {
	gauge, counter, factory := s.Telemetry.Gauge, s.Telemetry.Counter, s.Telemetry.Make()
	count := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	timed := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: telemetry.Buckets}
	}
	m := &Metrics{
		Runs: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_runs_total",
			Help: "Runs by how they ended; waiting: suspended until somebody answers; left: for another process to finish.",
		}, []string{"outcome"}),
		RunSeconds: factory.NewHistogramVec(timed("mneme_run_duration_seconds",
			"Time from a post to its run's end, the wait for the chat's turn included."), []string{"outcome"}),
		Running: factory.NewGauge(prometheus.GaugeOpts{
			Name: "mneme_runs_running", Help: "Runs that this process brings to their end.",
		}),
		Readers: factory.NewGauge(prometheus.GaugeOpts{Name: "mneme_event_streams", Help: "Open event streams: readers."}),
		FirstEvent: factory.NewHistogram(timed("mneme_run_first_event_seconds",
			"Time from a post to its run's first event, the wait for the chat's turn included.")),
		FirstText: factory.NewHistogram(timed("mneme_run_first_text_seconds",
			"Time from a post to the first of the answer's text.")),
		Logged:  count("mneme_event_log_bytes_total", "Bytes of events put into the logs of runs."),
		Resumed: count("mneme_resumed_runs_total", "Runs that waited for somebody and went on."),
		Claims: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_tool_claims_total",
			Help: "Claims of calls of tools outside, by their answer: granted, done before, or of unknown outcome.",
		}, []string{"state"}),
		Webhook: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_approvals_webhook_total", Help: "Runs that wait, by whether approvals.webhook was told of them.",
		}, []string{"outcome"}),
		cold: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "mneme_cold_chats_total",
			Help: "Chats that left Redis for the cold store (frozen), came back (thawed), or could not (failed), each time.",
		}, []string{"outcome"}),
		unaudited: count("mneme_audit_failures_total", "Entries of the audit log that were not kept."),
		Takeovers: count("mneme_takeovers_total", "Runs that another process left and this one finished."),
		resets:    count("mneme_redis_resets_total", "Times that Redis was found to have lost its data."),
		changes: count("mneme_redis_changes_total",
			"Times that Redis was found to be another server than before: restarted, or failed over."),
		Retold: count("mneme_retold_runs_total",
			"Runs of which Redis had lost events that a process or a disk still knew."),
		Regained: count("mneme_regained_turns_total",
			"Turns that Redis lost in the middle of a run, and that were taken again."),
	}
	m.Faults = factory.NewCounterVec(prometheus.CounterOpts{Name: "mneme_faults_total",
		Help: "What was found that a killed process or a Redis that lost data left behind: a post whose process died " +
			"before its run was open (dead_post), an erasure, a rewind or an import that was brought to its end later " +
			"(half_change), a run of which nothing but its messages is left (lost_run), and calls of tools granted, or runs " +
			"that wait gone on with, although a process that may know of more could not be asked (unsure_grant), and " +
			"runs that were ended because an event is damaged or too large (damaged_run).",
	}, []string{"fault"})
	for _, fault := range []string{DeadPost, HalfChange, LostRun, UnsureGrant, DamagedRun} {
		m.Faults.WithLabelValues(fault)
	}
	for _, outcome := range []string{frozen, thawed, coldFailed} {
		m.cold.WithLabelValues(outcome)
	}
	for _, outcome := range []string{event.Completed, event.Stopped, event.Failed, webapi.OutcomeWaiting, "left"} {
		m.Runs.WithLabelValues(outcome)
	}
	gauge("mneme_redis_away_seconds", "For how long Redis has not answered; 0 while it does.", func() float64 {
		if start := watch.Health.Get().DownSince; !start.IsZero() {
			return time.Since(start).Seconds()
		}
		return 0
	})
	gauge("mneme_redis_memory_ratio", "Which part of its maxmemory the fullest Redis has used; 0 without a maxmemory.",
		func() float64 { return watch.Health.Get().Full })
	gauge("mneme_spool_bytes", "Appends on disk that Redis has not taken yet.", func() float64 {
		return float64(s.Spool.Bytes())
	})
	gauge("mneme_spool_queues", "Histories and runs' logs that have something in the spool.", func() float64 {
		return float64(len(s.Spool.Queues()))
	})
	gauge("mneme_cache_bytes", "Histories in this process's cache.", func() float64 {
		return float64(s.Cache.Stats().Bytes)
	})
	gauge("mneme_cache_entries", "Histories in this process's cache.", func() float64 {
		return float64(s.Cache.Stats().Entries)
	})
	counter("mneme_cache_hits_total", "Histories that were loaded as they were in the cache.", func() int64 {
		return s.Cache.Stats().Hits
	})
	counter("mneme_cache_misses_total", "Histories that had to be read from Redis, the whole or the end.",
		func() int64 { return s.Cache.Stats().Misses })
	counts := &s.Store.Counts
	counter("mneme_memory_late_total", "Messages that came out of the spool after their turn.", counts.Late.Load)
	counter("mneme_memory_stale_total", "Appends that found their copy out of date.", counts.Stale.Load)
	counter("mneme_memory_adopted_total", "Histories of foreign writers taken over.", counts.Adopted.Load)
	counter("mneme_memory_damaged_total",
		"Histories set aside: damaged ones, and copies with other contents under the same ids; and parts of archives "+
			"that were found damaged or gone, each time.", counts.Damaged.Load)
	counter("mneme_memory_deleted_total", "Histories found deleted by hand.", counts.Deleted.Load)
	counter("mneme_memory_lost_total", "Histories that Redis lost, whole or in part, and a copy brought back.",
		counts.Recovered.Load)
	return m
}

// EndMemory ends the span of a memory operation. A nil span is ignored.
func EndMemory(span *tracing.Span, records int, err error) {
	if span == nil {
		return
	}
	failed := ""
	if err != nil {
		failed = problem.FromError(err).Code
	}
	span.Set(tracing.MemoryRecords.Int(records))
	span.End(failed)
}
