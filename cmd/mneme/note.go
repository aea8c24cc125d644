package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// noteCommand returns the commands for notes.
func noteCommand(con *console) *cobra.Command {
	return group("note", "List, add, change and remove the notes of a chat or a user.",
		noteListCommand(con), noteAddCommand(con), noteSetCommand(con), noteRemoveCommand(con))
}

// notesPath returns the path of a user's notes, or of a chat's or its subagent's.
func notesPath(id, subagent string, ofUser bool) (string, error) {
	switch {
	case ofUser && subagent != "":
		return "", badUsage("a user has no subagents: use --user without <subagent> and --subagent")
	case ofUser:
		u, err := parseUser(id)
		return webapi.UserNotesPath(u), err
	}
	args := []string{id}
	if subagent != "" {
		args = append(args, subagent)
	}
	_, key, err := historyKey(args)
	return webapi.NotesPath(key), err
}

func parseUser(id string) (memory.User, error) {
	u, err := memory.Tenant{}.User(id)
	if err != nil {
		return u, badUsage("<user>: %w", trimSentinel(err))
	}
	return u, nil
}

func userFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("user", false, "The first argument is a user, not a chat")
}

// withNotes adds the flags --user and --subagent. It calls run with the path of the notes.
func withNotes(con *console, c *cobra.Command,
	run func(ctx context.Context, client *webapi.Client, path string, args []string) error,
) *cobra.Command {
	ofUser := userFlag(c)
	subagent := c.Flags().String("subagent", "", "The notes of this subagent of the chat, a `NAME`")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		path, err := notesPath(args[0], *subagent, *ofUser)
		if err != nil {
			return err
		}
		return run(ctx, client, path, args)
	})
}

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
			return badUsage("nothing to change: add --active or --text")
		}
		n, err := client.ChangeNote(ctx, path, args[1], change)
		if err != nil {
			return err
		}
		fmt.Fprintf(con.stdout, "%s: %s\n", term.OneLine(n.State, 20), term.OneLine(n.Text, 2*memory.MaxNote))
		return nil
	})
}

func noteRemoveCommand(con *console) *cobra.Command {
	return withNotes(con, newCommand("rm <chat> <note>", "Remove a note.", `Examples:
  mneme memory note rm 12345 nabcdefghijk
  mneme memory note rm ann nabcdefghijk --user`), func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		if err := client.RemoveNote(ctx, path, args[1]); err != nil {
			return err
		}
		fmt.Fprintln(con.stdout, "removed")
		return nil
	})
}
