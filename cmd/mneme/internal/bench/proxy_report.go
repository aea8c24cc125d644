package bench

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// ProxyReport is what a run of Proxy measured.
type ProxyReport struct {
	Date        time.Time `json:"date"`
	Go          string    `json:"go_version"`
	Platform    string    `json:"platform"`
	CPUs        int       `json:"cpus"`
	Processor   string    `json:"processor,omitempty"`
	LoadAverage float64   `json:"load_average"` // of the minute before the run: what else the machine did
	Nginx       string    `json:"nginx,omitempty"`
	Rounds      int       `json:"rounds"`
	Requests    int       `json:"requests"`    // small ones, in one batch
	Connections int       `json:"connections"` // for small requests and memory
	Metrics     []Metric  `json:"metrics"`
	Profiles    []string  `json:"profiles,omitempty"` // files
}

// Metric is one row of the comparison.
type Metric struct {
	Row   string     `json:"row"` // as ProxyOptions.Only names it
	What  string     `json:"what"`
	Unit  string     `json:"unit"` // "µs", "×", "/s" or "MB"
	Ways  []Measured `json:"ways"`
	Reach string     `json:"reach,omitempty"`
	Met   bool       `json:"met"` // by mneme's median; false too when there is no reach
}

// Measured is what one way to the vendor took.
type Measured struct {
	Way         string  `json:"way"`
	Spread      *Spread `json:"measured,omitempty"`
	OverNginx   *Spread `json:"over_nginx,omitempty"`    // ÷ what nginx took in the same round
	OverNetHTTP *Spread `json:"over_net_http,omitempty"` // ÷ what the smallest proxy of net/http took in it
	Missing     string  `json:"missing,omitempty"`       // why nothing was measured
}

// WriteText prints the report for people.
func (r *ProxyReport) WriteText(out io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "mneme bench proxy, %s, %s %s, %d CPUs", r.Date.Format(time.DateOnly), r.Go, r.Platform, r.CPUs)
	if r.Processor != "" {
		fmt.Fprintf(&b, " (%s)", r.Processor)
	}
	fmt.Fprintf(&b, ", load average before the run %s", number(r.LoadAverage))
	if r.Nginx != "" {
		fmt.Fprintf(&b, ", beside %s", r.Nginx)
	}
	fmt.Fprintf(&b, "\n%d rounds; every figure is their median, with the lowest and the highest behind it\n\n", r.Rounds)
	for _, m := range r.Metrics {
		m.write(&b)
	}
	if len(r.Profiles) > 0 {
		fmt.Fprintf(&b, "Profiles, for go tool pprof -top\n  %s\n", strings.Join(r.Profiles, "\n  "))
	}
	_, err := b.WriteTo(out)
	return err
}

func (m Metric) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s  [%s]\n", m.What, m.Row)
	for _, w := range m.Ways {
		fmt.Fprintf(b, "  %-9s", w.Way)
		if w.Spread == nil {
			fmt.Fprintf(b, " %s\n", w.Missing)
			continue
		}
		unit := m.Unit
		if unit != "×" && unit != "/s" {
			unit = " " + unit
		}
		fmt.Fprintf(b, " %8s%s%s", number(w.Spread.Median), unit, between(*w.Spread))
		if w.OverNginx != nil {
			fmt.Fprintf(b, ", %s× nginx", number(w.OverNginx.Median))
		}
		if w.OverNetHTTP != nil {
			fmt.Fprintf(b, ", %s× net/http", number(w.OverNetHTTP.Median))
		}
		if w.Way == wayMneme && m.Reach != "" {
			met := "no"
			if m.Met {
				met = "yes"
			}
			fmt.Fprintf(b, "   reach %s: %s", m.Reach, met)
		}
		fmt.Fprintln(b)
	}
	fmt.Fprintln(b)
}
