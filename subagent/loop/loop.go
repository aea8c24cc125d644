// Package loop runs a model until it asks for no more tools. Subagents run on it, and so does the master, with
// subagents as its tools. It owns the messages and the step of one Run, and goroutines for calls that run at once,
// which end before Run returns. It never stores anything and never goes on beyond its steps.
package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/provenance"
)

// Model answers one request; the parts of its answer come as they are written.
// The sequence ends after its first error, and stops its call when ctx ends.
type Model interface {
	Generate(ctx context.Context, r Request) iter.Seq2[Delta, error]
}

// Request is one call of a model.
type Request struct {
	System       string
	Messages     []memory.Message // valid for a model, see memory.Repair
	Tools        []Spec
	Recalled     string          // what was said before, in an envelope, for before the newest user message; may be empty
	Images       Images          // of the newest user message
	Conversation string          // the gateway's conversation id; empty for none
	Final        bool            // the conversation hardly goes on from the answer, so nothing need be kept ready for that
	Format       json.RawMessage // of the answer, see Loop
	First        []string        // names of tools, one of which has to be called; empty for any or none

	sizes sizes // of the texts of one Run; nil outside of one
}

// Delta is a part of an answer: a piece of text, or, once and complete, the tool
// calls, or what the call used, or why the model did not complete its text.
type Delta struct {
	Text   string
	Calls  []memory.ToolCall
	Usage  event.Usage
	Finish string // memory.FinishLength or memory.FinishFilter
}

// Spec presents a tool to a model.
type Spec struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of an object
	// Parallel allows the calls of one answer to run at the same time. Without
	// it they run in call order; different tools always run in parallel.
	Parallel bool
}

// Tool is something a model may call.
type Tool interface {
	Spec() Spec
	// Call runs it. An error becomes a result that the model reads; only the end
	// of ctx ends the loop.
	Call(ctx context.Context, call memory.ToolCall) (string, error)
}

// Keeper is a Tool that has a history keep something shorter of its results than the model
// reads in this Run.
type Keeper interface {
	HistoryText(result string) string
}

// Sourced is a Tool with results that are not this service's own words.
type Sourced interface {
	Origin(result string) memory.Origin
}

// Computing is a Tool with results that follow from its arguments and the clock.
type Computing interface{ Computes() }

// Noticer is a Tool that says something in the system prompt; empty for nothing.
type Noticer interface {
	Notice() string
}

// ErrModel is wrapped by every failure of a model call.
var ErrModel = errors.New("the model call failed")

// AppendPrompt is a prompt with more of it behind.
func AppendPrompt(prompt, addition string) string {
	if prompt == "" || addition == "" {
		return prompt + addition
	}
	return prompt + "\n\n" + addition
}

// Loop is a model with its tools.
type Loop struct {
	Model        Model
	System       string
	Tools        []Tool
	Recalled     string // of every Request
	Images       Images // of every Request
	MaxSteps     int    // model calls in one Run
	Conversation string
	Final        bool // of every Request
	// Format is the form that the answer is asked to have, as the response_format of chat completions; nil for none. A
	// model may answer in another one all the same.
	Format  json.RawMessage
	First   []string // of the first Request of a Run
	NoWaits bool     // no person could answer: a call that would wait fails
}

// Observer is told what happens in a Run, and once of each thing however often the Run is
// suspended and resumed; an error from it ends the Run. Start may be called from several
// goroutines, the others from the one that runs.
type Observer interface {
	Text(text string) error                              // a piece of text, as it is written
	Calls(content string, calls []memory.ToolCall) error // an answer that calls tools
	Start(call memory.ToolCall) error                    // a tool begins
	// Result is its result, in call order, and whose words that is.
	Result(call memory.ToolCall, content string, origin memory.Origin, failed bool) error
}

// Result is how a loop ended.
type Result struct {
	Text      string      // the last answer's text
	Usage     event.Usage // of all model calls
	Exhausted bool        // the model still asked for tools at the last step
	Finish    string      // that of the last answer, see Delta
}

// Run calls the model, runs the tools it asks for and calls it again with the
// results, until an answer has no calls or MaxSteps is reached. The Result is
// filled as far as it came also when an error is returned.
func (l Loop) Run(ctx context.Context, messages []memory.Message, o Observer) (Result, error) {
	for _, t := range l.Tools {
		if n, ok := t.(Noticer); ok {
			l.System = AppendPrompt(l.System, n.Notice())
		}
	}
	return l.run(ctx, &state{Messages: append([]memory.Message(nil), messages...)}, o)
}

