package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/access/tally"
	"mneme/cmd/mneme/internal/term"
	"mneme/proxy/usage"
)

var reportsBy = []string{"backend", "model", "chat"}

func (con *console) proxyUsage() *cobra.Command {
	c := &cobra.Command{
		Use: "usage", Short: "Print the tokens that model calls took.",
		Long: `The counters are of whole UTC days, and so is a report: it has all of the day in which --since falls. INPUT are the tokens of prompts that were neither read from a vendor's cache (CACHED) nor written to it (WRITTEN). ESTIMATED counts the calls whose vendor did not tell all of them. A chat is what the apiserver or your own client names by X-AG-Chat-Id, or else its conversation at the gateway.

Examples:
  mneme proxy usage
  mneme proxy usage --since 7d --by model
  mneme proxy usage --by chat --json | jq '.rows[0]'`,
	}
	gateway := con.gateway(c)
	since := c.Flags().String("since", "24h", "How far back: a `TIME` ago such as 90m, 24h, 7d, or a time such as 2026-01-31T00:00:00Z")
	by := c.Flags().String("by", "backend", "`WHAT` a line stands for: backend, model or chat")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(reportsBy,
		cobra.ShellCompDirectiveNoFileComp))
	asJSON := c.Flags().Bool("json", false, "Print the gateway's JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return con.showUsage(c.Context(), *gateway, *since, *by, *asJSON)
	}
	return c
}

func (con *console) showUsage(ctx context.Context, gateway gateway, since, by string, asJSON bool) error {
	if !slices.Contains(reportsBy, by) {
		return wrong(`--by must be one of "backend","model","chat" but got %q`, by)
	}
	if _, err := tally.ParseDay(since, time.Now()); err != nil {
		return wrong("--since is a time ago such as 90m, 24h or 7d, or a time such as 2026-01-31T00:00:00Z, not %q",
			since)
	}
	var raw json.RawMessage
	query := url.Values{"since": {since}, "by": {by}}
	if err := gateway.ask(ctx, http.MethodGet, "/admin/usage?"+query.Encode(), nil, &raw); err != nil {
		return err
	}
	var report usage.Report
	if err := json.Unmarshal(raw, &report); err != nil || string(report.By) != by {
		return errors.New("the answer is no report of usage; is --url right?")
	}
	if asJSON {
		e := json.NewEncoder(con.stdout)
		e.SetIndent("", "  ")
		return e.Encode(raw)
	}
	return writeUsage(con.stdout, report)
}

// writeUsage prints a report as a table, with what it cannot say below it.
func writeUsage(out io.Writer, r usage.Report) error {
	table := [][]string{{strings.ToUpper(string(r.By)), "CALLS", "OK", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "REASONING",
		"ESTIMATED"}}
	row := func(name string, u usage.Row) {
		cells := []string{name}
		for _, n := range []int64{u.Calls, u.OK, u.Input, u.CacheRead, u.CacheCreation, u.Output, u.Reasoning, u.Estimated} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		table = append(table, cells)
	}
	for _, u := range r.Rows {
		row(cmp.Or(term.OneLine(u.Name, 60), "(none)"), u)
	}
	if len(r.Rows) != 1 {
		row("TOTAL", r.Total)
	}
	if err := writeTable(out, table); err != nil {
		return err
	}
	for _, note := range notes(r) {
		fmt.Fprintf(out, "(%s)\n", note)
	}
	return nil
}

// notes say what a report leaves out.
func notes(r usage.Report) (notes []string) {
	if r.LeftOut > 0 {
		notes = append(notes, strconv.Itoa(r.LeftOut)+" more lines are in the total only")
	}
	if r.Process {
		notes = append(notes, "the gateway has no Redis: these are this one process's calls")
	}
	from := r.Since
	if r.Oldest.After(from) {
		from = r.Oldest
	}
	notes = append(notes, "since "+from.UTC().Format(time.DateTime)+" UTC")
	if r.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d calls are missing: the gateway could not count them in Redis", r.Dropped))
	}
	return notes
}
