package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf16"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

// job is a message that is answered, and the messages of Telegram that show the answer.
type job struct {
	Update, Chat int64
	Text         string
	Messages     []int    // ids
	said         []string // by them
	next         time.Time
}

// maxText is how long a message of Telegram is, in units of UTF-16.
const maxText = 4096

// split cuts a text into messages, at the ends of lines where it can. What it has cut stays so when the text grows.
func split(text string) (parts []string) {
	units := utf16.Encode([]rune(text))
	for len(units) > maxText {
		cut := maxText
		for cut > maxText/2 && units[cut-1] != '\n' {
			cut--
		}
		if cut == maxText/2 {
			cut = maxText
		}
		if units[cut]&0xFC00 == 0xDC00 { // the second half of a letter
			cut--
		}
		parts, units = append(parts, string(utf16.Decode(units[:cut]))), units[cut:]
	}
	return append(parts, string(utf16.Decode(units)))
}

// show has the messages of a job say a text, the last one with buttons: pairs of what they say and what they do.
func (a *app) show(ctx context.Context, j *job, text string, buttons ...string) {
	parts := split(text)
	for i, part := range parts {
		var markup models.ReplyMarkup
		if i == len(parts)-1 && len(buttons) > 0 {
			var row []models.InlineKeyboardButton
			for pair := range slices.Chunk(buttons, 2) {
				row = append(row, models.InlineKeyboardButton{Text: pair[0], CallbackData: pair[1]})
			}
			markup = &models.InlineKeyboardMarkup{InlineKeyboard: [][]models.InlineKeyboardButton{row}}
		}
		if len(j.said) <= i {
			j.said = append(j.said, "")
		}
		says := fmt.Sprint(part, markup != nil)
		if j.said[i] == says {
			continue
		}
		err := patient(ctx, func() (err error) {
			if i < len(j.Messages) {
				_, err = a.EditMessageText(ctx, &bot.EditMessageTextParams{ChatID: j.Chat, MessageID: j.Messages[i],
					Text: part, ReplyMarkup: markup})
				return err
			}
			m, err := a.SendMessage(ctx, &bot.SendMessageParams{ChatID: j.Chat, Text: part, ReplyMarkup: markup})
			if err == nil {
				j.Messages = append(j.Messages, m.ID)
				a.save(j)
			}
			return err
		})
		if err != nil && ctx.Err() == nil { // the message was deleted, or says this already
			log.Printf("chat %d: %v", j.Chat, err)
		}
		if j.said[i] = says; len(j.Messages) <= i {
			return
		}
	}
	j.next = time.Now().Add(a.pace)
}

// patient calls Telegram, and again after the pause that it asks for.
func patient(ctx context.Context, call func() error) error {
	for {
		err := call()
		var slow *bot.TooManyRequestsError
		if !errors.As(err, &slow) {
			return err
		}
		select {
		case <-time.After(time.Duration(slow.RetryAfter) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *app) file(j *job) string { return filepath.Join(a.open, fmt.Sprint(j.Update, ".json")) }

// save keeps a job of an update, for the next start.
func (a *app) save(j *job) {
	if j.Update == 0 {
		return
	}
	raw, err := json.Marshal(j)
	if err == nil {
		err = os.WriteFile(a.file(j)+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(a.file(j)+".new", a.file(j))
	}
	if err != nil {
		log.Printf("a restart would lose update %d: %v", j.Update, err)
	}
}
