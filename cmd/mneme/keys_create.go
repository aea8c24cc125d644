package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func keysCreateCommand(con *console) *cobra.Command {
	c := newCommand("create", "Make a key, and print it this once.", `The key is the only line on standard output; the service keeps a hash of it and can never show it again. Scopes:

  chat          post messages, read runs and their answers
  memory:read   read histories, notes, lists and exports
  memory:write  change and erase them
  documents     collections and the documents of chats
  models        the gateway's endpoints
  approve       approve calls of tools for a person
  admin         all of it, and keys and backends

On the service's own machine no key is needed for this: the internal secret in its data_dir is taken, so start this in the same folder, or name the file with MNEME_CONFIG. Elsewhere a key with the scope admin is, in MNEME_KEY.

Examples:
  mneme keys create --name bot --scopes chat,memory:read
  mneme keys create --tenant acme --name bot --scopes chat --rate 60/m --budget 5000000tokens/month
  mneme keys create --name me --scopes admin --expires 90d | mneme keys use`)
	var k webapi.KeyRequest
	c.Flags().StringVar(&k.Name, "name", "", "What the key is for, a `NAME` for people")
	c.Flags().Func("tenant", "Whose data it opens, a `TENANT` (default)", func(s string) (err error) {
		k.Tenant, err = memory.ParseTenant(s)
		return trimSentinel(err)
	})
	c.Flags().Func("scopes", "What it may do: `SCOPES` with commas between them", func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			k.Scopes = append(k.Scopes, access.Scope(strings.TrimSpace(name)))
		}
		return nil
	})
	c.Flags().StringVar(&k.Rate, "rate", "", "How much at a time, a `RATE` such as 60/m,100000tokens/m,8atonce,4runs")
	c.Flags().StringVar(&k.Budget, "budget", "", "How much it may spend, a `BUDGET` such as 5000000tokens/month or 20usd/month")
	c.Flags().Func("expires", "When it ends, a `TIME` from now such as 90d or 12h (never)", func(s string) error {
		d, err := parseLifetime(s)
		k.Expires = time.Now().Add(d)
		return err
	})
	_ = c.MarkFlagRequired("name") // the flags are there
	_ = c.MarkFlagRequired("scopes")
	asJSON := c.Flags().Bool("json", false, "Print JSON, with the key as a member")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		key, err := client.CreateKey(ctx, k)
		if err != nil {
			return err
		}
		// The service may not know the gateway's models, so the prices come from this machine's configuration.
		if cfg, err := config.Load(con.getenv("MNEME_CONFIG"), con.environ); err == nil && strings.Contains(k.Budget, "usd") {
			if err := cfg.RequirePrices(false); err != nil {
				fmt.Fprintf(con.stderr, "The gateway refuses calls by this key: %s\n", term.OneLine(err.Error(), 1000))
			}
		}
		return printKey(con, key, *asJSON)
	})
}
