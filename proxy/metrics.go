package proxy

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"mneme/memory/telemetry"
	"mneme/proxy/conversation"
	"mneme/proxy/sanitize"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// Outcomes of a request, as metrics and the log call them.
const (
	outcomeOK       = "ok"       // answered to the end
	outcomeRefused  = "refused"  // a 4xx, ours or the backend's
	outcomeFailed   = "failed"   // the backend failed or could not be reached
	outcomeCut      = "cut"      // the answer broke off after it had begun
	outcomeCanceled = "canceled" // the client left
)

// metrics are the gateway's counters. Labels take values of the configuration
// and of fixed sets only, never what clients send.
type metrics struct {
	requests   *prometheus.CounterVec
	upstream   *prometheus.CounterVec
	refusals   *prometheus.CounterVec
	retries    *prometheus.CounterVec
	moves      *prometheus.CounterVec
	parameters *prometheus.CounterVec
	filter     *prometheus.CounterVec
	restored   *prometheus.CounterVec
	changes    *prometheus.CounterVec
	tokens     *prometheus.CounterVec
	empty      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	overhead   *prometheus.HistogramVec
	firstByte  *prometheus.HistogramVec

	conversations *prometheus.CounterVec
	branches      *prometheus.CounterVec
	rebuilt       *prometheus.CounterVec
	gaveUp        *prometheus.CounterVec

	models modelLabels
}

// maxModelLabels bounds the models of a backend that metrics tell apart, since clients choose their names.
const maxModelLabels = 64

// modelLabels are the values that labels have had for the models of each backend.
type modelLabels struct {
	mu     sync.Mutex
	labels map[string][]string // by backend; guarded by mu
}

// label is the label for a backend's model: its name, or "other" once there have been too many.
func (l *modelLabels) label(backend, model string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	labels := l.labels[backend]
	switch {
	case slices.Contains(labels, model):
		return model
	case len(labels) == maxModelLabels || len(model) > maxModelName:
		return "other"
	}
	l.labels[backend] = append(labels, strings.Clone(model))
	return model
}

func newMetrics(service *telemetry.Service) *metrics {
	factory := service.Make()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: "mneme_proxy_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: "mneme_proxy_" + name, Help: help, Buckets: buckets},
			labels)
	}
	return &metrics{
		models: modelLabels{labels: map[string][]string{}},
		empty: counter("empty_answers_total", "Answers of status 200 that came to their end and carried nothing.",
			"backend", "model"),
		refusals: counter("upstream_refusals_total", "Refusals of backends, by what they say is at fault.", "backend",
			"class", "kind"),
		retries: counter("thinking_retries_total", "Second attempts, by what was done to the thinking.", "pipeline",
			"backend", "class", "outcome"),
		moves: counter("route_moves_total", "Requests that went on to the next backend of their route, by what was wrong "+
			"with the one before.", "backend", "reason"),
		parameters: counter("parameter_retries_total",
			"Attempts without a parameter that the backend had refused, or with it as it asks.", "pipeline", "backend",
			"parameter", "outcome"),
		filter: counter("thinking_filter_blocks_total",
			"Thinking blocks of the main pipeline's requests, by what became of them.", "backend", "fate"),
		restored: counter("turns_put_back_total", "Answered turns that went back as the model gave them.", "pipeline",
			"backend"),
		changes: counter("sanitizer_changes_total", "Changes that made requests fit their backend, by rule.", "pipeline",
			"backend", "rule"),
		tokens:   counter("tokens_total", "Tokens, by kind.", "backend", "kind"),
		requests: counter("requests_total", "Requests for a model, by outcome.", "door", "pipeline", "backend", "outcome"),
		upstream: counter("upstream_responses_total", "Answers of backends, by HTTP status.", "backend", "status"),
		duration: histogram("request_duration_seconds", "Time from a request's first byte to its answer's last.",
			[]float64{0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}, "door", "pipeline"),
		overhead: histogram("overhead_seconds",
			"Time that a request spent in the gateway and not with its backend or its client.",
			[]float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1}, "door", "pipeline"),
		firstByte: histogram("upstream_first_byte_seconds", "Time until a backend's answer began, retries included.",
			telemetry.Buckets, "backend"),

		conversations: counter("conversation_requests_total", "Requests that name a conversation, by what they are to it.",
			"pipeline", "outcome"),
		branches: counter("conversation_branches_total", "Answers that began a branch of their conversation.",
			"pipeline"),
		rebuilt: counter("conversation_messages_rebuilt_total",
			"Messages that a client's replay lacked or had changed, put back as they were.", "pipeline"),
		gaveUp: counter("conversation_messages_given_up_total",
			"Messages that a client's replay lacked or had changed, which could not be put back.", "pipeline"),
	}
}

