package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/tally"
	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

func (con *console) usage() *cobra.Command {
	c := &cobra.Command{
		Use: "usage", Short: "Print what calls of models took and cost.",
		Long: `The counters are of whole UTC days. UNPRICED counts the calls of models whose price is not known; they are not in USD.

Examples:
  mneme usage --chat 12345
  mneme usage --by chat --since 7d
  mneme usage --by model --tenant acme --json`,
		Args: cobra.NoArgs,
	}
	question := map[string]*string{
		"by":     c.Flags().String("by", "tenant", "`WHAT` a line stands for: key, tenant, user, chat, subagent, model or backend"),
		"since":  c.Flags().String("since", "30d", "The first `DAY`: so many days ago such as 7d, or a date such as 2026-01-31"),
		"until":  c.Flags().String("until", "0d", "The last `DAY`"),
		"chat":   c.Flags().String("chat", "", "Only the `CHAT` with this id"),
		"tenant": c.Flags().String("tenant", "", "Another `TENANT`, for admins of the default one"),
	}
	asJSON := c.Flags().Bool("json", false, "Print the rows of all days as JSON")
	return con.withKeys(c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		if *question["chat"] != "" && !c.Flags().Changed("by") {
			*question["by"] = string(tally.ByChat)
		}
		values := url.Values{}
		for name, value := range question {
			if *value != "" {
				values.Set(name, *value)
			}
		}
		rows, err := client.Usage(ctx, values)
		return con.show(usageRows{*question["by"], rows}, err, *asJSON)
	})
}

// usageRows are to be shown.
type usageRows struct {
	By   string      `json:"by"`
	Rows []tally.Row `json:"rows"`
}

// WriteText prints a line for each name, what cost most first.
func (u usageRows) WriteText(out io.Writer) error {
	sums := map[string]tally.Counts{}
	for _, row := range u.Rows {
		sum := sums[row.Name]
		sum.Add(row.Counts)
		sums[row.Name] = sum
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b].Micros, sums[a].Micros), cmp.Compare(sums[b].Calls, sums[a].Calls),
			strings.Compare(a, b))
	})
	table := [][]string{{strings.ToUpper(u.By), "CALLS", "INPUT", "CACHED", "OUTPUT", "USD", "UNPRICED"}}
	for _, name := range names {
		n, cells := sums[name], []string{term.OneLine(name, 60)}
		for _, v := range []int64{n.Calls, n.Input, n.Cached, n.Output} {
			cells = append(cells, strconv.FormatInt(v, 10))
		}
		table = append(table, append(cells, access.Dollars(n.Micros), strconv.FormatInt(n.Unpriced, 10)))
	}
	err := writeTable(out, table)
	if len(names) == 0 && err == nil {
		_, err = fmt.Fprintln(out, "No calls of models are counted by "+u.By+" in these days. --since looks further back, "+
			"--tenant at another tenant.")
	}
	return err
}
