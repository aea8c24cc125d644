package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"mneme/cmd/mneme/internal/chat"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// clientFlags are common to the commands that speak to webmemory.
type clientFlags struct {
	URL string `aliases:"webmemory" placeholder:"URL" env:"MNEME_URL" help:"webmemory's address, http://127.0.0.1:8080 if not given."`
}

func (f clientFlags) dial() (*webapi.Client, error) {
	return webapi.New(cmp.Or(f.URL, "http://127.0.0.1:8080"))
}

// chatID is a chat id on the command line.
type chatID struct{ memory.Chat }

// UnmarshalText refuses what is no chat id.
func (c *chatID) UnmarshalText(b []byte) error {
	chat, err := memory.ParseChat(string(b))
	c.Chat = chat
	return plain(err)
}

// agentName is a subagent's name on the command line.
type agentName memory.Agent

// UnmarshalText refuses what is no subagent's name.
func (a *agentName) UnmarshalText(b []byte) error {
	agent, err := memory.ParseAgent(string(b))
	*a = agentName(agent)
	return plain(err)
}

// plain takes the sentinel's words off, which tell a user nothing more.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), memory.ErrBadName.Error()+": "))
}

type chatCmd struct {
	clientFlags
	Chat  chatID `default:"terminal" help:"Chat id; its history goes on where it was (${default})."`
	Quiet bool   `short:"q" help:"Show answers only, no delegations."`
}

func (chatCmd) Help() string {
	return `Ctrl-C stops a running answer; twice in a row it leaves, as Ctrl-D does. A line can be edited, the arrow keys bring earlier ones back (kept in ~/.local/state/mneme/chat_history), and a pasted text of several lines is one message. /help lists the commands: another chat, the list of chats, erasing this one. Without a terminal every line of the input is a message or a command, and the first error ends it.

Examples:
  mneme chat
  mneme chat --chat=-100123
  echo "What is my name?" | mneme chat --chat 12345 -q`
}

func (c chatCmd) Run(ctx context.Context, con *console) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	o := chat.Options{
		Chat: c.Chat.Chat, In: con.stdin, Out: con.stdout, Quiet: c.Quiet,
		Style:       term.StyleFor(con.stdout),
		Interactive: term.IsTerminal(con.stdin) && term.IsTerminal(con.stdout),
	}
	ctx, release := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer release()
	if o.Interactive {
		interrupts := make(chan os.Signal, 2)
		signal.Notify(interrupts, os.Interrupt)
		defer signal.Stop(interrupts)
		o.Interrupts = interrupts
	}
	if o.Interactive && con.stdin == os.Stdin {
		editor, err := term.OpenEditor(term.StateFile("chat_history"), chat.Commands())
		if err != nil {
			return err
		}
		defer editor.Close()
		o.Editor = editor
	}
	return chat.Run(ctx, client, o)
}
