// Package subagent runs one subagent on one task: a model with a prompt, tools and the history of what it was told in
// this chat. What happens is told as events. The subagent itself keeps nothing between runs, has no goroutine of its
// own, and never reaches the memory of another subagent.
package subagent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"mneme/access/fair"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/provenance"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/note"
	"mneme/subagent/recall"
)

// ErrStopped is the cause of a context that ended because the user asked for it.
var ErrStopped = errors.New("stopped by the user")

// Kit is what a subagent works with during one run of a chat.
type Kit struct {
	Tools []loop.Tool
	// Model is put around the subagent's own; nil for that one as it is.
	Model func(loop.Model) loop.Model
	// Answer says what a response cites, and of a subagent that reads documents what
	// it concludes; nil for no citations.
	Answer func(response string) (*event.Answer, []event.Citation)
	// Save gives what another Kit of the same run goes on from, in this process or another one;
	// Restore takes it, before anything else is called. Both nil where there is nothing to keep.
	Save    func() (json.RawMessage, error)
	Restore func(json.RawMessage) error
}

// model is the subagent's with what the kit puts around it.
func (k Kit) model(m loop.Model) loop.Model {
	if k.Model == nil {
		return m
	}
	return k.Model(m)
}

// Subagent is one configured subagent.
type Subagent struct {
	Name        memory.Agent
	Description string // tells the master's model what to delegate here
	System      string
	Model       loop.Model
	MaxSteps    int        // model calls for one task
	Calls       string     // event.Serial or event.Isolated
	Kit         func() Kit // called once per run; nil for no tools
	// External makes its tools that lie outside of this service, once per run; nil for none. A
	// subagent with Work has none.
	External func(external.Run) []loop.Tool
	Work     Work // what it does instead of running its Model; nil for that
	// Recall says what it is given of its memory beyond its History; nothing where calls are
	// Isolated, or where there is Work.
	Recall recall.Settings
	// Notes says what it is shown of its chat's notes; nothing where calls are Isolated, or
	// where there is Work.
	Notes note.Settings
}

// Work does a task in another way than with one model and its tools. It may emit
// what shows its progress, from one goroutine at a time; an error of emit is to
// be returned. The result is filled as far as it came also when an error is
// returned.
type Work func(ctx context.Context, task Task, emit func(event.Payload) error) (loop.Result, error)

// Task is one delegation.
type Task struct {
	Text         string
	Origin       memory.Origin
	Pasted       []memory.Span // of a task in the user's words, see memory.Message
	Instructions string        // after the prompt; empty for none
	Conversation string        // the gateway's id; empty for none
	// History gives the subagent's messages up to now; it is asked after the
	// delegation is recorded. An isolated subagent is shown the task alone.
	History func() []memory.Message
	Images  loop.Images   // of the user's message, where the task is that
	Memory  recall.Memory // of the chat; nil for none
	Notes   note.Notes
	NoWaits bool // no webmemory keeps the run while it waits, so none of its calls can
}

// Outcome is how a delegation ended.
type Outcome struct {
	event.Completion
	Err error // the cause, unless Status is Completed or MaxSteps
}

// Run does the task and emits exactly one delegation and one completion around
// what happens; emit is called from one goroutine at a time. The error is
// emit's: without it the task has an Outcome, be it that it failed. The error may also be a
// *loop.Suspended: then there is no completion yet, and the Outcome has nothing but the Usage
// so far.
func (s *Subagent) Run(ctx context.Context, kit Kit, task Task, emit func(event.Payload) error) (Outcome, error) {
	delegation := &event.Delegation{Task: task.Text, Calls: s.Calls, Origin: task.Origin, Pasted: task.Pasted}
	if err := emit(delegation); err != nil {
		return Outcome{}, err
	}
	do := s.Work
	if do == nil {
		do = s.oneModel(kit)
	}
	result, err := do(ctx, task, emit)
	return conclude(ctx, kit, result, err, emit)
}

// Resume goes on with a task from the State of its Suspended, and emits no delegation; else it
// is Run.
func (s *Subagent) Resume(
	ctx context.Context, kit Kit, task Task, state json.RawMessage, answers loop.Answers, emit func(event.Payload) error,
) (Outcome, error) {
	l, _ := s.loop(ctx, kit, task, emit)
	result, err := l.Resume(ctx, state, answers, teller{emit, provenance.FromContext(ctx)})
	return conclude(ctx, kit, result, err, emit)
}

// conclude emits how the work ended.
func conclude(
	ctx context.Context, kit Kit, result loop.Result, err error, emit func(event.Payload) error,
) (Outcome, error) {
	if suspended, ok := errors.AsType[*loop.Suspended](err); ok {
		return Outcome{Completion: event.Completion{Usage: result.Usage}}, suspended
	}
	out := outcome(ctx, result, err)
	if kit.Answer != nil && out.Status == event.Completed {
		out.Answer, out.Citations = kit.Answer(out.Response)
	}
	out.Origin = Origin(ctx, out.Response, out.Citations)
	provenance.FromContext(ctx).Add(out.Origin, out.Response)
	if out.Status == event.Failed {
		cause := Describe(out.Err)
		if err := emit(cause); err != nil {
			return out, err
		}
		out.Failure = cause.Code
	}
	return out, emit(&out.Completion)
}

