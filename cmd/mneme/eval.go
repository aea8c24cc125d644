package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/cmd/mneme/internal/evalretrieval"
	"mneme/cmd/mneme/internal/term"
)

type evalCmd struct {
	Retrieval evalRetrievalCmd `cmd:"" help:"Measure how well searches find what people judged relevant."`
}

type evalRetrievalCmd struct {
	Data string `required:"" placeholder:"DIR" help:"Folder of a judged set, or of several."`
	Set  string `placeholder:"NAME" help:"Only the set in the folder of this name."`
	PRF  bool   `name:"prf" help:"Measure with pseudo-relevance feedback too."`
	JSON bool   `help:"Print JSON."`
}

func (evalRetrievalCmd) Help() string {
	return `Indexes the documents of judged sets, asks their queries, and prints nDCG@10, Recall@100, Recall@5, MAP and MRR@10 by the formulas of trec_eval, beside a textbook's BM25. The figures are the same on every run; the exit code does not depend on them.

A judged set is a folder with corpus.jsonl (lines {"id","title","text"}), queries.jsonl ({"id","text"}) and qrels.tsv (query id, document id, grade). It may have conversations.jsonl ({"id","messages":[{"role","content"}]}), whose last turns are then the queries, and queries_NAME.jsonl, other wordings.

Examples:
  mneme eval retrieval --data ./judged
  mneme eval retrieval --data ./judged --set cranfield --prf
  mneme eval retrieval --data ./judged/cranfield --json | jq .reaches`
}

func (c evalRetrievalCmd) Run(ctx context.Context, con *console) error {
	folders, err := evalretrieval.Find(c.Data, c.Set)
	if err != nil {
		return err
	}
	ctx, release := untilSignal(ctx)
	defer release()
	line := term.IsTerminal(con.stderr)
	report, err := evalretrieval.Run(ctx, folders, evalretrieval.Options{
		Feedback: c.PRF,
		Progress: func(doing string) {
			if line {
				doing = "\r\x1b[K" + doing // over the one before
			} else {
				doing += "\n"
			}
			fmt.Fprint(con.stderr, doing)
		},
	})
	if line {
		fmt.Fprint(con.stderr, "\r\x1b[K")
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped before the end; an incomplete run is not shown")
	}
	if err != nil {
		return err
	}
	if !c.JSON {
		return report.WriteText(con.stdout)
	}
	e := json.NewEncoder(con.stdout)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
