package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func (con *console) memoryNote() *cobra.Command {
	return group("note", "List, add, change and remove the notes of a chat or a user.",
		con.noteLs(), con.noteAdd(), con.noteSet(), con.noteRm())
}

// notesPath returns the path of a user's notes, or of a chat's or its subagent's.
func notesPath(id, subagent string, ofUser bool) (string, error) {
	switch {
	case ofUser && subagent != "":
		return "", wrong("a user has no subagents: use --user without <subagent> and --subagent")
	case ofUser:
		u, err := parseUser(id)
		return webapi.UserNotesPath(u), err
	}
	args := []string{id}
	if subagent != "" {
		args = append(args, subagent)
	}
	_, key, err := historyKey(args)
	return webapi.NotesPath(key), err
}

func parseUser(id string) (memory.User, error) {
	u, err := memory.Tenant{}.User(id)
	if err != nil {
		return u, wrong("<user>: %w", trimSentinel(err))
	}
	return u, nil
}

func userFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("user", false, "The first argument is a user, not a chat")
}

// withNotes adds the flags --user and --subagent. It calls run with the path of the notes.
func withNotes(con *console, c *cobra.Command,
	run func(ctx context.Context, client *webapi.Client, path string, args []string) error,
) *cobra.Command {
	ofUser := userFlag(c)
	subagent := c.Flags().String("subagent", "", "The notes of this subagent of the chat, a `NAME`")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		path, err := notesPath(args[0], *subagent, *ofUser)
		if err != nil {
			return err
		}
		return run(ctx, client, path, args)
	})
}

func (con *console) noteLs() *cobra.Command {
	c := newCommand("ls <chat> [<subagent>]", "List the notes of a chat, a subagent or a user.", `Without <subagent> it lists the notes of the chat and of all its subagents. Models see active notes. Proposed notes need your approval (mneme memory note set --active). Superseded notes were replaced by newer ones. For a user, it also prints the chat that each note comes from.

Examples:
  mneme memory note ls 12345
  mneme memory note ls 12345 analytic --json | jq
  mneme memory note ls ann --user`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	ofUser := userFlag(c)
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		if *ofUser {
			path, err := notesPath(args[0], strings.Join(args[1:], ""), true)
			if err != nil {
				return err
			}
			notes, err := client.Notes(ctx, path)
			return printReport(con.stdout, userNotes(notes), err, *asJSON)
		}
		list, err := listNotes(ctx, client, args)
		return printReport(con.stdout, list, err, *asJSON)
	})
}

// listNotes returns the notes of one history, or of all histories of a chat.
func listNotes(ctx context.Context, client *webapi.Client, args []string) (list chatNotes, err error) {
	chat, key, err := historyKey(args)
	if err != nil {
		return nil, err
	}
	keys := []memory.Key{key}
	if len(args) == 1 {
		info, err := client.Chat(ctx, chat)
		if err != nil {
			return nil, err
		}
		keys = nil
		for _, h := range info.Histories {
			if key, ok := memory.ParseKey(h.Key); ok && h.Notes > 0 {
				keys = append(keys, key)
			}
		}
	}
	list = chatNotes{}
	for _, key := range keys {
		notes, err := client.Notes(ctx, webapi.NotesPath(key))
		if err != nil {
			return nil, err
		}
		for _, n := range notes {
			list = append(list, chatNote{key.Agent(), n})
		}
	}
	return list, nil
}

type chatNotes []chatNote

// chatNote is a note of a chat or, with a name, of a subagent in it.
type chatNote struct {
	Subagent memory.Agent `json:"subagent"`
	memory.Note
}

func (list chatNotes) Text() string {
	return noteTable("HISTORY", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(string(list[i].Subagent), "(chat)"), list[i].Note
	})
}

type userNotes []memory.Note

func (list userNotes) Text() string {
	return noteTable("CHAT", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(list[i].Chat, "-"), list[i]
	})
}

// noteTable formats notes. The first column, with the title origin, names the place that a note comes from.
func noteTable(origin string, count int, at func(i int) (string, memory.Note)) string {
	if count == 0 {
		return "there are no notes\n"
	}
	rows := [][]string{{origin, "ID", "STATE", "BY", "SINCE", "TEXT"}}
	for i := range count {
		name, n := at(i)
		since := time.UnixMilli(int64(n.TS * 1000)).UTC().Format(time.DateTime)
		rows = append(rows, []string{term.OneLine(name, 130), term.OneLine(n.ID, 130), term.OneLine(n.State, 20),
			term.OneLine(n.By, 20), since, term.OneLine(n.Text, 2*memory.MaxNote)})
	}
	return formatTable(rows)
}

func (con *console) noteAdd() *cobra.Command {
	c := newCommand("add <chat> <text>", "Add a note to the prompts of a chat or a user.", `All models of the chat see the note. With --subagent only that subagent sees it. With --user it is in the prompts of all chats of the user.

Examples:
  mneme memory note add 12345 "Answer in English, even if the question is in another language."
  mneme memory note add 12345 "Count in euros." --subagent analytic
  mneme memory note add ann "My name is Ann." --user`)
	replaces := c.Flags().String("replaces", "", "The note that it supersedes, an `ID`")
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		n, err := client.AddNote(ctx, path, webapi.NoteRequest{Text: args[1], Replaces: *replaces})
		if err == nil {
			fmt.Fprintln(con.stdout, "noted as", term.OneLine(n.ID, 130))
		}
		return err
	})
}

func (con *console) noteSet() *cobra.Command {
	c := newCommand("set <chat> <note>", "Accept or edit a proposed note.", `Examples:
  mneme memory note set 12345 nabcdefghijk --active
  mneme memory note set 12345 nabcdefghijk --text "My name is Aliya."
  mneme memory note set ann nabcdefghijk --active --user`)
	active := c.Flags().Bool("active", false, "Show the note to models")
	text := c.Flags().String("text", "", "The new `TEXT` of the note")
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		change := webapi.NoteChange{Text: *text}
		if *active {
			change.State = memory.NoteActive
		}
		if change == (webapi.NoteChange{}) {
			return wrong("nothing to change: add --active or --text")
		}
		n, err := client.ChangeNote(ctx, path, args[1], change)
		if err == nil {
			fmt.Fprintf(con.stdout, "%s: %s\n", term.OneLine(n.State, 20), term.OneLine(n.Text, 2*memory.MaxNote))
		}
		return err
	})
}

func (con *console) noteRm() *cobra.Command {
	c := newCommand("rm <chat> <note>", "Remove a note.", `Examples:
  mneme memory note rm 12345 nabcdefghijk
  mneme memory note rm ann nabcdefghijk --user`)
	return withNotes(con, c, func(ctx context.Context, client *webapi.Client, path string, args []string) error {
		err := client.RemoveNote(ctx, path, args[1])
		if err == nil {
			fmt.Fprintln(con.stdout, "removed")
		}
		return err
	})
}
