package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryListCommand(con *console) *cobra.Command {
	c := newCommand("ls", "List the histories of all chats, or of one.", `Examples:
  mneme memory ls
  mneme memory ls --chat=-100123`)
	var chat memory.Chat
	chatFlag(c, &chat, "One chat only, by its `ID`")
	limit := c.Flags().Int("limit", 100, "Chats shown at most, a `NUMBER`")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		table := tabwriter.NewWriter(con.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "CHAT\tHISTORY\tMESSAGES\tBYTES\tARCHIVED\tBYTES\tNOTES")
		if chat.IsZero() {
			return errors.Join(listChats(ctx, table, client, *limit), table.Flush())
		}
		return errors.Join(listChat(ctx, table, client, chat), table.Flush())
	})
}

func listChats(ctx context.Context, table io.Writer, client *webapi.Client, limit int) error {
	n := 0
	for chat, err := range client.Chats(ctx) {
		if err != nil {
			return err
		}
		if n++; n > limit {
			fmt.Fprintf(table, "(more than %d chats; raise --limit)\n", limit)
			return nil
		}
		if err := listChat(ctx, table, client, chat); err != nil && !webapi.IsNotFound(err) { // erased meanwhile
			return err
		}
	}
	return nil
}

func listChat(ctx context.Context, table io.Writer, client *webapi.Client, chat memory.Chat) error {
	info, err := client.Chat(ctx, chat)
	if err != nil {
		return err
	}
	for _, h := range info.Histories {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", chat, cmp.Or(term.OneLine(string(h.Subagent), 64), "(chat)"),
			h.Messages, h.Bytes, h.Archived, h.ArchivedBytes, h.Notes)
	}
	return nil
}
