package main

import (
	"context"
	"errors"

	"mneme/cmd/mneme/internal/bench"
)

type benchRetrievalCmd struct {
	Small   int  `default:"11000" help:"Passages of the small collection (${default})."`
	Large   int  `default:"95000" help:"Passages of the large collection (${default})."`
	Queries int  `default:"1000" help:"Queries asked of each (${default})."`
	Changes int  `default:"300" help:"Documents added, replaced and deleted in the small one (${default})."`
	JSON    bool `help:"Print JSON."`
}

func (benchRetrievalCmd) Help() string {
	return `Indexes made-up documents in memory, the same in every run, and measures how long that takes, what memory it holds, how long searches take, and how long until a changed document is found. It takes less than a minute and needs nothing else. How good the hits are is for mneme eval retrieval. The exit code does not depend on what was measured.

Examples:
  mneme bench retrieval
  mneme bench retrieval --json | jq .rows`
}

func (c benchRetrievalCmd) Run(ctx context.Context, con *console) error {
	if c.Small < 1 || c.Large < 1 || c.Queries < 1 || c.Changes < 1 {
		return errors.New("--small, --large, --queries and --changes must be 1 or more")
	}
	ctx, release := untilSignal(ctx)
	defer release()
	tell, done := con.progress()
	report, err := bench.Retrieval(ctx, bench.RetrievalOptions{
		Small: c.Small, Large: c.Large, Queries: c.Queries, Changes: c.Changes,
		Progress: tell,
	})
	done()
	if err != nil {
		return err
	}
	return con.print(report, c.JSON)
}
