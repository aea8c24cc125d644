package master_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// model is a loop.Model made of a function from a request to an answer.
type model func(ctx context.Context, r loop.Request) (string, []memory.ToolCall, error)

func (m model) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		text, calls, err := m(ctx, r)
		for word := range strings.SplitAfterSeq(text, " ") {
			if word != "" && !yield(loop.Delta{Text: word}, nil) {
				return
			}
		}
		if err != nil {
			yield(loop.Delta{}, err)
			return
		}
		yield(loop.Delta{Calls: calls, Usage: event.Usage{InputTokens: 100, OutputTokens: 10}}, nil)
	}
}

func delegate(to string, tasks ...string) []memory.ToolCall {
	calls := make([]memory.ToolCall, len(tasks))
	for i, task := range tasks {
		calls[i] = memory.ToolCall{ID: fmt.Sprintf("%s-%d", to, i), Type: "function",
			Function: memory.FunctionCall{Name: to, Arguments: fmt.Sprintf(`{"task":%q}`, task)}}
	}
	return calls
}

// results are the tool results behind the last user message.
func results(r loop.Request) []string {
	var out []string
	for _, m := range r.Messages {
		switch m.Role {
		case memory.RoleUser:
			out = nil
		case memory.RoleTool:
			out = append(out, m.Content)
		}
	}
	return out
}

// once delegates in the first step and answers with the results in the second.
func once(calls ...memory.ToolCall) model {
	return func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		if got := results(r); got != nil {
			return strings.Join(got, " | "), nil, nil
		}
		return "", calls, nil
	}
}

// recalls answers with what its user messages said before the last one.
func recalls(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
	var said []string
	for _, m := range r.Messages {
		if m.Role == memory.RoleUser {
			said = append(said, m.Content)
		}
	}
	return fmt.Sprintf("before: %v", said[:len(said)-1]), nil, nil
}

// log gathers a run's events.
type log struct {
	mu     sync.Mutex
	events []event.Event
	refuse int64         // the first event that cannot be published; 0 for none
	seen   chan struct{} // closed at the first assistant_delta
}

func (l *log) publish(e event.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse > 0 && e.Seq >= l.refuse {
		return errors.New("the log is full")
	}
	l.events = append(l.events, e)
	if _, ok := e.Payload.(*event.AssistantDelta); ok && l.seen != nil {
		close(l.seen)
		l.seen = nil
	}
	return nil
}

// roles are the events without deltas, each with its subagent.
func (l *log) roles() []string {
	var out []string
	for _, e := range l.events {
		if !e.Ephemeral() {
			out = append(out, strings.TrimSpace(e.Role()+" "+string(e.Subagent)))
		}
	}
	return out
}

func last[P event.Payload](l *log) (found P) {
	for _, e := range l.events {
		if p, ok := e.Payload.(P); ok {
			found = p
		}
	}
	return found
}

func agent(m loop.Model, subagents ...*subagent.Subagent) *master.Agent {
	return &master.Agent{Model: m, MaxSteps: 4, Subagents: subagents, Now: time.Now, Log: zerolog.Nop()}
}

func sub(name memory.Agent, m loop.Model) *subagent.Subagent {
	return &subagent.Subagent{Name: name, Description: "d", Model: m, MaxSteps: 3, Calls: event.Serial}
}

func ask(version string) master.Request {
	return master.Request{RunID: "RUN", Chat: memory.MustChat("1"), Message: "question", AgentVersion: version,
		Conversation: "conv"}
}

func run(t *testing.T, a *master.Agent, r master.Request) *log {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &log{}
	a.Run(ctx, r, l.publish)
	wellFormed(t, l)
	return l
}

// wellFormed checks what holds for every run that could be told to its end.
func wellFormed(t *testing.T, l *log) {
	t.Helper()
	open := map[string]bool{}
	for i, e := range l.events {
		require.EqualValues(t, i+1, e.Seq, "events are numbered without gaps")
		require.Equal(t, "RUN", e.RunID)
		require.Equal(t, i == 0, e.Role() == "run_started")
		require.Equal(t, i == len(l.events)-1, e.Terminal())
		switch p := e.Payload.(type) {
		case *event.Delegation:
			require.False(t, open[e.CallID])
			open[e.CallID] = true
		case *event.Completion:
			require.True(t, open[e.CallID], "a completion has its delegation")
			require.NotEmpty(t, p.Response)
			delete(open, e.CallID)
		}
	}
	require.Empty(t, open, "every delegation has its completion")
}

