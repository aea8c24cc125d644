package main

import (
	"context"

	"github.com/spf13/cobra"

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
		return "", wrong("a user has no subagents: use --user without <subagent> and --subagent")
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
		return u, wrong("<user>: %w", trimSentinel(err))
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
