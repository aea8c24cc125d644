package usage

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrQuery is wrapped by refusals of what a report was asked for; the text is for the
// caller.
var ErrQuery = errors.New("no such report")

// By says what the rows of a report stand for.
type By string

// What reports can go by.
const (
	ByBackend By = "backend"
	ByModel   By = "model" // as the backend calls it
	ByChat    By = "chat"
)

// ParseBy reads a By; empty is ByBackend. A failure wraps ErrQuery.
func ParseBy(s string) (By, error) {
	switch by := By(s); by {
	case "":
		return ByBackend, nil
	case ByBackend, ByModel, ByChat:
		return by, nil
	}
	return "", fmt.Errorf("%w: by must be backend, model or chat, not %q", ErrQuery, s)
}

// maxSince bounds a report, so that times stay sound.
const maxSince = 10 * 365 * 24 * time.Hour

// ParseSince reads where a report begins: so long before now (90m, 24h, 7d), or a
// time of RFC 3339; empty is 24h. A failure wraps ErrQuery.
func ParseSince(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(cmp.Or(s, "24h"))
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(min(n, int(maxSince/24/time.Hour)+1)) * 24 * time.Hour
	}
	if err != nil || d <= 0 || d > maxSince {
		return time.Time{},
			fmt.Errorf("%w: since must be a time ago such as 90m, 24h or 7d, or one such as 2026-01-31T00:00:00Z, not %q",
				ErrQuery, s)
	}
	return now.Add(-d), nil
}

// maxRows bounds a report's rows; its total has all of them.
const maxRows = 1000

// Report is what the calls since a time took, the rows with the most tokens
// first. It is the JSON that the gateway's admin group answers with.
type Report struct {
	Since    time.Time `json:"since"`
	By       By        `json:"by"`
	Oldest   time.Time `json:"oldest,omitzero"`   // of the records that are kept at all; zero: there are none
	Process  bool      `json:"process,omitzero"`  // of this one process, and since it began
	Degraded bool      `json:"degraded,omitzero"` // Process only because the store cannot be read
	Dropped  int64     `json:"dropped"`           // records that this process could not keep since it began
	Rows     []Row     `json:"rows"`              // never null
	LeftOut  int       `json:"left_out,omitzero"` // rows beyond the first 1000; they are in Total
	Total    Row       `json:"total"`
}

// Row sums calls up.
type Row struct {
	Name      string `json:"name"` // of the backend, model or chat; empty if there is none, and in the total
	Calls     int64  `json:"calls"`
	OK        int64  `json:"ok"`        // those that were answered to the end
	Estimated int64  `json:"estimated"` // those with counts that the vendor left untold
	Tokens
}

func (r *Row) add(rec Record) {
	r.Calls++
	if rec.Outcome == OutcomeOK {
		r.OK++
	}
	if rec.Estimated {
		r.Estimated++
	}
	r.Tokens.add(rec.Tokens)
}

func (by By) name(r Record) string {
	switch by {
	case ByModel:
		return cmp.Or(r.UpstreamModel, r.Model)
	case ByChat:
		return r.Chat
	}
	return r.Backend
}

// Aggregate adds up the records of calls that ended since a time, each call once.
// It stops at the first error.
func Aggregate(records iter.Seq2[Record, error], since time.Time, by By) (Report, error) {
	rows, seen := map[string]*Row{}, map[string]bool{}
	report := Report{Since: since, By: by}
	for r, err := range records {
		if err != nil {
			return Report{}, err
		}
		if r.At.Before(since) || r.RequestID != "" && seen[r.RequestID] {
			continue
		}
		seen[r.RequestID] = true
		name := by.name(r)
		if rows[name] == nil {
			rows[name] = &Row{Name: name}
		}
		rows[name].add(r)
		report.Total.add(r)
	}
	report.Rows = make([]Row, 0, len(rows))
	for _, row := range rows {
		report.Rows = append(report.Rows, *row)
	}
	slices.SortFunc(report.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	if extra := len(report.Rows) - maxRows; extra > 0 {
		report.Rows, report.LeftOut = report.Rows[:maxRows], extra
	}
	return report, nil
}
