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

// tenantsCommand returns the commands for whole tenants.
func tenantsCommand(con *console) *cobra.Command {
	return group("tenants", "Tenants as a whole: list them, take along all that one has, erase one.",
		tenantsListCommand(con), tenantsExportCommand(con), tenantsEraseCommand(con))
}

// parseTenant parses the argument <tenant>.
func parseTenant(name string) (memory.Tenant, error) {
	tenant, err := memory.ParseTenant(name)
	switch {
	case err != nil:
		return tenant, badUsage("<tenant>: %w", trimSentinel(err))
	case name == "":
		return tenant, badUsage("name a tenant; mneme tenants ls lists them")
	}
	return tenant, nil
}

func tenantsListCommand(con *console) *cobra.Command {
	c := newCommand("ls", "List the tenants that have keys, or whose keys were used.", `KEYS are those that open something now, STORED is the size of chats and documents, USED is the minute in which one of them was last used. An admin of a tenant sees its own.

Examples:
  mneme tenants ls
  mneme tenants ls --json | jq -r '.[].tenant'`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withOperator(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		tenants, err := client.Tenants(ctx)
		return printReport(con.stdout, tenants, formatTenants, err, *asJSON)
	})
}

// formatTenants formats a line per tenant.
func formatTenants(tenants []webapi.Tenant) string {
	table := [][]string{{"TENANT", "KEYS", "CHATS", "STORED", "USED", "STATE"}}
	for _, t := range tenants {
		state := ""
		if t.Erasing {
			state = "being erased; go on with mneme tenants erase " + t.Tenant.String()
		}
		stored := fmt.Sprintf("%.3f MB", float64(t.Bytes)/1e6)
		table = append(table, []string{t.Tenant.String(), fmt.Sprint(t.Keys), fmt.Sprint(t.Chats), stored,
			formatMinute(t.Used), state})
	}
	return formatTable(table)
}

func tenantsExportCommand(con *console) *cobra.Command {
	return withOperator(con, newCommand("export <tenant>", "Print all that a tenant has.", `Lines of JSON, of which each says in "kind" what it is: tenant, key (without its hash), chat, chat_line (as mneme memory export prints it), user (with a time zone), user_note, document, usage, audit, and at last end, which counts the others. What broke off has no end, and is an error.

Examples:
  mneme tenants export acme > acme.ndjson
  mneme tenants export acme | jq -c 'select(.kind == "chat_line" and .chat == "12345") | .line' > 12345.ndjson`), func(ctx context.Context, client *webapi.Client, args []string) error {
		tenant, err := parseTenant(args[0])
		if err != nil {
			return err
		}
		out := bufio.NewWriter(con.stdout)
		return errors.Join(client.ExportTenant(ctx, tenant, out), out.Flush())
	})
}
