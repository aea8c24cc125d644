package webmemory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// monitor asks Redis and this disk every now and then whether they are well, and says so to those who ask for the
// service's health.
type monitor struct {
	*Core
	registry   *Registry
	storeWatch *StoreWatch
	tombstones *Tombstones
}

// checkEvery is how often the store is asked whether it answers.
const CheckEvery = 2 * time.Second

// probeEvery is after how many checks a Redis that refused nothing is probed again. Each probe writes to its log.
const probeEvery = 5

// watchStore keeps health up to date.
func (s *monitor) watchStore() {
	var probed error
	for check := 0; ; check++ {
		ctx, cancel := context.WithTimeout(s.Life, CheckEvery)
		epoch, err := s.Store.Server.Epoch(ctx)
		servers, full, unknown := s.Store.Server.RunIDs(ctx)
		switch {
		case err != nil && !errors.Is(err, memory.ErrRefused):
			probed = nil
		case check%probeEvery == 0, probed != nil, err != nil:
			probed = s.Store.Server.Probe(ctx)
		}
		refusal, denied := s.refusal(ctx, probed)
		if err == nil {
			if failed := s.tombstones.FollowErasures(ctx); failed != nil && s.Life.Err() == nil {
				s.Log.Debug().Err(failed).Msg("what others erased is not known yet")
			}
		}
		cancel()
		if errors.Is(err, memory.ErrDamaged) || errors.Is(err, memory.ErrRefused) {
			err = nil // it answered; the refusal says of what
		}
		if s.storeWatch.Health.NoteRefusal(refusal, denied) {
			s.Telemetry.Often.Error().Str("reason", refusal).
				Msg("messages cannot be stored, or not while Redis is away; reading works")
		}
		if err == nil && epoch != "" {
			s.storeWatch.NoteEpoch(epoch)
		}
		if err == nil && unknown == nil {
			s.storeWatch.NoteServers(servers)
			if s.storeWatch.Health.NoteFull(full) {
				s.Log.Warn().Msg(TooFull(full))
			}
		}
		if s.Life.Err() == nil && s.storeWatch.Health.Note(err) {
			if err != nil {
				s.Telemetry.Often.Warn().Err(err).Msg(
					"Redis does not answer: new messages are refused, running answers are kept in the spool",
				)
			} else {
				s.Log.Info().Msg("Redis answers again")
			}
		}
		if Pause(s.Life, CheckEvery) != nil {
			return
		}
	}
}

// coldEvery is the interval between two probes of the cold store.
const coldEvery = 10 * time.Second

// watchCold keeps up to date whether the cold store can be read. Without a cold store it does so if chats sleep in one.
func (s *monitor) watchCold() {
	if s.Cfg.Cold.Store == nil {
		return
	}
	for {
		ctx, cancel := context.WithTimeout(s.Life, coldEvery/2)
		_, err := s.Cfg.Cold.Store.Get(ctx, cold.Chats+"mneme.probe") // an object of no chat
		if errors.Is(err, cold.ErrNone) {
			err = nil
		}
		if _, absent := s.Cfg.Cold.Store.(cold.Absent); absent {
			if used, unknown := s.Store.Cold.InUse(ctx); unknown != nil || !used {
				err = nil
			}
		}
		cancel()
		reason := ""
		if err != nil {
			reason = fmt.Sprintf("The cold store cannot be read, and requests for chats that sleep in it are refused: %v.", err)
		}
		if s.Life.Err() == nil && s.storeWatch.Health.NoteCold(reason) {
			s.Log.Error().Err(err).Msg("the cold store cannot be read")
		}
		if Pause(s.Life, coldEvery) != nil {
			return
		}
	}
}

// refusal returns the reason why the store, or the spool that replaces it, cannot be written. probed is the error of the last
// probe of a Redis that answers. denied reports whether an operator has to permit something.
func (s *monitor) refusal(ctx context.Context, probed error) (reason string, denied bool) {
	reasons := []string{s.Store.Server.Refusal(ctx)}
	var refused *memory.RefusedError
	switch denied = errors.As(probed, &refused); {
	case denied:
		reasons = append(reasons, refused.Error()+". "+refused.Fix)
	case probed != nil && reasons[0] == "":
		reasons = append(reasons, probed.Error())
	}
	for _, err := range []error{s.Store.Server.Sound(ctx), s.Spool.Check()} {
		if err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(slices.DeleteFunc(reasons, func(r string) bool { return r == "" }), "; "), denied
}

// ready answers GET /readyz.
type ready struct {
	telemetry.Readiness
	Redis *awayState `json:"redis,omitempty"`
}

type awayState struct {
	AwaySince time.Time `json:"away_since"`
}

// healthz says that the process lives.
func (s *monitor) healthz(c *gin.Context) error {
	return api.Answer(c.Writer, http.StatusOK, telemetry.Readiness{Status: "ok"}, nil)
}

// readyz says whether messages should be sent here, and why not. Redis being away
// makes the service degraded, not unready: it still answers, if only with a clear 503.
func (s *monitor) readyz(c *gin.Context) error {
	s.registry.Mu.Lock()
	draining := s.registry.Draining
	s.registry.Mu.Unlock()
	now := s.storeWatch.Health.Get()
	out, status := ready{}, http.StatusOK
	because := func(state, reason string) { out.Status, out.Reasons = state, append(out.Reasons, reason) }
	out.Status = "ready"
	if !now.DownSince.IsZero() {
		because("degraded", "Redis does not answer: new messages are refused, running answers are kept in the spool.")
		out.Redis = &awayState{now.DownSince}
	}
	// With a refusal nothing can be stored although Redis answers.
	for _, reason := range []string{now.Refusal, TooFull(now.Full), now.Cold, s.Cfg.Gate.LossMessage()} {
		if reason != "" {
			because("degraded", reason)
		}
	}
	if now.Denied {
		out.Status, status = "refused", http.StatusServiceUnavailable
	}
	if !now.Answered {
		because("starting", "Redis has not answered since the service started.")
		status = http.StatusServiceUnavailable
	}
	if draining {
		because("draining", "The service is stopping and takes no new messages.")
		status = http.StatusServiceUnavailable
	}
	return api.Answer(c.Writer, status, out, nil)
}

// metrics are this service's own, in a registry of its own.
type metrics struct {
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

// What Metrics.faults counts, by its label.
const (
	DeadPost    = "dead_post"
	HalfChange  = "half_change"
	LostRun     = "lost_run"
	UnsureGrant = "unsure_grant"
	DamagedRun  = "damaged_run"
)

// What Metrics.cold counts, by its label.
const (
	frozen     = "frozen"
	thawed     = "thawed"
	coldFailed = "failed"
)

func NewMetrics(s *Core, watch *StoreWatch) *metrics {
	gauge, counter, factory := s.Telemetry.Gauge, s.Telemetry.Counter, s.Telemetry.Make()
	count := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	timed := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: telemetry.Buckets}
	}
	m := &metrics{
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
