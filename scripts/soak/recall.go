package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// recalling says something to one webmemory and at once searches for it at the other.
type recalling struct {
	options
	stack *stack
	out   io.Writer

	posts, searches, kills int
	wrong                  []string // findings
}

// killEvery is how many rounds lie between two kills: of the one that was told, right behind
// its answer, and of the one that is asked, right before, by turns.
const killEvery = 10

func (r *recalling) run(ctx context.Context) (clean bool, err error) {
	began := time.Now()
	webs := r.stack.webs()
	for round := range r.rounds {
		if ctx.Err() != nil {
			break
		}
		teller, asked := webs[round%2], webs[(round+1)%2]
		chat, word := memory.MustChat(fmt.Sprint("recall-", round/killEvery%7)), fmt.Sprintf("zq%dx%d", r.seed%1000, round)
		if err := r.tell(ctx, teller, chat, word); err != nil {
			return false, fmt.Errorf("round %d: %w", round, err)
		}
		var killed *service
		if round%killEvery == killEvery-1 {
			r.kills++
			killed = []*service{teller, asked}[round/killEvery%2]
			killed.Kill()
		}
		if killed == asked {
			if err := r.restart(killed); err != nil {
				return false, err
			}
		}
		r.search(ctx, asked, chat, word, round)
		if killed == teller {
			if err := r.restart(killed); err != nil {
				return false, err
			}
			r.search(ctx, teller, chat, word, round)
		}
	}
	return r.report(time.Since(began)), nil
}

func (r *recalling) restart(v *service) error {
	if err := v.start(); err != nil {
		return err
	}
	return v.Await(time.Minute)
}

// tell posts until the message is acknowledged; while a process that was killed still has the
// chat's turn it is refused.
func (r *recalling) tell(ctx context.Context, v *service, chat memory.Chat, word string) (err error) {
	for range 200 {
		r.posts++
		over := false
		for e, failed := range v.client.Say(ctx, chat, "My new word is "+word+".", word) {
			err = failed
			if end, ok := e.Payload.(*event.RunFinished); ok && failed == nil {
				over = end.Outcome == event.Completed
			}
		}
		if over {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return errors.Join(errors.New("a message was refused for 20 s"), err)
}

// search looks for the word once. Only a refusal, which is no answer, is tried again.
func (r *recalling) search(ctx context.Context, v *service, chat memory.Chat, word string, round int) {
	for range 200 {
		r.searches++
		got, err := v.client.Recall(ctx, chat, url.Values{"query": {word}})
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Retryable && sleep(ctx, 100*time.Millisecond):
			continue
		case err != nil:
			r.wrong = append(r.wrong, fmt.Sprintf("round %d: %s at %s: %v", round, chat, v.name, err))
		case !slices.ContainsFunc(got.Hits, func(h api.RecallHit) bool { return strings.Contains(h.Text, word) }):
			r.wrong = append(r.wrong, fmt.Sprintf("round %d: %s does not know %q of %s; %d other hits", round, v.name,
				word, chat, len(got.Hits)))
		}
		return
	}
	r.wrong = append(r.wrong, fmt.Sprintf("round %d: %s refused a search for 20 s", round, v.name))
}

// report prints the totals and the misses.
func (r *recalling) report(took time.Duration) (clean bool) {
	fmt.Fprintf(r.out, "\nsoak of recall of %v, seed %d\n", took.Round(time.Second), r.seed)
	for _, v := range r.stack.services {
		r.wrong = append(r.wrong, v.crashes...)
	}
	printRows(r.out, []row{{"rounds", r.rounds}, {"messages posted", r.posts}, {"searches", r.searches},
		{"kill -9", r.kills}, {"misses and other findings", len(r.wrong)}})
	for _, w := range r.wrong[:min(len(r.wrong), 20)] {
		fmt.Fprintln(r.out, w)
	}
	return len(r.wrong) == 0
}
