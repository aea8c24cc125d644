package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

type memoryCmd struct {
	Ls   memoryLsCmd   `cmd:"" help:"List the histories of all chats, or of one."`
	Get  memoryGetCmd  `cmd:"" help:"Print a history."`
	Tail memoryTailCmd `cmd:"" help:"Print the last messages of a history."`
	Rm   memoryRmCmd   `cmd:"" help:"Erase everything of a chat, or one subagent's history."`
}

// historyArgs name one history.
type historyArgs struct {
	Chat     chatID    `arg:"" help:"Chat id; write a negative one behind --, as in: -- -100123"`
	Subagent agentName `arg:"" optional:"" help:"Subagent; without it the chat's own history."`
}

func (a historyArgs) key() memory.Key {
	if a.Subagent == "" {
		return memory.ChatKey(a.Chat.Chat)
	}
	return memory.SubagentKey(memory.Agent(a.Subagent), a.Chat.Chat)
}

type memoryLsCmd struct {
	clientFlags
	Chat  chatID `help:"One chat only."`
	Limit int    `default:"100" help:"Chats shown at most (${default})."`
}

func (memoryLsCmd) Help() string {
	return `Examples:
  mneme memory ls
  mneme memory ls --chat=-100123`
}

func (c memoryLsCmd) Run(ctx context.Context, con *console) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	table := tabwriter.NewWriter(con.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHAT\tHISTORY\tMESSAGES\tBYTES")
	if !c.Chat.IsZero() {
		err = listChat(ctx, table, client, c.Chat.Chat)
	} else {
		err = c.listAll(ctx, table, client)
	}
	return errors.Join(table.Flush(), err)
}

func (c memoryLsCmd) listAll(ctx context.Context, table io.Writer, client *webapi.Client) error {
	shown := 0
	for chat, err := range client.Chats(ctx) {
		if err != nil {
			return err
		}
		if shown++; shown > c.Limit {
			fmt.Fprintf(table, "(more than %d chats; raise --limit)\n", c.Limit)
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
		name := term.OneLine(string(h.Subagent), 64)
		if name == "" {
			name = "(chat)"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", chat, name, h.Messages, h.Bytes)
	}
	return nil
}

type memoryGetCmd struct {
	clientFlags
	historyArgs
	JSON bool `help:"The messages as they are stored: one JSON array."`
}

func (memoryGetCmd) Help() string {
	return `Examples:
  mneme memory get 12345
  mneme memory get 12345 analytic --json | jq
  mneme memory get -- -100123 analytic`
}

func (c memoryGetCmd) Run(ctx context.Context, con *console) error {
	return printHistory(ctx, con, c.clientFlags, c.key(), 0, c.JSON)
}

type memoryTailCmd struct {
	clientFlags
	historyArgs
	N    int  `short:"n" default:"10" help:"How many messages (${default})."`
	JSON bool `help:"The messages as they are stored: one JSON array."`
}

func (memoryTailCmd) Help() string {
	return `Examples:
  mneme memory tail 12345
  mneme memory tail 12345 analytic -n 2`
}

func (c memoryTailCmd) Run(ctx context.Context, con *console) error {
	if c.N < 1 {
		return errors.New("-n must be 1 or more")
	}
	return printHistory(ctx, con, c.clientFlags, c.key(), -c.N, c.JSON)
}

// printHistory prints a history from an offset to its end. What cannot be read
// whole is not printed as if it were: the error comes after what was printed,
// and a JSON array stays open.
func printHistory(ctx context.Context, con *console, f clientFlags, key memory.Key, offset int, asJSON bool) error {
	client, err := f.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(con.stdout)
	style, count := term.StyleFor(con.stdout), 0
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
	when := time.UnixMilli(int64(m.Timestamp * 1000)).Format(time.DateTime)
	who := term.OneLine(m.Role, 20)
	if m.Name != "" {
		who += " " + term.OneLine(m.Name, 64)
	}
	if m.Partial {
		who += " (stopped)"
	}
	if _, err := fmt.Fprintf(out, "%s  %s\n", style.Dim(when), style.Bold(who)); err != nil {
		return err
	}
	body := term.Clean(m.Content)
	for _, call := range m.ToolCalls {
		body += fmt.Sprintf("\n→ %s %s", term.OneLine(call.Function.Name, 64), term.OneLine(call.Function.Arguments, 1000))
	}
	_, err := fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n  "))
	return err
}

type memoryRmCmd struct {
	clientFlags
	historyArgs
	Yes  bool `short:"y" help:"Do not ask."`
	Scan bool `help:"Look through all keys of Redis for what no index of the chat names, and erase that too."`
}

func (memoryRmCmd) Help() string {
	return `Without SUBAGENT everything of the chat goes: its history, every subagent's, runs and what else is kept of it. It cannot be undone.

--scan also finds histories that another program wrote for subagents that are not configured, and what versions before set aside. It takes seconds for each million keys in Redis.

Examples:
  mneme memory rm 12345
  mneme memory rm 12345 analytic --yes
  mneme memory rm 12345 --scan
  mneme memory rm --yes -- -100123`
}

func (c memoryRmCmd) Run(ctx context.Context, con *console) error {
	if c.Scan && c.Subagent != "" {
		return errors.New("--scan is for a whole chat; leave SUBAGENT out")
	}
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if !c.Yes {
		if err := c.ask(ctx, con, client); err != nil {
			return err
		}
	}
	erase := func() ([]string, error) { return client.EraseHistory(ctx, c.key()) }
	if c.Subagent == "" {
		erase = func() ([]string, error) { return client.EraseChat(ctx, c.Chat.Chat) }
	}
	if c.Scan {
		erase = func() ([]string, error) { return client.ScanAndErase(ctx, c.Chat.Chat) }
	}
	erased, err := erase()
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

// ask shows what would go and wants a yes.
func (c memoryRmCmd) ask(ctx context.Context, con *console, client *webapi.Client) error {
	info, err := client.Chat(ctx, c.Chat.Chat)
	if err != nil {
		return err
	}
	for _, h := range info.Histories {
		if c.Subagent == "" || memory.Agent(c.Subagent) == h.Subagent {
			fmt.Fprintf(con.stdout, "%s  %d messages, %d bytes\n", term.OneLine(h.Key, 300), h.Messages, h.Bytes)
		}
	}
	fmt.Fprint(con.stdout, "Erase this? It cannot be undone. [y/N] ")
	answer, err := bufio.NewReader(con.stdin).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(con.stdout)
		return errors.New("nothing was erased: there was no answer; add --yes to erase without one")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was erased")
}
