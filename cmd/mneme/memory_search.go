package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memorySearchCommand(con *console) *cobra.Command {
	c := newCommand("search <chat> <query>", "Find what was said in a chat, however long ago.", `It prints the messages that match best, literally, with their time, whose memory they are of and their ids. The query is words, or a question in English or Russian, also about a time ("in May", "last week").

Examples:
  mneme memory search 12345 "what am I allergic to?"
  mneme memory search 12345 "berlin budget" --subagent analytic --json | jq`)
	f := c.Flags()
	subagent := f.String("subagent", "", "Only the memory of this subagent, a `NAME`")
	start := f.String("from", "", "Not from before this `TIME`, such as 2024-03-05 or 2024-03-05T10:00:00Z")
	end := f.String("to", "", "Only from before this `TIME`")
	budget := f.Int("budget", 800, "Tokens of text at most, a `NUMBER`")
	asJSON := f.Bool("json", false, "Print JSON")
	return withChat(con, c, func(ctx context.Context, client *webapi.Client, chat memory.Chat, args []string) error {
		query := url.Values{"query": {args[1]}, "budget": {strconv.Itoa(*budget)}}
		for name, value := range map[string]string{"subagent": *subagent, "from": *start, "to": *end} {
			if value != "" {
				query.Set(name, value)
			}
		}
		results, err := client.Recall(ctx, chat, query)
		return printReport(con.stdout, results, formatHits, err, *asJSON)
	})
}

// formatHits formats the messages that a search found.
func formatHits(r webapi.Recalled) string {
	var b strings.Builder
	for _, h := range r.Hits {
		author := h.Role
		if h.Subagent != "" {
			author = string(h.Subagent) + ", " + h.Role
		}
		timestamp := time.UnixMilli(int64(h.TS * 1000)).UTC().Format(time.DateTime)
		fmt.Fprintf(&b, "%s  %s  %s\n  %s\n", timestamp, author, h.ID, term.OneLine(h.Text, 2000))
	}
	switch {
	case len(r.Hits) == 0:
		b.WriteString("nothing was found\n")
	case r.Partial:
		b.WriteString("(the oldest messages are not searched yet; ask again in a moment)\n")
	}
	return b.String()
}
