package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

func memoryRedactCommand(con *console) *cobra.Command {
	c := newCommand("redact <chat> <id>", "Take away what a message says, and with it its exchange.", `The messages stay where they are and say "(redacted)", in the history, its archive and wherever else their text is kept. It cannot be undone. Messages that repeat their words are named and not changed; "mneme memory search" shows ids.

--scope exchange, the default, is the run that made the message, in the chat's history and in those of its subagents; of a message that no run made it is what its user said and what follows that. --scope message is the message alone.

Examples:
  mneme memory redact 12345 KZ4BNPC5T3MQ7VJ2H6XWRYAEDL.1 --dry-run
  mneme memory redact 12345 KZ4BNPC5T3MQ7VJ2H6XWRYAEDL.1
  mneme memory redact 12345 KZ4BNPC5T3MQ7VJ2H6XWRYAEDL.2 --subagent analytic --scope message --json | jq`)
	f := c.Flags()
	subagent := f.String("subagent", "", "In the memory of this subagent, a `NAME`")
	scope := f.String("scope", webapi.Exchange, "How much: exchange or message, a `SCOPE`")
	dry := f.Bool("dry-run", false, "Change nothing, only say what would be redacted")
	asJSON := f.Bool("json", false, "Print JSON")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		history := args[:1]
		if *subagent != "" {
			history = append(history[:1:1], *subagent)
		}
		_, key, err := historyKey(history)
		if err != nil {
			return err
		}
		if *scope != webapi.Exchange && *scope != webapi.Message {
			return badUsage("--scope is exchange or message, not %.40q", *scope)
		}
		redacted, err := client.Redact(ctx, key, args[1], *scope == webapi.Exchange, *dry)
		format := func(r webapi.Redacted) string { return formatRedaction(r, *dry) }
		return printReport(con.stdout, redacted, format, err, *asJSON)
	})
}

// formatRedaction lists the messages of a redaction. If dry is set, the redaction was not made.
func formatRedaction(r webapi.Redacted, dry bool) string {
	var b strings.Builder
	const limit = 50 // messages shown
	list := func(label string, refs []webapi.MessageRef) {
		for _, ref := range refs[:min(len(refs), limit)] {
			fmt.Fprintf(&b, "%s  %s", label, term.OneLine(ref.ID, 200))
			if ref.Subagent != "" {
				fmt.Fprintf(&b, "  %s", ref.Subagent)
			}
			b.WriteByte('\n')
		}
		if rest := len(refs) - limit; rest > 0 {
			fmt.Fprintf(&b, "%s  … and %d more, which --json names\n", label, rest)
		}
	}
	label := "redacted"
	if dry {
		label = "would be redacted"
	}
	list(label, r.Redacted)
	if r.Partial {
		b.WriteString("(a damaged part of an archive could not be searched)\n")
	}
	return b.String()
}
