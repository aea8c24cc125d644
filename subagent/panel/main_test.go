package panel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
	"mneme/subagent/panel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is what a model gives to one request.
type reply struct {
	text  string
	calls []memory.ToolCall
	err   error
}

func say(text string) reply { return reply{text: text} }

func fail(text string) reply { return reply{err: errors.New(text)} }

// plan hands in a plan with these arguments.
func plan(arguments string) reply {
	return reply{calls: []memory.ToolCall{{
		ID: "call_1", Type: "function", Function: memory.FunctionCall{Name: "create_plan", Arguments: arguments},
	}}}
}

func goodPlan(objective string) reply {
	return plan(fmt.Sprintf(`{"objective":%q,"reasoning":"because","tasks":["first","second"]}`, objective))
}

func score(n int) reply { return say(fmt.Sprintf(`{"score":%d,"reasoning":"fits"}`, n)) }

// material is what a step is given to judge.
type material struct {
	Question, Goal string
	Answers        []struct{ Letter, Answer string }
	Reviews        []struct{ By, Review string }
	Plan           *struct {
		Objective string
		Tasks     []string
	}
}

// request is one request to a model, read.
type request struct {
	loop.Request
	material
	step string // answer, review, synthesis, plan or vote
	try  int    // 1 or 2, in its session
}

func (r request) letters() (letters string) {
	for _, a := range r.Answers {
		letters += a.Letter
	}
	return letters
}

func (r request) last() string { return r.Messages[len(r.Messages)-1].Content }

// model answers with a function, and keeps what it was asked. Each request costs
// 10 tokens in and 1 out.
type model struct {
	answer func(ctx context.Context, r request) reply

	mu    sync.Mutex
	asked []request
}

// read finds out which step a request is for.
func read(r loop.Request) request {
	q := request{Request: r, step: "answer", try: 1}
	for i, m := range r.Messages {
		switch {
		case m.Role == memory.RoleAssistant:
		case strings.HasPrefix(m.Content, "This cannot be used"), strings.HasPrefix(m.Content, "(error: "):
			q.try++
		default:
			q.material = material{}
			_ = json.Unmarshal([]byte(r.Messages[i].Content), &q.material)
		}
	}
	switch {
	case len(r.Tools) > 0:
		q.step = "plan"
	case q.Plan != nil:
		q.step = "vote"
	case q.Answers != nil && strings.Contains(r.System, "moderate"):
		q.step = "synthesis"
	case q.Answers != nil:
		q.step = "review"
	}
	return q
}

func (m *model) Generate(ctx context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		q := read(r)
		m.mu.Lock()
		m.asked = append(m.asked, q)
		m.mu.Unlock()
		a := m.answer(ctx, q)
		switch {
		case a.err != nil:
			yield(loop.Delta{}, a.err)
		case a.text != "" && !yield(loop.Delta{Text: a.text}, nil):
		case len(a.calls) > 0 && !yield(loop.Delta{Calls: a.calls}, nil):
		default:
			yield(loop.Delta{Usage: event.Usage{InputTokens: 10, OutputTokens: 1}}, nil)
		}
	}
}

// requests are those for a step, in the order they came.
func (m *model) requests(step string) (all []request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.asked {
		if q.step == step {
			all = append(all, q)
		}
	}
	return all
}

const synthesis = `{"conclusion":"Take REST.","key_points":["tools"],"consensus":["both ` +
	`work"],"disagreements":["speed"]}`

// able does every step well; its words name it.
func able(name string) func(context.Context, request) reply {
	return func(_ context.Context, r request) reply {
		switch r.step {
		case "review":
			return say("review by " + name)
		case "synthesis":
			return say(synthesis)
		case "plan":
			return goodPlan("plan by " + name)
		case "vote":
			return score(7)
		}
		return say("answer by " + name)
	}
}

// but does a step in another way than able.
func but(name, step string, other func(ctx context.Context, r request) reply) func(context.Context, request) reply {
	return func(ctx context.Context, r request) reply {
		if r.step == step {
			return other(ctx, r)
		}
		return able(name)(ctx, r)
	}
}

func always(r reply) func(context.Context, request) reply {
	return func(context.Context, request) reply { return r }
}

// table is a panel of scripted models: one, two, three …, and a moderator.
type table struct {
	t         testing.TB
	members   []*model
	moderator *model
	config    panel.Config
	history   []memory.Message // before the task

	mu     sync.Mutex
	events []event.Payload
	refuse func(event.Payload) error // of emit; may be nil
}

var names = []string{"one", "two", "three", "four", "five", "six", "seven", "eight"}

func sit(t testing.TB, answers ...func(context.Context, request) reply) *table {
	b := &table{t: t, moderator: &model{answer: able("moderator")}}
	for i, a := range answers {
		if a == nil {
			a = able(names[i])
		}
		b.members = append(b.members, &model{answer: a})
		b.config.Members = append(b.config.Members, panel.Member{Name: names[i], Model: b.members[i]})
	}
	b.config.Moderator = panel.Member{Name: "chair", Model: b.moderator}
	return b
}

// run does one task from its delegation to its completion.
func (b *table) run(ctx context.Context, agent memory.Agent, question string) (subagent.Outcome, error) {
	b.t.Helper()
	p, err := panel.New(b.config)
	require.NoError(b.t, err)
	return b.runOn(ctx, p, agent, question)
}

func (b *table) runOn(ctx context.Context, p *panel.Panel, agent memory.Agent, question string) (subagent.Outcome,
	error) {
	for _, s := range p.Subagents() {
		if s.Name == agent {
			return s.Run(ctx, subagent.Kit{}, subagent.Task{Text: question, Conversation: "c1." + string(agent),
				History: func() []memory.Message {
					return append(b.history[:len(b.history):len(b.history)], memory.Message{Role: memory.RoleUser, Content: question})
				}}, b.emit)
		}
	}
	panic("no subagent " + agent)
}

// emit fails the test if it is called by two at a time.
func (b *table) emit(p event.Payload) error {
	if !b.mu.TryLock() {
		b.t.Error("two events at a time")
		return nil
	}
	defer b.mu.Unlock()
	b.events = append(b.events, p)
	if b.refuse != nil {
		return b.refuse(p)
	}
	return nil
}

func (b *table) discuss(question string) subagent.Outcome {
	b.t.Helper()
	a, err := b.run(b.t.Context(), panel.DiscussName, question)
	require.NoError(b.t, err)
	return a
}

func (b *table) ensemble(goal string) subagent.Outcome {
	b.t.Helper()
	a, err := b.run(b.t.Context(), panel.EnsembleName, goal)
	require.NoError(b.t, err)
	return a
}

// told are the events of progress as lines, in the order they came.
func (b *table) told() (lines []string) {
	for _, p := range b.events {
		if p, ok := p.(*event.ToolProgress); ok {
			lines = append(lines, p.Tool+" "+p.Status+" "+p.Detail)
		}
	}
	return lines
}

// one gives the only event of its kind.
func one[P event.Payload](b *table) P {
	b.t.Helper()
	var found []P
	for _, p := range b.events {
		if p, ok := p.(P); ok {
			found = append(found, p)
		}
	}
	require.Len(b.t, found, 1)
	return found[0]
}
