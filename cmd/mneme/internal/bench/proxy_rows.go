package bench

import "fmt"

// What the gateway is to reach.
const (
	reachSmall      = 100  // µs of CPU
	reachOverDirect = 0.27 // of the requests/s without a gateway
	reachStream     = 140  // µs of CPU
	reachTranslated = 250  // µs of CPU
	reachHistory    = 700  // µs of CPU
	reachResident   = 40   // MB
	// What a history costs, by size: the reach for one of 115 kB.
	reachKilobyte = reachHistory / 115. // µs of CPU
)

// fewConnections are enough to keep a gateway busy with calls that are longer.
const fewConnections = 16

// proxyRow is a kind of calls and what is told of them.
type proxyRow struct {
	name        string
	ways        []string
	requests    int // in one batch
	connections int
	fresh       bool // each batch goes through a new process
	calls       func(conversation string) calls
	// before are calls that each connection makes once before those, so that a
	// gateway that remembers has met the conversation; nil for none.
	before  func(conversation string) []calls
	metrics []proxyMetric
}

// proxyMetric is a figure of a row.
type proxyMetric struct {
	what, unit string
	direct     bool // it is known of the direct way too
	of         func(u, direct usage) float64
	atMost     float64 // reach; 0 for none
	atLeast    float64 // reach; 0 for none
}

// Rows are the names of what is measured.
func (o ProxyOptions) Rows() []string {
	var names []string
	for _, r := range proxyRows(o.withDefaults()) {
		names = append(names, r.name)
	}
	return names
}

func proxyRows(o ProxyOptions) []*proxyRow {
	few := max(1, min(o.Connections, fewConnections))
	all, gateways := []string{wayDirect, wayNginx, wayNetHTTP, wayMneme}, []string{wayNginx, wayNetHTTP, wayMneme}
	rows := []*proxyRow{
		{name: "json", ways: all, requests: o.Requests, connections: o.Connections, calls: smallCalls, metrics: []proxyMetric{
			{what: "CPU per small JSON request, messages → messages", unit: "µs", of: cpuOf, atMost: reachSmall},
			{what: "requests/s ÷ direct, small JSON requests", unit: "×", direct: true, of: overDirect, atLeast: reachOverDirect},
			{what: "requests/s, small JSON requests", unit: "/s", direct: true, of: perSecond},
		}},
		{name: "stream", ways: gateways, requests: max(1, o.Requests/5), connections: few, calls: streamCalls, metrics: []proxyMetric{
			{what: fmt.Sprintf("CPU per stream of %d deltas, messages → messages", streamDeltas), unit: "µs", of: cpuOf, atMost: reachStream},
		}},
		{name: "translated", ways: []string{wayMneme}, requests: max(1, o.Requests/5), connections: few, calls: translatedCalls, metrics: []proxyMetric{
			{what: fmt.Sprintf("CPU per stream of %d deltas, chat completions → messages", streamDeltas), unit: "µs", of: cpuOf, atMost: reachTranslated},
		}},
		{name: "history", ways: gateways, requests: max(1, o.Requests/10), connections: few, calls: historyCalls, before: historySoFar, metrics: []proxyMetric{
			{what: fmt.Sprintf("CPU per request with a history of %d kB, %d messages", len(encode(history()))/1000, historyLength), unit: "µs", of: cpuOf, atMost: reachHistory},
		}},
		{name: "memory", ways: gateways, requests: max(1, o.Requests/2), connections: o.Connections, fresh: true, calls: smallCalls, metrics: []proxyMetric{
			{what: fmt.Sprintf("resident memory after %s small JSON requests", count(o.Requests/2)), unit: "MB", of: megabytes, atMost: reachResident},
		}},
	}
	for _, turns := range o.Turns {
		size := float64(len(encode(long(turns)))) / 1000
		p := proxyMetric{
			what: fmt.Sprintf("CPU per kB of a conversation of %d turns, %.0f kB", turns, size), unit: "µs",
			of: func(u, _ usage) float64 { return u.micros / size },
		}
		if turns >= 100 { // below it is the call that costs, and not what it says
			p.atMost = reachKilobyte
		}
		rows = append(rows, &proxyRow{
			name: fmt.Sprintf("%d-turns", turns), ways: []string{wayNginx, wayForgets, wayMneme}, connections: min(few, 2), metrics: []proxyMetric{p},
			requests: max(1, o.Requests/(10+turns/20)), calls: longCalls(turns), before: longSoFar(turns),
		})
	}
	return rows
}

func cpuOf(u, _ usage) float64           { return u.micros }
func overDirect(u, direct usage) float64 { return u.perSecond / direct.perSecond }
func perSecond(u, _ usage) float64       { return u.perSecond }
func megabytes(u, _ usage) float64       { return u.resident / 1e6 }

// report sums up what was taken of a row.
func (r *proxyRow) report(taken map[string][]usage) []Metric {
	var out []Metric
	for _, p := range r.metrics {
		m := Metric{Row: r.name, What: fmt.Sprintf("%s, %d connections", p.what, r.connections), Unit: p.unit}
		for _, way := range r.ways {
			if way == wayDirect && !p.direct {
				continue
			}
			measured := Measured{Way: way, Missing: nginxMissing}
			if batches := taken[way]; len(batches) > 0 {
				values := p.values(batches, taken[wayDirect])
				s := spread(values)
				measured = Measured{Way: way, Spread: &s}
				if way == wayMneme {
					measured.OverNginx = p.over(values, taken[wayNginx], taken[wayDirect])
					measured.OverNetHTTP = p.over(values, taken[wayNetHTTP], taken[wayDirect])
				}
				m.judge(p, way, s.Median)
			}
			m.Ways = append(m.Ways, measured)
		}
		out = append(out, m)
	}
	return out
}

// values are the figure in each round, beside what the direct way took in it.
func (p proxyMetric) values(batches, direct []usage) []float64 {
	out := make([]float64, len(batches))
	for round, u := range batches {
		var beside usage
		if direct != nil {
			beside = direct[round]
		}
		out[round] = p.of(u, beside)
	}
	return out
}

// over sums up by how much the values are above another way's, nil if that was not
// measured.
func (p proxyMetric) over(values []float64, others, direct []usage) *Spread {
	if len(others) == 0 {
		return nil
	}
	s := spread(ratios(values, p.values(others, direct)))
	return &s
}

func ratios(values, others []float64) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		out[i] = values[i] / others[i]
	}
	return out
}

func (m *Metric) judge(p proxyMetric, way string, median float64) {
	if way != wayMneme {
		return
	}
	switch {
	case p.atMost > 0:
		m.Reach, m.Met = "≤ "+number(p.atMost), median <= p.atMost
	case p.atLeast > 0:
		m.Reach, m.Met = "≥ "+number(p.atLeast), median >= p.atLeast
	}
}
