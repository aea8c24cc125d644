package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

func auditCommand(con *console) *cobra.Command {
	c := newCommand("audit", "Print who erased, redacted, approved, changed keys, and read as an admin.", `The oldest come first. KEY is the id of a key; it is empty for the operator and where there are no keys.

Examples:
  mneme audit --since 1d
  mneme audit --tenant acme --json`)
	sinceFlag := c.Flags().String("since", "30d", "The first `DAY`: so many days ago such as 7d, or a date such as 2026-01-31")
	tenant := c.Flags().String("tenant", "", "Another `TENANT`, for admins of the default one")
	asJSON := c.Flags().Bool("json", false, "Print the entries as JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		start, err := tally.ParseDay(*sinceFlag, time.Now())
		if err != nil {
			return badUsage("--since: %s", strings.TrimPrefix(err.Error(), tally.ErrQuery.Error()+": "))
		}
		question := url.Values{"cursor": {audit.StartID(start)}, "limit": {fmt.Sprint(audit.MaxPage)}}
		if *tenant != "" {
			question.Set("tenant", *tenant)
		}
		entries := []audit.Entry{}
		for {
			page, err := client.Audit(ctx, question)
			entries = append(entries, page.Entries...)
			if err != nil || page.NextCursor == "" {
				return printReport(con.stdout, entries, formatEntries, err, *asJSON)
			}
			question.Set("cursor", page.NextCursor)
		}
	})
}

// formatEntries formats a line per entry.
func formatEntries(entries []audit.Entry) string {
	table := [][]string{{"AT", "TENANT", "KEY", "ACTION", "TARGET"}}
	for _, e := range entries {
		table = append(table, []string{e.Time.Local().Format(time.DateTime), e.Tenant.String(), e.Key, e.Action,
			term.OneLine(e.Target, 200)})
	}
	return formatTable(table)
}
