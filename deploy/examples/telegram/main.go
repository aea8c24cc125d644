// Command telegram is a Telegram bot that remembers: each chat of Telegram is a chat of mneme. It owns a goroutine
// for each message that is answered and what it shows of it, in memory. It never stores what is said: webmemory does.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// app is the bot. What is not answered yet has a file in open, by which the next start goes on with it.
type app struct {
	*bot.Bot
	memory *webapi.Client
	open   string        // a folder
	pace   time.Duration // between two edits of a message
	users  string        // ids of the users that may ask, with commas; empty for all
	key    string        // of mneme's; empty where it asks for none

	resumed map[int64]bool // updates that this start resumes; Telegram may send them again
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{open: "open", pace: 3 * time.Second, users: os.Getenv("TELEGRAM_USERS"), key: os.Getenv("MNEME_KEY")}
	err := a.run(ctx, cmp.Or(os.Getenv("MNEME_URL"), "http://127.0.0.1:8080"), os.Getenv("TELEGRAM_BOT_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
}

// run goes on with what is open, and takes updates until ctx ends.
func (a *app) run(ctx context.Context, memoryURL, token string, options ...bot.Option) (err error) {
	keyed := &http.Client{Transport: access.Bearer{Base: http.DefaultTransport, Key: a.key}}
	if a.memory, err = webapi.NewOver(memoryURL, keyed); err != nil {
		return err
	}
	// Updates are taken in their order; what takes long goes on beside.
	options = append(options, bot.WithDefaultHandler(a.update), bot.WithNotAsyncHandlers())
	if a.Bot, err = bot.New(token, options...); err != nil {
		return err
	}
	if err = os.MkdirAll(a.open, 0o700); err != nil {
		return err
	}
	a.resumed = map[int64]bool{}
	files, _ := filepath.Glob(filepath.Join(a.open, "*.json"))
	for _, name := range files {
		var j job
		if raw, err := os.ReadFile(name); err == nil && json.Unmarshal(raw, &j) == nil {
			a.resumed[j.Update] = true
			go a.answer(ctx, &j)
		}
	}
	a.Start(ctx)
	return nil
}

func (a *app) update(ctx context.Context, _ *bot.Bot, u *models.Update) {
	may := func(user int64) bool {
		return a.users == "" || strings.Contains(","+a.users+",", fmt.Sprintf(",%d,", user))
	}
	switch q, m := u.CallbackQuery, u.Message; {
	case q != nil && q.Message.Message != nil && may(q.From.ID):
		go a.pressed(ctx, q, q.Message.Message)
	case m == nil || m.Text == "" || m.From == nil || !may(m.From.ID), strings.HasPrefix(m.Text, "/start"):
	case strings.HasPrefix(m.Text, "/forget"):
		a.show(ctx, &job{Chat: m.Chat.ID}, "Forget all that was said here?", "Forget", "forget", "Keep", "keep")
	case a.resumed[u.ID]:
	default:
		j := &job{Update: u.ID, Chat: m.Chat.ID, Text: m.Text}
		a.save(j)
		go a.answer(ctx, j)
	}
}

func chatOf(id int64) memory.Chat { return memory.MustChat(fmt.Sprint("telegram:", id)) }

// answer posts a message and shows its run. Posted again with its key, it joins the run that has begun.
func (a *app) answer(ctx context.Context, j *job) {
	a.show(ctx, j, "…")
	for {
		err := a.follow(ctx, j, a.memory.Say(ctx, chatOf(j.Chat), j.Text, fmt.Sprint("telegram-", j.Update)))
		refused := new(api.Problem)
		away := webapi.Retryable(err) && (!errors.As(err, &refused) || refused.Status == 503 || refused.Status == 429)
		if away && ctx.Err() == nil {
			time.Sleep(a.pace)
			continue
		}
		if ctx.Err() != nil {
			return // the next start goes on
		}
		if err != nil {
			a.show(ctx, j, err.Error())
		}
		_ = os.Remove(a.file(j))
		return
	}
}

// follow shows the events of a run as they come.
func (a *app) follow(ctx context.Context, j *job, events iter.Seq2[event.Event, error]) error {
	text := ""
	for e, err := range events {
		if err != nil {
			return err
		}
		switch p := e.Payload.(type) {
		case *event.AssistantDelta:
			text += p.Text
		case *event.Assistant:
			text = p.Content
		case *event.Error:
			if e.Subagent == "" {
				text = strings.TrimSpace(text + "\n\n(" + p.Message + ")")
			}
		case *event.RunWaiting:
			for _, w := range p.Pending {
				text += fmt.Sprintf("\n%s %s\n%s", w.Tool, w.Arguments, w.Reason)
			}
			a.show(ctx, j, text, "Yes", event.Approve+" "+e.RunID, "No", event.Deny+" "+e.RunID)
			return nil
		case *event.RunFinished:
			a.show(ctx, j, cmp.Or(text, "(stopped)"))
			return nil
		}
		if time.Now().After(j.next) {
			a.show(ctx, j, cmp.Or(text, "…"), "Stop", "stop "+e.RunID)
		}
	}
	return nil
}
