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
	Paths      []string          `arg:"" name:"path" help:"Directories and files: text, Markdown, HTML, PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, RTF, e-mail, CSV, JSON, JSON lines."`
	Collection string            `required:"" placeholder:"NAME" help:"The collection to load into; it is made if it is not there."`
	Prefix     string            `placeholder:"NAME" help:"Put NAME/ in front of the documents' ids, which are the files' paths below the directory: so can two directories have files of the same name."`
	Origin     string            `placeholder:"NAME" help:"What the directory or file is called in the collection, if it is loaded from several places; its absolute path if not given."`
	Metadata   map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Metadata of all these documents, over what the files say; may be given several times."`
	Prune      bool              `default:"true" negatable:"" help:"Remove documents whose file is gone from the directory (default)."`
	JSON       bool              `help:"Print the summary as JSON."`
}

func (ingestCmd) Help() string {
	return `A directory is kept in step with the collection: new and changed files are loaded, those that are gone are removed, the others are not sent. Single files are added. A file does not take the place of another one with the same id: it is refused, and --prefix gives it an id of its own. If it is interrupted, run it again: it goes on where it was. A hidden file, or one of another type, is skipped in a directory; any other that could not be read is refused, and then the exit code is 1.

Examples:
  mneme ingest docs --collection docs
  mneme ingest handbook.pdf prices.csv --collection shop
  mneme ingest ./wiki --collection wiki --no-prune --json | jq .refused
  mneme ingest ./fr --collection docs --prefix fr --metadata lang=fr`
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
		Collection: c.Collection, Paths: c.Paths, Origin: c.Origin, Prefix: c.Prefix, Metadata: c.Metadata, Keep: !c.Prune,
		Progress: progress,
	})
	end()
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("stopped after %d documents; run the same command again to go on", report.New+report.Changed)
	} else if n := report.New + report.Changed; err != nil && n > 0 {
		err = fmt.Errorf("%w; %s were loaded: run the same command again to go on", err, plural(n, "document"))
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
