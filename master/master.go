// Package master answers a user's message with the help of subagents: one loop with subagents as its tools. It works
// on its own copy of every subagent's history, folded forward after each event, so that a second delegation in the
// same run sees the first.
//
// It owns a run's numbering and its copies, under the recorder's lock, for as long as the run goes on. It never
// stores anything, never reaches a history that the request did not bring, and leaves calls of models to
// subagent/loop.
package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/provenance"
	"mneme/memory/telemetry"
	"mneme/subagent"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/note"
	"mneme/subagent/recall"
)

// Version is the agent_version that names the master.
const Version = "master"

// Agent is the master with its subagents. It holds no chat: everything about a
// run comes in its Request. Safe for concurrent use.
type Agent struct {
	Model     loop.Model
	System    string
	MaxSteps  int // model calls of the master in one run
	Subagents []*subagent.Subagent
	Recall    recall.Settings // what the master is given of the chat beyond Request.Context
	Notes     note.Settings
	// External makes the master's own tools that lie outside of this service, once per run; nil
	// for none.
	External func(external.Run) []loop.Tool
	// Commands are the subagents that a user reaches by a message "/name task",
	// past the master's model.
	Commands []memory.Agent
	// Panel are the subagents that have several models work on a task. A message "/solo question" is answered without
	// them; where there are none it is a message like any other.
	Panel []memory.Agent
	// Cite says what the markers of an answer stand for, and what was found wrong with
	// it; nil for no citations.
	Cite func(text string) ([]event.Citation, []event.Flag)
	// Save and Restore are for what the agents of a run share, as those of a Kit.
	Save    func() (json.RawMessage, error)
	Restore func(json.RawMessage) error
	Expiry  time.Duration // how long a person may take to answer what a run waits for; 0 for 24 h
	Now     func() time.Time
	Log     zerolog.Logger
}

// Request is one run.
type Request struct {
	RunID        string
	Chat         memory.Chat
	Message      string        // empty where Context ends with results of tools
	Pasted       []memory.Span // the parts of Message that the client says were pasted; nil if it does not say
	AgentVersion string        // Version, or the name of the subagent talked to
	Conversation string        // the gateway's id for this chat; agents have routes of their own below it; empty for none
	RetryOf      string        // the failed run that had this message, as Context ends with it already; empty for none
	MemoryReset  bool          // the memory lost data since the chat's last run, and this run reports it
	Context      []memory.Message
	// Memory is the chat's, beyond Context and Subagents; nil for none, and then no webmemory
	// keeps the run while it waits, so that it cannot.
	Memory    recall.Memory
	Notes     note.Notes
	Subagents map[memory.Agent][]memory.Message
	User      string                // the message's user, for tools that are told; empty if it is not known
	Calls     external.Calls        // grants calls of tools outside; nil for no grants, and then none is called
	Approved  []string              // IDs of such tools that were approved in the chat for good
	Tools     []external.Definition // the client's own
	// Posted gives the request as it is to be made again when the run goes on after a wait; it is
	// asked for when the run waits. Nil for nothing.
	Posted func() (json.RawMessage, error)
	Resume *Resume // nil for a run that begins
	// Instructions stand behind the prompt of the agent that answers, the master or the subagent talked to; empty for
	// none.
	Instructions string
	Metadata     map[string]string // of the message, stored with it
	Images       loop.Images       // what the answering agent sees of images; Message says that those of its own are there
	ImageRefs    []memory.Image    // the references of Images.Own, stored with the message
	CanWait      bool              // for the client's tools the run may wait without Memory
	Zone         *time.Location    // the user's; nil if it is unknown
	Bare         bool              // the master's model alone answers, without prompt, tools and subagents
	Format       json.RawMessage   // of the master's answer, see loop.Loop
	First        []string          // of Tools, one of which the master's first call has to call; empty for any or none
}

// Run does one request to its end: it publishes the events 1, 2, 3 …, the last
// one always run_finished, and returns. A run that waits for an answer ends with
// run_waiting instead; one that is resumed publishes the events behind that, first
// run_resumed. The end of ctx ends the run; it counts as stopped if the cause is
// subagent.ErrStopped, as failed otherwise. An error of publish ends the run too; only the
// log is left to tell it to.
func (a *Agent) Run(ctx context.Context, r Request, publish func(event.Event) error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	run, ctx := a.begin(ctx, &r, publish, abort)
	if err := run.do(ctx); err != nil {
		zerolog.Ctx(ctx).Error().Err(err).Msg("a run could not be told to its end")
	}
}

