package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/term"
	"mneme/master"
)

func toolsListCommand(con *console) *cobra.Command {
	c := newCommand("ls", "List the tools of all agents, and the servers that they come from.", `ASKS says when a person is asked before a call. A tool that is not what was accepted is not used; it stands below its server.

Examples:
  mneme tools ls
  mneme tools ls --json | jq .servers`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withApiserver(con, c, func(ctx context.Context, client *api.Client, _ []string) error {
		list, err := client.Tools(ctx)
		return printReport(con.stdout, list, formatTools, err, *asJSON)
	})
}

// formatTools formats a line per tool, and then the state of each server.
func formatTools(l api.ToolList) string {
	if len(l.Tools) == 0 && len(l.Servers) == 0 {
		return "there are no tools\n"
	}
	rows := [][]string{{"AGENT", "TOOL", "ID", "KIND", "ASKS", "STATE"}}
	for _, t := range l.Tools {
		rows = append(rows, []string{term.OneLine(cmp.Or(string(t.Agent), master.Version), 64), term.OneLine(t.Name, 64),
			term.OneLine(t.ID, 200), term.OneLine(t.Kind, 20), term.OneLine(cmp.Or(t.Policy, "never"), 40),
			term.OneLine(t.State, 20)})
	}
	var b strings.Builder
	b.WriteString(formatTable(rows))
	for _, problem := range l.LeftOut {
		fmt.Fprintf(&b, "\n%s\n", term.OneLine(problem, 2000))
	}
	for i, s := range l.Servers {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "%s: %s, %d tools", term.OneLine(s.Server, 64), term.OneLine(s.State, 20), s.Tools)
		if s.Reason != "" {
			fmt.Fprintf(&b, "; %s", term.OneLine(s.Reason, 200))
		}
		fmt.Fprintln(&b)
		if len(s.Changed) > 0 {
			fmt.Fprintf(&b, "  not what was accepted, and not used: %s (mneme tools accept %s)\n",
				term.OneLine(strings.Join(s.Changed, ", "), 2000), term.OneLine(s.Server, 64))
		}
		if len(s.Refused) > 0 {
			fmt.Fprintf(&b, "  cannot be used: %s\n", term.OneLine(strings.Join(s.Refused, ", "), 2000))
		}
	}
	return b.String()
}
