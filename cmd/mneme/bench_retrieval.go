package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"mneme/cmd/mneme/internal/bench"
)

type benchRetrievalCmd struct {
	Small   int  `default:"11000" help:"Passages of the small collection (${default})."`
	Large   int  `default:"95000" help:"Passages of the large collection (${default})."`
	Queries int  `default:"1000" help:"Queries asked of each (${default})."`
	Changes int  `default:"300" help:"Documents added, replaced and deleted in the small one (${default})."`
	Process bool `default:"true" negatable:"" help:"Measure processes that keep as many passages of a redis-server searchable, too; --no-process leaves that out."`
	JSON    bool `help:"Print JSON."`
}

func (benchRetrievalCmd) Help() string {
	return `Indexes made-up documents in memory, the same in every run, and measures how long that takes, what memory it holds, how long searches take, and how long until a changed document is found. Then it does the same as an apiserver does: it stores them in a redis-server of its own, which must be on the PATH, starts a process from Redis alone and another from the snapshot of the first, and measures their start, searches and memory as the system sees it. It takes about a minute. How good the hits are is for mneme eval retrieval. The exit code does not depend on what was measured.

Examples:
  mneme bench retrieval
  mneme bench retrieval --no-process
  mneme bench retrieval --large 500000
  mneme bench retrieval --json | jq .rows`
}

func (c benchRetrievalCmd) Run(ctx context.Context, con *console) error {
	if c.Small < 1 || c.Large < 1 || c.Queries < 1 || c.Changes < 1 {
		return errors.New("--small, --large, --queries and --changes must be 1 or more")
	}
	ctx, release := untilSignal(ctx)
	defer release()
	o := bench.RetrievalOptions{Small: c.Small, Large: c.Large, Queries: c.Queries, Changes: c.Changes}
	if c.Process {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding this program, to start it as a process that is measured: %w", err)
		}
		o.Library = func(ctx context.Context, url, dir string, queries int) *exec.Cmd {
			return exec.CommandContext(ctx, self, "bench", "library", "--redis", url, "--dir", dir, "--queries", strconv.Itoa(queries))
		}
	}
	tell, done := con.progress()
	o.Progress = tell
	report, err := bench.Retrieval(ctx, o)
	done()
	if err != nil {
		return err
	}
	return con.print(report, c.JSON)
}

type benchLibraryCmd struct {
	Redis   string
	Dir     string
	Queries int
}

func (c benchLibraryCmd) Run(ctx context.Context, con *console) error {
	return bench.Library(ctx, c.Redis, c.Dir, c.Queries, con.stdout)
}
