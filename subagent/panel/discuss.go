package panel

import (
	"context"
	"fmt"
	"strings"

	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// discussion is what came of one.
type discussion struct {
	question  string
	answers   []contribution // one of each member, in the order of the members
	reviews   []review       // one of each member that answered; none if only one did
	moderator string
	synthesis synthesis
	err       error // why there is no synthesis
}

// contribution is one member's answer. A letter belongs to a member for the whole discussion,
// also if others fail.
type contribution struct {
	letter string // A, B, C …
	member string
	text   string
	err    error // error of a contribution without text
}

// review is what one member said of the answers of the others.
type review struct {
	letter  string   // of the reviewer's own answer
	member  string   // the reviewer
	targets []string // letters of the answers that it was shown
	text    string
	err     error // why there is no text
}

// synthesis is what the moderator made of answers and reviews.
type synthesis struct {
	Conclusion    string   `json:"conclusion"`
	KeyPoints     []string `json:"key_points"`
	Consensus     []string `json:"consensus"`
	Disagreements []string `json:"disagreements"`
}

// The material of reviews and of the synthesis.
type (
	lettered struct {
		Letter string `json:"letter"`
		Answer string `json:"answer"`
	}
	reviewed struct {
		Reviewer string `json:"by"`
		Review   string `json:"review"`
	}
	debate struct {
		Question string     `json:"question"`
		Answers  []lettered `json:"answers"`
		Reviews  []reviewed `json:"reviews,omitempty"`
	}
)

// discuss is the work of the subagent DiscussName.
func (p *Panel) discuss(ctx context.Context, task subagent.Task, emit func(event.Payload) error) (loop.Result, error) {
	return p.run(ctx, task, emit, func(ctx context.Context, r *round) (string, error) {
		d := discussion{question: r.question, answers: r.answers(ctx), moderator: p.moderator.Name}
		contributions := d.contributions()
		if len(contributions) == 0 {
			errs := make([]error, len(d.answers))
			for i, a := range d.answers {
				errs[i] = a.err
			}
			return "", allFailed("answered", p.members, errs)
		}
		if len(contributions) > 1 {
			d.reviews = r.reviews(ctx, d.answers)
		}
		d.synthesis, d.err = r.synthesis(ctx, d)
		return d.String(), nil
	})
}

// contributions are the answers of the members that did not fail.
func (d discussion) contributions() []contribution {
	var list []contribution
	for _, a := range d.answers {
		if a.err == nil {
			list = append(list, a)
		}
	}
	return list
}

// answers asks every member the question.
func (r *round) answers(ctx context.Context) []contribution {
	answers := make([]contribution, len(r.panel.members))
	each(len(answers), func(i int) {
		m, a := r.panel.members[i], &answers[i]
		a.letter, a.member = letter(i), m.Name
		a.err = r.hold(ctx, &session{
			member: m, step: stepAnswer, what: fmt.Sprintf("%s (%s)", a.member, a.letter),
			system: loop.AppendPrompt(answerSystem, r.instructions), prompt: r.question, accept: words(&a.text),
		})
	})
	return answers
}

func letter(i int) string { return string(rune('A' + i)) }

// reviews has every member that answered review the other answers.
func (r *round) reviews(ctx context.Context, answers []contribution) []review {
	var reviews []review
	var sessions []*session
	for i, own := range answers {
		if own.err != nil {
			continue
		}
		v, others := review{letter: own.letter, member: own.member}, debate{Question: r.question}
		for _, a := range answers {
			if a.err == nil && a.letter != own.letter {
				v.targets = append(v.targets, a.letter)
				others.Answers = append(others.Answers, lettered{a.letter, a.text})
			}
		}
		reviews = append(reviews, v)
		sessions = append(sessions, &session{
			member: r.panel.members[i], step: stepReview, what: fmt.Sprintf("%s (%s) on %s", v.member, v.letter,
				strings.Join(v.targets, ", ")),
			system: reviewSystem, prompt: material(others),
		})
	}
	each(len(reviews), func(i int) {
		sessions[i].accept = words(&reviews[i].text)
		reviews[i].err = r.hold(ctx, sessions[i])
	})
	return reviews
}

// synthesis has the moderator conclude.
func (r *round) synthesis(ctx context.Context, d discussion) (synthesis, error) {
	record := debate{Question: d.question}
	for _, a := range d.contributions() {
		record.Answers = append(record.Answers, lettered{a.letter, a.text})
	}
	for _, v := range d.reviews {
		if v.err == nil {
			record.Reviews = append(record.Reviews, reviewed{v.letter, v.text})
		}
	}
	var result synthesis
	tries := 0
	err := r.hold(ctx, &session{
		member: r.panel.moderator, step: stepSynthesis, what: d.moderator + " (moderator)",
		system: loop.AppendPrompt(synthesisSystem, r.instructions), prompt: material(record),
		accept: func(text string) (string, error) {
			var read synthesis
			tries++
			if parse(text, &read) != nil {
				read = synthesis{}
				if tries == maxTries {
					read.Conclusion = prose(text)
				}
			}
			if strings.TrimSpace(read.Conclusion) == "" {
				return "", malformed("answer with exactly one JSON object, " + synthesisForm + ", and nothing before or after it")
			}
			result = read
			return read.Conclusion, nil
		},
	})
	return result, err
}

// prose is a text that takes the place of a conclusion if the moderator does not keep to its form; empty for JSON and
// for words around the form, which would be shown as they are.
func prose(text string) string {
	text = clip(strings.TrimSpace(text), maxPassed)
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "```") ||
		strings.Contains(text, `"conclusion"`) {
		return ""
	}
	return text
}
