package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	module "mneme"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/mcpserver"
)

func mcpCommand(con *console) *cobra.Command {
	return withWebmemory(con, newCommand("mcp", "Serve ask, recall and search_documents to another agent, over MCP on stdio.", `An agent such as Claude Code, Cursor or codex starts this as a server of the Model Context Protocol: its messages come on standard input and the answers go to standard output. It ends with its input. Clients that speak MCP over HTTP need no such process: webmemory serves the same tools at POST /mcp.

Examples:
  claude mcp add mneme -- mneme mcp
  mneme mcp --url=https://mneme.example.com`), func(ctx context.Context, client *webapi.Client, _ []string) error {
		ctx, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer release()
		log := zerolog.New(con.stderr).With().Timestamp().Logger()
		return mcpserver.Config{Memory: client, Version: module.Version(), Log: log}.Stdio(ctx, con.stdin, con.stdout)
	})
}
