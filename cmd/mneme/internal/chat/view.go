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
	maxLineShown   = 300  // characters of a task, a tool's arguments or a subagent's answer
	maxRecallShown = 1000 // characters of a message from before
)

// view writes the events of one run after the other.
type view struct {
	out   io.Writer
	style term.Style
	quiet bool

	midLine bool            // the cursor stands behind text
	shown   strings.Builder // the answer's text that was streamed
	trouble string          // what the last error of the run itself said
	outcome string          // of the run, when it is over
	waiting *waiting        // what the run waits for; nil for one that does not
}

func (v *view) begin() {
	v.shown.Reset()
	v.trouble, v.outcome, v.waiting = "", "", nil
}

// end says how the run ended, as an error unless it went well.
func (v *view) end() error {
	v.breakLine()
	if v.outcome != event.Failed {
		return nil
	}
	if v.trouble == "" {
		return errors.New("the run failed")
	}
	return errors.New(v.trouble)
}

func (v *view) show(e event.Event) {
	v.waiting = nil
	switch p := e.Payload.(type) {
	case *event.AssistantDelta:
		if !v.quiet {
			v.shown.WriteString(p.Text)
			v.text(p.Text)
		}
	case *event.Assistant:
		v.answer(p)
	case *event.Error:
		v.failure(e, p)
	case *event.RunWaiting:
		v.waiting = &waiting{e.RunID, e.Seq, p.Waits}
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

// delegation shows an agent at work, a line for each thing.
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

// tool shows a tool at work; what it gave shows in the answer.
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

// answer completes what was streamed. Text from steps before the last may stand
// in front of it; the answer itself is shown whole in any case.
func (v *view) answer(p *event.Assistant) {
	streamed, content := strings.TrimSpace(v.shown.String()), strings.TrimSpace(p.Content)
	if !strings.HasSuffix(streamed, content) {
		v.breakLine()
		v.text(content)
	}
	v.breakLine()
	for _, c := range p.Citations {
		page := ""
		if c.Page > 0 {
			page = fmt.Sprintf("page %d", c.Page)
		}
		parts := slices.DeleteFunc([]string{c.Title, c.Source, page}, func(part string) bool { return part == "" })
		v.note(fmt.Sprintf("[%d] %s", c.N, term.OneLine(strings.Join(parts, " · "), maxLineShown)))
	}
}

func (v *view) failure(e event.Event, p *event.Error) {
	if e.Subagent != "" {
		if !v.quiet {
			v.note(fmt.Sprintf("! %s: %s", term.OneLine(string(e.Subagent), 64), term.OneLine(p.Message, maxLineShown)))
		}
		return
	}
	v.trouble = p.Message
}

// recall shows a message from before.
func (v *view) recall(m memory.Message) {
	text := []rune(strings.TrimSpace(term.Clean(m.Content)))
	if len(text) > maxRecallShown {
		text = append(text[:maxRecallShown], '…')
	}
	mark := ""
	if m.Role == memory.RoleUser {
		mark = "› "
	}
	v.note(mark + string(text))
}

func (v *view) text(s string) {
	if s = term.Clean(s); s != "" {
		fmt.Fprint(v.out, s)
		v.midLine = !strings.HasSuffix(s, "\n")
	}
}

// note writes a line in the background.
func (v *view) note(s string) {
	v.breakLine()
	fmt.Fprintln(v.out, v.style.Dim(s))
}

func (v *view) problem(s string) {
	v.breakLine()
	fmt.Fprintln(v.out, v.style.Red("! "+term.OneLine(s, maxRecallShown)))
}

func (v *view) breakLine() {
	if v.midLine {
		fmt.Fprintln(v.out)
		v.midLine = false
	}
}
