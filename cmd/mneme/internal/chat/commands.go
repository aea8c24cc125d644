package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	webapi "mneme/webmemory/api"
)

// maxListed bounds the list of /chats.
const maxListed = 50

const help = `/discuss QUESTION  several models answer, review one another, and conclude
/ensemble GOAL     several models each write a plan and vote; the best one is shown
/solo QUESTION     the master answers without these models, also where it would ask them
/memory            what is remembered in this chat
/answer            answer what the run of this chat waits for
/new               begin another chat
/chats [ID]        list the chats, or go on with one of them
/forget            erase this chat
/quit              leave (as Ctrl-D does)
/help              this list
Ctrl-C stops a running answer; twice in a row it leaves.
A text of several lines that is pasted is one message; ␤ stands for the end of a line.
A message that begins with a slash is written with two: //like this
`

// Commands are the commands of a talk, for an Editor to complete.
func Commands() []string {
	var names []string
	for line := range strings.Lines(help) {
		if strings.HasPrefix(line, "/") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return names
}

// command does what a line behind its slash says.
func (t *talk) command(ctx context.Context, line string) error {
	name, rest := line, ""
	if end := strings.IndexFunc(line, unicode.IsSpace); end >= 0 {
		name, rest = line[:end], strings.TrimSpace(line[end:])
	}
	switch {
	case name == "solo" && rest != "":
		return say(ctx, t, "/"+line)
	case name == "solo":
		return errors.New("/solo needs what is to be answered: /solo QUESTION")
	case panelTakes(name) != "":
		return t.ask(ctx, name, rest)
	case name == "chats" && rest != "":
		return t.switchTo(ctx, rest)
	}
	switch line {
	case "help":
		_, err := fmt.Fprint(t.Out, help)
		return err
	case "memory":
		return t.memory(ctx)
	case "answer":
		return t.answerNow(ctx)
	case "new":
		return t.switchTo(ctx, "terminal-"+strings.ToLower(rand.Text()[:10]))
	case "chats":
		return t.list(ctx)
	case "forget":
		return t.forget(ctx)
	}
	return fmt.Errorf("there is no command /%s; /help lists them", term.OneLine(line, 40))
}

// memory shows what is remembered in this chat.
func (t *talk) memory(ctx context.Context) error {
	info, err := t.client.Chat(ctx, t.Chat)
	if err != nil && !webapi.IsNotFound(err) {
		return err
	}
	if len(info.Histories) == 0 {
		fmt.Fprintln(t.Out, "nothing is remembered in this chat yet")
	}
	for _, h := range info.Histories {
		fmt.Fprintf(t.Out, "%s  %d messages, %d bytes\n", term.Clean(h.Key), h.Messages, h.Bytes)
	}
	return nil
}

// answerNow asks for what the run of this chat waits for.
func (t *talk) answerNow(ctx context.Context) error {
	info, err := t.client.Chat(ctx, t.Chat)
	if err != nil && !webapi.IsNotFound(err) {
		return err
	}
	if info.Waiting == nil {
		t.view.note("no run of this chat waits for an answer")
		return nil
	}
	return t.answer(ctx, &waiting{run: info.Waiting.RunID, waits: info.Waiting.Waits})
}

// switchTo goes on in another chat, also in one that has said nothing yet.
func (t *talk) switchTo(ctx context.Context, id string) error {
	chat, err := memory.Tenant{}.Chat(id)
	if err != nil {
		return err
	}
	t.Chat = chat
	return t.greet(ctx)
}

// list shows the chats that there are, this one with a star.
func (t *talk) list(ctx context.Context) error {
	table := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	shown := 0
	for chat, err := range t.client.Chats(ctx) {
		if err != nil {
			return err
		}
		if shown++; shown > maxListed {
			fmt.Fprintf(table, "(more than %d chats; mneme memory ls lists more)\n", maxListed)
			break
		}
		info, err := t.client.Chat(ctx, chat)
		if webapi.IsNotFound(err) {
			continue // erased meanwhile
		}
		if err != nil {
			return err
		}
		mark, messages := " ", 0
		if chat == t.Chat {
			mark = "*"
		}
		for _, h := range info.Histories {
			if h.Subagent == "" {
				messages = h.Messages
			}
		}
		fmt.Fprintf(table, "%s %s\t%d messages\n", mark, chat, messages)
	}
	if shown == 0 {
		fmt.Fprintln(table, "there are no chats yet")
	} else {
		fmt.Fprintln(table, "/chats ID goes on with one of them")
	}
	return table.Flush()
}

// forget erases this chat when the user says yes.
func (t *talk) forget(ctx context.Context) error {
	answer, err := t.read(ctx, fmt.Sprintf("Erase everything of chat %s? It cannot be undone. [y/N] ", t.Chat))
	if err != nil && ctx.Err() != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || answer != "y" && answer != "yes" {
		t.view.note("nothing was erased")
		return nil
	}
	erased, err := t.client.EraseChat(ctx, t.Chat)
	if err != nil {
		return err
	}
	if len(erased) == 0 {
		t.view.note("there was nothing to erase")
		return nil
	}
	t.view.note(fmt.Sprintf("chat %s is erased", t.Chat))
	return nil
}
