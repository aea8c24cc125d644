package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mneme/cmd/mneme/internal/term"
	"mneme/subagent/rag"
	"mneme/subagent/rag/loader"
)

// Report is what a run did, in documents.
type Report struct {
	Collection string    `json:"collection"`
	New        int       `json:"new"`
	Changed    int       `json:"changed"`
	Unchanged  int       `json:"unchanged"`
	Removed    int       `json:"removed"`        // their file is gone
	Retained   int       `json:"kept,omitempty"` // their file is gone, and they were to stay
	Passages   int       `json:"passages"`       // of those that are new or changed
	Refused    []Refusal `json:"refused"`
	Skipped    []Refusal `json:"skipped"` // left out of a directory: hidden, or of a type that is not read
	// PartlyRead are documents of which some pages could not be read.
	PartlyRead []PartlyRead `json:"partly_read,omitempty"`
	// LeftOut counts what in the documents is no text, by what it is: pictures, charts.
	LeftOut  map[string]int `json:"left_out,omitempty"`
	Seconds  float64        `json:"seconds"`
	Unread   bool           `json:"unread,omitempty"`   // no subagent searches the collection
	Searched []string       `json:"searched,omitempty"` // if so, those that subagents search
}

// PartlyRead is a document that was taken but for some pages.
type PartlyRead struct {
	ID    string `json:"id"`
	Pages []int  `json:"unread_pages"` // from 1
}

// Refusal is a file or document that was not taken.
type Refusal struct {
	ID     string `json:"id"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
	Stale  bool   `json:"stale,omitempty"` // what was loaded of it before stays
}

// add counts an outcome. In a directory there may be what is not meant for us.
func (r *Report) add(o rag.Outcome, directory bool) {
	if o.PartlyRead && !o.Failed() {
		r.PartlyRead = append(r.PartlyRead, PartlyRead{o.ID, o.UnreadPages})
	}
	for what, n := range o.Skipped {
		if r.LeftOut == nil {
			r.LeftOut = map[string]int{}
		}
		r.LeftOut[what] += n
	}
	switch o.Status {
	case rag.OutcomeNew:
		r.New++
		r.Passages += o.Passages
	case rag.OutcomeChanged:
		r.Changed++
		r.Passages += o.Passages
	case rag.OutcomeUnchanged:
		r.Unchanged++
	case rag.OutcomeRemoved:
		r.Removed++
	default:
		refusal := Refusal{o.ID, o.Code, o.Reason, o.Status == rag.OutcomeStale}
		if directory && leftOut(o) {
			r.Skipped = append(r.Skipped, refusal)
		} else {
			r.Refused = append(r.Refused, refusal)
		}
	}
}

// leftOut says whether a file of a directory is none of ours.
func leftOut(o rag.Outcome) bool {
	return o.Code == string(loader.Skipped) || o.Code == string(loader.Unsupported)
}

// maxListed is how many refusals a text lists of each kind; JSON has all.
const maxListed = 20

// Text is the report for people.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "collection %s: %d new, %d changed, %d unchanged, %d removed, %d refused", r.Collection, r.New,
		r.Changed, r.Unchanged, r.Removed, len(r.Refused))
	if len(r.Skipped) > 0 {
		fmt.Fprintf(&b, ", %d skipped", len(r.Skipped))
	}
	if r.Retained > 0 {
		fmt.Fprintf(&b, "; %d kept though their file is gone", r.Retained)
	}
	fmt.Fprintf(&b, " (%d passages, %.1f s)\n", r.Passages, r.Seconds)
	list(&b, "refused", r.Refused)
	list(&b, "skipped", r.Skipped)
	for i, p := range r.PartlyRead {
		if i == maxListed {
			fmt.Fprintf(&b, "  partly read  … and %d more; --json lists all\n", len(r.PartlyRead)-i)
			break
		}
		fmt.Fprintf(&b, "  partly read  %s: without %s, whose text could not be read\n", term.OneLine(p.ID, 200),
			pages(p.Pages))
	}
	if len(r.LeftOut) > 0 {
		var counts []string
		for _, what := range slices.Sorted(maps.Keys(r.LeftOut)) {
			counts = append(counts, fmt.Sprintf("%d %s", r.LeftOut[what], term.OneLine(what, 40)))
		}
		fmt.Fprintf(&b, "  left out of the texts: %s\n", strings.Join(counts, ", "))
	}
	if r.Unread {
		b.WriteString(r.unreadNote() + "\n")
	}
	return b.String()
}

// unreadNote says that no subagent will find what is loaded.
func (r Report) unreadNote() string {
	others := "no collection"
	if len(r.Searched) > 0 {
		others = strings.Join(r.Searched, ", ")
	}
	return fmt.Sprintf("No subagent searches %s; subagents search %s. Load into one of those, or name %s in the "+
		"collections of a subagent in mneme.yaml (agents.subagents) and restart.",
		r.Collection, others, r.Collection)
}

// pages writes page numbers, those in a row as a range: "pages 3, 7–9".
func pages(numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("page %d", numbers[0])
	}
	var ranges []string
	for i := 0; i < len(numbers); {
		first := i
		for i++; i < len(numbers) && numbers[i] == numbers[i-1]+1; i++ {
		}
		if i-first == 1 {
			ranges = append(ranges, fmt.Sprint(numbers[first]))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d–%d", numbers[first], numbers[i-1]))
		}
	}
	return "pages " + strings.Join(ranges, ", ")
}

func list(b *strings.Builder, what string, refusals []Refusal) {
	for i, f := range refusals {
		if i == maxListed {
			fmt.Fprintf(b, "  %s  … and %d more; --json lists all\n", what, len(refusals)-i)
			return
		}
		stays := ""
		if f.Stale {
			stays = " (what was loaded before stays)"
		}
		fmt.Fprintf(b, "  %s  %s: %s%s\n", what, term.OneLine(f.ID, 200), term.OneLine(f.Reason, 300), stays)
	}
}
