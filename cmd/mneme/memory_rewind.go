package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryRewindCommand(con *console) *cobra.Command {
	c := newCommand("rewind <chat> [<message>]", "Remove the messages after one, or restore them.", `It removes the messages of all runs that began after <message> from every history of the chat, including archives. A running run is stopped. <message> is an id from mneme memory search or mneme memory get --json.

Removed messages are kept for 24 hours. --list shows them, and --restore puts them back. A rewind can only be restored if the chat has no newer messages. Restore several rewinds in reverse order.

Examples:
  mneme memory rewind 12345 4KZJ6XQPZ5W2T3M7N5A2C6DYRE.9
  mneme memory rewind 12345 --start
  mneme memory rewind 12345 --list
  mneme memory rewind 12345 --restore 1760000000000`)
	start := c.Flags().Bool("start", false, "Take back all messages")
	list := c.Flags().Bool("list", false, "List the rewinds that can be restored")
	restore := c.Flags().String("restore", "", "Restore the messages of a rewind, an `ID`")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		chosen := 0
		for _, isSet := range []bool{len(args) == 2, *start, *list, c.Flags().Changed("restore")} {
			if isSet {
				chosen++
			}
		}
		switch {
		case chosen != 1:
			return badUsage("give one of <message> (the last one to keep), --start, --list and --restore")
		case c.Flags().Changed("restore") && *restore == "":
			return badUsage("--restore needs the ID of a rewind, which --list prints")
		case *list:
			return listRewinds(ctx, con.stdout, client, chat)
		case !*start && len(args) == 1:
			restored, err := client.Restore(ctx, chat, *restore)
			if err != nil {
				return err
			}
			fmt.Fprintf(con.stdout, "restored %d messages of %d histories\n", restored.Messages, len(restored.Histories))
			return nil
		}
		var last *string
		if !*start {
			last = &args[1]
		}
		removed, err := client.Rewind(ctx, chat, last)
		switch {
		case err != nil:
			return err
		case removed.Messages == 0:
			fmt.Fprintln(con.stdout, "there is nothing to take back")
			return nil
		}
		fmt.Fprintf(con.stdout, "took back %d messages of %d histories; to restore them before %s, run\n"+
			"  mneme memory rewind --restore %s -- %s\n", removed.Messages, len(removed.Histories), formatTime(removed.Until),
			removed.ID, chat.ID())
		return nil
	})
}

// listRewinds prints the rewinds that can be restored.
func listRewinds(ctx context.Context, out io.Writer, client *webapi.Client, chat memory.Chat) error {
	rewinds, err := client.SetAside(ctx, chat)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "WHEN", "UNTIL", "BACK TO", "MESSAGES"}}
	for _, a := range rewinds {
		target := "(start)"
		if a.Target != nil {
			target = term.OneLine(*a.Target, 128)
		}
		rows = append(rows, []string{term.OneLine(a.ID, 20), formatTime(a.TS), formatTime(a.Until), target,
			fmt.Sprint(a.Messages)})
	}
	_, err = io.WriteString(out, formatTable(rows))
	return err
}
