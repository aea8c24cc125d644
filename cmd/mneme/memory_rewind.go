package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func (con *console) memoryRewind() *cobra.Command {
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
		for _, given := range []bool{len(args) == 2, *start, *list, c.Flags().Changed("restore")} {
			if given {
				chosen++
			}
		}
		switch {
		case chosen != 1:
			return wrong("give one of <message> (the last one to keep), --start, --list and --restore")
		case c.Flags().Changed("restore") && *restore == "":
			return wrong("--restore needs the ID of a rewind, which --list prints")
		case *list:
			return con.listRewinds(ctx, client, chat)
		case !*start && len(args) == 1:
			done, err := client.Restore(ctx, chat, *restore)
			if err == nil {
				fmt.Fprintf(con.stdout, "restored %d messages of %d histories\n", done.Messages, len(done.Histories))
			}
			return err
		}
		var last *string
		if !*start {
			last = &args[1]
		}
		done, err := client.Rewind(ctx, chat, last)
		switch {
		case err != nil:
			return err
		case done.Messages == 0:
			fmt.Fprintln(con.stdout, "there is nothing to take back")
			return nil
		}
		fmt.Fprintf(con.stdout, "took back %d messages of %d histories; to restore them before %s, run\n"+
			"  mneme memory rewind --restore %s -- %s\n", done.Messages, len(done.Histories), clock(done.Until), done.ID,
			chat.ID())
		return nil
	})
}

func (con *console) listRewinds(ctx context.Context, client *webapi.Client, chat memory.Chat) error {
	all, err := client.SetAside(ctx, chat)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "WHEN", "UNTIL", "BACK TO", "MESSAGES"}}
	for _, a := range all {
		to := "(start)"
		if a.To != nil {
			to = term.OneLine(*a.To, 128)
		}
		rows = append(rows, []string{term.OneLine(a.ID, 20), clock(a.TS), clock(a.Until), to, fmt.Sprint(a.Messages)})
	}
	_, err = io.WriteString(con.stdout, formatTable(rows))
	return err
}

func (con *console) memoryFork() *cobra.Command {
	c := newCommand("fork <chat> <new>", "Make a chat that begins with the memory of another one.", `All histories go along, archives too, with ids and times; the chat itself is not changed. The new chat must have no memory yet. Either all of it is stored or nothing.

Examples:
  mneme memory fork 12345 12345-b
  mneme memory fork 12345 12345-b --at 4KZJ6XQPZ5W2T3M7N5A2C6DYRE.9`)
	at := c.Flags().String("at", "", "The last message that goes along, an `ID`")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		as, err := memory.Tenant{}.Chat(args[1])
		if err != nil {
			return wrong("<new>: %w", trimSentinel(err))
		}
		done, err := client.Fork(ctx, chat, webapi.ForkRequest{As: as, At: *at})
		if err == nil {
			fmt.Fprintf(con.stdout, "chat %s has %d messages of %d histories\n", as.ID(), done.Messages, done.Histories)
		}
		return err
	})
}

// clock formats a Unix time in seconds for people.
func clock(ts float64) string { return time.UnixMilli(int64(ts * 1000)).Format(time.DateTime) }
