package panel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// contest is what came of an ensemble.
type contest struct {
	goal      string
	plans     []plan     // one of each member, in the order of the members
	votes     []vote     // of every member that wrote a plan, on the plan of every other
	standings []standing // of the plans there are, the chosen one first
}

// plan is one member's.
type plan struct {
	member string
	plannedWork
	err error // why there is none
}

// plannedWork is what planTool takes.
type plannedWork struct {
	Objective string   `json:"objective"`
	Reasoning string   `json:"reasoning"`
	Tasks     []string `json:"tasks"`
}

// vote is one member's on the plan of another.
type vote struct {
	voter     string
	plan      int // the place in contest.plans
	score     int // minScore to maxScore; 0 for an abstention
	reasoning string
	err       error // why the voter abstained
}

const minScore, maxScore = 1, 10

// maxTasks bounds a plan.
const maxTasks = 50

// ensemble is the work of the subagent EnsembleName.
func (p *Panel) ensemble(ctx context.Context, task subagent.Task, emit func(event.Payload) error) (loop.Result, error) {
	return p.run(ctx, task, emit, func(ctx context.Context, r *round) (string, error) {
		c := contest{goal: r.question, plans: r.plans(ctx)}
		written, errs := 0, make([]error, len(c.plans))
		for i, pl := range c.plans {
			errs[i] = pl.err
			if pl.err == nil {
				written++
			}
		}
		if written == 0 {
			return "", allFailed("wrote a plan", p.members, errs)
		}
		c.votes = r.votes(ctx, c)
		c.standings = tally(c.plans, c.votes)
		return c.String(), nil
	})
}

// plans has every member write one.
func (r *round) plans(ctx context.Context) []plan {
	plans := make([]plan, len(r.panel.members))
	each(len(plans), func(i int) {
		m := r.panel.members[i]
		tool := &planTool{}
		s := &session{
			member: m, step: planToolName, what: m.Name,
			system: loop.AppendPrompt(planSystem, r.instructions), prompt: r.question, tools: []loop.Tool{tool},
			accept: tool.accept,
		}
		plans[i] = plan{member: m.Name, err: r.hold(ctx, s)}
		if plans[i].err == nil {
			plans[i].plannedWork = *tool.plan
		}
	})
	return plans
}

// votes has every member that wrote a plan score the plan of every other.
func (r *round) votes(ctx context.Context, c contest) []vote {
	var votes []vote
	var sessions []*session
	for i, voter := range c.plans {
		for j, other := range c.plans {
			if i == j || voter.err != nil || other.err != nil {
				continue
			}
			votes = append(votes, vote{voter: voter.member, plan: j})
			sessions = append(sessions, &session{
				member: r.panel.members[i], step: stepVote, what: fmt.Sprintf("%s on the plan of %s", voter.member, other.member),
				system: voteSystem, prompt: material(ballot{c.goal, other.plannedWork}),
			})
		}
	}
	each(len(votes), func(i int) {
		v := &votes[i]
		sessions[i].accept = v.read
		v.err = r.hold(ctx, sessions[i])
	})
	return votes
}

// ballot is the material of a vote; no member's name is in it.
type ballot struct {
	Goal string      `json:"goal"`
	Plan plannedWork `json:"plan"`
}

// read takes what the voter said.
func (v *vote) read(text string) (string, error) {
	var answer struct {
		Score     int    `json:"score"`
		Reasoning string `json:"reasoning"`
	}
	if parse(text, &answer) != nil || answer.Score < minScore || answer.Score > maxScore ||
		strings.TrimSpace(answer.Reasoning) == "" {
		return "", malformed("answer with exactly one JSON object, " + voteForm + ", and nothing before or after it")
	}
	v.score, v.reasoning = answer.Score, clip(oneLine(answer.Reasoning), maxReason)
	return fmt.Sprintf("%d of %d. %s", v.score, maxScore, v.reasoning), nil
}