// begin makes what a run needs, and the context that carries its logger. It is not inlined, so
// that the frame of Run, which waits for as long as the answer takes, is small.
//
//go:noinline
func (a *Agent) begin(
	ctx context.Context, req *Request, publish func(event.Event) error, abort context.CancelCauseFunc,
) (*run, context.Context) {
	r := *req
	run := &run{agent: a, req: r, rec: newRecorder(r, a.Now, publish, abort), kits: map[memory.Agent]subagent.Kit{},
		waitingUsage: map[string]event.Usage{}}
	run.kit()
	fair.Do(ctx, func(context.Context) { run.read() })
	addImages(&run.sources, len(r.ImageRefs)+len(r.Images.Previous))
	ctx = memory.WithZone(provenance.In(run.models.In(ctx, "", ""), &run.sources), r.Zone)
	trail := telemetry.FromContext(ctx)
	trail.Run, trail.Chat = r.RunID, r.Chat.String()
	log := trail.Logger(a.Log)
	return run, log.WithContext(ctx)
}

// read adds the texts of the request to the ledger.
func (r *run) read() {
	addHistory(r, r.req.Context, false)
	for _, n := range r.req.Notes.List() {
		if n.State == memory.NoteActive { // which a person said, or said yes to
			r.sources.Add(memory.Origin{Authority: memory.FromUser}, n.Text)
		}
	}
	r.sources.AddMessage(r.req.Message, r.req.Pasted)
	r.addInstructions()
}

// run is one request in progress.
type run struct {
	agent  *Agent
	req    Request
	rec    *recorder
	kits   map[memory.Agent]subagent.Kit
	own    []loop.Tool  // the master's, beside its subagents
	calls  atomic.Int64 // delegations so far
	alike  counter      // of calls of tools outside
	models loop.Calls   // of models, by all agents
	// sources knows whose words the agents were given.
	sources provenance.Ledger

	state    *state       // state that the run resumes from; nil for a new run
	answers  loop.Answers // to what it waited for
	unusable error        // why it cannot go on
	used     event.Usage  // by the master's loop, where that waits

	mu           sync.Mutex             // delegations end in parallel
	spent        event.Usage            // guarded by mu
	waitingUsage map[string]event.Usage // of delegations that wait, by their call; guarded by mu
}

func (r *run) do(ctx context.Context) error {
	begin := r.start
	if r.req.Resume != nil {
		begin = r.resume
	}
	if err := begin(); err != nil {
		return err
	}
	answer, err := event.Assistant{}, r.unusable
	if err == nil {
		answer, err = r.answer(ctx)
	}
	if suspended, ok := errors.AsType[*loop.Suspended](err); ok {
		if err = r.suspend(suspended); err == nil {
			return nil
		}
		r.spend(r.used)
	}
	return r.finish(ctx, answer, err)
}

// start tells that the run begins.
func (r *run) start() error {
	names := make([]memory.Agent, len(r.agent.Subagents))
	for i, s := range r.agent.Subagents {
		names[i] = s.Name
	}
	started := &event.RunStarted{
		ChatID: r.req.Chat, AgentVersion: r.req.AgentVersion, Subagents: names, Message: r.req.Message,
		RetryOf: r.req.RetryOf, Pasted: r.req.Pasted, Metadata: r.req.Metadata, Images: r.req.ImageRefs,
	}
	if err := r.rec.emit(started); err != nil || !r.req.MemoryReset {
		return err
	}
	return r.rec.emit(&event.MemoryReset{})
}

// addHistory tells whose words the messages of a history are. Without a chat it is the client who says what was answered
// before, and nothing tells what those answers rested on.
func addHistory(r *run, history []memory.Message, subagent bool) {
	for _, m := range history {
		o := m.Written(subagent)
		addImages(&r.sources, len(m.Images))
		if o.Authority == memory.FromUser {
			r.sources.AddMessage(m.Content, m.Pasted)
			continue
		}
		if r.req.Memory == nil && m.Authority == "" && m.Role == memory.RoleAssistant && o.Authority == memory.FromAgent {
			o = memory.Origin{Authority: memory.FromOutside, Source: "an earlier answer"}
		}
		if o.Authority.Foreign() || o.Authority == memory.FromAgent && m.Authority != "" && m.Source == "" {
			r.sources.Add(o, m.Content) // the sources of other messages are unknown
		}
	}
}

