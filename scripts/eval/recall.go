package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/cmd/mneme/services"
	"mneme/memory"
	"mneme/memory/recall"
	"mneme/scripts/eval/internal/conversations"
	"mneme/scripts/eval/internal/documents"
	webapi "mneme/webmemory/api"
)

func (con *console) recall() *cobra.Command {
	c := &cobra.Command{
		Use: "recall", Short: "How well what was said is found again",
		Long: `Starts a webmemory of its own in a temporary folder, imports conversations, each as a chat, asks for the messages that answer their questions, and prints how often some and all of these are found in 500, 800, 1,500 and 4,000 tokens, by kind of question, with R@1, R@5 and MRR. Beside it, from the same run: textbook BM25 and the newest messages alone. The intervals are bootstraps over the questions. Words alone are searched, so that the figures are the same on every run; the exit code does not depend on them.

With --embed-url, or the configuration in --config, vectors are measured, too (recall.vectors): the same index with the vectors of all messages, searched by words and vectors, and by vectors alone. All messages and questions of the set are sent to that endpoint, which may cost; --vectors keeps what came for the next run.

A set is a folder with conversations/NAME.jsonl (lines {"id","ts","role","name"?,"text"}) and questions.jsonl ({"conversation","id","kind","question","asked_at"?,"evidence":["message id"]}). Questions without evidence are passed over.

With --turns a whole mneme is run with its defaults, over a model that only listens: each question is posted as a message in a chat of its own, and so are 300 messages of the conversations themselves. Printed is how often the evidence stands in the prompt, and how often and in how many tokens something was recalled.

Examples, with relative paths from scripts/:
  go -C scripts run ./eval recall --data ../conversations
  go -C scripts run ./eval recall --data ../conversations --json | jq .budgets
  go -C scripts run ./eval recall --data ../conversations --embed-url https://api.openai.com/v1 --embed-model text-embedding-3-small --embed-key-env OPENAI_API_KEY --vectors ../vectors`,
	}
	var e endpoints
	e.embeddingFlags(c.Flags())
	turns := c.Flags().Bool("turns", false, "Measure what stands in the prompts of whole turns instead")
	return con.measuring(c, func(ctx context.Context, data string, tell func(string)) (report, error) {
		set, err := conversations.Load(data)
		if err != nil {
			return nil, err
		}
		var o documents.Options
		stop, err := e.open(ctx, &o, tell)
		if err != nil {
			return nil, err
		}
		defer stop()
		switch {
		case *turns && o.Endpoint != nil:
			return nil, usageError{errors.New("--turns measures words alone: leave out the flags about embeddings")}
		case e.Config != "" && o.Endpoint == nil:
			return nil, fmt.Errorf("%s has no retrieval.embeddings: nothing of it would be measured", e.Config)
		case *turns:
			return evalTurns(ctx, set, tell)
		}
		service, end, err := own(ctx, services.Webmemory, func(*services.Config, *services.Options) {})
		if err != nil {
			return nil, err
		}
		defer end()
		if o.Endpoint == nil {
			return conversations.Run(ctx, set, service, nil, nil, tell)
		}
		both := meaning{o.Endpoint, map[string]*recall.Index{}}
		r, err := conversations.Run(ctx, set, service, both, vectorsOnly{both}, tell)
		if err == nil {
			r.Embedded = &o.Endpoint.Report
		}
		return r, err
	})
}

// recallService is a webmemory that is measured by its public routes.
type recallService struct{ client *webapi.Client }

// own runs services in this process, with a store that is gone after stop.
func own(
	ctx context.Context,
	service func(context.Context, services.Config, services.Options) error,
	change func(*services.Config, *services.Options),
) (s recallService, stop func(), err error) {
	dir, err := os.MkdirTemp("", "mneme-eval-")
	if err != nil {
		return s, nil, err
	}
	cfg, o := services.Default(), services.Options{Out: io.Discard, Log: zerolog.Nop()}
	cfg.DataDir, cfg.SessionLogs = dir, false
	cfg.Redis.EmbeddedListen, cfg.Webmemory.Listen = "127.0.0.1:0", "127.0.0.1:0"
	change(&cfg, &o)
	addrs, end, err := services.Start(ctx, service, cfg, o)
	if err != nil {
		os.RemoveAll(dir)
		return s, nil, err
	}
	s.client, err = webapi.New("http://" + addrs.Webmemory)
	return s, func() { s.client.Close(); _ = end(); os.RemoveAll(dir) }, err
}

// Import stores a conversation as a chat.
func (s recallService) Import(ctx context.Context, c conversations.Conversation) error {
	chat, err := memory.Tenant{}.Chat(c.ID)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, m := range stored(c) {
		if err := lines.Encode(webapi.ExportLine{Message: m}); err != nil {
			return err
		}
	}
	_, err = s.client.Import(ctx, chat, &b)
	return err
}

// stored are the messages of a conversation as a history has them.
func stored(c conversations.Conversation) (raw []json.RawMessage) {
	for _, m := range c.Messages {
		message := memory.Message{ID: m.ID, Role: m.Role, Name: m.Name, Timestamp: m.TS, Content: m.Text}
		raw = append(raw, message.Encode())
	}
	return raw
}

// Ask asks until all of the chat is searched.
func (s recallService) Ask(
	ctx context.Context, q conversations.Question, askedAt float64, budget int,
) ([]conversations.Hit, error) {
	chat, err := memory.Tenant{}.Chat(q.Conversation)
	if err != nil {
		return nil, err
	}
	path := webapi.ChatPath(chat) + "/recall?" + url.Values{
		"query": {q.Question}, "budget": {strconv.Itoa(budget)},
		"asked_at": {strconv.FormatFloat(askedAt, 'f', -1, 64)},
	}.Encode()
	for {
		var answer webapi.Recalled
		if err := s.client.Call(ctx, http.MethodGet, path, &answer); err != nil {
			return nil, err
		}
		if answer.Partial {
			continue
		}
		hits := make([]conversations.Hit, len(answer.Hits))
		for i, h := range answer.Hits {
			hits[i] = conversations.Hit{ID: h.ID, Text: h.Text}
		}
		return hits, nil
	}
}