func TestASecondDelegationSeesTheFirst(t *testing.T) {
	l := run(t, agent(once(delegate("analytic", "my name is Aliya", "what is my name?")...),
		sub("analytic", model(recalls))), ask("master"))
	require.Equal(t, "before: [] | before: [my name is Aliya]", last[*event.Assistant](l).Content)
	require.Equal(t, []string{
		"run_started",
		"subagent_delegation analytic", "subagent_completion analytic",
		"subagent_delegation analytic", "subagent_completion analytic",
		"assistant", "run_finished",
	}, l.roles())
	require.Equal(t, event.Usage{InputTokens: 400, OutputTokens: 40}, last[*event.RunFinished](l).Usage)
}

// What a subagent calls can know for which delegation it is called.
func TestADelegationIsOnTheTrail(t *testing.T) {
	calls := model(func(ctx context.Context, _ loop.Request) (string, []memory.ToolCall, error) {
		return telemetry.FromContext(ctx).Run + " " + telemetry.FromContext(ctx).Call, nil, nil
	})
	l := run(t, agent(once(delegate("analytic", "a", "b")...), sub("analytic", calls)), ask("master"))
	done := last[*event.Completion](l)
	require.Contains(t, done.Response, " RUN-2")
}

func TestWhatWasStoredIsSeen(t *testing.T) {
	r := ask("master")
	r.Subagents = map[memory.Agent][]memory.Message{"analytic": {
		{Role: memory.RoleUser, Content: "stored"}, {Role: memory.RoleAssistant, Content: "ok"},
	}}
	l := run(t, agent(once(delegate("analytic", "new")...), sub("analytic", model(recalls))), r)
	require.Equal(t, "before: [stored]", last[*event.Assistant](l).Content)
}

func TestIsolatedCallsSeeNothing(t *testing.T) {
	s := sub("analytic", model(recalls))
	s.Calls = event.Isolated
	r := ask("master")
	r.Subagents = map[memory.Agent][]memory.Message{"analytic": {{Role: memory.RoleUser, Content: "stored"}}}
	l := run(t, agent(once(delegate("analytic", "a", "b")...), s), r)
	require.Equal(t, "before: [] | before: []", last[*event.Assistant](l).Content)
}

func TestAFailingSubagentIsAResult(t *testing.T) {
	broken := model(func(context.Context, loop.Request) (string, []memory.ToolCall, error) {
		return "", nil, errors.New("boom")
	})
	l := run(t, agent(once(append(delegate("bad", "x"), delegate("good", "y")...)...), sub("bad", broken),
		sub("good", model(recalls))), ask("master"))
	require.Equal(t, "(no answer: model_failed) | before: []", last[*event.Assistant](l).Content)
	require.Equal(t, event.Completed, last[*event.RunFinished](l).Outcome)
	failure := last[*event.Error](l)
	require.Equal(t, "model_failed", failure.Code)
	require.NotContains(t, failure.Message, "boom", "the cause is for the operator")
}

func TestWrongArgumentsAreAResult(t *testing.T) {
	calls := delegate("analytic", "x", " ")
	calls[0].Function.Arguments = "{"
	l := run(t, agent(once(calls...), sub("analytic", model(recalls))), ask("master"))
	require.Contains(t, last[*event.Assistant](l).Content, `{"task": "…"}`)
	require.Contains(t, last[*event.Assistant](l).Content, "the task is empty")
	require.Equal(t, []string{"run_started", "assistant", "run_finished"}, l.roles())
}

func TestTheMasterFails(t *testing.T) {
	for name, m := range map[string]model{
		"model_failed": func(context.Context, loop.Request) (string, []memory.ToolCall, error) {
			return "Half an", nil, errors.New("boom")
		},
		"max_steps": func(context.Context, loop.Request) (string, []memory.ToolCall, error) {
			return "", delegate("analytic", "x"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := run(t, agent(m, sub("analytic", model(recalls))), ask("master"))
			require.Equal(t, name, last[*event.Error](l).Code)
			require.Equal(t, event.Failed, last[*event.RunFinished](l).Outcome)
			if name == "model_failed" {
				require.Equal(t, &event.Assistant{Content: "Half an", Partial: true, Failure: name,
					Origin: memory.Origin{Authority: memory.FromAgent}}, last[*event.Assistant](l), "what was shown is kept")
				require.Equal(t, []string{"run_started", "assistant", "error", "run_finished"}, l.roles())
			} else {
				require.Nil(t, last[*event.Assistant](l), "nothing was shown")
			}
		})
	}
}

