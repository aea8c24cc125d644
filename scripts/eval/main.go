// Command eval measures how good searches are: of documents, and of what was said in chats.
// It prints a report; the exit code is 0 for a run that came to its end, whatever the figures
// are, 1 for one that failed and 2 for a command line that is wrong.
//
//	go -C scripts run ./eval retrieval --help
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/doc/comment"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// console is the process as the commands see it; tests give their own.
type console struct {
	stdout, stderr io.Writer
	began          bool // the command line was right so far
}

// usageError is a command line that is wrong, and not a command that failed.
type usageError struct{ error }

func main() {
	os.Exit((&console{stdout: os.Stdout, stderr: os.Stderr}).run(context.Background(), os.Args[1:]))
}

// run executes one command line and returns its exit code.
func (con *console) run(ctx context.Context, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	root := &cobra.Command{Use: "eval", Short: "Measures how good searches are", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(con.retrieval(), con.recall())
	root.SetArgs(args)
	root.SetOut(con.stdout)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)) || !con.began:
		fmt.Fprintf(con.stderr, "eval: %v; see eval --help\n", err)
		return 2
	}
	fmt.Fprintf(con.stderr, "eval: %v\n", err)
	return 1
}

// report is what was measured.
type report interface{ WriteText(out io.Writer) error }

// measuring makes a command of what measures the sets in a folder, and prints its report. It tells
// on standard error what is being done, on a terminal in one line that is cleared at the end.
func (con *console) measuring(
	c *cobra.Command, measure func(ctx context.Context, data string, tell func(doing string)) (report, error),
) *cobra.Command {
	data := c.Flags().String("data", "", "Folder of a set, a `DIR`")
	_ = c.MarkFlagRequired("data")
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	c.Args, c.Flags().SortFlags = cobra.NoArgs, false
	var parser comment.Parser
	c.Long = string((&comment.Printer{TextCodePrefix: "  "}).Text(parser.Parse(c.Long)))
	prefix, suffix := "", "\n"
	if f, ok := con.stderr.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		prefix, suffix = "\r\x1b[K", ""
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		con.began = true
		r, err := measure(c.Context(), *data, func(doing string) { fmt.Fprint(con.stderr, prefix, doing, suffix) })
		fmt.Fprint(con.stderr, prefix)
		switch {
		case err != nil && c.Context().Err() != nil:
			return errors.New("stopped before the end; an incomplete run is not shown")
		case err != nil:
			return err
		case !*asJSON:
			return r.WriteText(con.stdout)
		}
		e := json.NewEncoder(con.stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return c
}
