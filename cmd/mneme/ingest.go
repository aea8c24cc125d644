package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/cmd/mneme/internal/ingest"
)

type ingestCmd struct {
	clientFlags
	Paths      []string `arg:"" name:"path" help:"Directories and files: text, Markdown, HTML, PDF, Word, CSV, JSON, JSON lines."`
	Collection string   `required:"" placeholder:"NAME" help:"The collection to load into; it is made if it is not there."`
	Origin     string   `placeholder:"NAME" help:"What the directory is called in the collection, if it is loaded from several places; its absolute path if not given."`
	Prune      bool     `default:"true" negatable:"" help:"Remove documents whose file is gone from the directory (default)."`
	JSON       bool     `help:"Print the summary as JSON."`
}

func (ingestCmd) Help() string {
	return `A directory is kept in step with the collection: new and changed files are loaded, those that are gone are removed, the others are not sent. Single files are added. If it is interrupted, run it again: it goes on where it was. A hidden file, or one of another type, is skipped in a directory; any other that could not be read is refused, and then the exit code is 1.

Examples:
  mneme ingest docs --collection docs
  mneme ingest handbook.pdf prices.csv --collection shop
  mneme ingest ./wiki --collection wiki --no-prune --json | jq .refused`
}

func (c ingestCmd) Run(ctx context.Context, con *console) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, release := untilSignal(ctx)
	defer release()
	progress, end := ingest.NewProgress(con.stderr)
	report, err := ingest.Run(ctx, client, ingest.Options{
		Collection: c.Collection, Paths: c.Paths, Origin: c.Origin, Keep: !c.Prune, Progress: progress,
	})
	end()
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("stopped after %d documents; run the same command again to go on", report.New+report.Changed)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(con.stdout)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		err = report.WriteText(con.stdout)
	}
	if n := len(report.Refused); err == nil && n > 0 {
		err = errors.New(plural(n, "document") + " could not be loaded; the summary says why")
	}
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