// planToolName is what the models know it by.
const planToolName = "create_plan"

// planTool is what a member writes its plan with. It takes the first good one.
// Its calls come one after the other, as those of any tool that is not Parallel.
type planTool struct{ plan *plannedWork }

// planSchema is what the tool takes.
const planSchema = `{"type":"object","properties":{` +
	`"objective":{"type":"string","description":"What is reached when the plan is carried out, in one or two ` +
	`sentences."},` +
	`"reasoning":{"type":"string","description":"Why this plan and no other: the main choices, risks and what was left ` +
	`out."},` +
	`"tasks":{"type":"array","items":{"type":"string"},"description":"The steps in the order in which they are done, ` +
	`each complete in itself."}},` +
	`"required":["objective","reasoning","tasks"],"additionalProperties":false}`

// Spec presents the tool.
func (t *planTool) Spec() loop.Spec {
	return loop.Spec{Name: planToolName, Description: "Hands in your plan.", Parameters: json.RawMessage(planSchema)}
}

// Call takes a plan, or says what is wrong with it.
func (t *planTool) Call(_ context.Context, call memory.ToolCall) (string, error) {
	var p plannedWork
	if err := parse(call.Function.Arguments, &p); err != nil {
		return "", malformed("the arguments must be one JSON object with objective, reasoning and tasks, a list of texts")
	}
	if err := p.check(); err != nil {
		return "", err
	}
	if t.plan == nil {
		t.plan = &p
	}
	return "The plan is handed in.", nil
}

// check says what a plan lacks, and cuts what is too long in it.
func (p *plannedWork) check() error {
	p.Objective, p.Reasoning = clip(oneLine(p.Objective), maxPassed/4), clip(oneLine(p.Reasoning), maxPassed/4)
	switch {
	case p.Objective == "":
		return malformed("the objective is empty")
	case p.Reasoning == "":
		return malformed("the reasoning is empty")
	case len(p.Tasks) == 0:
		return malformed("there are no tasks")
	case len(p.Tasks) > maxTasks:
		return malformed(fmt.Sprintf("there are more than %d tasks", maxTasks))
	}
	for i := range p.Tasks {
		p.Tasks[i] = clip(oneLine(p.Tasks[i]), maxPassed/2/maxTasks)
		if p.Tasks[i] == "" {
			return malformed(fmt.Sprintf("task %d is empty", i+1))
		}
	}
	return nil
}

// accept says whether a plan was handed in.
func (t *planTool) accept(string) (string, error) {
	if t.plan == nil {
		return "", malformed("hand in your plan by calling " + planToolName + " with objective, reasoning and tasks")
	}
	return fmt.Sprintf("%s (tasks: %d)", t.plan.Objective, len(t.plan.Tasks)), nil
}

// standing is how one plan came off.
type standing struct {
	plan  int // the place in contest.plans
	votes int // abstentions do not count
	total int // of their scores
}

// average of the scores; 0 without votes.
func (s standing) average() float64 {
	if s.votes == 0 {
		return 0
	}
	return float64(s.total) / float64(s.votes)
}

// tally puts the plans that were written in order: by the average of their
// scores, of equal ones by the number of votes, of equal ones by the place. A
// plan without a vote has no average and comes after those that have one.
func tally(plans []plan, votes []vote) []standing {
	var standings []standing
	for i, p := range plans {
		if p.err != nil {
			continue
		}
		s := standing{plan: i}
		for _, v := range votes {
			if v.plan == i && v.score != 0 {
				s.votes++
				s.total += v.score
			}
		}
		standings = append(standings, s)
	}
	slices.SortStableFunc(standings, func(a, b standing) int {
		if a.votes == 0 || b.votes == 0 {
			return b.votes - a.votes
		}
		// The averages as fractions: 20/3 is not a tie with anything near it.
		if d := b.total*a.votes - a.total*b.votes; d != 0 {
			return d
		}
		return b.votes - a.votes
	})
	return standings
}
