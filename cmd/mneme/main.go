// Command mneme is a chat service with subagents that remember: its three services, alone or in one process, and the
// commands to talk to them. It owns flags and what is printed. What a command asks of a service it asks over HTTP, by
// webmemory/api and its like, and the services are put together in internal/app alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	module "mneme"
	"mneme/cmd/mneme/internal/app"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	runtime.MemProfileRate = 0 // there is nothing by which the samples could be read, and they take a megabyte
	os.Exit(run(context.Background(), os.Args[1:], &console{environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout,
		stderr: os.Stderr}))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, con *console) int {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	err := execute(ctx, con.root(), args, con)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errVersion):
		fmt.Fprintln(con.stdout, versionLine())
		return exitOK
	case errors.As(err, new(usageError)):
		fmt.Fprintf(con.stderr, "mneme: %v; see mneme --help\n", err)
		return exitUsage
	default:
		fmt.Fprintf(con.stderr, "mneme: %v\n", err)
		if webapi.IsUnauthorized(err) {
			fmt.Fprintln(con.stderr,
				"Keep a key for the address with mneme keys use, or set MNEME_KEY, which wins over a kept one.")
		}
		return exitFailure
	}
}

// versionLine is name, version, revision and Go's version.
func versionLine() string {
	version := module.Version()
	if revision := telemetry.Revision(); revision != "" {
		version += " " + revision
	}
	return fmt.Sprintf("mneme %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// root is the command that holds all others.
func (con *console) root() *cobra.Command {
	return group("mneme", "A chat service whose subagents remember. Start with: mneme up, then in another terminal: "+
		"mneme chat",
		con.up(),
		con.service("webmemory", "Run the public service: chats and their memory.", webmemoryHelp, app.Webmemory, nil),
		con.service("apiserver", "Run the service of the agents.", apiserverHelp, app.Apiserver, nil),
		con.proxy(),
		con.chat(),
		con.mcp(),
		group("memory", "Look at memories, move them and erase them.",
			memoryListCommand(con), memoryGetCommand(con), memorySearchCommand(con), noteCommand(con), memoryExportCommand(con), memoryImportCommand(con),
			memoryForkCommand(con), memoryRewindCommand(con), memoryRedactCommand(con), memoryEraseCommand(con)),
		toolsCommand(con),
		keysCommand(con),
		tenantsCommand(con),
		con.usage(),
		con.audit(),
		con.ingest(),
		con.backup(),
		con.restore(),
		group("journal", "Mend what is on the disk.", con.journalSalvage()),
		group("config", "Check the configuration, or show it.", con.configCheck(), con.configShow()),
		doctor(con),
		con.health(),
		con.version(),
		con.completion(),
	)
}

func (con *console) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version.", RunE: func(*cobra.Command, []string) error {
		return errVersion
	}}
}