func (l Loop) run(ctx context.Context, s *state, o Observer) (Result, error) {
	r := Result{Text: s.Answer.Content, Usage: s.Usage}
	specs := make([]Spec, len(l.Tools))
	for i, t := range l.Tools {
		specs[i] = t.Spec()
	}
	cache := sizes{}
	for {
		if len(s.Answer.ToolCalls) == 0 {
			if s.Step >= max(l.MaxSteps, 1) {
				r.Exhausted = true
				return r, nil
			}
			req := Request{System: l.System, Messages: s.Messages, Tools: specs, Recalled: l.Recalled, Images: l.Images,
				Conversation: l.Conversation, Final: l.Final, Format: l.Format, sizes: cache}
			if s.Step++; s.Step == 1 {
				req.First = l.First
			}
			answer, err := l.step(ctx, req, o, &r)
			if err != nil || len(answer.ToolCalls) == 0 {
				return r, err
			}
			if err := o.Calls(answer.Content, answer.ToolCalls); err != nil {
				return r, err
			}
			s.Answer, s.Calls = answer, make([]callState, len(answer.ToolCalls))
		}
		pending, err := l.callAll(ctx, s, o)
		if err == nil && len(pending) > 0 {
			err = l.suspended(s, r, pending)
		}
		if err != nil {
			return r, err
		}
		s.settle()
	}
}

// Broken is offered by the error of a model whose answer broke off after it had begun: the same request may be answered
// whole.
type Broken interface {
	error
	Broken() bool
}

// step is one answer. One that breaks off is asked for once more.
func (l Loop) step(ctx context.Context, req Request, o Observer, r *Result) (memory.Message, error) {
	answer, err := l.ask(ctx, req, "", o, r)
	if broken, ok := errors.AsType[Broken](err); !ok || !broken.Broken() {
		return answer, err
	}
	half := r.Text
	if answer, err = l.ask(ctx, req, half, o, r); err != nil {
		r.Text = cmp.Or(r.Text, half)
	}
	return answer, err
}

// ask is one model call. Shown is what was told of the answer before, so that only what follows it is told; of an answer
// that begins otherwise nothing is: its whole text is in the message.
func (l Loop) ask(ctx context.Context, req Request, prefix string, o Observer, r *Result) (memory.Message, error) {
	answer := memory.Message{Role: memory.RoleAssistant}
	var text strings.Builder
	defer func() { r.Text = text.String() }()
	r.Finish = ""
	for d, err := range l.Model.Generate(ctx, req) {
		if err != nil {
			if ctx.Err() != nil {
				return answer, context.Cause(ctx)
			}
			return answer, fmt.Errorf("%w: %w", ErrModel, err)
		}
		r.Usage = r.Usage.Add(d.Usage)
		r.Finish = cmp.Or(d.Finish, r.Finish)
		answer.ToolCalls = append(answer.ToolCalls, d.Calls...)
		if d.Text != "" {
			text.WriteString(d.Text)
			if prefix != "" {
				rest, _ := strings.CutPrefix(text.String(), prefix)
				if len(rest) == 0 || len(rest) == text.Len() {
					continue
				}
				d.Text, prefix = rest, ""
			}
			if err := o.Text(d.Text); err != nil {
				return answer, err
			}
		}
	}
	if ctx.Err() != nil { // a model may end quietly when it is told to
		return answer, context.Cause(ctx)
	}
	answer.Content = text.String()
	if answer.Content == "" && len(answer.ToolCalls) == 0 {
		return answer, fmt.Errorf("%w: the answer was empty", ErrModel)
	}
	return answer, nil
}

type outcome struct {
	callState
	suspended *Suspended // it has not ended; without Waits where it has not begun
	err       error      // of the observer: ends the loop
	panic     string     // what a tool panicked with, and where
}