// A run that tries a failed one once more asks the model what that one was asked,
// once; what failed earlier is not asked again.
func TestARetryAsksTheSameQuestion(t *testing.T) {
	said := func(role, content string) memory.Message { return memory.Message{Role: role, Content: content} }
	var sent []memory.Message
	a := agent(model(func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
		sent = r.Messages
		return "done", nil, nil
	}))
	r := ask("master")
	r.Context = []memory.Message{
		said("user", "too much"), memory.Failed("context_length_exceeded"), said("user", "before"),
		said("assistant", "answer"),
		said("user", r.Message), memory.Failed("model_failed"), memory.Failed("model_failed"),
	}
	r.RetryOf = "FAILED"
	l := run(t, a, r)
	require.Equal(t, []memory.Message{said("user", "before"), said("assistant", "answer"), said("user", r.Message)}, sent)
	require.Equal(t, "FAILED", last[*event.RunStarted](l).RetryOf)
}

func TestStop(t *testing.T) {
	waits := func(text string) model {
		return func(ctx context.Context, _ loop.Request) (string, []memory.ToolCall, error) {
			<-ctx.Done()
			return text, nil, ctx.Err()
		}
	}
	stopAt := func(t *testing.T, a *master.Agent, at string) *log {
		ctx, stop := context.WithCancelCause(context.Background())
		l := &log{}
		a.Run(ctx, ask("master"), func(e event.Event) error {
			if e.Role() == at {
				stop(subagent.ErrStopped)
			}
			return l.publish(e)
		})
		wellFormed(t, l)
		require.Equal(t, event.Stopped, last[*event.RunFinished](l).Outcome)
		return l
	}
	t.Run("inside a delegation", func(t *testing.T) {
		l := stopAt(t, agent(once(delegate("analytic", "x")...), sub("analytic", waits(""))), "subagent_delegation")
		require.Equal(t, event.Stopped, last[*event.Completion](l).Status)
		require.Nil(t, last[*event.Assistant](l))
		require.Equal(t, event.Usage{InputTokens: 100, OutputTokens: 10}, last[*event.RunFinished](l).Usage,
			"the call before counts")
	})
	t.Run("while the answer is shown", func(t *testing.T) {
		l := stopAt(t, agent(endlessModel{}), "assistant_delta")
		require.Contains(t, last[*event.Assistant](l).Content, "word ")
		require.True(t, last[*event.Assistant](l).Partial)
	})
}

func TestATimeoutIsAFailure(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	l := &log{}
	agent(model(recalls)).Run(ctx, ask("master"), l.publish)
	wellFormed(t, l)
	require.Equal(t, "run_timeout", last[*event.Error](l).Code)
	require.Equal(t, event.Failed, last[*event.RunFinished](l).Outcome)
}

func TestDirectTalk(t *testing.T) {
	r := ask("analytic")
	r.Subagents = map[memory.Agent][]memory.Message{
		"analytic": {{Role: memory.RoleUser, Content: "stored"}, {Role: memory.RoleAssistant, Content: "ok"}},
	}
	l := run(t, agent(nil, sub("analytic", model(recalls))), r)
	require.Equal(t, []string{"run_started", "subagent_delegation analytic", "subagent_completion analytic", "assistant",
		"run_finished"}, l.roles())
	require.Equal(t, "question", last[*event.Delegation](l).Task)
	require.Equal(t, "before: [stored]", last[*event.Assistant](l).Content)
}

// cutModel answers with less than it would say.
type cutModel struct{ model }

func (m cutModel) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		for d, err := range m.model.Generate(ctx, r) {
			if !yield(d, err) {
				return
			}
		}
		yield(loop.Delta{Finish: memory.FinishLength}, nil)
	}
}

