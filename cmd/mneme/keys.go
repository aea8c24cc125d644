package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

// keysCommand returns the commands for API keys.
func keysCommand(con *console) *cobra.Command {
	return group("keys", "Who may come in: make keys, list them, end them.",
		keysCreateCommand(con), keysListCommand(con), keysRevokeCommand(con), keysRotateCommand(con), keysUseCommand(con))
}

// printKey prints only the key on standard output, so that it can be piped.
func printKey(con *console, k webapi.MadeKey, asJSON bool) error {
	fmt.Fprintf(con.stderr, "Key %[1]s of tenant %[2]s. It is shown this once; end it with: mneme keys revoke %[1]s\n",
		k.ID, k.Tenant)
	return printReport(con.stdout, k, func(k webapi.MadeKey) string { return k.Text + "\n" }, nil, asJSON)
}

// parseLifetime parses a duration that may be in days, such as 90d.
func parseLifetime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if number, ok := strings.CutSuffix(s, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(number, 10, 32)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 || d > 100*365*24*time.Hour {
		return 0, fmt.Errorf("expected a time such as 90d or 12h but got %q", s)
	}
	return d, nil
}

func keysRevokeCommand(con *console) *cobra.Command {
	return withOperator(con, newCommand("revoke <id>", "End a key.", `Within 5 seconds no process takes it any more. It stays in the list.

Examples:
  mneme keys revoke q3v7nmx2aa`), func(ctx context.Context, client *webapi.Client, args []string) error {
		k, err := client.RevokeKey(ctx, args[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(con.stdout, "%s (%s) is revoked\n", k.ID, term.OneLine(k.Name, 64))
		return nil
	})
}

func keysRotateCommand(con *console) *cobra.Command {
	c := newCommand("rotate <id>", "Give a key another text, and print it this once.", `Id, tenant, scopes and what was spent stay. With --overlap the former text is taken, too, until that is over; without it ends within 5 seconds.

Examples:
  mneme keys rotate q3v7nmx2aa --overlap 24h`)
	var overlap time.Duration
	c.Flags().Func("overlap", "For how long the former text is taken, a `TIME` such as 24h or 7d, at most 30d (0s)",
		func(s string) (err error) {
			overlap, err = parseLifetime(s)
			return err
		})
	asJSON := c.Flags().Bool("json", false, "Print JSON, with the key as a member")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		key, err := client.RotateKey(ctx, args[0], overlap)
		if err != nil {
			return err
		}
		return printKey(con, key, *asJSON)
	})
}
