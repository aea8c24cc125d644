package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func noteSetCommand(con *console) *cobra.Command {
	c := newCommand("set <chat> <note>", "Accept or edit a proposed note.", `Examples:
  mneme memory note set 12345 nabcdefghijk --active
  mneme memory note set 12345 nabcdefghijk --text "My name is Aliya."
  mneme memory note set ann nabcdefghijk --active --user`)
	active := c.Flags().Bool("active", false, "Show the note to models")
	text := c.Flags().String("text", "", "The new `TEXT` of the note")
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		change := webapi.NoteChange{Text: *text}
		if *active {
			change.State = memory.NoteActive
		}
		if change == (webapi.NoteChange{}) {
			return wrong("nothing to change: add --active or --text")
		}
		n, err := client.ChangeNote(ctx, path, args[1], change)
		if err != nil {
			return err
		}
		fmt.Fprintf(con.stdout, "%s: %s\n", term.OneLine(n.State, 20), term.OneLine(n.Text, 2*memory.MaxNote))
		return nil
	})
}
