package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/tally"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

func usageCommand(con *console) *cobra.Command {
	c := newCommand("usage", "Print what calls of models took and cost.", `The counters are of whole UTC days. UNPRICED counts the calls of models whose price is not known; they are not in USD.

With --by run --json each line is a run of one chat, from what its memory keeps with the answer: run_id, tenant, chat, agent, started (Unix seconds), outcome, and in record its model, backend, tokens and cost. Runs that showed nothing before they were stopped, and what is erased, are in the counters alone.

Examples:
  mneme usage --chat 12345
  mneme usage --by chat --since 7d
  mneme usage --by model --tenant acme --json
  mneme usage --by run --chat 12345 --json | jq 'select(.started > now - 86400)'`)
	question := map[string]*string{
		"by":     c.Flags().String("by", "tenant", "`WHAT` a line stands for: key, tenant, user, chat, subagent, model or backend; or run"),
		"since":  c.Flags().String("since", "30d", "The first `DAY`: so many days ago such as 7d, or a date such as 2026-01-31"),
		"until":  c.Flags().String("until", "0d", "The last `DAY`"),
		"chat":   c.Flags().String("chat", "", "Only the `CHAT` with this id"),
		"tenant": c.Flags().String("tenant", "", "Another `TENANT`, for admins of the default one"),
	}
	asJSON := c.Flags().Bool("json", false, "Print the rows of all days as JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		if *question["chat"] != "" && !c.Flags().Changed("by") {
			*question["by"] = string(tally.ByChat)
		}
		if *question["by"] == "run" {
			if !*asJSON || slices.ContainsFunc([]string{"since", "until", "tenant"}, c.Flags().Changed) {
				return badUsage("--by run prints all runs of a --chat as --json, without --since, --until and --tenant")
			}
			chat, err := memory.ParseChat(*question["chat"])
			if err != nil {
				return usageError{err}
			}
			return printRuns(ctx, con.stdout, client, chat)
		}
		values := url.Values{}
		for name, value := range question {
			if *value != "" {
				values.Set(name, *value)
			}
		}
		rows, err := client.Usage(ctx, values)
		return printReport(con.stdout, usageReport{*question["by"], rows}, usageReport.Text, err, *asJSON)
	})
}

// usageReport is the report of usage.
type usageReport struct {
	Dimension string      `json:"by"`
	Rows      []tally.Row `json:"rows"`
}

// Text formats a line per name, the most expensive first.
func (u usageReport) Text() string {
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
	table := [][]string{{strings.ToUpper(u.Dimension), "CALLS", "INPUT", "CACHED", "OUTPUT", "USD", "UNPRICED"}}
	for _, name := range names {
		n, cells := sums[name], []string{term.OneLine(name, 60)}
		for _, v := range []int64{n.Calls, n.Input, n.Cached, n.Output} {
			cells = append(cells, strconv.FormatInt(v, 10))
		}
		table = append(table, append(cells, access.Dollars(n.Micros), strconv.FormatInt(n.Unpriced, 10)))
	}
	text := formatTable(table)
	if len(names) == 0 {
		text += "No calls of models are counted by " + u.Dimension + " in these days. --since looks further back, " +
			"--tenant at another tenant.\n"
	}
	return text
}

// printRuns prints a line for each run with a record in the histories of a chat, including archives.
func printRuns(ctx context.Context, w io.Writer, client *webapi.Client, chat memory.Chat) error {
	var self webapi.Self
	var export bytes.Buffer
	err := cmp.Or(client.Call(ctx, http.MethodGet, webapi.SelfPath, &self), client.Export(ctx, chat, &export))
	if err != nil {
		return err
	}
	out, started := json.NewEncoder(w), map[string]float64{}
	for lines := json.NewDecoder(&export); lines.More(); {
		var line webapi.ExportLine
		var m memory.Message
		if err := lines.Decode(&line); err != nil {
			return err
		}
		_ = json.Unmarshal(line.Message, &m) // a line without a message, or of another program, has no record
		run, _, _ := memory.SplitID(m.ID)
		started[run] = cmp.Or(started[run], m.Timestamp) // of the message that the run answers
		outcome := event.Completed
		if m.Failure != "" {
			outcome = event.Failed
		} else if m.Partial {
			outcome = event.Stopped
		}
		if len(m.Run) == 0 {
			continue
		}
		if err := out.Encode(map[string]any{"run_id": run, "tenant": self.Tenant, "chat": chat, "started": started[run],
			"agent": cmp.Or(line.Subagent, webapi.Master), "outcome": outcome, "record": m.Run}); err != nil {
			return err
		}
	}
	return nil
}
