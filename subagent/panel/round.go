package panel

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// Bounds of what is passed on, in bytes.
const (
	maxPassed  = 32 << 10  // of an answer, a review or a plan, to other members, into events and the result
	maxReason  = 2 << 10   // of the reasoning of a vote
	maxEarlier = 8 << 10   // of an earlier question or conclusion
	maxResult  = 512 << 10 // of the whole result; more than all plans and votes of a full panel
)

// earlierRounds is how many questions back the members see.
const earlierRounds = 3

// maxTries is how often a member is asked for one thing before it has failed.
const maxTries = 2

// Steps, as the events name them in their tool.
const (
	stepAnswer    = "answer"
	stepReview    = "review"
	stepSynthesis = "synthesis"
	stepVote      = "vote"
	// A plan's step has the name of the tool that it is written with, planTool.
)

// round is one task under way.
type round struct {
	panel        *Panel
	conversation string
	question     string
	instructions string // behind the prompts of the members that answer the user
	images       loop.Images
	history      []memory.Message
	cancel       context.CancelCauseFunc // ends all sessions when an event cannot be told

	mu    sync.Mutex
	emit  func(event.Payload) error // guarded by mu: called by one at a time
	usage event.Usage               // guarded by mu; of all sessions
}

// run does one task with work, which gives the response. work need not look at
// its ctx: once that has ended, every session ends at once, and nothing that came
// of it is used.
func (p *Panel) run(ctx context.Context, task subagent.Task, emit func(event.Payload) error,
	work func(context.Context, *round) (string, error),
) (loop.Result, error) {
	if err := checkQuestion(task.Text); err != nil {
		return loop.Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &round{
		panel: p, conversation: task.Conversation, question: strings.TrimSpace(task.Text),
		instructions: task.Instructions, images: task.Images, history: recentHistory(task), emit: emit, cancel: cancel,
	}
	text, err := work(ctx, r)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return loop.Result{Text: clip(text, maxResult), Usage: r.usage}, err
}

func checkQuestion(q string) error {
	switch {
	case strings.TrimSpace(q) == "":
		return subagent.Failure{Code: "question_empty", Message: "The question is empty: say what the panel is to work on."}
	case len(q) > MaxQuestion:
		return subagent.Failure{
			Code: "question_too_long",
			Message: fmt.Sprintf("A panel takes a question of at most %d bytes, this one has %d: shorten it.", MaxQuestion,
				len(q)),
		}
	}
	return nil
}

// recentHistory are the last questions of this panel in the chat, with what came of them.
func recentHistory(task subagent.Task) []memory.Message {
	if task.History == nil {
		return nil
	}
	messages, _ := memory.Repair(task.History())
	messages = messages[:max(0, len(messages)-1)] // the last one is the task
	messages = slices.Clone(messages[max(0, len(messages)-2*earlierRounds):])
	for i := range messages {
		messages[i].Content = clip(messages[i].Content, maxEarlier)
	}
	if len(messages) > 0 && messages[0].Role != memory.RoleUser {
		messages = messages[1:]
	}
	return messages
}

// each calls do for 0 … n-1 at the same time and waits for all. A panic of one is raised
// in the caller, which may recover.
func each(n int, do func(i int)) {
	var running sync.WaitGroup
	panics := make(chan any, n)
	for i := range n {
		running.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			do(i)
		})
	}
	running.Wait()
	close(panics)
	for p := range panics {
		panic(p)
	}
}

// session is one fresh conversation with one member.
type session struct {
	member Member
	step   string // how events name it
	what   string // which member does what, in events: "claude (A)"
	system string
	prompt string
	tools  []loop.Tool
	// accept takes what the member said, and gives what events are to show of it.
	// Its error is told to the member, which then has a second try.
	accept func(text string) (display string, err error)
}

