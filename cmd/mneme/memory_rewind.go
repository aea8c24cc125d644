package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func (con *console) memoryRewind() *cobra.Command {
	c := &cobra.Command{
		Use: "rewind <chat> [<message>]", Short: "Take back what was said in a chat behind a message.",
		Long: `The messages of all runs that began behind the message go, from every history of the chat, archives too. A run that goes on is stopped. <message> is an id, as mneme memory search and get --json show it. What went is set aside for 24 hours: mneme memory set-aside.

Examples:
  mneme memory rewind 12345 4KZJ6XQPZ5W2T3M7N5A2C6DYRE.9
  mneme memory rewind 12345 --start`,
	}
	start := c.Flags().Bool("start", false, "Take back all of it")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		if *start == (len(args) == 2) {
			return wrong("name the last message that stays, or add --start to take back everything")
		}
		var to *string
		if !*start {
			to = &args[1]
		}
		done, err := client.Rewind(ctx, chat, to)
		switch {
		case err != nil:
			return err
		case done.Messages == 0:
			fmt.Fprintln(con.stdout, "nothing was said behind it")
			return nil
		}
		fmt.Fprintf(con.stdout, "took back %d messages of %d histories; until %s they come back by\n  mneme memory "+
			"set-aside restore %s %s\n", done.Messages, len(done.Histories), clock(done.Until), chat.ID(), done.ID)
		return nil
	})
}

func (con *console) memorySetAside() *cobra.Command {
	ls := &cobra.Command{
		Use: "ls <chat>", Short: "List what rewinds took back of a chat.",
		Long: `Examples:
  mneme memory set-aside ls 12345`,
	}
	restore := &cobra.Command{
		Use: "restore <chat> <id>", Short: "Put back what a rewind took back.",
		Long: `It is put back only where it was taken: not after other messages. Of several rewinds the last one comes first.

Examples:
  mneme memory set-aside restore 12345 1760000000000`,
	}
	return group("set-aside", "Look at what rewinds took back, and put it back.",
		withChat(con, ls, func(ctx context.Context, client *webapi.Client, chat memory.Chat, _ []string) error {
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
			return writeColumns(con.stdout, rows)
		}),
		withChat(con, restore, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
			done, err := client.Restore(ctx, chat, args[1])
			if err == nil {
				fmt.Fprintf(con.stdout, "put back %d messages of %d histories\n", done.Messages, len(done.Histories))
			}
			return err
		}),
	)
}

func (con *console) memoryFork() *cobra.Command {
	c := &cobra.Command{
		Use: "fork <chat> <new>", Short: "Make a chat that begins with the memory of another one.",
		Long: `All histories go along, archives too, with ids and times; the chat itself is not changed. The new chat must have no memory yet. Either all of it is stored or nothing.

Examples:
  mneme memory fork 12345 12345-b
  mneme memory fork 12345 12345-b --at 4KZJ6XQPZ5W2T3M7N5A2C6DYRE.9`,
	}
	at := c.Flags().String("at", "", "The last message that goes along, an `ID`")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		as, err := memory.Tenant{}.Chat(args[1])
		if err != nil {
			return wrong("<new>: %w", plain(err))
		}
		done, err := client.Fork(ctx, chat, webapi.ForkRequest{As: as, At: *at})
		if err == nil {
			fmt.Fprintf(con.stdout, "chat %s has %d messages of %d histories\n", as.ID(), done.Messages, done.Histories)
		}
		return err
	})
}

// clock is a time for people.
func clock(ts float64) string { return time.UnixMilli(int64(ts * 1000)).Format(time.DateTime) }
