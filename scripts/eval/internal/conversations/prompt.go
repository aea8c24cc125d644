package conversations

import (
	"context"
	"fmt"
	"io"
	"unicode/utf8"
)

// Turns is what is measured with whole turns: a service with a model that keeps what it is shown.
type Turns interface {
	// Turn posts a message in a chat of its own that has the conversation. It gives all texts of
	// the prompt, and of these what was recalled; empty for nothing.
	Turn(ctx context.Context, c Conversation, message string) (prompt, recalled string, err error)
}

// InPrompts is what came of it.
type InPrompts struct {
	Questions int `json:"questions"`
	Share         // whether the evidence stands in the prompt
	Blocks        // of the questions
	// Ordinary are turns of the conversations themselves.
	Ordinary struct {
		Turns int `json:"turns"`
		Blocks
	} `json:"ordinary"`
}

// Blocks is how often something was recalled, and how many tokens that took in the mean of all turns.
type Blocks struct {
	Recalled float64 `json:"recalled"`
	Tokens   float64 `json:"tokens"`
}

func (b *Blocks) add(recalled string, total int) {
	if recalled != "" {
		b.Recalled += 1 / float64(total)
		b.Tokens += float64(utf8.RuneCountInString(recalled)) / 4 / float64(total)
	}
}

// ordinaryTurns is how many messages of users in the conversations are posted as turns.
const ordinaryTurns = 300

// RunTurns posts the questions of a set, and messages of its conversations.
func RunTurns(ctx context.Context, s *Set, service Turns, tell func(doing string)) (*InPrompts, error) {
	conversations := map[string]Conversation{}
	type turn struct {
		c     Conversation
		index int
	}
	var turns []turn
	for _, c := range s.Conversations {
		conversations[c.ID] = c
		for i, m := range c.Messages {
			if m.Role == "user" && i > len(c.Messages)/2 {
				turns = append(turns, turn{c, i})
			}
		}
	}
	out := &InPrompts{Questions: len(s.Questions)}
	for n, q := range s.Questions {
		if n%100 == 0 {
			tell(fmt.Sprintf("asking: %d of %d questions", n, len(s.Questions)))
		}
		c := conversations[q.Conversation]
		prompt, recalled, err := service.Turn(ctx, c, q.Question)
		if err != nil {
			return nil, fmt.Errorf("question %s: %w", q.ID, err)
		}
		var j judge
		for _, m := range c.Messages {
			for _, id := range q.Evidence {
				if m.ID == id {
					j.evidence = append(j.evidence, m.Text)
				}
			}
		}
		share := j.share([]Hit{{Text: prompt}})
		out.AnyFound += share.AnyFound / float64(len(s.Questions))
		out.AllFound += share.AllFound / float64(len(s.Questions))
		out.Blocks.add(recalled, len(s.Questions))
	}
	out.Ordinary.Turns = min(ordinaryTurns, len(turns))
	for n := range out.Ordinary.Turns {
		t := turns[n*len(turns)/out.Ordinary.Turns]
		message := t.c.Messages[t.index].Text
		t.c.Messages = t.c.Messages[:t.index]
		_, recalled, err := service.Turn(ctx, t.c, message)
		if err != nil {
			return nil, fmt.Errorf("a turn of %s: %w", t.c.ID, err)
		}
		out.Ordinary.add(recalled, out.Ordinary.Turns)
	}
	return out, nil
}

// WriteText prints it for people.
func (p *InPrompts) WriteText(out io.Writer) error {
	_, err := fmt.Fprintf(out, `Questions: %d. Of the evidence some stands in the prompt of %.3f, all of it in that of %.3f.
Something was recalled for %.3f of them, in %.0f tokens in the mean of all.
Ordinary turns: %d. Something was recalled for %.3f of them, in %.0f tokens in the mean of all.
`, p.Questions, p.AnyFound, p.AllFound, p.Recalled, p.Tokens, p.Ordinary.Turns, p.Ordinary.Recalled, p.Ordinary.Tokens)
	return err
}
