package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryEraseCommand(con *console) *cobra.Command {
	c := newCommand("rm <chat> [<subagent>]", "Erase a chat, a subagent's history or a user's notes.", `Without <subagent> it erases the whole chat: its history, its subagents' histories and its runs. With --user it erases the notes of a user and, with --chats, the chats in which only this user posted. It keeps and lists chats with other posts. An erasure cannot be undone. Write -- before a chat whose id begins with -, as in the last example.

--scan also finds histories that another program wrote for subagents that are not configured, and data of older versions. It takes seconds per million keys in Redis.

Examples:
  mneme memory rm 12345
  mneme memory rm 12345 analytic --yes
  mneme memory rm 12345 --scan
  mneme memory rm ann --user --chats
  mneme memory rm --yes -- -100123`)
	yes := c.Flags().BoolP("yes", "y", false, "Skip the prompt")
	scan := c.Flags().Bool("scan", false, "Search all keys of Redis, too")
	ofUser := userFlag(c)
	chats := c.Flags().Bool("chats", false, "With --user: erase the chats in which only this user posted")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		switch {
		case *ofUser && (*scan || len(args) > 1):
			return badUsage("use --user without <subagent> and --scan")
		case *ofUser:
			return eraseUser(ctx, con, client, args[0], *chats, *yes)
		case *chats:
			return badUsage("--chats needs --user")
		case *scan && len(args) > 1:
			return badUsage("use --scan without <subagent>")
		}
		return eraseHistories(ctx, con, client, args, *scan, *yes)
	})
}

// eraseHistories erases a chat or one history of it, and prints the erased keys.
func eraseHistories(ctx context.Context, con *console, client *webapi.Client, args []string, scan, yes bool) error {
	chat, key, err := historyKey(args)
	if err != nil {
		return err
	}
	entireChat := len(args) == 1
	if !yes {
		if err := confirmHistories(ctx, con, client, chat, key, entireChat); err != nil {
			return err
		}
	}
	var erased []string
	switch {
	case scan:
		erased, err = client.ScanAndErase(ctx, chat)
	case entireChat:
		erased, err = client.EraseChat(ctx, chat)
	default:
		erased, err = client.EraseHistory(ctx, key)
	}
	if err != nil {
		return err
	}
	if len(erased) == 0 {
		fmt.Fprintln(con.stdout, "there was nothing to erase")
	}
	for _, key := range erased {
		fmt.Fprintln(con.stdout, "erased", term.OneLine(key, 300))
	}
	return nil
}

// eraseUser erases the notes of a user and, if chats is set, the chats in which only this user posted.
func eraseUser(ctx context.Context, con *console, client *webapi.Client, id string, chats, yes bool) error {
	u, err := parseUser(id)
	if err != nil {
		return err
	}
	if !yes {
		what := "the notes of the user %s"
		if chats {
			what = "the notes and the chats of the user %s"
		}
		fmt.Fprintf(con.stdout, what+"\n", u.ID())
		if err := confirm(con); err != nil {
			return err
		}
	}
	for { // each request erases a limited number of chats
		out, err := client.EraseUser(ctx, u, chats)
		if err != nil {
			return err
		}
		if out.Notes > 0 {
			fmt.Fprintf(con.stdout, "notes erased: %d\n", out.Notes)
		}
		for _, chat := range out.Chats {
			fmt.Fprintln(con.stdout, "erased the chat", term.OneLine(chat.ID(), 130))
		}
		for _, chat := range out.Retained {
			fmt.Fprintln(con.stdout, "kept the chat", term.OneLine(chat.ID(), 130), "because other users posted in it")
		}
		if out.Remaining > len(out.Failed) {
			continue
		}
		for _, chat := range out.Failed {
			fmt.Fprintln(con.stderr, "not erased, because it cannot be read: the chat", term.OneLine(chat.ID(), 130))
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("%s left: restore or erase each of them", plural(len(out.Failed), "chat"))
		}
		fmt.Fprintln(con.stdout, "done")
		return nil
	}
}

// confirmHistories lists the histories that will be erased and asks for confirmation.
func confirmHistories(ctx context.Context, con *console, client *webapi.Client, chat memory.Chat, key memory.Key,
	entireChat bool,
) error {
	info, err := client.Chat(ctx, chat)
	if err != nil {
		return err
	}
	for _, h := range info.Histories {
		if entireChat || h.Key == key.String() {
			fmt.Fprintf(con.stdout, "%s  %d messages, %d bytes\n", term.OneLine(h.Key, 300), h.Messages, h.Bytes)
		}
	}
	return confirm(con)
}
