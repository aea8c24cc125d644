package main

import (
	"bufio"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryExportCommand(con *console) *cobra.Command {
	return withChat(con, newCommand("export <chat>", "Print all of a chat's memory, to be kept or imported elsewhere.", `All histories with what trims moved to their archives, a line of JSON for each message, the oldest first; the last line counts them.

Examples:
  mneme memory export 12345 > 12345.ndjson
  mneme memory export -- -100123 | gzip > chat.ndjson.gz`), func(ctx context.Context, client *webapi.Client, chat memory.Chat, _ []string) error {
		out := bufio.NewWriter(con.stdout)
		return errors.Join(client.Export(ctx, chat, out), out.Flush())
	})
}
