package main

import (
	"context"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"mneme/memory/event"
	webapi "mneme/webmemory/api"
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
		var info webapi.ChatInfo
		if info, err = a.memory.Chat(ctx, chat); err != nil || info.Waiting == nil {
			break
		}
		var answers []event.WaitAnswer
		for _, w := range info.Waiting.Waits {
			answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: does})
		}
		err = a.follow(ctx, &job{Chat: j.Chat}, a.memory.Resume(ctx, chat, run, 0, answers...))
	}
	if err != nil && ctx.Err() == nil {
		a.show(ctx, &job{Chat: j.Chat}, err.Error())
	}
}
