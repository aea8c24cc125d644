// Command mneme is a chat service whose subagents remember: its three services,
// alone or in one process, and the commands to talk to them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"mneme/cmd/mneme/internal/models"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

type cli struct {
	Up        upCmd        `cmd:"" help:"Run everything in one process."`
	Webmemory webmemoryCmd `cmd:"" help:"Run the public service: chats and their memory."`
	Apiserver apiserverCmd `cmd:"" help:"Run the service of the agents."`
	Proxy     proxyCmd     `cmd:"" help:"The gateway to the models."`
	Chat      chatCmd      `cmd:"" help:"Chat in the terminal."`
	Memory    memoryCmd    `cmd:"" help:"Look at memories and erase them."`
	Ingest    ingestCmd    `cmd:"" help:"Load documents that subagents answer from."`
	Backup    backupCmd    `cmd:"" help:"Save everything that is stored into a file."`
	Restore   restoreCmd   `cmd:"" help:"Restore the store from such a file."`
	Journal   journalCmd   `cmd:"" help:"Mend what is on the disk."`
	Config    configCmd    `cmd:"" help:"Check the configuration, or show it."`
	Health    healthCmd    `cmd:"" help:"Ask a service whether it is ready."`
	Eval      evalCmd      `cmd:"" help:"Measure how good searches are."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	Completion completionCmd `cmd:"" help:"Print a script that lets a shell complete commands."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"What may stand in the place of the last word; completion scripts ask."`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

// console is the process as the commands see it; tests give their own.
type console struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	places         models.Places // where mneme up looks for models; the zero value is the real ones
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], &console{environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout,
		stderr: os.Stderr}))
}

// helpShown is the exit code of a command line that only asked for help.
type helpShown int

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, con *console) (code int) {
	defer func() { // kong prints help in the middle of parsing and then wants to exit
		switch stop := recover().(type) {
		case nil:
		case helpShown:
			code = int(stop)
		default:
			panic(stop)
		}
	}()
	parser, err := kong.New(&cli{},
		kong.Name("mneme"),
		kong.Description("A chat service whose subagents remember. Start with: mneme up, then in another terminal: mneme "+
			"chat"),
		kong.Writers(con.stdout, con.stderr),
		kong.Exit(func(code int) { panic(helpShown(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.WithHyphenPrefixedParameters(true),
		kong.Vars{"version": versionLine()},
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		panic(err) // the struct above is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if err == nil {
		err = command.Run(con, parser)
	}
	var usage *kong.ParseError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(con.stderr, "mneme: %v; see mneme --help\n", err)
		return exitUsage
	default:
		fmt.Fprintf(con.stderr, "mneme: %v\n", err)
		return exitFailure
	}
}