// addInstructions adds the client's instructions and the descriptions of tools to the ledger.
func (r *run) addInstructions() {
	origin := memory.Origin{Authority: memory.FromClient, Source: "the client's instructions"}
	if quotes.MatchString(r.req.Instructions) {
		origin.Authority = memory.FromOutside
	}
	r.sources.Add(origin, r.req.Instructions)
	tools := [][]loop.Tool{r.own}
	for _, kit := range r.kits {
		tools = append(tools, kit.Tools)
	}
	for _, t := range slices.Concat(tools...) {
		if t, ok := t.(interface {
			Described() (memory.Origin, string)
		}); ok {
			r.sources.Add(t.Described())
		}
	}
}

// quotes matches the tags between which applications put documents into a prompt.
var quotes = regexp.MustCompile(`(?i)<(?:context|documents?|sources?|passages?|files?|search_results?|results?)[ >]`)

// addImages adds images to a ledger. Their content is unknown.
func addImages(l *provenance.Ledger, images int) {
	if images > 0 {
		l.AddNonText(memory.Origin{Authority: memory.FromOutside, Source: "an image"})
	}
}

// answer gets the text for the user: from the master's loop, or from the one
// subagent that the user talks to.
func (r *run) answer(ctx context.Context) (event.Assistant, error) {
	switch agent, task, command := r.agent.command(r.req.Message); {
	case r.state != nil && r.state.Direct != "":
		return r.direct(ctx, r.state.Direct, "")
	case r.state != nil:
		return r.loop(ctx)
	case r.req.Bare:
		return r.bare(ctx)
	case r.req.AgentVersion != Version:
		return r.direct(ctx, memory.Agent(r.req.AgentVersion), r.req.Message)
	case command && task == "":
		return event.Assistant{}, subagent.Failure{
			Code: "empty_command", Message: fmt.Sprintf("Write the question behind the command: /%s …", agent),
		}
	case command && agent != solo:
		return r.direct(ctx, agent, task)
	}
	return r.loop(ctx)
}

// loop is the answer of the master's model.
func (r *run) loop(ctx context.Context) (event.Assistant, error) {
	message, isSolo := r.req.Message, false
	if agent, task, _ := r.agent.command(message); agent == solo {
		message, isSolo = task, true
	}
	var tools []loop.Tool
	for _, s := range r.agent.Subagents {
		if !isSolo || !slices.Contains(r.agent.Panel, s.Name) {
			tools = append(tools, &delegate{run: r, target: s})
		}
	}
	l := loop.Loop{
		Model: r.agent.Model, System: r.agent.System, Tools: tools,
		MaxSteps: r.agent.MaxSteps, Conversation: r.req.Conversation, NoWaits: r.req.Memory == nil && !r.req.CanWait,
		Images: r.req.Images, Format: r.req.Format, First: r.req.First,
	}
	notes := note.Holder{Settings: r.agent.Notes, Notes: r.req.Notes}
	l.System = loop.AppendPrompt(notes.System(ctx, l.System), r.req.Instructions)
	l.Tools = append(l.Tools, r.own...)
	l.Tools = append(l.Tools, notes.Tools(l.Tools...)...)
	asker := recall.Asker{Settings: r.agent.Recall, Memory: r.req.Memory, Model: r.agent.Model, Emit: r.rec.emit}
	l.Tools = append(l.Tools, asker.Tools()...)
	if err := r.checkToolNames(l.Tools); err != nil {
		return event.Assistant{}, err
	}
	result, err := r.ask(ctx, l, asker, message)
	if _, ok := errors.AsType[*loop.Suspended](err); ok { // what it used is in its state, too
		r.used = result.Usage
		return event.Assistant{}, err
	}
	r.spend(result.Usage)
	if err == nil && result.Exhausted && result.Text == "" {
		err = errMaxSteps
	}
	return r.cited(event.Assistant{Content: result.Text, FinishReason: result.Finish}), err
}

// bare is the answer of the master's model alone.
func (r *run) bare(ctx context.Context) (event.Assistant, error) {
	l := loop.Loop{Model: r.agent.Model, System: r.req.Instructions, MaxSteps: 1, Conversation: r.req.Conversation,
		NoWaits: true, Images: r.req.Images, Format: r.req.Format}
	result, err := r.ask(ctx, l, recall.Asker{}, r.req.Message)
	r.spend(result.Usage)
	return event.Assistant{Content: result.Text, FinishReason: result.Finish}, err
}

