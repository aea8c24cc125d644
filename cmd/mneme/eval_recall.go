package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
	"mneme/memory/recall/evaluate"
	webapi "mneme/webmemory/api"
)

func (con *console) evalRecall() *cobra.Command {
	c := &cobra.Command{
		Use: "recall", Short: "Measure how well what was said is found again.",
		Long: `Starts a webmemory of its own in a temporary folder, imports conversations, each as a chat, asks for the messages that answer their questions, and prints how often some and all of these are found in 500, 800, 1,500 and 4,000 tokens, by kind of question, with R@1, R@5 and MRR. Beside it, from the same run: textbook BM25 and the newest messages alone. The intervals are bootstraps over the questions. Words alone are searched, so that the figures are the same on every run; the exit code does not depend on them.

A set is a folder with conversations/NAME.jsonl (lines {"id","ts","role","name"?,"text"}) and questions.jsonl ({"conversation","id","kind","question","asked_at"?,"evidence":["message id"]}). Questions without evidence are passed over.

With --turns a whole mneme is run with its defaults, over a model that only listens: each question is posted as a message in a chat of its own, and so are 300 messages of the conversations themselves. Printed is how often the evidence stands in the prompt, and how often and in how many tokens something was recalled.

Examples:
  mneme eval recall --data ./conversations
  mneme eval recall --data ./conversations --json | jq .budgets`,
	}
	f := c.Flags()
	data := f.String("data", "", "Folder of a set, a `DIR`")
	_ = c.MarkFlagRequired("data")
	turns := f.Bool("turns", false, "Measure what stands in the prompts of whole turns instead")
	asJSON := f.Bool("json", false, "Print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		set, err := evaluate.Load(*data)
		if err != nil {
			return err
		}
		ctx, release := untilSignal(c.Context())
		defer release()
		if *turns {
			return con.evalTurns(ctx, set, *asJSON)
		}
		service, stop, err := own(ctx, app.Webmemory, func(*config.Config, *app.Options) {})
		if err != nil {
			return err
		}
		defer stop()
		tell, done := con.progress()
		report, err := evaluate.Run(ctx, set, service, tell)
		done()
		if err != nil && ctx.Err() != nil {
			return errors.New("stopped before the end; an incomplete run is not shown")
		}
		if err != nil {
			return err
		}
		return con.print(report, *asJSON)
	}
	return c
}

// recallService is a webmemory that is measured by its public routes.
type recallService struct{ client *webapi.Client }

// own runs a service in this process, with a store that is gone after stop.
func own(
	ctx context.Context, service func(context.Context, config.Config, app.Options) error,
	change func(*config.Config, *app.Options),
) (s recallService, stop func(), err error) {
	dir, err := os.MkdirTemp("", "mneme-eval-")
	if err != nil {
		return s, nil, err
	}
	cfg := config.Default()
	cfg.DataDir, cfg.SessionLogs = dir, false
	cfg.Redis.EmbeddedListen, cfg.Webmemory.Listen = "127.0.0.1:0", "127.0.0.1:0"
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan app.Addrs, 1), make(chan error, 1)
	go func() { // ends with ctx
		o := app.Options{Out: io.Discard, Log: zerolog.Nop(), Ready: func(a app.Addrs) { ready <- a }}
		change(&cfg, &o)
		ended <- service(ctx, cfg, o)
	}()
	select {
	case at := <-ready:
		s.client, err = webapi.New("http://" + at.Webmemory)
		return s, func() {
			s.client.Close()
			cancel()
			<-ended
			os.RemoveAll(dir)
		}, err
	case err = <-ended:
		cancel()
		os.RemoveAll(dir)
		return s, nil, err
	}
}

// Import stores a conversation as a chat.
func (s recallService) Import(ctx context.Context, c evaluate.Conversation) error {
	chat, err := memory.Tenant{}.Chat(c.ID)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, m := range c.Messages {
		stored := memory.Message{ID: m.ID, Role: m.Role, Name: m.Name, Timestamp: m.TS, Content: m.Text}
		if err := lines.Encode(webapi.ExportLine{Message: stored.Encode()}); err != nil {
			return err
		}
	}
	_, err = s.client.Import(ctx, chat, &b)
	return err
}

// Ask asks until all of the chat is searched.
func (s recallService) Ask(
	ctx context.Context, q evaluate.Question, askedAt float64, budget int,
) ([]evaluate.Hit, error) {
	chat, err := memory.Tenant{}.Chat(q.Conversation)
	if err != nil {
		return nil, err
	}
	path := webapi.ChatPath(chat) + "/recall?" + url.Values{
		"query": {q.Question}, "budget": {strconv.Itoa(budget)},
		"asked_at": {strconv.FormatFloat(askedAt, 'f', -1, 64)},
	}.Encode()
	for {
		var found webapi.Recalled
		if err := s.client.Call(ctx, http.MethodGet, path, &found); err != nil {
			return nil, err
		}
		if found.Partial {
			continue
		}
		hits := make([]evaluate.Hit, len(found.Hits))
		for i, h := range found.Hits {
			hits[i] = evaluate.Hit{ID: h.ID, Text: h.Text}
		}
		return hits, nil
	}
}