// callAll runs the calls of the last answer at the same time, but those of one tool one after
// the other, in call order, unless the tool is Parallel: each such row of calls is a lane,
// with a goroutine that ends before callAll returns. Results are observed in call order,
// whichever tool is done first. A call that waits holds up those behind it in its lane and no
// others; what it waits for is returned once all others have ended. A tool's panic is raised
// again on the caller's goroutine, since one that is not recovered would end the process.
func (l Loop) callAll(ctx context.Context, s *state, o Observer) (pending []event.Wait, err error) {
	calls := s.Answer.ToolCalls
	done := make([]chan outcome, len(calls)) // each receives once; nil for a call that ended before the run waited
	lanes := map[string][]int{}
	var order []string
	for i, c := range calls {
		if s.Calls[i].Done {
			continue
		}
		done[i] = make(chan outcome, 1)
		lane := c.Function.Name
		if t := l.tool(lane); t == nil || t.Spec().Parallel {
			lane = strconv.Itoa(i)
		}
		if lanes[lane] == nil {
			order = append(order, lane)
		}
		lanes[lane] = append(lanes[lane], i)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // no tool outlives its step
	defer cancel()
	for _, lane := range order {
		running.Go(func() {
			blocked := false // by a call that waits
			for _, i := range lanes[lane] {
				result := outcome{suspended: &Suspended{}}
				if !blocked {
					result = l.call(ctx, s, i, o)
					blocked = result.suspended != nil
				}
				done[i] <- result
			}
		})
	}
	for i, c := range calls {
		if done[i] == nil {
			continue
		}
		result := <-done[i]
		switch {
		case result.panic != "":
			panic(result.panic) // on the caller's goroutine, which may recover
		case result.err != nil:
			return nil, result.err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if result.suspended != nil {
			pending = append(pending, result.suspended.Pending...)
		} else {
			source := origin(l.tool(c.Function.Name), result.Content)
			_, computes := l.tool(c.Function.Name).(Computing)
			provenance.FromContext(ctx).Returned(source, computes, c.Function.Arguments, result.Content)
			if err := o.Result(c, l.historyText(c, result.Content), source, result.Failed); err != nil {
				return nil, err
			}
		}
		// No goroutine reads it any more: it has sent its outcome.
		s.Calls[i] = result.callState
	}
	return pending, nil
}

// historyText returns the part of a call's result that the history stores.
func (l Loop) historyText(c memory.ToolCall, result string) string {
	if k, ok := l.tool(c.Function.Name).(Keeper); ok {
		return k.HistoryText(result)
	}
	return result
}

// origin says whose words a tool's result is.
func origin(t Tool, result string) memory.Origin {
	if s, ok := t.(Sourced); ok {
		return s.Origin(result)
	}
	return memory.Origin{Authority: memory.FromOwn}
}

// call runs the call at an index of the last answer, or goes on with it; that it begins was
// observed then.
func (l Loop) call(ctx context.Context, s *state, i int, o Observer) (result outcome) {
	c := s.Answer.ToolCalls[i]
	defer func() {
		if p := recover(); p != nil {
			result.panic = fmt.Sprintf("tool %s: %v\n%s", c.Function.Name, p, debug.Stack())
		}
	}()
	t := l.tool(c.Function.Name)
	if t == nil {
		return failed(fmt.Errorf("there is no tool %q", c.Function.Name))
	}
	if ctx.Err() != nil {
		return failed(ctx.Err())
	}
	if !s.Calls[i].Waiting {
		if err := o.Start(c); err != nil {
			return outcome{err: err}
		}
	}
	content, err := s.call(telling(ctx, o, c), t, i)
	var suspended *Suspended
	switch {
	case errors.As(err, &suspended):
		return l.suspendedOutcome(c, suspended)
	case err != nil:
		return failed(err)
	}
	return outcome{callState: callState{Done: true, Content: Cut(content, 0)}}
}

// failed is a call with an error that the model reads.
func failed(err error) outcome {
	return outcome{callState: callState{Done: true, Content: Cut(fmt.Sprintf("(error: %v)", err), 0), Failed: true}}
}

func (l Loop) tool(name string) Tool {
	for _, t := range l.Tools {
		if t.Spec().Name == name {
			return t
		}
	}
	return nil
}

// cutMark stands where a long tool result was cut.
const cutMark = "\n… (cut: the result was longer than 256 KiB)"

// Cut makes a tool result fit to be stored with so many bytes around it: valid UTF-8, and together at most
// memory.MaxToolResult bytes, cut at a character with a mark at the end.
func Cut(s string, around int) string { return Clip(s, memory.MaxToolResult-around, cutMark) }

// Clip makes a text valid UTF-8 of at most limit bytes, cut at a character with a mark at the end.
func Clip(s string, limit int, mark string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}
