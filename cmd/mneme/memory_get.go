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

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryGetCommand(con *console) *cobra.Command {
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
			return badUsage("--last must be 1 or more")
		}
		return printHistory(ctx, con.stdout, client, key, -*last, *asJSON)
	})
}

// printHistory prints a history from an offset to its end. After an error, a JSON array stays open, so that a reader
// does not take it for the whole history.
func printHistory(ctx context.Context, w io.Writer, client *webapi.Client, key memory.Key, offset int,
	asJSON bool,
) error {
	out := bufio.NewWriter(w)
	style, count := term.StyleFor(w), 0
	for raw, err := range client.Messages(ctx, key, offset) {
		switch {
		case err != nil:
		case asJSON:
			err = writeElement(out, raw, count)
		default:
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

// writeElement writes an element of a JSON array, with the bracket or the comma before it.
func writeElement(out *bufio.Writer, raw json.RawMessage, index int) error {
	if err := out.WriteByte("[,"[min(index, 1)]); err != nil {
		return err
	}
	var compact bytes.Buffer // without the white space of the response
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
	author := term.OneLine(m.Role, 20)
	if m.Name != "" {
		author += " " + term.OneLine(m.Name, 64)
	}
	if m.Partial {
		author += " (stopped)"
	}
	if m.FinishReason != "" {
		author += " (incomplete: " + term.OneLine(m.FinishReason, 20) + ")"
	}
	if _, err := fmt.Fprintf(out, "%s  %s\n", style.Dim(formatTime(m.Timestamp)), style.Bold(author)); err != nil {
		return err
	}
	body := term.Clean(m.Content)
	for _, call := range m.ToolCalls {
		body += fmt.Sprintf("\n→ %s %s", term.OneLine(call.Function.Name, 64), term.OneLine(call.Function.Arguments, 1000))
	}
	_, err := fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n  "))
	return err
}
