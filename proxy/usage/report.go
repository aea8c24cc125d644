package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	counters "mneme/access/tally"
)

// bys are what reports can go by, the first of them if nothing is asked for.
var bys = []counters.By{counters.ByBackend, counters.ByModel, counters.ByChat}

// maxRows bounds a report's rows; its total has all of them.
const maxRows = 1000

// Report is what the calls since a day began took, in UTC, the rows with the most tokens first. It is the JSON that the
// gateway's admin group answers with.
type Report struct {
	Since   time.Time   `json:"since"`
	By      counters.By `json:"by"`
	Oldest  time.Time   `json:"oldest"`            // nothing is kept from before it
	Process bool        `json:"process,omitzero"`  // of this one process, and since it began
	Dropped int64       `json:"dropped"`           // calls that this process could not count since it began
	Rows    []Row       `json:"rows"`              // never null
	LeftOut int         `json:"left_out,omitzero"` // rows beyond the first 1000; they are in Total
	Total   Row         `json:"total"`
}

// Row sums calls up.
type Row struct {
	Name      string `json:"name"` // of the backend, model or chat; empty if it is not known, and in the total
	Calls     int64  `json:"calls"`
	OK        int64  `json:"ok"`        // those that were answered to the end
	Estimated int64  `json:"estimated"` // those with counts that the vendor left untold
	Tokens
}

// row is what a name took.
func row(name string, n counters.Counts) Row {
	return Row{Name: name, Calls: n.Calls, OK: n.Calls - n.Failed, Estimated: n.Estimated, Tokens: Tokens{
		Input: n.Input - n.Cached - n.Written, CacheRead: n.Cached, CacheCreation: n.Written, Output: n.Output,
		Reasoning: n.Reasoning,
	}}
}

// reportTimeout bounds the reading of the counters for one report.
const reportTimeout = 15 * time.Second

// NewReport adds up the counters of all tenants from a day on, as tally.ParseDay reads it. An error that wraps
// tally.ErrQuery is the asker's, another one the store's.
func NewReport(ctx context.Context, book *counters.Book, since, by string) (Report, error) {
	now := time.Now()
	r := Report{By: cmp.Or(counters.By(by), bys[0]), Rows: []Row{}}
	if !slices.Contains(bys, r.By) {
		return Report{}, fmt.Errorf("%w: by must be backend, model or chat, not %q", counters.ErrQuery, by)
	}
	from, err := counters.ParseDay(cmp.Or(since, "24h"), now)
	if err != nil {
		return Report{}, err
	}
	r.Since = from.UTC().Truncate(24 * time.Hour)
	r.Oldest, r.Process = book.Oldest()
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	all, err := book.Sums(ctx, counters.ByTenant, r.Since, now)
	if err != nil {
		return Report{}, err
	}
	var total counters.Counts
	for _, n := range all {
		total.Add(n)
	}
	names, err := book.Sums(ctx, r.By, r.Since, now)
	if err != nil {
		return Report{}, err
	}
	unknown := total
	for name, n := range names {
		unknown = unknown.Less(n)
		r.Rows = append(r.Rows, row(name, n))
	}
	if unknown.Calls > 0 {
		r.Rows = append(r.Rows, row("", unknown))
	}
	r.Total = row("", total)
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	if extra := len(r.Rows) - maxRows; extra > 0 {
		r.Rows, r.LeftOut = r.Rows[:maxRows], extra
	}
	return r, nil
}