// watch registers what is counted elsewhere.
func (m *metrics) watch(s *Server) {
	// A counter that begins with its first event hides that event from rates and alerts.
	for _, pipeline := range []string{scopeMain, scopeTeammate} {
		for _, c := range []*prometheus.CounterVec{m.branches, m.rebuilt, m.gaveUp} {
			c.WithLabelValues(pipeline)
		}
		for _, outcome := range conversation.Outcomes {
			m.conversations.WithLabelValues(pipeline, string(outcome))
		}
	}

	s.telemetry.Gauge("mneme_proxy_store_away", "1 while Redis does not take or give conversations.", func() float64 {
		return float64(one(s.ledger.Degraded()))
	})
	s.telemetry.Gauge("mneme_proxy_turns_waiting", "Answered turns and refusals that Redis has not taken yet.",
		func() float64 { return float64(s.ledger.Stats().Waiting) })
	s.telemetry.Counter("mneme_proxy_turns_dropped_total", "Answered turns and refusals that never reached Redis.",
		func() int64 { return s.ledger.Stats().Dropped })
	s.telemetry.Counter("mneme_proxy_usage_dropped_total", "Calls that are in no counter, since Redis did not take them.",
		s.limiter.Dropped)
	for name, b := range s.backends {
		promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"backend": name},
			s.telemetry)).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mneme_proxy_circuit_open", Help: "1 while a backend that failed too often is left alone.",
		}, func() float64 { return float64(one(b.circuitOpen())) })
	}
}

// observe counts a request that is over.
func (m *metrics) observe(x *request, outcome string, took time.Duration) {
	backend := ""
	if x.result.backend != nil {
		backend = x.result.backend.name
	}
	m.requests.WithLabelValues(x.endpoint.name, x.pipeline, backend, outcome).Inc()
	m.duration.WithLabelValues(x.endpoint.name, x.pipeline).Observe(took.Seconds())
	ours := max(0, took-x.result.waited.total-x.client.spent)
	m.overhead.WithLabelValues(x.endpoint.name, x.pipeline).Observe(ours.Seconds())
	if x.answered() {
		a := x.result.attempt
		m.upstream.WithLabelValues(backend, strconv.Itoa(a.answer.status)).Inc()
		m.firstByte.WithLabelValues(backend).Observe(x.result.waited.firstByte.Seconds())
		m.refused(a)
	}
}

// answeredNothing counts an answer that is complete and empty, which a vendor may give in place of an error.
func (m *metrics) answeredNothing(a *attempt) {
	m.empty.WithLabelValues(a.backend.name, m.models.label(a.backend.name, a.model)).Inc()
}

// refused counts a backend's refusal.
func (m *metrics) refused(a *attempt) {
	if a.answer.refused() {
		kind := thinking.KindNone
		if a.answer.class != thinking.ClassOther {
			kind = thinking.KindOf(a.answer.content)
		}
		m.refusals.WithLabelValues(a.backend.name, a.answer.subject(), string(kind)).Inc()
	}
}

// moved counts a request that went on to another backend of its route.
func (m *metrics) moved(b *backend, why reason) {
	m.moves.WithLabelValues(b.name, string(why)).Inc()
}

// retried counts a cure for which another attempt was made.
func (m *metrics) retried(x *attempt, c *cure, ok bool) {
	outcome := outcomeOK
	if !ok {
		outcome = outcomeRefused
	}
	if c.kind != cureThinking {
		m.parameters.WithLabelValues(x.pipeline, x.backend.name, c.label(), outcome).Inc()
		return
	}
	m.retries.WithLabelValues(x.pipeline, x.backend.name, c.class.String(), outcome).Inc()
}

// shaped counts what was done to the request that a backend answered at last.
func (m *metrics) shaped(x *attempt) {
	r := x.report
	for _, c := range []struct {
		fate string
		n    int
	}{
		{"kept", r.Unchanged}, {"stripped", r.Stripped}, {"into_text", r.IntoText}, {"refused", r.Refused},
		{"foreign", r.Foreign}, {"edited", r.Edited}, {"unproven", r.Unproven}, {"unchained", r.Unchained},
	} {
		if c.n > 0 && x.pipeline == scopeMain {
			m.filter.WithLabelValues(x.backend.name, c.fate).Add(float64(c.n))
		}
	}
	if r.PutBack > 0 {
		m.restored.WithLabelValues(x.pipeline, x.backend.name).Add(float64(r.PutBack))
	}
	converted := false // a mode takes several members, and is one change
	for _, c := range x.changes {
		if c.Kind == sanitize.KindMode {
			if converted {
				continue
			}
			converted = true
		}
		m.changes.WithLabelValues(x.pipeline, x.backend.name, string(c.Kind)).Inc()
	}
}

// continued counts what became of a request in its conversation.
func (m *metrics) continued(x resolvedRequest) {
	c := x.continued
	m.conversations.WithLabelValues(x.pipeline, string(c.Outcome)).Inc()
	if c.Branch {
		m.branches.WithLabelValues(x.pipeline).Inc()
	}
	if c.GaveUp > 0 {
		m.gaveUp.WithLabelValues(x.pipeline).Add(float64(c.GaveUp))
	}
	if c.Rebuilt > 0 {
		m.rebuilt.WithLabelValues(x.pipeline).Add(float64(c.Rebuilt))
	}
}

// used counts the tokens of a call.
func (m *metrics) used(backend string, t wire.Usage) {
	for _, c := range []struct {
		kind string
		n    int64
	}{
		{"input", t.InputTokens}, {"output", t.OutputTokens}, {"cache_read", t.CacheRead},
		{"cache_creation", t.CacheCreation},
	} {
		if c.n > 0 {
			m.tokens.WithLabelValues(backend, c.kind).Add(float64(c.n))
		}
	}
}
