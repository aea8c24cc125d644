package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/cmd/mneme/internal/chat"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// asked is a command that speaks to webmemory.
type asked func(ctx context.Context, client *webapi.Client, args []string) error

// withWebmemory makes a command of one that speaks to webmemory. A flag names the
// address, and the command runs with a client.
func (con *console) withWebmemory(c *cobra.Command, run asked) *cobra.Command {
	return askWebmemory(con, c, run, nil)
}

// withKeys is withWebmemory for what an operator does: with a key of the scope admin, or
// on the service's own machine with its internal secret, which also makes the first key.
func (con *console) withKeys(c *cobra.Command, run asked) *cobra.Command {
	return askWebmemory(con, c, run, con.asOperator)
}

// withChat is withWebmemory for a command whose first argument is a chat.
func withChat(con *console, c *cobra.Command,
	run func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error,
) *cobra.Command {
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		chat, _, err := historyKey(args[:1])
		if err != nil {
			return err
		}
		return run(ctx, client, chat, args)
	})
}

// askWebmemory is withWebmemory with a transport for who has no key; nil for none.
func askWebmemory(con *console, c *cobra.Command, run asked, keyless func(at string) (http.RoundTripper, error),
) *cobra.Command {
	url := c.Flags().String("url", con.ownURL(con.own().Webmemory.Listen), "webmemory's address, a `URL`")
	con.fromVariable(c, "url", "MNEME_URL")
	credential := con.keyFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		carry, err := credential(*url)
		if b, ok := carry.(access.Bearer); ok && b.Key == "" && keyless != nil {
			carry, err = keyless(*url)
		}
		if err != nil {
			return err
		}
		client, err := webapi.NewOver(*url, &http.Client{Transport: carry})
		if err != nil {
			return usageError{err}
		}
		defer client.Close()
		if err = run(c.Context(), client, args); c.Name() == "chat" || c.Name() == "import" {
			return err // what these send comes from their input
		}
		return wrongRequest(err)
	}
	return c
}

// chatFlag is a flag with a chat id as its value.
func chatFlag(c *cobra.Command, chat *memory.Chat, usage string) {
	c.Flags().Func("chat", usage, func(s string) (err error) {
		*chat, err = memory.Tenant{}.Chat(s)
		return plain(err)
	})
}

// plain takes the sentinel's words off, which tell a user nothing more.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), memory.ErrBadName.Error()+": "))
}

func (con *console) chat() *cobra.Command {
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
		return plain(err)
	})
	c.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "Print answers only, no delegations")
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, _ []string) error {
		return con.converse(ctx, client, o)
	})
}

// converse runs a chat, with a line editor if the console is a terminal.
func (con *console) converse(ctx context.Context, client *webapi.Client, o chat.Options) error {
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
