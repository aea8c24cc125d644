package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func (con *console) memoryLs() *cobra.Command {
	c := newCommand("ls", "List the histories of all chats, or of one.", `Examples:
  mneme memory ls
  mneme memory ls --chat=-100123`)
	var chat memory.Chat
	chatFlag(c, &chat, "One chat only, by its `ID`")
	limit := c.Flags().Int("limit", 100, "Chats shown at most, a `NUMBER`")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, _ []string) (err error) {
		table := tabwriter.NewWriter(con.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "CHAT\tHISTORY\tMESSAGES\tBYTES\tARCHIVED\tBYTES\tNOTES")
		if chat.IsZero() {
			err = listChats(ctx, table, client, *limit)
		} else {
			err = listChat(ctx, table, client, chat)
		}
		return errors.Join(table.Flush(), err)
	})
}

func listChats(ctx context.Context, table io.Writer, client *webapi.Client, limit int) error {
	shown := 0
	for chat, err := range client.Chats(ctx) {
		if err != nil {
			return err
		}
		if shown++; shown > limit {
			fmt.Fprintf(table, "(more than %d chats; raise --limit)\n", limit)
			return nil
		}
		if err := listChat(ctx, table, client, chat); err != nil && !webapi.IsNotFound(err) { // erased meanwhile
			return err
		}
	}
	return nil
}

func listChat(ctx context.Context, table io.Writer, client *webapi.Client, chat memory.Chat) error {
	info, err := client.Chat(ctx, chat)
	if err != nil {
		return err
	}
	for _, h := range info.Histories {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", chat, cmp.Or(term.OneLine(string(h.Subagent), 64), "(chat)"),
			h.Messages, h.Bytes, h.Archived, h.ArchivedBytes, h.Notes)
	}
	return nil
}

func (con *console) memoryGet() *cobra.Command {
	c := newCommand("get <chat> [<subagent>]", "Print a history, or its last messages.", `Without <subagent> it prints the chat's own history. Write -- before a chat whose id begins with -, as in the last example.

Examples:
  mneme memory get 12345
  mneme memory get 12345 analytic --json | jq
  mneme memory get 12345 --last 10
  mneme memory get -- -100123 analytic`)
	last := c.Flags().IntP("last", "n", 0, "Print only the last messages, a `NUMBER`")
	asJSON := c.Flags().Bool("json", false, "Print the stored messages as one JSON array")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		_, key, err := historyKey(args)
		if err != nil {
			return err
		}
		if *last < 0 || c.Flags().Changed("last") && *last == 0 {
			return wrong("--last must be 1 or more")
		}
		return printHistory(ctx, con.stdout, client, key, -*last, *asJSON)
	})
}

// printHistory prints a history from an offset to its end. What cannot be read
// whole is not printed as if it were: the error comes after what was printed,
// and a JSON array stays open.
func printHistory(ctx context.Context, to io.Writer, client *webapi.Client, key memory.Key, offset int,
	asJSON bool,
) error {
	out := bufio.NewWriter(to)
	style, count := term.StyleFor(to), 0
	for raw, err := range client.Messages(ctx, key, offset) {
		if err == nil && asJSON {
			err = writeElement(out, raw, count)
		} else if err == nil {
			err = writeMessage(out, style, raw)
		}
		if err != nil {
			return errors.Join(out.Flush(), err)
		}
		count++
	}
	switch {
	case asJSON && count == 0:
		fmt.Fprintln(out, "[]")
	case asJSON:
		fmt.Fprintln(out, "]")
	}
	if err := out.Flush(); err != nil || count > 0 {
		return err
	}
	return fmt.Errorf("%s holds no messages; mneme memory ls lists what there is", key)
}

func writeElement(out *bufio.Writer, raw json.RawMessage, index int) error {
	before := byte(',')
	if index == 0 {
		before = '['
	}
	if err := out.WriteByte(before); err != nil {
		return err
	}
	var compact bytes.Buffer // the answer's own layout is not the history's
	if err := json.Compact(&compact, raw); err != nil {
		return fmt.Errorf("message %d: %w", index, err)
	}
	_, err := compact.WriteTo(out)
	return err
}

func writeMessage(out io.Writer, style term.Style, raw json.RawMessage) error {
	var m memory.Message
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	who := term.OneLine(m.Role, 20)
	if m.Name != "" {
		who += " " + term.OneLine(m.Name, 64)
	}
	if m.Partial {
		who += " (stopped)"
	}
	if m.FinishReason != "" {
		who += " (incomplete: " + term.OneLine(m.FinishReason, 20) + ")"
	}
	if _, err := fmt.Fprintf(out, "%s  %s\n", style.Dim(clock(m.Timestamp)), style.Bold(who)); err != nil {
		return err
	}
	body := term.Clean(m.Content)
	for _, call := range m.ToolCalls {
		body += fmt.Sprintf("\n→ %s %s", term.OneLine(call.Function.Name, 64), term.OneLine(call.Function.Arguments, 1000))
	}
	_, err := fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n  "))
	return err
}

