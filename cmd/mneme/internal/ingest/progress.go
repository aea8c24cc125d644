package ingest

import (
	"fmt"
	"io"

	"mneme/cmd/mneme/internal/term"
	"mneme/subagent/rag"
)

// NewProgress shows a run on w: the number of the file on a terminal, elsewhere a line for each
// document that something was done about. end leaves a terminal's line clean.
func NewProgress(w io.Writer) (p Progress, end func()) {
	s := &display{w: w, terminal: term.IsTerminal(w)}
	s.tell, s.end = term.Counter(w)
	return s, s.end
}

// display draws nothing that must be drawn: its errors mean nothing to the run.
type display struct {
	w        io.Writer
	terminal bool
	tell     func(format string, args ...any)
	end      func()
	file     int
	total    int
}

func (s *display) Files(total int) { s.total = total }

func (s *display) File(name string) {
	s.file++
	s.tell("%d of %d files: %s", s.file, s.total, term.OneLine(name, 50))
}

func (s *display) Note(sentence string) {
	s.end()
	fmt.Fprintln(s.w, term.OneLine(sentence, 1000))
}

// Outcome prints what changed.
func (s *display) Outcome(o rag.Outcome) {
	id := term.OneLine(o.ID, 200)
	switch {
	case s.terminal:
	case o.Failed() && leftOut(o), o.Status == rag.OutcomeUnchanged:
	case o.Failed():
		fmt.Fprintf(s.w, "%s  %s: %s\n", o.Status, id, term.OneLine(o.Reason, 300))
	case o.Status == rag.OutcomeRemoved:
		fmt.Fprintf(s.w, "%s  %s\n", o.Status, id)
	default:
		fmt.Fprintf(s.w, "%s  %s (%d passages)\n", o.Status, id, o.Passages)
	}
}
