package ingest

import (
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"

	"mneme/cmd/mneme/internal/term"
	"mneme/subagent/rag"
)

// NewProgress shows a run on w: a bar on a terminal, elsewhere a line for each
// document that something was done about. end leaves a terminal's line clean.
func NewProgress(w io.Writer) (p Progress, end func()) {
	s := &shown{w: w, terminal: term.IsTerminal(w)}
	return s, s.clear
}

// shown draws nothing that must be drawn: its errors mean nothing to the run.
type shown struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar // of a terminal, once it is known how many files there are
}

func (s *shown) clear() {
	if s.bar != nil {
		_ = s.bar.Clear()
	}
}

func (s *shown) describe(what string) { s.bar.Describe(fmt.Sprintf("%-40s", term.OneLine(what, 39))) }

func (s *shown) Files(total int) {
	if s.terminal {
		s.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(s.w), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionUseANSICodes(true))
	}
}

func (s *shown) File(name string) {
	if s.bar != nil {
		s.describe(name)
		_ = s.bar.Add(1)
	}
}

func (s *shown) Note(sentence string) {
	s.clear()
	fmt.Fprintln(s.w, term.OneLine(sentence, 1000))
}

// Outcome prints what changed.
func (s *shown) Outcome(o rag.Outcome) {
	id := term.OneLine(o.ID, 200)
	switch {
	case s.bar != nil:
		s.describe(string(o.Status) + " " + o.ID)
	case o.Failed() && leftOut(o), o.Status == rag.OutcomeUnchanged:
	case o.Failed():
		fmt.Fprintf(s.w, "%s  %s: %s\n", o.Status, id, term.OneLine(o.Reason, 300))
	case o.Status == rag.OutcomeRemoved:
		fmt.Fprintf(s.w, "%s  %s\n", o.Status, id)
	default:
		fmt.Fprintf(s.w, "%s  %s (%d passages)\n", o.Status, id, o.Passages)
	}
}
