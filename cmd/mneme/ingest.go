package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/ingest"
	webapi "mneme/webmemory/api"
)

func ingestCommand(con *console) *cobra.Command {
	c := newCommand("ingest <path> ...", "Load documents that subagents answer from.", `Paths are directories and files: text, Markdown, HTML, PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, RTF, e-mail, CSV, JSON, JSON lines.

A directory is kept in step with the collection: new and changed files are loaded, those that are gone are removed, the others are not sent. Single files are added. A file does not take the place of another one with the same id: it is refused, and --prefix gives it an id of its own. If it is interrupted, run it again: it goes on where it was. A hidden file, or one of another type, is skipped in a directory; any other that could not be read is refused, and then the exit code is 1.

Examples:
  mneme ingest docs --collection docs
  mneme ingest handbook.pdf prices.csv --collection shop
  mneme ingest ./wiki --collection wiki --no-prune --json | jq .refused
  mneme ingest ./fr --collection docs --prefix fr --metadata lang=fr`)
	var o ingest.Options
	f := c.Flags()
	f.StringVar(&o.Collection, "collection", "", "The collection to load into, by its `NAME`; it is made if it is not there")
	_ = c.MarkFlagRequired("collection")
	f.StringVar(&o.Prefix, "prefix", "", "Put `NAME`/ in front of the documents' ids, which are the files' paths below the directory: so can two directories have files of the same name")
	f.StringVar(&o.Origin, "origin", "", "The `NAME` of the directory or file in the collection, if it is loaded from several places; its absolute path if not given")
	f.StringVar(&o.Charset, "charset", "", "Encoding of text files that are not UTF-8, as `NAME`")
	f.Func("metadata", "Metadata of all these documents, `KEY=VALUE`, over what the files say; may be given several times", func(pair string) error {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf(`expected "<key>=<value>" but got %q`, pair)
		}
		if o.Metadata == nil {
			o.Metadata = map[string]string{}
		}
		o.Metadata[key] = value
		return nil
	})
	f.BoolVar(&o.Keep, "no-prune", false, "Keep documents whose file is gone from the directory, else removed")
	f.BoolFunc("prune", "Remove them, as without any flag", func(s string) error {
		prune, err := strconv.ParseBool(s)
		o.Keep = !prune
		return err
	})
	asJSON := f.Bool("json", false, "Print the summary as JSON")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, paths []string) error {
		o.Paths = paths
		return ingestDocuments(ctx, con, client, o, *asJSON)
	})
}

// ingestDocuments loads documents and prints the summary. It returns an error if the service refused a document.
func ingestDocuments(ctx context.Context, con *console, client *webapi.Client, o ingest.Options, asJSON bool) error {
	ctx, release := cancelOnSignal(ctx)
	defer release()
	progress, end := ingest.NewProgress(con.stderr)
	o.Progress = progress
	report, err := ingest.Run(ctx, client, o)
	end()
	loaded := report.New + report.Changed
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("stopped after %d documents; run the same command again to go on", loaded)
	case err != nil && loaded > 0:
		return fmt.Errorf("%w; %s were loaded: run the same command again to go on", err, plural(loaded, "document"))
	}
	if err := printReport(con.stdout, report, ingest.Report.Text, err, asJSON); err != nil {
		return err
	}
	if n := len(report.Refused); n > 0 {
		return errors.New(plural(n, "document") + " could not be loaded; the summary says why")
	}
	return nil
}
