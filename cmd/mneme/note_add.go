package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	webapi "mneme/webmemory/api"
)

func noteAddCommand(con *console) *cobra.Command {
	c := newCommand("add <chat> <text>", "Add a note to the prompts of a chat or a user.", `All models of the chat see the note. With --subagent only that subagent sees it. With --user it is in the prompts of all chats of the user.

Examples:
  mneme memory note add 12345 "Answer in English, even if the question is in another language."
  mneme memory note add 12345 "Count in euros." --subagent analytic
  mneme memory note add ann "My name is Ann." --user`)
	replaces := c.Flags().String("replaces", "", "The note that it supersedes, an `ID`")
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		n, err := client.AddNote(ctx, path, webapi.NoteRequest{Text: args[1], Replaces: *replaces})
		if err != nil {
			return err
		}
		fmt.Fprintln(con.stdout, "noted as", term.OneLine(n.ID, 130))
		return nil
	})
}