// Origin is that of an agent's answer with its citations: the lowest that it cites or takes from.
func Origin(ctx context.Context, answer string, citations []event.Citation) (o memory.Origin) {
	fair.Do(ctx, func(context.Context) { o = provenance.FromContext(ctx).OriginOf(answer) })
	if len(citations) > 0 && !o.Authority.LowerThan(memory.FromDocument) {
		o = memory.Origin{Authority: memory.FromDocument, Source: citations[0].Place()}
	}
	return o
}

// oneModel is the work of a subagent that is a model with its tools.
func (s *Subagent) oneModel(kit Kit) Work {
	return func(ctx context.Context, task Task, emit func(event.Payload) error) (loop.Result, error) {
		l, asker := s.loop(ctx, kit, task, emit)
		messages := []memory.Message{{Role: memory.RoleUser, Content: task.Text}}
		if s.Calls != event.Isolated {
			messages, _ = memory.Repair(task.History())
			var err error
			if l.Recalled, err = asker.Block(ctx, task.Text); err != nil {
				return loop.Result{}, err
			}
		}
		return l.Run(ctx, messages, teller{emit, provenance.FromContext(ctx)})
	}
}

// loop is the model with its tools, and the Asker for what was said before.
func (s *Subagent) loop(
	ctx context.Context, kit Kit, task Task, emit func(event.Payload) error,
) (loop.Loop, recall.Asker) {
	l := loop.Loop{Model: kit.model(s.Model), System: s.System, Tools: kit.Tools, MaxSteps: s.MaxSteps,
		Conversation: task.Conversation, NoWaits: task.NoWaits, Images: task.Images}
	asker := recall.Asker{Settings: s.Recall, Memory: task.Memory, Model: l.Model, Agent: s.Name, Emit: emit}
	if s.Calls != event.Isolated {
		notes := note.Holder{Settings: s.Notes, Notes: task.Notes, Agent: s.Name}
		l.System, l.Tools = notes.System(ctx, l.System), append(slices.Clip(l.Tools), notes.Tools(l.Tools...)...)
		l.Tools = append(l.Tools, asker.Tools()...)
	}
	l.System = loop.AppendPrompt(l.System, task.Instructions)
	return l, asker
}

// outcome is what the work returned.
func outcome(ctx context.Context, r loop.Result, err error) Outcome {
	out := Outcome{event.Completion{Response: r.Text, Status: event.Completed, Usage: r.Usage}, err}
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrStopped):
		out.Status = event.Stopped
		out.Response = "(no answer: stopped)"
	case err != nil:
		out.Status = event.Failed
		out.Response = memory.Failed(Describe(err).Code).Content
	case r.Exhausted:
		out.Status = event.MaxSteps
		if r.Text == "" {
			out.Response = "(no answer: max_steps)"
		}
	default:
		out.FinishReason = r.Finish
	}
	return out
}

// Failure is an error in the words that users and models are shown.
type Failure event.Error

func (f Failure) Error() string { return f.Message }

// Describe gives the failure as a run's error event has it, see the function Describe.
func (f Failure) Describe() *event.Error { return (*event.Error)(&f) }

// Describe says an error in the words that users and models are shown. Errors
// that know better offer Describe() *event.Error.
func Describe(err error) *event.Error {
	var describer interface{ Describe() *event.Error }
	code := event.Internal
	switch {
	case errors.As(err, &describer):
		return describer.Describe()
	case errors.Is(err, context.DeadlineExceeded):
		code = "run_timeout"
	case errors.Is(err, loop.ErrModel):
		code = "model_failed"
	}
	return event.Fail(code, "", 0)
}

// teller tells a loop's progress as the events of a delegation.
type teller struct {
	emit    func(event.Payload) error
	sources *provenance.Ledger
}

func (t teller) Text(text string) error { return t.emit(&event.SubagentDelta{Text: text}) }

func (t teller) Calls(content string, calls []memory.ToolCall) error {
	return t.emit(&event.AssistantWithTools{Content: content, ToolCalls: calls, Origin: t.sources.OriginOf(content)})
}

func (t teller) Start(call memory.ToolCall) error {
	return t.emit(&event.ToolProgress{Tool: call.Function.Name, Status: "running", Detail: call.Function.Arguments})
}

func (t teller) Progress(call memory.ToolCall, text string) error {
	return t.emit(&event.ToolProgress{Tool: call.Function.Name, Status: "running", Detail: text})
}

func (t teller) Result(call memory.ToolCall, content string, origin memory.Origin, failed bool) error {
	progress := &event.ToolProgress{Tool: call.Function.Name, Status: "done"}
	if failed {
		progress.Status, progress.Detail = "failed", content
	}
	if err := t.emit(progress); err != nil {
		return err
	}
	return t.emit(&event.ToolResult{ToolCallID: call.ID, Name: call.Function.Name, Content: content, Origin: origin})
}
