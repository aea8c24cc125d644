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
	if !term.IsTerminal(w) {
		return lines{w}, func() {}
	}
	b := &bar{w: w}
	return b, b.end
}

type lines struct{ w io.Writer }

func (lines) Files(int)   {}
func (lines) File(string) {}

func (l lines) Note(sentence string) { fmt.Fprintln(l.w, term.OneLine(sentence, 1000)) }

// Outcome prints what changed.
func (l lines) Outcome(o rag.Outcome) {
	id := term.OneLine(o.ID, 200)
	switch {
	case o.Failed() && leftOut(o), o.Status == rag.OutcomeUnchanged:
	case o.Failed():
		fmt.Fprintf(l.w, "%s  %s: %s\n", o.Status, id, term.OneLine(o.Reason, 300))
	case o.Status == rag.OutcomeRemoved:
		fmt.Fprintf(l.w, "%s  %s\n", o.Status, id)
	default:
		fmt.Fprintf(l.w, "%s  %s (%d passages)\n", o.Status, id, o.Passages)
	}
}

// bar draws nothing that cannot be drawn: its errors mean nothing to the run.
type bar struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (b *bar) Files(total int) {
	b.bar = progressbar.NewOptions(total,
		progressbar.OptionSetWriter(b.w), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionUseANSICodes(true),
	)
}

func (b *bar) File(name string) {
	b.bar.Describe(fmt.Sprintf("%-40s", term.OneLine(name, 39)))
	_ = b.bar.Add(1)
}

func (b *bar) Outcome(o rag.Outcome) {
	b.bar.Describe(fmt.Sprintf("%-40s", term.OneLine(string(o.Status)+" "+o.ID, 39)))
}

func (b *bar) Note(sentence string) {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	fmt.Fprintln(b.w, term.OneLine(sentence, 1000))
}

func (b *bar) end() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
