package chat_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/chat"
	"mneme/cmd/mneme/internal/term"
	"mneme/internal/webtest"
	"mneme/memory"
	"mneme/memory/event"
)

// echo answers with what it was told.
func echo(r *webtest.Run) {
	r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message}, &event.Assistant{
		Content: r.Chat.String() + " heard: " + r.Message,
	},
		&event.RunFinished{Outcome: event.Completed})
}

func TestChatsAreSwitchedListedAndErased(t *testing.T) {
	s := webtest.New(t, echo)
	s.Remember(memory.ChatKey(memory.MustChat("old")), memory.Message{Role: memory.RoleUser, Content: "from before"})
	out, err := run(t, s, "one\n/chats\n/chats old\ntwo\n/new\n/chats a/b\n", nil)
	require.ErrorContains(t, err, "a chat id is 1 to 128 characters")
	require.Contains(t, out, "12345 heard: one\n")
	require.Contains(t, out, "* 12345  2 messages\n  old    1 messages\n/chats ID goes on with one of them\n")
	require.Contains(t, out, "chat old · /help lists commands, Ctrl-D leaves\n› from before\nold heard: two\n")
	require.Regexp(t, `chat terminal-[a-z2-7]{10} · `, out)

	out, err = run(t, s, "/forget\nno\n/memory\n/forget\ny\n/memory\n/forget\n", nil)
	require.NoError(t, err)
	require.Equal(t, `nothing was erased
chat_history:12345  2 messages, 244 bytes
chat 12345 is erased
nothing is remembered in this chat yet
nothing was erased
`, out)
}

// script is an Editor that gives these lines; "^C" is Ctrl-C.
type script struct {
	lines      []string
	prompts    []string
	remembered []string
}

func (s *script) ReadLine(prompt string) (string, error) {
	s.prompts = append(s.prompts, prompt)
	if len(s.lines) == 0 {
		return "", io.EOF
	}
	line := s.lines[0]
	if s.lines = s.lines[1:]; line == "^C" {
		return "", term.ErrInterrupt
	}
	return line, nil
}

func (s *script) Remember(line string) { s.remembered = append(s.remembered, line) }

func TestAnEditorsLinesAreMessages(t *testing.T) {
	edit := func(lines ...string) (*script, string) {
		e := &script{lines: lines}
		out, err := run(t, webtest.New(t, echo), "", func(o *chat.Options) { o.Interactive, o.Editor = true, e })
		require.NoError(t, err)
		return e, out
	}
	e, out := edit("a\nb\tc", "^C", "", "/forget", "y", "^C", "^C", "never")
	require.Contains(t, out, "12345 heard: a\nb\tc\n", "a pasted text is one message")
	require.Contains(t, out, "(Ctrl-C again, or Ctrl-D, leaves)\n")
	require.Contains(t, out, "chat 12345 is erased")
	require.Equal(t, []string{"a\nb\tc", "/forget"}, e.remembered, "an answer to a question is no line of the history")
	require.Equal(t, []string{"never"}, e.lines)
	require.True(t, strings.HasPrefix(e.prompts[4], "Erase everything of chat 12345?"), e.prompts)
	_, out = edit("one") // and then Ctrl-D
	require.Contains(t, out, "12345 heard: one\n")
}

func TestEveryCommandIsCompleted(t *testing.T) {
	require.Equal(t, []string{"/discuss", "/ensemble", "/solo", "/memory", "/answer", "/new", "/chats", "/forget",
		"/quit", "/help"},
		chat.Commands())
}
