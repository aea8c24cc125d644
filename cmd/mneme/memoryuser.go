package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// memoryUser are the commands about what is known of a user over chats.
func (con *console) memoryUser() *cobra.Command {
	return group("user", "What is known of a user in each chat: list, add, correct and remove notes; erase a user.",
		con.userLs(), con.noteAdd(ofUser), con.noteSet(ofUser), con.noteRm(ofUser), con.userErase())
}

// user is the user that an argument names.
func user(id string) (memory.User, error) {
	u, err := memory.Tenant{}.User(id)
	if err != nil {
		return u, wrong("<user>: %w", plain(err))
	}
	return u, nil
}

// notedOfUser are notes of a user to be shown.
type notedOfUser []memory.Note

func (list notedOfUser) WriteText(out io.Writer) error {
	return writeNotes(out, "CHAT", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(list[i].Chat, "-"), list[i]
	})
}

func (con *console) userLs() *cobra.Command {
	c := &cobra.Command{
		Use: "ls <user>", Short: "List the notes of a user, each with the chat that it comes from.",
		Long: `A user is what posts name in "user". Active notes are shown to models in each chat that is posted under the user; proposed ones wait for a person's yes (mneme memory user set --active), superseded ones were replaced.

Examples:
  mneme memory user ls ann
  mneme memory user ls ann --json | jq`,
	}
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withNotes(con, c, ofUser, func(ctx context.Context, client *webapi.Client, at string, _ []string) error {
		notes, err := client.Notes(ctx, at)
		return con.show(notedOfUser(notes), err, *asJSON)
	})
}

func (con *console) userErase() *cobra.Command {
	c := &cobra.Command{
		Use: "erase <user>", Short: "Erase the notes of a user and, with --chats, the chats of this user alone.",
		Long: `Chats in which others posted too, or posts named no user, stay and are named. It cannot be undone. What is interrupted is gone on with when it is called again.

Examples:
  mneme memory user erase ann
  mneme memory user erase ann --chats --yes`,
	}
	chats := c.Flags().Bool("chats", false, "Erase the chats that were posted under this user alone, too")
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		u, err := user(args[0])
		if err != nil {
			return err
		}
		if !*yes {
			what := "the notes of the user %s"
			if *chats {
				what = "the notes and the chats of the user %s"
			}
			fmt.Fprintf(con.stdout, what+"\n", u.ID())
			if err := con.sure(); err != nil {
				return err
			}
		}
		for {
			out, err := client.EraseUser(ctx, u, *chats)
			if err != nil {
				return err
			}
			if out.Notes > 0 {
				fmt.Fprintf(con.stdout, "notes erased: %d\n", out.Notes)
			}
			for _, chat := range out.Chats {
				fmt.Fprintln(con.stdout, "erased the chat", term.OneLine(chat.ID(), 130))
			}
			for _, chat := range out.Kept {
				fmt.Fprintln(con.stdout, "kept, since others posted in it, the chat", term.OneLine(chat.ID(), 130))
			}
			if out.Left == 0 {
				fmt.Fprintln(con.stdout, "done")
				return nil
			}
		}
	})
}
