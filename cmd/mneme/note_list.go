package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func noteListCommand(con *console) *cobra.Command {
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
			return printReport(con.stdout, notes, formatUserNotes, err, *asJSON)
		}
		list, err := listNotes(ctx, client, args)
		return printReport(con.stdout, list, formatChatNotes, err, *asJSON)
	})
}

// listNotes returns the notes of one history, or of all histories of a chat.
func listNotes(ctx context.Context, client *webapi.Client, args []string) (list []chatNote, err error) {
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
	list = []chatNote{}
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

func formatChatNotes(list []chatNote) string {
	return formatNotes("HISTORY", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(string(list[i].Subagent), "(chat)"), list[i].Note
	})
}

// chatNote is a note of a chat or, with a name, of a subagent in it.
type chatNote struct {
	Subagent memory.Agent `json:"subagent"`
	memory.Note
}

func formatUserNotes(list []memory.Note) string {
	return formatNotes("CHAT", len(list), func(i int) (string, memory.Note) {
		return cmp.Or(list[i].Chat, "-"), list[i]
	})
}

// formatNotes formats notes. The first column, with the title origin, names the place that a note comes from.
func formatNotes(origin string, count int, get func(i int) (string, memory.Note)) string {
	if count == 0 {
		return "there are no notes\n"
	}
	rows := [][]string{{origin, "ID", "STATE", "BY", "SINCE", "TEXT"}}
	for i := range count {
		name, n := get(i)
		timestamp := time.UnixMilli(int64(n.TS * 1000)).UTC().Format(time.DateTime)
		rows = append(rows, []string{term.OneLine(name, 130), term.OneLine(n.ID, 130), term.OneLine(n.State, 20),
			term.OneLine(n.Author, 20), timestamp, term.OneLine(n.Text, 2*memory.MaxNote)})
	}
	return formatTable(rows)
}