// ask runs the master's loop, or goes on with it. message is what the model is shown of Request.Message.
func (r *run) ask(ctx context.Context, l loop.Loop, asker recall.Asker, message string) (loop.Result, error) {
	if r.state != nil {
		return l.Resume(ctx, r.state.Agent, r.answers, listener{r})
	}
	var err error
	if l.Recalled, err = asker.Block(ctx, message); err != nil {
		return loop.Result{}, err
	}
	history := r.rec.history(memory.ChatKey(r.req.Chat))
	if r.req.RetryOf != "" {
		history = memory.Pending(history)
	}
	if r.req.Message == "" { // it goes on behind results of tools
		history = history[:len(history)-1]
	} else if message != r.req.Message {
		history = slices.Clone(history)
		history[len(history)-1].Content = message
	}
	messages, _ := memory.Repair(history)
	return l.Run(ctx, messages, listener{r})
}

// cited is an answer with its citations.
func (r *run) cited(a event.Assistant) event.Assistant {
	if r.agent.Cite != nil {
		a.Citations, a.Flags = r.agent.Cite(a.Content)
	}
	return a
}

// solo is the command of a message that is answered without Agent.Panel.
const solo memory.Agent = "solo"

// command reads a message that calls one of Commands, or solo.
func (a *Agent) command(message string) (agent memory.Agent, task string, ok bool) {
	message = strings.TrimSpace(message)
	name, rest := message, ""
	if end := strings.IndexFunc(message, unicode.IsSpace); end >= 0 {
		name, rest = message[:end], strings.TrimSpace(message[end:])
	}
	commands := a.Commands
	if len(a.Panel) > 0 {
		commands = append([]memory.Agent{solo}, commands...)
	}
	for _, cmd := range commands {
		if name == "/"+string(cmd) {
			return cmd, rest, true
		}
	}
	return "", "", false
}

// direct is a talk with one subagent: a delegation with a task that the user wrote, or one
// that goes on.
func (r *run) direct(ctx context.Context, agent memory.Agent, task string) (event.Assistant, error) {
	for _, s := range r.agent.Subagents {
		if s.Name != agent {
			continue
		}
		var a subagent.Outcome
		var err error
		if r.state != nil {
			a, err = r.goOn(ctx, s, r.state.Agent)
		} else {
			a, err = r.delegate(ctx, s, task)
		}
		if _, ok := errors.AsType[*loop.Suspended](err); ok {
			return event.Assistant{}, err
		}
		if err == nil {
			err = a.Err
		}
		answer := r.cited(event.Assistant{Content: a.Response, FinishReason: a.FinishReason})
		if a.Citations != nil {
			answer.Citations = a.Citations
		}
		return answer, err
	}
	return event.Assistant{}, subagent.Failure{
		Code: "unknown_agent", Message: fmt.Sprintf("there is no subagent %q.", string(agent)),
	}
}

// delegate runs a subagent on a task. The error is that the run cannot go on, or waits.
func (r *run) delegate(ctx context.Context, s *subagent.Subagent, text string) (subagent.Outcome, error) {
	d := delegation{Agent: s.Name, Call: fmt.Sprintf("%s-%d", r.req.RunID, r.calls.Add(1)), Task: text}
	a, err := s.Run(r.delegationContext(ctx, d), r.kits[s.Name], r.task(ctx, d), r.rec.emitter(s.Name, d.Call))
	return r.returned(ctx, d, a, err)
}

// delegationContext is the context of a delegation, by which what it asks of others names it.
func (r *run) delegationContext(ctx context.Context, d delegation) context.Context {
	return r.models.In(telemetry.Delegated(ctx, d.Call), d.Agent, d.Call)
}

// task is a delegation as its subagent is given it.
func (r *run) task(ctx context.Context, d delegation) subagent.Task {
	direct := r.req.AgentVersion == string(d.Agent)
	t := subagent.Task{
		Text:         d.Task,
		Conversation: r.req.Conversation,
		History: func() []memory.Message {
			history := r.rec.history(memory.SubagentKey(d.Agent, r.req.Chat))
			fair.Do(ctx, func(context.Context) { addHistory(r, history, !direct) })
			return history
		},
		Memory:  r.req.Memory,
		Notes:   r.req.Notes,
		NoWaits: r.req.Memory == nil,
	}
	if r.talksTo() == d.Agent {
		t.Origin, t.Pasted = memory.Origin{Authority: memory.FromUser}, memory.SpansOf(r.req.Message, d.Task, r.req.Pasted)
		t.Instructions, t.Images = r.req.Instructions, r.req.Images
	} else { // the instructions and images are for the master
		fair.Do(ctx, func(context.Context) { t.Origin = r.sources.OriginOf(d.Task) })
	}
	return t
}

