package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/subagent/rag/evaluate"
)

// retrievalEval is what mneme eval retrieval measures, and how it shows it.
type retrievalEval struct {
	Data, Set         string
	PRF, Topics, JSON bool
	evalEndpoints
}

func (con *console) evalRetrieval() *cobra.Command {
	c := &cobra.Command{
		Use: "retrieval", Short: "Measure how well searches find what people judged relevant.",
		Long: `Indexes the documents of judged sets, asks their queries, and prints nDCG@10, Recall@100, Recall@5, MAP and MRR@10 by the formulas of trec_eval, beside a textbook's BM25. Without endpoints the figures are the same on every run; the exit code does not depend on them.

A judged set is a folder with corpus.jsonl (lines {"id","title","text"}), queries.jsonl ({"id","text"}) and qrels.tsv (query id, document id, grade). It may have conversations.jsonl ({"id","messages":[{"role","content"}]}), whose last turns are then the queries, and queries_NAME.jsonl, other wordings.

With --topics each query is also asked in a chat that was about something else before: behind one to ten others of its set, with their conversations and answers. What that costs is what earlier topics take from a question.

With --embed-url, or the configuration in --config, an endpoint of embeddings is measured before it is switched on: its vectors alone, and joined with the words at each --vector-weight. All documents and queries of the sets are sent to it, which may cost; --vectors keeps what came for the next run, --limit takes a part of each set. With --rerank-url a reranker is measured, behind the words and behind the fusion at the middle weight.

Examples:
  mneme eval retrieval --data ./judged
  mneme eval retrieval --data ./judged --set cranfield --prf
  mneme eval retrieval --data ./judged --topics
  mneme eval retrieval --data ./judged/cranfield --json | jq .reaches
  mneme eval retrieval --data ./judged --embed-url https://api.openai.com/v1 --embed-model text-embedding-3-small --embed-key-env OPENAI_API_KEY --vectors ./vectors
  mneme eval retrieval --data ./judged --config mneme.yaml --limit 1000`,
	}
	var e retrievalEval
	f := c.Flags()
	f.StringVar(&e.Data, "data", "", "Folder of a judged set, or of several, a `DIR`")
	_ = c.MarkFlagRequired("data")
	f.StringVar(&e.Set, "set", "", "Only the set in the folder of this `NAME`")
	f.BoolVar(&e.PRF, "prf", false, "Measure with pseudo-relevance feedback too")
	f.BoolVar(&e.Topics, "topics", false, "Ask each query behind conversations on other topics too")
	f.BoolVar(&e.JSON, "json", false, "Print JSON")
	e.flags(f)
	c.RunE = func(c *cobra.Command, _ []string) error { return e.run(c.Context(), con) }
	return c
}

func (c retrievalEval) run(ctx context.Context, con *console) error {
	folders, err := evaluate.Find(c.Data, c.Set)
	if err != nil {
		return err
	}
	ctx, release := untilSignal(ctx)
	defer release()
	options, stop, err := c.options(ctx, con)
	if err != nil {
		return err
	}
	defer stop()
	tell, done := con.progress()
	options.Feedback, options.Topics, options.Progress = c.PRF, c.Topics, tell
	report, err := evaluate.Run(ctx, folders, options)
	done()
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped before the end; an incomplete run is not shown")
	}
	if err != nil {
		return err
	}
	return con.print(report, c.JSON)
}

// progress says on standard error what is being done, on a terminal in one line
// that done clears.
func (con *console) progress() (tell func(doing string), done func()) {
	if !term.IsTerminal(con.stderr) {
		return func(doing string) { fmt.Fprintln(con.stderr, doing) }, func() {}
	}
	return func(doing string) { fmt.Fprint(con.stderr, "\r\x1b[K"+doing) }, func() { fmt.Fprint(con.stderr, "\r\x1b[K") }
}

// print prints a report for people or as JSON.
func (con *console) print(report interface{ WriteText(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return report.WriteText(con.stdout)
	}
	e := json.NewEncoder(con.stdout)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
