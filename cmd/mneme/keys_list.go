package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/limit"
	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

func keysListCommand(con *console) *cobra.Command {
	c := newCommand("ls", "List the keys, without their texts.", `USED is the minute of the last use. A key has a line for each of its limits: what is SPENT of it, what calls that run HELD beside that (or how many calls or runs go on), and when it RESETS: a budget begins anew, a rate is unused again if nothing more comes. Money is in USD.

Examples:
  mneme keys ls
  mneme keys ls --json | jq -r '.[].id'
  mneme keys ls --json | jq '.[] | {id, uses}'`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		keys, err := client.Keys(ctx)
		return printReport(con.stdout, keys, formatKeys, err, *asJSON)
	})
}

// formatKeys formats a line per key and limit.
func formatKeys(keys []webapi.KeyEntry) string {
	if len(keys) == 0 {
		return "there are no keys; make one with mneme keys create\n"
	}
	rows := [][]string{{"ID", "NAME", "TENANT", "SCOPES", "USED", "STATE", "LIMIT", "SPENT", "HELD", "RESETS"}}
	for _, k := range keys {
		scopes := make([]string, len(k.Scopes))
		for i, s := range k.Scopes {
			scopes[i] = string(s)
		}
		row := []string{term.OneLine(k.ID, 32), term.OneLine(k.Name, 64), k.Tenant.String(),
			term.OneLine(strings.Join(scopes, ","), 100), formatMinute(k.Used), keyState(k.Key, time.Now()), "-", "-", "-", "-"}
		for i, u := range k.Uses {
			if i > 0 { // a line per limit; only the first one names the key
				rows, row = append(rows, row), make([]string, len(row))
			}
			copy(row[6:], []string{term.OneLine(u.Limit, 100), formatAmount(u, u.Spent), formatAmount(u, u.Reserved), "-"})
			if !u.Resets.IsZero() {
				row[9] = formatMinute(u.Resets)
			}
		}
		rows = append(rows, row)
	}
	return formatTable(rows)
}

// formatAmount formats an amount in the unit of a limit. Money is in USD.
func formatAmount(u limit.Use, n int64) string {
	if u.Unit == access.USD {
		return access.Dollars(n)
	}
	return strconv.FormatInt(n, 10)
}

// formatMinute formats a time as local time without seconds.
func formatMinute(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04")
}

// keyState describes whether a key can be used.
func keyState(k access.Key, now time.Time) string {
	switch {
	case !k.Revoked.IsZero():
		return "revoked " + formatMinute(k.Revoked)
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired " + formatMinute(k.Expires)
	case now.Before(k.Overlap):
		return "rotated, the former one until " + formatMinute(k.Overlap)
	case !k.Expires.IsZero():
		return "until " + formatMinute(k.Expires)
	}
	return "good"
}
