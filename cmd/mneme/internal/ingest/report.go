package ingest

import (
	"fmt"
	"io"
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
	Kept       int       `json:"kept,omitempty"` // their file is gone, and they were to stay
	Passages   int       `json:"passages"`       // of those that are new or changed
	Refused    []Refusal `json:"refused"`
	Skipped    []Refusal `json:"skipped"` // left out of a directory: hidden, or of a type that is not read
	Seconds    float64   `json:"seconds"`
	Unread     bool      `json:"unread,omitempty"` // no subagent searches the collection
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

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "collection %s: %d new, %d changed, %d unchanged, %d removed, %d refused", r.Collection, r.New, r.Changed, r.Unchanged, r.Removed, len(r.Refused))
	if len(r.Skipped) > 0 {
		fmt.Fprintf(&b, ", %d skipped", len(r.Skipped))
	}
	if r.Kept > 0 {
		fmt.Fprintf(&b, "; %d kept though their file is gone", r.Kept)
	}
	fmt.Fprintf(&b, " (%d passages, %.1f s)\n", r.Passages, r.Seconds)
	list(&b, "refused", r.Refused)
	list(&b, "skipped", r.Skipped)
	if r.Unread {
		fmt.Fprintf(&b, "No subagent searches %s yet: name it in the collections of one in mneme.yaml (agents.subagents) and restart, or load into another collection.\n", r.Collection)
	}
	_, err := io.WriteString(w, b.String())
	return err
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
