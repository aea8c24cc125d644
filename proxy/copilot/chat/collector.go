package chat

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"mneme/proxy/copilot"
)

// Collector shows Prometheus what the sessions of a CLI and its connection count.
type Collector struct {
	model      *Model
	connection *copilot.Supervisor
	rows       []row
}

type row struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Stats, copilot.Stats) float64
}

// NewCollector makes the collector of a backend of that name.
func NewCollector(backend string, m *Model, connection *copilot.Supervisor) Collector {
	out := Collector{model: m, connection: connection}
	add := func(kind prometheus.ValueType, name, help string, labels prometheus.Labels,
		value func(Stats, copilot.Stats) float64) {
		all := prometheus.Labels{"backend": backend}
		maps.Copy(all, labels)
		out.rows = append(out.rows, row{prometheus.NewDesc("mneme_proxy_copilot_"+name, help, nil, all), kind, value})
	}
	const now, since = prometheus.GaugeValue, prometheus.CounterValue
	for state, value := range map[string]func(Stats) int{
		"busy": func(s Stats) int { return s.Busy }, "idle": func(s Stats) int { return s.Idle },
		"parked": func(s Stats) int { return s.Parked }, "dormant": func(s Stats) int { return s.Dormant },
	} {
		add(now, "sessions", "Sessions of the Copilot CLI that conversations have, by what they do.", prometheus.Labels{
			"state": state,
		},
			func(s Stats, _ copilot.Stats) float64 { return float64(value(s)) })
	}
	add(since, "replayed_total", "Requests whose earlier turns were told to a fresh session.", nil,
		func(s Stats, _ copilot.Stats) float64 { return float64(s.Replayed) })
	add(now, "pending_calls", "Calls to the CLI that wait for their answer.", nil,
		func(_ Stats, s copilot.Stats) float64 { return float64(s.RPC.Pending) })
	add(now, "queue_depth_max", "Most events that ever waited for one session.", nil,
		func(_ Stats, s copilot.Stats) float64 { return float64(s.QueueDepth) })
	for what, value := range map[string]func(copilot.Stats) uint64{
		"coalesced": func(s copilot.Stats) uint64 { return s.Coalesced }, "filtered": func(s copilot.Stats) uint64 {
			return s.Filtered
		},
		"malformed": func(s copilot.Stats) uint64 { return s.Malformed }, "orphan": func(s copilot.Stats) uint64 {
			return s.Orphans
		},
	} {
		add(since, "events_total", "Events of the CLI that were not handed on as they came, by why.", prometheus.Labels{
			"what": what,
		},
			func(_ Stats, s copilot.Stats) float64 { return float64(value(s)) })
	}
	for name, counter := range map[string]struct {
		help  string
		value func(copilot.Stats) uint64
	}{
		"denied_tools_total": {"Uses of tools that were refused.", func(s copilot.Stats) uint64 { return s.Denied }},
		"slow_sessions_total": {"Sessions given up since their events were not read.", func(s copilot.Stats) uint64 {
			return s.Slow
		}},
		"redials_total": {"Connections to the CLI after the first.", func(s copilot.Stats) uint64 { return s.Redials }},
		"late_answers_total": {"Answers of the CLI that came when nobody waited any more.", func(s copilot.Stats) uint64 {
			return s.RPC.Late
		}},
		"frames_in_total":  {"Messages from the CLI.", func(s copilot.Stats) uint64 { return s.RPC.FramesIn }},
		"frames_out_total": {"Messages to the CLI.", func(s copilot.Stats) uint64 { return s.RPC.FramesOut }},
	} {
		add(since, name, counter.help, nil,
			func(_ Stats, s copilot.Stats) float64 { return float64(counter.value(s)) })
	}
	return out
}

// Describe implements [prometheus.Collector].
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	for _, row := range c.rows {
		to <- row.desc
	}
}

// Collect implements [prometheus.Collector].
func (c Collector) Collect(to chan<- prometheus.Metric) {
	model, connection := c.model.Stats(), c.connection.Stats()
	for _, row := range c.rows {
		to <- prometheus.MustNewConstMetric(row.desc, row.kind, row.value(model, connection))
	}
}
