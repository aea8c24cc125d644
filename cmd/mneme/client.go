package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// webmemoryRun runs a command with a client of webmemory.
type webmemoryRun func(ctx context.Context, client *webapi.Client, args []string) error

// withWebmemory makes c run with a client of webmemory. It adds the flags for the address and the key.
func withWebmemory(con *console, c *cobra.Command, run webmemoryRun) *cobra.Command {
	return withTransport(con, c, run, nil)
}

// withOperator is withWebmemory for the commands of an operator. Without a key, the client sends the internal secret of
// this machine, which also authorizes the first key.
func withOperator(con *console, c *cobra.Command, run webmemoryRun) *cobra.Command {
	return withTransport(con, c, run, func(url string) (http.RoundTripper, error) { return operatorTransport(con, url) })
}

// withChat is withWebmemory for a command whose first argument is a chat.
func withChat(con *console, c *cobra.Command,
	run func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error,
) *cobra.Command {
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		chat, _, err := historyKey(args[:1])
		if err != nil {
			return err
		}
		return run(ctx, client, chat, args)
	})
}

// withTransport is withWebmemory. Without a key, the client uses the transport of keyless, unless that is nil.
func withTransport(con *console, c *cobra.Command, run webmemoryRun, keyless credential) *cobra.Command {
	url := variableFlag(con, c, "url", "MNEME_URL", con.localURL(con.localServices().Webmemory.Listen), "webmemory's address, a `URL`")
	credential := keyFlag(con, c)
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
			return err // these commands send their input, so a bad request is not the command line's fault
		}
		return mapBadRequest(err)
	}
	return c
}

// chatFlag adds the flag --chat, which takes a chat id.
func chatFlag(c *cobra.Command, chat *memory.Chat, usage string) {
	c.Flags().Func("chat", usage, func(s string) (err error) {
		*chat, err = memory.Tenant{}.Chat(s)
		return trimSentinel(err)
	})
}

// trimSentinel returns err without the words of memory.ErrBadName, which do not help a user.
func trimSentinel(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), memory.ErrBadName.Error()+": "))
}

// historyKey returns the chat and the history that the arguments <chat> [<subagent>] name.
func historyKey(args []string) (memory.Chat, memory.Key, error) {
	chat, err := memory.Tenant{}.Chat(args[0])
	if err != nil {
		return chat, memory.Key{}, badUsage("<chat>: %w", trimSentinel(err))
	}
	if len(args) == 1 {
		return chat, memory.ChatKey(chat), nil
	}
	agent, err := memory.ParseAgent(args[1])
	if err != nil {
		return chat, memory.Key{}, badUsage("[<subagent>]: %w", trimSentinel(err))
	}
	return chat, memory.SubagentKey(agent, chat), nil
}
