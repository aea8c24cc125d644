package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// tenants are the commands about tenants as a whole.
func (con *console) tenants() *cobra.Command {
	return group("tenants", "Tenants as a whole: list them, take along all that one has, erase one.",
		con.tenantsLs(), con.tenantsExport(), con.tenantsErase())
}

// tenantList is to be shown.
type tenantList []webapi.Tenant

// Text has a line for each.
func (l tenantList) Text() string {
	table := [][]string{{"TENANT", "KEYS", "CHATS", "STORED", "USED", "STATE"}}
	for _, t := range l {
		state := ""
		if t.Erasing {
			state = "being erased; go on with mneme tenants erase " + t.Tenant.String()
		}
		stored := fmt.Sprintf("%.3f MB", float64(t.Bytes)/1e6)
		table = append(table, []string{t.Tenant.String(), fmt.Sprint(t.Keys), fmt.Sprint(t.Chats), stored, minute(t.Used),
			state})
	}
	return formatTable(table)
}

func (con *console) tenantsLs() *cobra.Command {
	c := newCommand("ls", "List the tenants that have keys, or whose keys were used.", `KEYS are those that open something now, STORED is the size of chats and documents, USED is the minute in which one of them was last used. An admin of a tenant sees its own.

Examples:
  mneme tenants ls
  mneme tenants ls --json | jq -r '.[].tenant'`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		tenants, err := client.Tenants(ctx)
		return printReport(con.stdout, tenantList(tenants), err, *asJSON)
	})
}

// tenantNamed is a tenant of the command line.
func tenantNamed(name string) (memory.Tenant, error) {
	of, err := memory.ParseTenant(name)
	switch {
	case err != nil:
		return of, wrong("<tenant>: %w", trimSentinel(err))
	case name == "":
		return of, wrong("name a tenant; mneme tenants ls lists them")
	}
	return of, nil
}

func (con *console) tenantsExport() *cobra.Command {
	c := newCommand("export <tenant>", "Print all that a tenant has.", `Lines of JSON, of which each says in "kind" what it is: tenant, key (without its hash), chat, chat_line (as mneme memory export prints it), user (with a time zone), user_note, document, usage, audit, and at last end, which counts the others. What broke off has no end, and is an error.

Examples:
  mneme tenants export acme > acme.ndjson
  mneme tenants export acme | jq -c 'select(.kind == "chat_line" and .chat == "12345") | .line' > 12345.ndjson`)
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		of, err := tenantNamed(args[0])
		if err != nil {
			return err
		}
		out := bufio.NewWriter(con.stdout)
		return errors.Join(client.ExportTenant(ctx, of, out), out.Flush())
	})
}

func (con *console) tenantsErase() *cobra.Command {
	c := newCommand("erase <tenant>", "End the keys of a tenant and erase all that it has.", `Its keys are revoked first; keys of auth.keys_file have to be taken out of the file before. Then chats, users, documents, conversations at the gateway, usage and the log of who did what go, and last the keys. It cannot be undone. What is interrupted is gone on with when it is called again. That the tenant was erased, by which key and when, stays in mneme audit of the default tenant.

Examples:
  mneme tenants export acme > acme.ndjson && mneme tenants erase acme --yes`)
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		of, err := tenantNamed(args[0])
		if err != nil {
			return err
		}
		if !*yes {
			if err := con.showTenant(ctx, client, of); err != nil {
				return err
			}
			if err := confirm(con); err != nil {
				return err
			}
		}
		var sum webapi.ErasedTenant
		for {
			out, err := client.EraseTenant(ctx, of)
			if err != nil {
				return err
			}
			sum = webapi.ErasedTenant{Keys: sum.Keys + out.Keys, Chats: sum.Chats + out.Chats, Users: sum.Users + out.Users,
				Collections: sum.Collections + out.Collections, Conversations: sum.Conversations + out.Conversations}
			fmt.Fprintf(con.stdout, "revoked keys: %d, erased chats: %d, users: %d, collections: %d, conversations: %d, "+
				"left: %d\n", sum.Keys, sum.Chats, sum.Users, sum.Collections, sum.Conversations, out.Left)
			if out.Done {
				said := "done"
				if (sum == webapi.ErasedTenant{}) {
					said = "done; nothing of it was there"
				}
				fmt.Fprintln(con.stdout, said)
				return nil
			}
		}
	})
}

// showTenant prints what is to be erased.
func (con *console) showTenant(ctx context.Context, client *webapi.Client, of memory.Tenant) error {
	all, err := client.Tenants(ctx)
	for _, t := range all {
		if t.Tenant == of && err == nil {
			err = printReport(con.stdout, tenantList{t}, nil, false)
		}
	}
	return err
}
