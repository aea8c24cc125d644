// Command mneme is a chat service whose subagents remember. It runs its three services, in one process or in several,
// and has commands that call them. Each command is a function that returns a cobra.Command. Commands call services over
// HTTP with the clients of webmemory/api and apiserver/api. Only internal/app composes services.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	module "mneme"
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
	err := execute(ctx, rootCommand(con), args, con)
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

// versionLine returns the version, the revision and the platform.
func versionLine() string {
	version := module.Version()
	if revision := telemetry.Revision(); revision != "" {
		version += " " + revision
	}
	return fmt.Sprintf("mneme %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// rootCommand returns the command that holds all others.
func rootCommand(con *console) *cobra.Command {
	return group("mneme", "A chat service whose subagents remember. Start with: mneme up, then in another terminal: "+
		"mneme chat",
		upCommand(con),
		webmemoryCommand(con),
		apiserverCommand(con),
		proxyCommand(con),
		chatCommand(con),
		mcpCommand(con),
		group("memory", "Look at memories, move them and erase them.",
			memoryListCommand(con), memoryGetCommand(con), memorySearchCommand(con), noteCommand(con), memoryExportCommand(con),
			memoryImportCommand(con), memoryForkCommand(con), memoryRewindCommand(con), memoryRedactCommand(con),
			memoryEraseCommand(con)),
		toolsCommand(con),
		keysCommand(con),
		tenantsCommand(con),
		usageCommand(con),
		auditCommand(con),
		ingestCommand(con),
		backupCommand(con),
		restoreCommand(con),
		group("journal", "Mend what is on the disk.", journalSalvageCommand(con)),
		group("config", "Check the configuration, or show it.", configCheckCommand(con), configShowCommand(con)),
		doctorCommand(con),
		healthCommand(con),
		versionCommand(),
		completionCommand(con),
	)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version.", RunE: func(*cobra.Command, []string) error {
		return errVersion
	}}
}