func (con *console) memoryRm() *cobra.Command {
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
			return wrong("use --user without <subagent> and --scan")
		case *ofUser:
			return con.eraseUser(ctx, client, args[0], *chats, *yes)
		case *chats:
			return wrong("--chats needs --user")
		case *scan && len(args) > 1:
			return wrong("use --scan without <subagent>")
		}
		return con.eraseHistories(ctx, client, args, *scan, *yes)
	})
}

func (con *console) eraseHistories(ctx context.Context, client *webapi.Client, args []string, scan, yes bool) error {
	chat, key, err := historyKey(args)
	if err != nil {
		return err
	}
	whole := len(args) == 1
	if !yes {
		if err := confirmHistories(con, ctx, client, chat, key, whole); err != nil {
			return err
		}
	}
	var erased []string
	switch {
	case scan:
		erased, err = client.ScanAndErase(ctx, chat)
	case whole:
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

func (con *console) eraseUser(ctx context.Context, client *webapi.Client, id string, chats, yes bool) error {
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
		for _, chat := range out.Kept {
			fmt.Fprintln(con.stdout, "kept the chat", term.OneLine(chat.ID(), 130), "because other users posted in it")
		}
		if out.Left > len(out.Failed) {
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

func (con *console) memorySearch() *cobra.Command {
	c := newCommand("search <chat> <query>", "Find what was said in a chat, however long ago.", `It prints the messages that match best, literally, with their time, whose memory they are of and their ids. The query is words, or a question in English or Russian, also about a time ("in May", "last week").

Examples:
  mneme memory search 12345 "what am I allergic to?"
  mneme memory search 12345 "berlin budget" --subagent analytic --json | jq`)
	f := c.Flags()
	subagent := f.String("subagent", "", "Only the memory of this subagent, a `NAME`")
	from := f.String("from", "", "Not from before this `TIME`, such as 2024-03-05 or 2024-03-05T10:00:00Z")
	to := f.String("to", "", "Only from before this `TIME`")
	budget := f.Int("budget", 800, "Tokens of text at most, a `NUMBER`")
	asJSON := f.Bool("json", false, "Print JSON")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		query := url.Values{"query": {args[1]}, "budget": {strconv.Itoa(*budget)}}
		for name, value := range map[string]string{"subagent": *subagent, "from": *from, "to": *to} {
			if value != "" {
				query.Set(name, value)
			}
		}
		found, err := client.Recall(ctx, chat, query)
		return printReport(con.stdout, recalled{found}, err, *asJSON)
	})
}

// recalled is what a search found, to be shown.
type recalled struct{ webapi.Recalled }

func (r recalled) Text() string {
	var b strings.Builder
	for _, h := range r.Hits {
		who := h.Role
		if h.Subagent != "" {
			who = string(h.Subagent) + ", " + h.Role
		}
		at := time.UnixMilli(int64(h.TS * 1000)).UTC().Format(time.DateTime)
		fmt.Fprintf(&b, "%s  %s  %s\n  %s\n", at, who, h.ID, term.OneLine(h.Text, 2000))
	}
	switch {
	case len(r.Hits) == 0:
		b.WriteString("nothing was found\n")
	case r.Partial:
		b.WriteString("(the oldest messages are not searched yet; ask again in a moment)\n")
	}
	return b.String()
}

func (con *console) memoryExport() *cobra.Command {
	c := newCommand("export <chat>", "Print all of a chat's memory, to be kept or imported elsewhere.", `All histories with what trims moved to their archives, a line of JSON for each message, the oldest first; the last line counts them.

Examples:
  mneme memory export 12345 > 12345.ndjson
  mneme memory export -- -100123 | gzip > chat.ndjson.gz`)
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, _ []string) error {
		out := bufio.NewWriter(con.stdout)
		return errors.Join(client.Export(ctx, chat, out), out.Flush())
	})
}

// confirmHistories lists the histories that will be erased and asks for confirmation.
func confirmHistories(con *console, ctx context.Context, client *webapi.Client, chat memory.Chat, key memory.Key,
	whole bool,
) error {
	info, err := client.Chat(ctx, chat)
	if err != nil {
		return err
	}
	for _, h := range info.Histories {
		if whole || h.Key == key.String() {
			fmt.Fprintf(con.stdout, "%s  %d messages, %d bytes\n", term.OneLine(h.Key, 300), h.Messages, h.Bytes)
		}
	}
	return confirm(con)
}

// confirm asks for confirmation. Any answer except yes is an error.
func confirm(con *console) error {
	fmt.Fprint(con.stdout, "Erase this? It cannot be undone. [y/N] ")
	answer, err := bufio.NewReader(con.stdin).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(con.stdout)
		return errors.New("nothing erased: not confirmed (use --yes to skip the prompt)")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing erased")
}
