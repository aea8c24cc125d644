package bench

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// RetrievalReport is what a run of Retrieval measured.
type RetrievalReport struct {
	Date        time.Time      `json:"date"`
	Go          string         `json:"go_version"`
	Platform    string         `json:"platform"`
	CPUs        int            `json:"cpus"`
	Processor   string         `json:"processor,omitempty"`
	LoadAverage float64        `json:"load_average"` // of the minute before the run: what else the machine did
	Queries     int            `json:"queries"`      // of each collection
	Changes     int            `json:"changes"`      // of each kind
	Rows        []RetrievalRow `json:"rows"`
}

// RetrievalRow is one figure.
type RetrievalRow struct {
	What     string  `json:"what"`
	Passages int     `json:"passages"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"` // "s", "ms" or "MB"
	AtMost   float64 `json:"reach,omitempty"`
	Met      *bool   `json:"met,omitempty"` // nil when there is no reach
}

// WriteText prints the report for people.
func (r *RetrievalReport) WriteText(out io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "mneme bench retrieval, %s, %s %s, %d CPUs", r.Date.Format(time.DateOnly), r.Go, r.Platform, r.CPUs)
	if r.Processor != "" {
		fmt.Fprintf(&b, " (%s)", r.Processor)
	}
	fmt.Fprintf(&b, ", load average before the run %s\n", number(r.LoadAverage))
	fmt.Fprintf(&b, "Made-up texts of Zipf-distributed words, %d passages a document; %s queries of %d to %d words for 10 passages, every other one after %d turns; %s changes of each kind, one after the other.\n\n",
		perDocument, count(r.Queries), questionMin, questionMax, turns, count(r.Changes))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PASSAGES\tWHAT\tMEASURED\tREACH\tREACHED")
	for _, row := range r.Rows {
		reach, met := "–", "–"
		if row.Met != nil {
			reach, met = "≤ "+number(row.AtMost)+" "+row.Unit, "no"
			if *row.Met {
				met = "yes"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%s\n", count(row.Passages), row.What, number(row.Measured), row.Unit, reach, met)
	}
	t.Flush() // into memory
	_, err := b.WriteTo(out)
	return err
}
