package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
)

// killEvery is how many rounds lie between two kills: of the one that was told, right behind
// its answer, and of the one that is asked, right before, by turns.
const killEvery = 10

// recalling says something to one webmemory and at once searches for it at the other.
func recalling(ctx context.Context, t *trial) (clean bool, err error) {
	err = t.eachRound(ctx, func(round int, teller, asked *service) error {
		chat, word := memory.MustChat(fmt.Sprint("recall-", round/killEvery%7)), fmt.Sprintf("zq%dx%d", t.seed%1000, round)
		if err := t.tell(ctx, teller, chat, word); err != nil {
			return err
		}
		var killed *service
		if round%killEvery == killEvery-1 {
			t.count("kill -9", 1)
			killed = []*service{teller, asked}[round/killEvery%2]
			killed.Kill()
		}
		if killed == asked {
			if err := t.startAll(); err != nil {
				return err
			}
		}
		t.search(ctx, asked, chat, word, round)
		if killed == teller {
			if err := t.startAll(); err != nil {
				return err
			}
			t.search(ctx, teller, chat, word, round)
		}
		return nil
	})
	return err == nil && t.report("rounds", "messages posted", "searches", "kill -9"), err
}

// tell posts until the message is acknowledged; while a process that was killed still has the
// chat's turn it is refused.
func (t *trial) tell(ctx context.Context, v *service, chat memory.Chat, word string) (err error) {
	for range 200 {
		t.count("messages posted", 1)
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
func (t *trial) search(ctx context.Context, v *service, chat memory.Chat, word string, round int) {
	for range 200 {
		t.count("searches", 1)
		got, err := v.client.Recall(ctx, chat, url.Values{"query": {word}})
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Retryable && sleep(ctx, 100*time.Millisecond):
			continue
		case err != nil:
			t.find("round %d: %s at %s: %v", round, chat, v.name, err)
		case !slices.ContainsFunc(got.Hits, func(h api.RecallHit) bool { return strings.Contains(h.Text, word) }):
			t.find("round %d: %s does not know %q of %s; %d other hits", round, v.name,
				word, chat, len(got.Hits))
		}
		return
	}
	t.find("round %d: %s refused a search for 20 s", round, v.name)
}