// An answer that its model did not complete says so, with its run and in the histories.
func TestAnAnswerThatWasCutSaysSo(t *testing.T) {
	cut := cutModel{func(context.Context, loop.Request) (string, []memory.ToolCall, error) { return "half", nil, nil }}
	for version, a := range map[string]*master.Agent{
		master.Version: agent(cut), "analytic": agent(nil, sub("analytic", cut)),
	} {
		l := run(t, a, ask(version))
		require.Equal(t, "length", last[*event.Assistant](l).FinishReason)
		end := last[*event.RunFinished](l)
		require.Equal(t, "completed length", end.Outcome+" "+end.FinishReason)
		copies := event.Copies{}
		fold := event.NewHistories(ask(version).Chat, copies)
		for _, e := range l.events {
			require.NoError(t, fold.Apply(e))
		}
		for key, messages := range copies {
			require.Equal(t, "length", messages[len(messages)-1].FinishReason, key)
		}
	}
	l := run(t, agent(once(delegate("analytic", "a")...), sub("analytic", cut)), ask(master.Version))
	require.Equal(t, "length", last[*event.Completion](l).FinishReason)
	require.Empty(t, last[*event.RunFinished](l).FinishReason)
}

func TestCommandsReachTheirSubagentPastTheModel(t *testing.T) {
	for message, task := range map[string]string{
		"/discuss tea or coffee?":        "tea or coffee?",
		"  /discuss\n tea\n\nor coffee ": "tea\n\nor coffee",
		"/discuss":                       "", // an error
		"/discussion club?":              "the master",
		"/Discuss tea?":                  "the master",
		"/analytic tea?":                 "the master",
		"//discuss tea?":                 "the master",
		"please /discuss tea?":           "the master",
	} {
		t.Run(message, func(t *testing.T) {
			a := agent(model(func(context.Context, loop.Request) (string, []memory.ToolCall, error) {
				return "the master", nil, nil
			}), sub("analytic", model(recalls)), sub("discuss", model(recalls)))
			a.Commands = []memory.Agent{"discuss"}
			r := ask("master")
			r.Message = message
			l := run(t, a, r)
			switch task {
			case "":
				require.Equal(t, "empty_command", last[*event.Error](l).Code)
				require.Equal(t, event.Failed, last[*event.RunFinished](l).Outcome)
			case "the master":
				require.Equal(t, task, last[*event.Assistant](l).Content)
				require.Nil(t, last[*event.Delegation](l))
			default:
				require.Equal(t, task, last[*event.Delegation](l).Task)
				require.Equal(t, "before: []", last[*event.Assistant](l).Content)
			}

			a.Commands = nil
			l = run(t, a, r)
			require.Equal(t, "the master", last[*event.Assistant](l).Content, "nothing is a command unless it is listed")
		})
	}
}

func TestSoloIsAnsweredWithoutThePanel(t *testing.T) {
	const solo, all = "ask analytic:", "ask analytic discuss:"
	for _, c := range []struct{ message, want string }{
		{"/solo tea or coffee?", solo + " tea or coffee?"},
		{"  /solo\n tea\n\nor coffee ", solo + " tea\n\nor coffee"},
		{"/solo", ""}, // an error
		{"/soloist?", all + " /soloist?"},
		{"//solo tea?", all + " //solo tea?"},
		{"tea or coffee?", all + " tea or coffee?"},
	} {
		t.Run(c.message, func(t *testing.T) {
			// The model tells what it may call and what it is asked, once a tool has made it wait.
			m := model(func(_ context.Context, r loop.Request) (string, []memory.ToolCall, error) {
				if results(r) == nil {
					return "", delegate("analytic", "1"), nil
				}
				said := "ask"
				for _, tool := range r.Tools {
					said += " " + tool.Name
				}
				for _, asked := range r.Messages {
					if asked.Role == memory.RoleUser {
						said += ": " + asked.Content
					}
				}
				return said, nil, nil
			})
			of := func() *master.Agent {
				a := agent(m, asker("analytic"), sub("discuss", model(recalls)))
				a.Panel = []memory.Agent{"discuss"}
				return a
			}
			r := kept(master.Version)
			r.Message = c.message
			l := toTheEnd(t, of, r)
			wellFormed(t, l)
			require.Equal(t, c.message, l.events[0].Payload.(*event.RunStarted).Message, "it is stored as it was said")
			if c.want == "" {
				require.Equal(t, "Write the question behind the command: /solo …", last[*event.Error](l).Message)
				return
			}
			require.Equal(t, c.want, last[*event.Assistant](l).Content)

			a := of()
			a.Panel = nil
			without := toTheEnd(t, func() *master.Agent { return a }, r)
			require.Equal(t, all+" "+c.message, last[*event.Assistant](without).Content,
				"without a panel it is a message like any other")
		})
	}
}

