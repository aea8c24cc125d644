package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/chatexport"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

func memoryImportCommand(con *console) *cobra.Command {
	c := newCommand("import <chat-or-file> [<file>]", "Fill new chats with an export, of this service or of another one.", `Without --from the first argument is the chat, and without <file> the export is read from the standard input. Either all of it is stored or nothing. Only the newest messages stay at hand (webmemory.max_history), the others go to the archives.

With --from the one argument is a file: the data export of ChatGPT or Claude, as the archive that was downloaded or as its conversations.json, or what mem0's get_all gave, as JSON. Each conversation becomes a chat with its title and times, such as chatgpt-<its id>; the memories of a user of mem0 become the chat mem0-<user>. A chat that has a memory already stays as it is, so after an interruption the same command goes on. A conversation that cannot be read is named and left out, and then the exit code is 1.

Examples:
  mneme memory import 777 12345.ndjson
  mneme memory export 12345 | mneme memory import 12345 --url http://other:8080
  mneme memory import --from chatgpt chatgpt-export.zip
  mneme memory import --from claude conversations.json --json | jq .left_out`)
	service := c.Flags().String("from", "", "Take over the export of a `SERVICE`: "+strings.Join(chatexport.Services, ", "))
	asJSON := c.Flags().Bool("json", false, "With --from: print the summary as JSON")
	return withWebmemory(con, c, func(ctx context.Context, client *webapi.Client, args []string) error {
		switch {
		case *service == "" && *asJSON:
			return badUsage("--json goes with --from")
		case *service == "":
			return importChat(ctx, con, client, args)
		case !slices.Contains(chatexport.Services, *service):
			return badUsage(`--from must be one of "%s" but got %q`, strings.Join(chatexport.Services, `","`), *service)
		case len(args) != 1:
			return badUsage("--from takes one file and no chat: the chats are named after the export's conversations")
		}
		return importService(ctx, con, client, *service, args[0], *asJSON)
	})
}

// importChat fills a chat with an export of this service.
func importChat(ctx context.Context, con *console, client *webapi.Client, args []string) error {
	chat, _, err := historyKey(args[:1])
	if err != nil {
		return err
	}
	export := con.stdin
	if len(args) == 2 {
		f, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer f.Close()
		export = f
	}
	imported, err := client.Import(ctx, chat, export)
	if err != nil {
		return err
	}
	fmt.Fprintf(con.stdout, "imported %d messages of %d histories\n", imported.Messages, imported.Histories)
	if imported.Notes > 0 {
		fmt.Fprintf(con.stdout, "%d notes wait for a yes: mneme memory note ls %s\n", imported.Notes, chat)
	}
	return nil
}

// importReport counts the conversations of another service's export.
type importReport struct {
	Chats    int      `json:"chats"`
	Messages int      `json:"messages"`
	Already  int      `json:"already_there"` // unchanged chats, which have a memory
	Empty    int      `json:"empty"`         // conversations without a message
	LeftOut  []string `json:"left_out"`      // unreadable conversations, with the reason
}

func (t importReport) Text() string {
	text := fmt.Sprintf("imported %s with %s\nhere already, and left as they are: %d; without a message: %d\n",
		plural(t.Chats, "chat"), plural(t.Messages, "message"), t.Already, t.Empty)
	for _, why := range t.LeftOut {
		text += fmt.Sprintf("left out: %s\n", term.OneLine(why, 400))
	}
	return text
}

// importService imports the export of another service.
func importService(ctx context.Context, con *console, client *webapi.Client, service, name string, asJSON bool) error {
	ctx, release := cancelOnSignal(ctx)
	defer release()
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	report := importReport{LeftOut: []string{}}
	tell, end := term.Counter(con.stderr)
	err = chatexport.Read(file, size, service, func(chat chatexport.Chat, broken error) error {
		tell("imported %d chats, %d were here already", report.Chats, report.Already)
		return report.add(ctx, client, chat, broken)
	})
	end()
	switch {
	case err != nil && ctx.Err() != nil:
		err = errors.New("stopped; run the same command again to go on")
	case err != nil:
		err = fmt.Errorf("%s: %w", name, err)
	case len(report.LeftOut) > 0:
		err = errors.New(plural(len(report.LeftOut), "conversation") + " could not be imported; the summary says why")
	}
	return errors.Join(printReport(con.stdout, report, importReport.Text, nil, asJSON), err)
}

// add imports one conversation. An error ends the import.
func (t *importReport) add(ctx context.Context, client *webapi.Client, c chatexport.Chat, broken error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case broken != nil:
		t.LeftOut = append(t.LeftOut, broken.Error())
		return nil
	case len(c.Messages) == 0:
		t.Empty++
		return nil
	}
	var lines bytes.Buffer
	for _, m := range c.Messages {
		fmt.Fprintf(&lines, "{\"message\":%s}\n", m.Encode())
	}
	in, err := client.Import(ctx, c.Chat, &lines)
	refused := new(api.Problem)
	switch errors.As(err, &refused); {
	case refused.Code == webapi.CodeChatNotEmpty:
		t.Already++
		return nil
	case refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge:
		t.LeftOut = append(t.LeftOut, fmt.Sprintf("the chat %s (%q): %v", c.ID(), c.Title, err))
		return nil
	case err != nil:
		return err
	}
	t.Chats, t.Messages = t.Chats+1, t.Messages+in.Messages
	if c.Title != "" {
		title := memory.Shorten(c.Title, webapi.MaxTitle)
		// The next import leaves the chat unchanged, so a stopped import still sets the title.
		_, err = client.ChangeChat(context.WithoutCancel(ctx), c.Chat, webapi.ChatChange{Title: &title})
	}
	return err
}
