package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	webapi "mneme/webmemory/api"
)

func noteRemoveCommand(con *console) *cobra.Command {
	c := newCommand("rm <chat> <note>", "Remove a note.", `Examples:
  mneme memory note rm 12345 nabcdefghijk
  mneme memory note rm ann nabcdefghijk --user`)
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		if err := client.RemoveNote(ctx, path, args[1]); err != nil {
			return err
		}
		fmt.Fprintln(con.stdout, "removed")
		return nil
	})
}
