package chat

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"mneme/proxy/copilot"
)

// Collector reports the counters of a CLI's sessions and of its connection to Prometheus.
type Collector struct {
	backend    string
	model      *Model
	connection *copilot.Supervisor
}

// NewCollector makes the collector of a backend of that name.
func NewCollector(backend string, m *Model, connection *copilot.Supervisor) Collector {
	return Collector{backend: backend, model: m, connection: connection}
}

// Describe implements [prometheus.Collector].
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	send := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
		constLabels := prometheus.Labels{"backend": c.backend}
		maps.Copy(constLabels, labels)
		desc := prometheus.NewDesc("mneme_proxy_copilot_"+name, help, nil, constLabels)
		ch <- prometheus.MustNewConstMetric(desc, kind, value)
	}
	m, s := c.model.Stats(), c.connection.Stats()
	for state, n := range map[string]int{"busy": m.Busy, "idle": m.Idle, "parked": m.Parked, "dormant": m.Dormant} {
		send(gauge, "sessions", "Sessions of the Copilot CLI that conversations have, by what they do.", float64(n),
			prometheus.Labels{"state": state})
	}
	for what, n := range map[string]uint64{
		"coalesced": s.Coalesced, "filtered": s.Filtered, "malformed": s.Malformed, "orphan": s.Orphans,
	} {
		send(counter, "events_total", "Events of the CLI that were not handed on as they came, by why.", float64(n),
			prometheus.Labels{"what": what})
	}
	send(counter, "replayed_total", "Requests whose earlier turns were told to a fresh session.", float64(m.Replayed), nil)
	send(gauge, "pending_calls", "Calls to the CLI that wait for their answer.", float64(s.Pending), nil)
	send(gauge, "queue_depth_max", "Most events that ever waited for one session.", float64(s.QueueDepth), nil)
	send(counter, "denied_tools_total", "Uses of tools that were refused.", float64(s.Denied), nil)
	send(counter, "slow_sessions_total", "Sessions given up since their events were not read.", float64(s.Slow), nil)
	send(counter, "redials_total", "Connections to the CLI after the first.", float64(s.Redials), nil)
	send(counter, "late_answers_total", "Answers of the CLI that came when nobody waited any more.", float64(s.Late), nil)
	send(counter, "frames_in_total", "Messages from the CLI.", float64(s.FramesIn), nil)
	send(counter, "frames_out_total", "Messages to the CLI.", float64(s.FramesOut), nil)
}
