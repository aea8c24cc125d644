package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// memoryNote are the commands about notes.
func (con *console) memoryNote() *cobra.Command {
	return group("note", "What must stand in every prompt of a chat: list, add, correct and remove notes.",
		con.noteLs(), con.noteAdd(), con.noteSet(), con.noteRm())
}

func (con *console) noteLs() *cobra.Command {
	c := &cobra.Command{
		Use: "ls <chat> [<subagent>]", Short: "List the notes of a chat and of its subagents, or of one subagent.",
		Long: `Active notes are shown to models; proposed ones wait for a person's yes (mneme memory note set --active), superseded ones were replaced.

Examples:
  mneme memory note ls 12345
  mneme memory note ls 12345 analytic --json | jq`,
	}
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		chat, key, err := historyKey(args)
		if err != nil {
			return err
		}
		keys := []memory.Key{key}
		if len(args) == 1 {
			info, err := client.Chat(ctx, chat)
			if err != nil {
				return err
			}
			keys = nil
			for _, h := range info.Histories {
				if key, ok := memory.ParseKey(h.Key); ok && h.Notes > 0 {
					keys = append(keys, key)
				}
			}
		}
		list := noted{}
		for _, key := range keys {
			notes, err := client.Notes(ctx, key)
			if err != nil {
				return err
			}
			for _, n := range notes {
				list = append(list, notedLine{key.Agent(), n})
			}
		}
		return con.print(list, *asJSON)
	})
}

// noted are notes to be shown.
type noted []notedLine

type notedLine struct {
	Subagent memory.Agent `json:"subagent"`
	memory.Note
}

func (list noted) WriteText(out io.Writer) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "there are no notes")
		return err
	}
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HISTORY\tID\tSTATE\tBY\tSINCE\tTEXT")
	for _, n := range list {
		name := term.OneLine(string(n.Subagent), 64)
		if name == "" {
			name = "(chat)"
		}
		at := time.UnixMilli(int64(n.TS * 1000)).UTC().Format(time.DateTime)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", name, term.OneLine(n.ID, 130), term.OneLine(n.State, 20),
			term.OneLine(n.By, 20), at, term.OneLine(n.Text, 2*memory.MaxNote))
	}
	err := table.Flush()
	if err == nil {
		_, err = out.Write(b.Bytes())
	}
	return err
}

// subagentFlag makes the notes of a command those of a subagent.
func subagentFlag(c *cobra.Command) *string {
	return c.Flags().String("subagent", "", "Of this subagent in the chat, a `NAME`")
}

// noteKey is the history of a chat that a command names, or of a subagent in it.
func noteKey(chat, subagent string) (memory.Key, error) {
	args := []string{chat}
	if subagent != "" {
		args = append(args, subagent)
	}
	_, key, err := historyKey(args)
	return key, err
}

func (con *console) noteAdd() *cobra.Command {
	c := &cobra.Command{
		Use: "add <chat> <text>", Short: "Add a note, which all models of the chat are shown from then on.",
		Long: `With --subagent only that subagent is shown it.

Examples:
  mneme memory note add 12345 "Answer in English, however the question is asked."
  mneme memory note add 12345 "Count in euros." --subagent analytic`,
	}
	subagent := subagentFlag(c)
	replaces := c.Flags().String("replaces", "", "The note that it supersedes, an `ID`")
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		key, err := noteKey(args[0], *subagent)
		if err != nil {
			return err
		}
		n, err := client.AddNote(ctx, key, webapi.NoteRequest{Text: args[1], Replaces: *replaces})
		if err == nil {
			fmt.Fprintln(con.stdout, "noted as", term.OneLine(n.ID, 130))
		}
		return err
	})
}

func (con *console) noteSet() *cobra.Command {
	c := &cobra.Command{
		Use: "set <chat> <note>", Short: "Say yes to a note that was proposed, or correct one.",
		Long: `Examples:
  mneme memory note set 12345 nabcdefghijk --active
  mneme memory note set 12345 nabcdefghijk --text "My name is Aliya."`,
	}
	subagent := subagentFlag(c)
	active := c.Flags().Bool("active", false, "Show it to models from now on")
	text := c.Flags().String("text", "", "What it says from now on, a `TEXT`")
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		key, err := noteKey(args[0], *subagent)
		if err != nil {
			return err
		}
		change := webapi.NoteChange{Text: *text}
		if *active {
			change.State = memory.NoteActive
		}
		if change == (webapi.NoteChange{}) {
			return errors.New("there is nothing to change: give --active or --text")
		}
		n, err := client.ChangeNote(ctx, key, args[1], change)
		if err == nil {
			fmt.Fprintf(con.stdout, "%s: %s\n", term.OneLine(n.State, 20), term.OneLine(n.Text, 2*memory.MaxNote))
		}
		return err
	})
}

func (con *console) noteRm() *cobra.Command {
	c := &cobra.Command{
		Use: "rm <chat> <note>", Short: "Remove a note.",
		Long: `Examples:
  mneme memory note rm 12345 nabcdefghijk`,
	}
	subagent := subagentFlag(c)
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		key, err := noteKey(args[0], *subagent)
		if err == nil {
			err = client.RemoveNote(ctx, key, args[1])
		}
		if err == nil {
			fmt.Fprintln(con.stdout, "removed")
		}
		return err
	})
}
