package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"mneme/memory"
	"mneme/memory/recall"
	"mneme/memory/recall/evaluate"
)

func (con *console) evalRecall() *cobra.Command {
	c := &cobra.Command{
		Use: "recall", Short: "Measure how well what was said is found again.",
		Long: `Imports conversations, each as a chat of its own, asks for the messages that answer their questions, and prints how often some and all of these are found in 500, 800, 1,500 and 4,000 tokens, by kind of question, with R@1, R@5 and MRR. Beside it, from the same run: textbook BM25 and the newest messages alone. The intervals are bootstraps over the questions. Words alone are searched, so that the figures are the same on every run; the exit code does not depend on them.

A set is a folder with conversations/NAME.jsonl (lines {"id","ts","role","name"?,"text"}) and questions.jsonl ({"conversation","id","kind","question","asked_at"?,"evidence":["message id"]}). Questions without evidence are passed over.

Examples:
  mneme eval recall --data ./conversations
  mneme eval recall --data ./conversations --json | jq .budgets`,
	}
	f := c.Flags()
	data := f.String("data", "", "Folder of a set, a `DIR`")
	_ = c.MarkFlagRequired("data")
	asJSON := f.Bool("json", false, "Print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		set, err := evaluate.Load(*data)
		if err != nil {
			return err
		}
		ctx, release := untilSignal(c.Context())
		defer release()
		tell, done := con.progress()
		report, err := evaluate.Run(ctx, set, indexes{}, tell)
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

// indexes are the conversations of a set, each as the index of a chat.
type indexes map[string]*recall.Index

func (in indexes) Import(ctx context.Context, c evaluate.Conversation) error {
	chat, err := memory.ParseChat(c.ID)
	if err != nil {
		return err
	}
	raw := make([]json.RawMessage, len(c.Messages))
	for i, m := range c.Messages {
		raw[i] = memory.Message{ID: m.ID, Role: m.Role, Name: m.Name, Timestamp: m.TS, Content: m.Text}.Encode()
	}
	ix := recall.New(memory.ChatKey(chat))
	ix.Append(raw...)
	in[c.ID] = ix
	return ctx.Err()
}

func (in indexes) Ask(ctx context.Context, q evaluate.Question, askedAt float64, budget int) ([]evaluate.Hit, error) {
	r := recall.Search([]*recall.Index{in[q.Conversation]}, recall.Query{
		Text: q.Question, AskedAt: time.UnixMilli(int64(1000 * askedAt)).UTC(), Budget: budget,
	})
	hits := make([]evaluate.Hit, len(r.Hits))
	for i, h := range r.Hits {
		hits[i] = evaluate.Hit{ID: h.ID, Text: h.Text}
	}
	return hits, ctx.Err()
}