// hold does a session once there is room for it, and tells how it went. The error
// is why the member has failed, or that ctx ended.
func (r *round) hold(ctx context.Context, s *session) error {
	select {
	case r.panel.slots <- struct{}{}:
		defer func() { <-r.panel.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil { // select takes either when both are ready
		return context.Cause(ctx)
	}
	r.tell(s.step, "running", s.what)
	timed, cancel := context.WithTimeoutCause(ctx, r.panel.timeout, subagent.Failure{
		Code: "model_slow", Message: fmt.Sprintf("It took longer than %s.", r.panel.timeout), Retryable: true,
	})
	defer cancel()
	display, err := r.talk(timed, s)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		zerolog.Ctx(ctx).Warn().Err(err).Str("step", s.step).Str("member", s.member.Name).Msg("a member of the panel failed")
		r.tell(s.step, "failed", s.what+": "+reason(err))
		return err
	}
	r.tell(s.step, "done", s.what+": "+clip(display, maxPassed))
	return nil
}

// talk asks until what the member says is accepted, at most maxTries times.
func (r *round) talk(ctx context.Context, s *session) (string, error) {
	l := loop.Loop{Model: s.member.Model, System: s.system, Tools: s.tools, MaxSteps: 1, Conversation: r.conversation,
		Images: r.images, Final: true} // a second try is rare
	t := &transcript{append(slices.Clone(r.history), memory.Message{Role: memory.RoleUser, Content: s.prompt})}
	for try := 1; ; try++ {
		messages, _ := memory.Repair(t.messages)
		result, err := l.Run(ctx, messages, t)
		r.spend(result.Usage)
		if err != nil {
			return "", err
		}
		display, err := s.accept(result.Text)
		if err == nil {
			return display, nil
		}
		if try == maxTries {
			return "", err
		}
		if !result.Exhausted { // else it reads what is wrong in the results of its calls
			t.add(memory.RoleAssistant, result.Text)
			t.add(memory.RoleUser, fmt.Sprintf("This cannot be used: %s. Please try once more.", err))
		}
	}
}

// transcript is a loop.Observer that keeps what was said.
type transcript struct{ messages []memory.Message }

func (t *transcript) add(role, content string) {
	t.messages = append(t.messages, memory.Message{Role: role, Content: content})
}

func (t *transcript) Text(string) error { return nil }

func (t *transcript) Calls(content string, calls []memory.ToolCall) error {
	t.messages = append(t.messages, memory.Message{Role: memory.RoleAssistant, Content: content, ToolCalls: calls})
	return nil
}

func (t *transcript) Start(memory.ToolCall) error { return nil }

func (t *transcript) Result(call memory.ToolCall, content string, _ memory.Origin, _ bool) error {
	t.messages = append(t.messages, memory.Message{Role: memory.RoleTool, ToolCallID: call.ID, Name: call.Function.Name,
		Content: content})
	return nil
}

// tell shows progress. What cannot be told ends the task.
func (r *round) tell(step, status, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.emit(&event.ToolProgress{Tool: step, Status: status, Detail: detail}); err != nil {
		r.cancel(err)
	}
}

func (r *round) spend(u event.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage = r.usage.Add(u)
}

// clip cuts s to at most limit bytes.
func clip(s string, limit int) string { return loop.Clip(s, limit, "…") }

// words accepts any, and keeps them.
func words(into *string) func(text string) (string, error) {
	return func(text string) (string, error) {
		text = clip(strings.TrimSpace(text), maxPassed)
		if text == "" {
			return "", malformed("answer in words; there are no tools here")
		}
		*into = text
		return text, nil
	}
}

// fenced is an object in a fence of Markdown, which many models put around JSON
// whatever they are told.
var fenced = regexp.MustCompile("(?s)^```(?:json)?\\s*(\\{.*\\})\\s*```$")

// parse reads a text that is one JSON object, alone or in a fence, with no member
// that v does not have and none twice.
func parse(text string, v any) error {
	text = strings.TrimSpace(text)
	if m := fenced.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return json.Unmarshal([]byte(text), v, json.RejectUnknownMembers(true))
}

// material is what a member is to judge, as JSON: whatever a text in it says, it
// cannot pass for another part of the prompt.
func material(v any) string {
	var b bytes.Buffer
	if err := json.MarshalWrite(&b, v, jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true)); err != nil {
		panic("panel: " + err.Error()) // only strings, and lists and structs of them
	}
	return b.String()
}

// malformed is what a member said when it has not the form that was asked for.
type malformed string

func (m malformed) Error() string { return string(m) }

// Describe says it without what the member itself was told to do.
func (malformed) Describe() *event.Error {
	return &event.Error{Code: "malformed_answer", Message: "Twice it did not keep to the form that was asked for.",
		Retryable: true}
}

// reason says in a sentence why a member failed.
func reason(err error) string { return subagent.Describe(err).Message }

// allFailed is that no member did what a task begins with. A limit that all of them met is the panel's.
func allFailed(did string, members []Member, errs []error) subagent.Failure {
	f := subagent.Failure{}
	var why []string
	for i, m := range members {
		e := subagent.Describe(errs[i])
		if event.FailureOf(e.Code).Own && (i == 0 || f.Code == e.Code) {
			f.Code = e.Code
		} else {
			f.Code = "panel_failed"
		}
		f.Retryable, f.RetryAfter = f.Retryable || e.Retryable, max(f.RetryAfter, e.RetryAfter)
		why = append(why, fmt.Sprintf("%s: %s", m.Name, e.Message))
	}
	f.Message = fmt.Sprintf("None of the %d models %s. %s", len(members), did, strings.Join(why, " "))
	return f
}
