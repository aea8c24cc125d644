package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// memoryNote are the commands about notes.
func (con *console) memoryNote() *cobra.Command {
	return group("note", "What must stand in every prompt of a chat: list, add, correct and remove notes.",
		con.noteLs(), con.noteAdd(ofChat), con.noteSet(ofChat), con.noteRm(ofChat))
}

// holder is the owner of the notes that commands are about.
type holder struct {
	noun    string // of their first argument
	command string // that they are below
	id      string // in examples
}

var (
	ofChat = holder{"chat", "note", "12345"} // or a subagent in it
	ofUser = holder{"user", "user", "ann"}
)

// path is where the notes of an id are, or those of a subagent in a chat.
func (h holder) path(id, subagent string) (string, error) {
	if h == ofUser {
		u, err := user(id)
		return webapi.UserNotesPath(u), err
	}
	args := []string{id}
	if subagent != "" {
		args = append(args, subagent)
	}
	_, key, err := historyKey(args)
	return webapi.NotesPath(key), err
}

// withNotes makes a command of one about notes, which are at a path. A flag makes it that of a subagent; a user has
// none.
func withNotes(con *console, c *cobra.Command, of holder,
	run func(ctx context.Context, client *webapi.Client, at string, args []string) error,
) *cobra.Command {
	subagent := new(string)
	if of == ofChat {
		subagent = c.Flags().String("subagent", "", "Of this subagent in the chat, a `NAME`")
	}
	return con.withWebmemory(c, func(ctx context.Context, client *webapi.Client, args []string) error {
		at, err := of.path(args[0], *subagent)
		if err != nil {
			return err
		}
		return run(ctx, client, at, args)
	})
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
			notes, err := client.Notes(ctx, webapi.NotesPath(key))
			if err != nil {
				return err
			}
			for _, n := range notes {
				list = append(list, notedLine{key.Agent(), n})
			}
		}
		return con.show(list, nil, *asJSON)
	})
}

// noted are notes to be shown.
type noted []notedLine

type notedLine struct {
	Subagent memory.Agent `json:"subagent"`
	memory.Note
}

func (list noted) WriteText(out io.Writer) error {
	return writeNotes(out, "HISTORY", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(string(list[i].Subagent), "(chat)"), list[i].Note
	})
}

// writeNotes writes notes as a table, the first column of which says where they belong.
func writeNotes(out io.Writer, column string, count int, at func(i int) (string, memory.Note)) error {
	if count == 0 {
		_, err := fmt.Fprintln(out, "there are no notes")
		return err
	}
	rows := [][]string{{column, "ID", "STATE", "BY", "SINCE", "TEXT"}}
	for i := range count {
		name, n := at(i)
		since := time.UnixMilli(int64(n.TS * 1000)).UTC().Format(time.DateTime)
		rows = append(rows, []string{term.OneLine(name, 130), term.OneLine(n.ID, 130), term.OneLine(n.State, 20),
			term.OneLine(n.By, 20), since, term.OneLine(n.Text, 2*memory.MaxNote)})
	}
	return writeColumns(out, rows)
}

func (con *console) noteAdd(of holder) *cobra.Command {
	c := &cobra.Command{
		Use: "add <" + of.noun + "> <text>", Short: "Add a note, which all models of the chat are shown from then on.",
		Long: `With --subagent only that subagent is shown it.

Examples:
  mneme memory note add 12345 "Answer in English, however the question is asked."
  mneme memory note add 12345 "Count in euros." --subagent analytic`,
	}
	if of == ofUser {
		c.Short = "Add a note, which all models are shown from then on in each chat of the user."
		c.Long = "Examples:\n" + `  mneme memory user add ann "Answer in English, however the question is asked."`
	}
	replaces := c.Flags().String("replaces", "", "The note that it supersedes, an `ID`")
	return withNotes(con, c, of, func(ctx context.Context, client *webapi.Client, at string, args []string) error {
		n, err := client.AddNote(ctx, at, webapi.NoteRequest{Text: args[1], Replaces: *replaces})
		if err == nil {
			fmt.Fprintln(con.stdout, "noted as", term.OneLine(n.ID, 130))
		}
		return err
	})
}

func (con *console) noteSet(of holder) *cobra.Command {
	c := &cobra.Command{
		Use: "set <" + of.noun + "> <note>", Short: "Say yes to a note that was proposed, or correct one.",
		Long: fmt.Sprintf(`Examples:
  mneme memory %[1]s set %[2]s nabcdefghijk --active
  mneme memory %[1]s set %[2]s nabcdefghijk --text "My name is Aliya."`, of.command, of.id),
	}
	active := c.Flags().Bool("active", false, "Show it to models from now on")
	text := c.Flags().String("text", "", "What it says from now on, a `TEXT`")
	return withNotes(con, c, of, func(ctx context.Context, client *webapi.Client, at string, args []string) error {
		change := webapi.NoteChange{Text: *text}
		if *active {
			change.State = memory.NoteActive
		}
		if change == (webapi.NoteChange{}) {
			return wrong("there is nothing to change: give --active or --text")
		}
		n, err := client.ChangeNote(ctx, at, args[1], change)
		if err == nil {
			fmt.Fprintf(con.stdout, "%s: %s\n", term.OneLine(n.State, 20), term.OneLine(n.Text, 2*memory.MaxNote))
		}
		return err
	})
}

func (con *console) noteRm(of holder) *cobra.Command {
	c := &cobra.Command{
		Use: "rm <" + of.noun + "> <note>", Short: "Remove a note.",
		Long: fmt.Sprintf("Examples:\n  mneme memory %s rm %s nabcdefghijk", of.command, of.id),
	}
	return withNotes(con, c, of, func(ctx context.Context, client *webapi.Client, at string, args []string) error {
		err := client.RemoveNote(ctx, at, args[1])
		if err == nil {
			fmt.Fprintln(con.stdout, "removed")
		}
		return err
	})
}
