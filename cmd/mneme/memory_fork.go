package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryForkCommand(con *console) *cobra.Command {
	c := newCommand("fork <chat> <new>", "Make a chat that begins with the memory of another one.", `All histories go along, archives too, with ids and times; the chat itself is not changed. The new chat must have no memory yet. Either all of it is stored or nothing.

Examples:
  mneme memory fork 12345 12345-b
  mneme memory fork 12345 12345-b --at 4KZJ6XQPZ5W2T3M7N5A2C6DYRE.9`)
	lastID := c.Flags().String("at", "", "The last message that goes along, an `ID`")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		target, err := memory.Tenant{}.Chat(args[1])
		if err != nil {
			return badUsage("<new>: %w", trimSentinel(err))
		}
		copied, err := client.Fork(ctx, chat, webapi.ForkRequest{As: target, LastID: *lastID})
		if err != nil {
			return err
		}
		fmt.Fprintf(con.stdout, "chat %s has %d messages of %d histories\n", target.ID(), copied.Messages, copied.Histories)
		return nil
	})
}
