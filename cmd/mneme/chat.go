package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/chat"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func chatCommand(con *console) *cobra.Command {
	c := newCommand("chat", "Chat in the terminal.", `Each line of the input is a message. Ctrl-C stops a running answer. At the prompt, Ctrl-C and Ctrl-D leave. On a terminal, a line that ends with \ continues on the next line. Without a terminal the first error ends the chat. Earlier lines are kept in ~/.local/state/mneme/chat_history.

Examples:
  mneme chat
  mneme chat --chat=-100123
  mneme chat --agent discuss
  echo "What is my name?" | mneme chat --chat 12345 -q`)
	o := chat.Options{Chat: memory.MustChat("terminal"), In: con.stdin, Out: con.stdout}
	chatFlag(c, &o.Chat, "The chat's `ID` (terminal)")
	c.Flags().Func("agent", "Send messages to this agent, a `NAME`, instead of the master", func(s string) (err error) {
		o.Agent, err = memory.ParseAgent(s)
		return trimSentinel(err)
	})
	c.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "Print answers only, no delegations")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		return runChat(ctx, con, client, o)
	})
}

// runChat runs a chat. On a terminal, it has a line editor.
func runChat(ctx context.Context, con *console, client *webapi.Client, o chat.Options) error {
	o.Style = term.StyleFor(con.stdout)
	o.Interactive = term.IsTerminal(con.stdin) && term.IsTerminal(con.stdout)
	ctx, release := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer release()
	if o.Interactive {
		interrupts := make(chan os.Signal, 2)
		signal.Notify(interrupts, os.Interrupt)
		defer signal.Stop(interrupts)
		editor := term.OpenLineEditor(term.UserFile(con.getenv, "XDG_STATE_HOME", ".local/state", "chat_history"))
		defer editor.Close()
		o.Interrupts, o.ReadLine, o.Remember = interrupts, editor.ReadLine, editor.Remember
	}
	return chat.Run(ctx, client, o)
}