// A subagent that works in its own way is a subagent in all else.
func TestASubagentWithWorkOfItsOwn(t *testing.T) {
	s := sub("panel", nil)
	var fails error
	s.Work = func(_ context.Context, task subagent.Task, emit func(event.Payload) error) (loop.Result, error) {
		if err := emit(&event.ToolProgress{Tool: "vote", Status: "running"}); err != nil {
			return loop.Result{}, err
		}
		text := fmt.Sprintf("%s: %d messages", task.Text, len(task.History()))
		return loop.Result{Text: text, Usage: event.Usage{InputTokens: 5}}, fails
	}
	l := run(t, agent(once(delegate("panel", "x", "y")...), s), ask("master"))
	require.Equal(t, "x: 1 messages | y: 3 messages", last[*event.Assistant](l).Content)
	require.Equal(t, event.Usage{InputTokens: 210, OutputTokens: 20}, last[*event.RunFinished](l).Usage)

	fails = errors.New("boom")
	l = run(t, agent(once(delegate("panel", "x")...), s), ask("master"))
	require.Equal(t, "(no answer: internal)", last[*event.Assistant](l).Content)
	require.Equal(t, event.Failed, last[*event.Completion](l).Status)
}

// The gateway knows agents by their routes; erasing the chat's conversation erases
// what any of them said in it.
func TestAllAgentsOfAChatShareItsConversation(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(m model) model {
		return func(ctx context.Context, r loop.Request) (string, []memory.ToolCall, error) {
			mu.Lock()
			seen[r.Conversation]++
			mu.Unlock()
			return m(ctx, r)
		}
	}
	isolated := sub("b", note(recalls))
	isolated.Calls = event.Isolated
	run(t, agent(note(once(append(delegate("a", "x"), delegate("b", "y")...)...)), sub("a", note(recalls)), isolated),
		ask("master"))
	require.Equal(t, map[string]int{"conv": 4}, seen)
}

func TestARunThatCannotBeToldEnds(t *testing.T) {
	l := &log{refuse: 3}
	agent(once(delegate("analytic", "x")...), sub("analytic", model(recalls))).Run(context.Background(), ask("master"),
		l.publish)
	require.Len(t, l.events, 2)
}

func TestEndlessTextEndsTheRun(t *testing.T) {
	testtier.Slow(t)
	endless := endlessModel{}
	l := run(t, agent(endless), ask("master"))
	require.Equal(t, "run_too_long", last[*event.Error](l).Code)
	require.Equal(t, event.Failed, last[*event.RunFinished](l).Outcome)
	require.Less(t, len(l.events), 20_010)
	var text int
	for _, e := range l.events {
		if d, ok := e.Payload.(*event.AssistantDelta); ok {
			text += len(d.Text)
		}
	}
	require.Greater(t, text, 30<<20, "pieces are merged long before the run is given up")
}

// endlessModel writes for ever.
type endlessModel struct{}

func (endlessModel) Generate(ctx context.Context, _ loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		text := strings.Repeat("word ", 100)
		for ctx.Err() == nil && yield(loop.Delta{Text: text}, nil) {
		}
	}
}

func TestParallelDelegationsOfDifferentSubagents(t *testing.T) {
	met := make(chan struct{})
	var both sync.WaitGroup
	both.Add(2)
	go func() { both.Wait(); close(met) }()
	meets := model(func(ctx context.Context, _ loop.Request) (string, []memory.ToolCall, error) {
		both.Done()
		select {
		case <-met:
			return "met", nil, nil
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	})
	l := run(t, agent(once(append(delegate("a", "x"), delegate("b", "y")...)...), sub("a", meets), sub("b", meets)),
		ask("master"))
	require.Equal(t, "met | met", last[*event.Assistant](l).Content)
}
