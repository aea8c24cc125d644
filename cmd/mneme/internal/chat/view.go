package chat

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/event"
)

const (
	maxLineShown    = 300  // characters of a task, a tool's arguments or a subagent's answer
	maxMessageShown = 1000 // characters of an earlier message
)

// view prints the events of runs.
type view struct {
	out   io.Writer
	style term.Style
	quiet bool

	midLine  bool            // the current line has text
	streamed strings.Builder // the text of the answer so far
	failure  string          // the message of the run's last error
	outcome  string          // of a finished run
	pending  *pending        // set if the run waits for a person
}

func (v *view) begin() {
	v.streamed.Reset()
	v.failure, v.outcome, v.pending = "", "", nil
}

// end returns the error of a failed run.
func (v *view) end() error {
	v.breakLine()
	if v.outcome != event.Failed {
		return nil
	}
	return errors.New(cmp.Or(v.failure, "the run failed"))
}

func (v *view) show(e event.Event) {
	v.pending = nil
	switch p := e.Payload.(type) {
	case *event.AssistantDelta:
		if !v.quiet {
			v.streamed.WriteString(p.Text)
			v.text(p.Text)
		}
	case *event.Assistant:
		v.answer(p)
	case *event.Error:
		v.problemOf(e, p)
	case *event.RunWaiting:
		v.pending = &pending{e.RunID, e.Seq, p.Pending}
	case *event.RunFinished:
		v.outcome = p.Outcome
		if p.Outcome == event.Stopped {
			v.note("(stopped)")
		}
	default:
		if !v.quiet {
			v.delegation(e)
		}
	}
}

// delegation prints one line for each step of an agent.
func (v *view) delegation(e event.Event) {
	name := cmp.Or(term.OneLine(string(e.Subagent), 64), "master")
	switch p := e.Payload.(type) {
	case *event.Recalled:
		v.note(fmt.Sprintf("  %s · %s", name, term.OneLine(p.String(), maxLineShown)))
	case *event.Delegation:
		v.note(fmt.Sprintf("→ %s: %s", name, term.OneLine(p.Task, maxLineShown)))
	case *event.MasterTool:
		v.tool(name, event.ToolProgress(*p))
	case *event.ToolProgress:
		v.tool(name, *p)
	case *event.Completion:
		v.note(fmt.Sprintf("← %s: %s", name, term.OneLine(p.Response, maxLineShown)))
	}
}

// tool prints a tool call. Its result is part of the answer.
func (v *view) tool(agent string, p event.ToolProgress) {
	if p.Status == "done" && p.Detail == "" {
		return
	}
	tool := term.OneLine(p.Tool, 64)
	switch p.Status {
	case "failed":
		tool += " failed:"
	case "done":
		tool += " ✓"
	}
	v.note(strings.TrimRight(fmt.Sprintf("  %s · %s %s", agent, tool, term.OneLine(p.Detail, maxLineShown)), " "))
}

// answer prints the rest of the answer. Text of earlier steps may precede it. If the streamed text does not end with the
// answer, it prints the whole answer.
func (v *view) answer(p *event.Assistant) {
	streamed, content := strings.TrimSpace(v.streamed.String()), strings.TrimSpace(p.Content)
	if !strings.HasSuffix(streamed, content) {
		v.breakLine()
		v.text(content)
	}
	v.breakLine()
	switch p.FinishReason {
	case memory.FinishLength:
		v.note("! The answer is incomplete: the model reached its limit of tokens.")
	case memory.FinishFilter:
		v.note("! The answer is incomplete: the model's content filter ended it.")
	}
	for _, c := range p.Citations {
		page := ""
		if c.Page > 0 {
			page = fmt.Sprintf("page %d", c.Page)
		}
		parts := slices.DeleteFunc([]string{c.Title, c.Source, page}, func(part string) bool { return part == "" })
		v.note(fmt.Sprintf("[%d] %s", c.N, term.OneLine(strings.Join(parts, " · "), maxLineShown)))
	}
}

func (v *view) problemOf(e event.Event, p *event.Error) {
	if e.Subagent != "" {
		if !v.quiet {
			v.note(fmt.Sprintf("! %s: %s", term.OneLine(string(e.Subagent), 64), term.OneLine(p.Message, maxLineShown)))
		}
		return
	}
	v.failure = p.Message
}

// message prints a message of the history.
func (v *view) message(m memory.Message) {
	text := []rune(strings.TrimSpace(term.Clean(m.Content)))
	if len(text) > maxMessageShown {
		text = append(text[:maxMessageShown], '…')
	}
	mark := ""
	if m.Role == memory.RoleUser {
		mark = "> "
	}
	v.note(mark + string(text))
}

func (v *view) text(s string) {
	if s = term.Clean(s); s != "" {
		fmt.Fprint(v.out, s)
		v.midLine = !strings.HasSuffix(s, "\n")
	}
}

// call prints a pending tool call.
func (v *view) call(w event.Wait) {
	v.note(fmt.Sprintf("%s wants to call %s %s (%s)", cmp.Or(term.OneLine(string(w.Subagent), 64), "master"),
		term.OneLine(w.Tool, 64), term.OneLine(string(w.Arguments), maxMessageShown),
		term.OneLine(w.Reason, maxMessageShown)))
}

// note prints a dim line.
func (v *view) note(s string) {
	v.breakLine()
	fmt.Fprintln(v.out, v.style.Dim(s))
}

func (v *view) problem(s string) {
	v.breakLine()
	fmt.Fprintln(v.out, v.style.Red("! "+term.OneLine(s, maxMessageShown)))
}

func (v *view) breakLine() {
	if v.midLine {
		fmt.Fprintln(v.out)
		v.midLine = false
	}
}
