package main

import (
	"context"

	"github.com/spf13/cobra"

	"mneme/scripts/eval/internal/documents"
)

func (con *console) retrieval() *cobra.Command {
	c := &cobra.Command{
		Use: "retrieval", Short: "How well searches find what people judged relevant",
		Long: `Indexes the documents of judged sets, asks their queries, and prints nDCG@10, Recall@100, Recall@5, MAP and MRR@10 by the formulas of trec_eval, beside a textbook's BM25. Without endpoints the figures are the same on every run; the exit code does not depend on them.

A judged set is a folder with corpus.jsonl (lines {"id","title","text"}), queries.jsonl ({"id","text"}) and qrels.tsv (query id, document id, grade). It may have conversations.jsonl ({"id","messages":[{"role","content"}]}), whose last turns are then the queries, and queries_NAME.jsonl, other wordings.

With --topics each query is also asked in a chat that was about something else before: behind one to ten others of its set, with their conversations and answers. What that costs is what earlier topics take from a question.

With --embed-url, or the configuration in --config, an endpoint of embeddings is measured before it is switched on: its vectors alone, and joined with the words at each --vector-weight. All documents and queries of the sets are sent to it, which may cost; --vectors keeps what came for the next run, --limit takes a part of each set. With --rerank-url a reranker is measured, behind the words and behind the fusion at the middle weight.

Examples, with relative paths from scripts/:
  go -C scripts run ./eval retrieval --data ../judged
  go -C scripts run ./eval retrieval --data ../judged --set cranfield --prf
  go -C scripts run ./eval retrieval --data ../judged --topics
  go -C scripts run ./eval retrieval --data ../judged/cranfield --json | jq .reaches
  go -C scripts run ./eval retrieval --data ../judged --embed-url https://api.openai.com/v1 --embed-model text-embedding-3-small --embed-key-env OPENAI_API_KEY --vectors ../vectors
  go -C scripts run ./eval retrieval --data ../judged --config ../mneme.yaml --limit 1000`,
	}
	var options documents.Options
	var e endpoints
	f := c.Flags()
	set := f.String("set", "", "Only the set in the folder of this `NAME`")
	f.BoolVar(&options.Feedback, "prf", false, "Measure with pseudo-relevance feedback too")
	f.BoolVar(&options.Topics, "topics", false, "Ask each query behind conversations on other topics too")
	e.embeddingFlags(f)
	e.rankingFlags(f)
	return con.measuring(c, func(ctx context.Context, data string, tell func(string)) (report, error) {
		folders, err := documents.Find(data, *set)
		if err != nil {
			return nil, err
		}
		stop, err := e.open(ctx, &options, tell)
		if err != nil {
			return nil, err
		}
		defer stop()
		options.Progress = tell
		return documents.Run(ctx, folders, options)
	})
}
