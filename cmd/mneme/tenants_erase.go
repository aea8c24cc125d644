package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func tenantsEraseCommand(con *console) *cobra.Command {
	c := newCommand("erase <tenant>", "End the keys of a tenant and erase all that it has.", `Its keys are revoked first; keys of auth.keys_file have to be taken out of the file before. Then chats, users, documents, conversations at the gateway, usage and the log of who did what go, and last the keys. It cannot be undone. What is interrupted is gone on with when it is called again. That the tenant was erased, by which key and when, stays in mneme audit of the default tenant.

Examples:
  mneme tenants export acme > acme.ndjson && mneme tenants erase acme --yes`)
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		tenant, err := parseTenant(args[0])
		if err != nil {
			return err
		}
		if !*yes {
			if err := printTenant(ctx, con.stdout, client, tenant); err != nil {
				return err
			}
			if err := confirm(con); err != nil {
				return err
			}
		}
		var sum webapi.ErasedTenant
		for {
			out, err := client.EraseTenant(ctx, tenant)
			if err != nil {
				return err
			}
			sum = webapi.ErasedTenant{Keys: sum.Keys + out.Keys, Chats: sum.Chats + out.Chats, Users: sum.Users + out.Users,
				Collections: sum.Collections + out.Collections, Conversations: sum.Conversations + out.Conversations}
			fmt.Fprintf(con.stdout, "revoked keys: %d, erased chats: %d, users: %d, collections: %d, conversations: %d, "+
				"left: %d\n", sum.Keys, sum.Chats, sum.Users, sum.Collections, sum.Conversations, out.Remaining)
			if out.Done {
				result := "done"
				if (sum == webapi.ErasedTenant{}) {
					result = "done; nothing of it was there"
				}
				fmt.Fprintln(con.stdout, result)
				return nil
			}
		}
	})
}

// printTenant prints the size of a tenant.
func printTenant(ctx context.Context, out io.Writer, client *webapi.Client, tenant memory.Tenant) error {
	tenants, err := client.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		if t.Tenant == tenant {
			_, err = io.WriteString(out, formatTenants([]webapi.Tenant{t}))
			return err
		}
	}
	return nil
}
