package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"mneme/memory"
	"mneme/memory/event"
)

// pressed does what the button of a message says.
func (a *app) pressed(ctx context.Context, q *models.CallbackQuery, at *models.Message) {
	_, _ = a.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: q.ID})
	does, run, _ := strings.Cut(q.Data, " ")
	j, chat, err := &job{Chat: at.Chat.ID, Messages: []int{at.ID}}, chatOf(at.Chat.ID), error(nil)
	switch does {
	case "stop":
		err = a.memory.Stop(ctx, chat, run)
	case "keep":
		a.show(ctx, j, "Nothing was forgotten.")
	case "forget":
		if _, err = a.memory.EraseChat(ctx, chat); err == nil {
			a.show(ctx, j, "All is forgotten.")
		}
	case event.Approve, event.Deny:
		a.show(ctx, j, at.Text+"\n\n("+does+")")
		var answers []event.WaitAnswer
		if answers, err = a.answers(ctx, chat, does); len(answers) > 0 {
			err = a.follow(ctx, &job{Chat: j.Chat}, a.memory.Resume(ctx, chat, run, 0, answers...))
		}
	}
	if err != nil && ctx.Err() == nil {
		a.show(ctx, &job{Chat: j.Chat}, err.Error())
	}
}

// answers decide all that a chat's run waits for; none if nothing waits any more. A run shows its question a moment
// before the chat says that it waits.
func (a *app) answers(ctx context.Context, chat memory.Chat, does string) (answers []event.WaitAnswer, err error) {
	for tries := 0; tries < 50 && ctx.Err() == nil; tries++ {
		info, err := a.memory.Chat(ctx, chat)
		if err != nil {
			return nil, err
		}
		if info.Waiting != nil {
			for _, w := range info.Waiting.Pending {
				answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: does})
			}
			return answers, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, nil
}