// returned is what became of a delegation.
func (r *run) returned(ctx context.Context, d delegation, a subagent.Outcome, err error) (subagent.Outcome, error) {
	if suspended, ok := errors.AsType[*loop.Suspended](err); ok {
		return a, r.hold(d, a.Usage, suspended)
	}
	r.release(d.Call)
	r.spend(a.Usage)
	if a.Err != nil {
		zerolog.Ctx(ctx).Warn().Err(a.Err).Str("subagent", string(d.Agent)).Str("call", d.Call).
			Str("status", a.Status).Msg("a delegation did not complete")
	}
	return a, err
}

// finish tells how the run ended.
func (r *run) finish(ctx context.Context, answer event.Assistant, err error) error {
	outcome, cause := event.Completed, (*event.Error)(nil)
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), subagent.ErrStopped):
		outcome = event.Stopped
	default:
		zerolog.Ctx(ctx).Error().Err(err).Msg("a run failed")
		outcome, cause = event.Failed, subagent.Describe(err)
	}
	if err := r.giveUp(outcome, cause); err != nil {
		return err
	}
	calls := r.models.List()
	window := ""
	if len(r.req.Context) > 0 && r.talksTo() == "" {
		window = r.req.Context[0].ID
	}
	record := event.NewRecord(r.spent, window, r.rec.recalled(), calls)
	say := func(a event.Assistant) error {
		a.Run, a.Origin = record, subagent.Origin(ctx, a.Content, a.Citations)
		return r.rec.emit(&a)
	}
	finish := ""
	if outcome == event.Completed {
		finish, err = answer.FinishReason, say(answer)
	} else {
		partial := event.Assistant{Content: r.rec.text(), Partial: true}
		if cause != nil {
			partial.Failure = cause.Code
		}
		if err = nil; partial.Content != "" {
			err = say(r.cited(partial))
		}
		if err == nil && cause != nil {
			failed := *cause // which may be that of all runs that fail so
			failed.Run = record
			err = r.rec.emit(&failed)
		}
	}
	if err != nil {
		return err
	}
	return r.rec.emit(&event.RunFinished{Outcome: outcome, Usage: r.spent, FinishReason: finish, Calls: calls})
}

func (r *run) spend(u event.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent = r.spent.Add(u)
}

// delegate is the tool by which the master's model reaches a subagent.
type delegate struct {
	run    *run
	target *subagent.Subagent
}

// taskSchema is what a delegation takes.
const taskSchema = `{"type":"object","properties":{"task":{"type":"string","description":"What the subagent is told ` +
	`or asked, complete in itself: it sees its own earlier tasks and answers in this chat, and nothing ` +
	`else."}},"required":["task"],"additionalProperties":false}`

func (d *delegate) Spec() loop.Spec {
	return loop.Spec{
		Name: string(d.target.Name), Description: d.target.Description,
		Parameters: json.RawMessage(taskSchema), Parallel: d.target.Calls == event.Isolated,
	}
}

func (d *delegate) Call(ctx context.Context, call memory.ToolCall) (string, error) {
	var args struct {
		Task string `json:"task"`
	}
	if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil {
		return "", fmt.Errorf("the arguments are not the JSON object {\"task\": \"…\"}: %w", err)
	}
	if strings.TrimSpace(args.Task) == "" {
		return "", errors.New("the task is empty: say what the subagent is to do")
	}
	a, err := d.run.delegate(ctx, d.target, args.Task)
	return a.Response, err
}

// Resume goes on with a delegation that waited.
func (d *delegate) Resume(
	ctx context.Context, _ memory.ToolCall, state json.RawMessage, _ loop.Answers,
) (string, error) {
	a, err := d.run.goOn(ctx, d.target, state)
	return a.Response, err
}

// errMaxSteps: the master's model asked for tools until its steps were used up.
var errMaxSteps = subagent.Failure{Code: "max_steps", Message: "The master used all its steps without an answer."}
