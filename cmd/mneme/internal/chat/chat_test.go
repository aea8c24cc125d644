package chat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/cmd/mneme/internal/chat"
	"mneme/cmd/mneme/internal/term"
	"mneme/internal/webtest"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, s *webtest.Server) *webapi.Client {
	t.Helper()
	c, err := webapi.New(s.URL)
	require.NoError(t, err)
	c.Pause = time.Millisecond
	t.Cleanup(c.Close)
	return c
}

// remember is a run with one delegation, that uses a tool, and an answer.
func remember(r *webtest.Run) {
	r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
	r.Emit(&event.Recalled{Messages: []event.RecalledMessage{{ID: "r.1"}, {ID: "r.2"}}})
	r.Emit(&event.AssistantDelta{Text: "Let me ask."})
	r.EmitFrom("analytic", "c1",
		&event.Delegation{Task: "remember:\n" + r.Message, Calls: event.Serial},
		&event.ToolProgress{Tool: "calculator", Status: "running", Detail: `{"expression":"1+1"}`},
		&event.ToolProgress{Tool: "calculator", Status: "done"},
		&event.Recalled{Failed: event.MemoryUnreachable},
		&event.SubagentDelta{Text: "not"}, &event.SubagentDelta{Text: "ed"},
		&event.Completion{Response: "noted", Status: event.Completed})
	r.Emit(&event.MasterTool{Tool: "calendar", Status: "running", Detail: `{"day":1}`},
		&event.MasterTool{Tool: "calendar", Status: "done"})
	r.Emit(&event.AssistantDelta{Text: "I noted "}, &event.AssistantDelta{Text: "that."})
	r.Emit(&event.Assistant{Content: "I noted that.", Citations: []event.Citation{
		{N: 1, Title: "Notes", Source: "notes.txt"},
	}})
	r.Emit(&event.RunFinished{Outcome: event.Completed})
}

func run(t *testing.T, s *webtest.Server, input string, change func(*chat.Options)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o := chat.Options{Chat: memory.MustChat("12345"), In: strings.NewReader(input), Out: &out}
	if change != nil {
		change(&o)
	}
	err := chat.Run(t.Context(), dial(t, s), o)
	return out.String(), err
}

func TestPipedLinesAreMessages(t *testing.T) {
	s := webtest.New(t, remember)
	out, err := run(t, s, "I am Aliya\n\n  two  \n", nil)
	require.NoError(t, err)
	require.Equal(t, 2, s.Posts())
	require.Equal(t, `  master · recalled 2 messages: r.1 r.2
Let me ask.
→ analytic: remember: I am Aliya
  analytic · calculator {"expression":"1+1"}
  analytic · the memory could not be searched (memory_unreachable)
← analytic: noted
  master · calendar {"day":1}
I noted that.
[1] Notes · notes.txt
  master · recalled 2 messages: r.1 r.2
Let me ask.
→ analytic: remember: two
  analytic · calculator {"expression":"1+1"}
  analytic · the memory could not be searched (memory_unreachable)
← analytic: noted
  master · calendar {"day":1}
I noted that.
[1] Notes · notes.txt
`, out)
}

func TestQuietShowsAnswersOnly(t *testing.T) {
	out, err := run(t, webtest.New(t, remember), "I am Aliya\n", func(o *chat.Options) { o.Quiet = true })
	require.NoError(t, err)
	require.Equal(t, "I noted that.\n[1] Notes · notes.txt\n", out)
}

func TestABrokenConnectionDoesNotShow(t *testing.T) {
	s := webtest.New(t, remember)
	want, err := run(t, s, "hi\n", nil)
	require.NoError(t, err)
	s.Cut(4, 0, 3)
	out, err := run(t, s, "hi\n", nil)
	require.NoError(t, err)
	require.Equal(t, want, out)
}

func TestATerminalShowsPromptsHistoryAndErrors(t *testing.T) {
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat}, &event.AssistantDelta{Text: "half"},
			&event.Error{Code: "model_failed", Message: "The model did not answer."}, &event.RunFinished{Outcome: event.Failed})
	})
	for _, m := range []memory.Message{
		{Role: memory.RoleUser, Content: "I am\nAliya"}, {Role: memory.RoleAssistant, Content: "Hello, \x1b[2JAliya"},
	} {
		s.Remember(memory.ChatKey(memory.MustChat("12345")), m)
	}
	out, err := run(t, s, "hi\n\n/slash\n", func(o *chat.Options) { o.Interactive, o.Style = true, term.InColour() })
	require.NoError(t, err)
	require.Equal(t, 2, s.Posts())
	dim := term.InColour().Dim
	require.Contains(t, out, dim("> I am\nAliya")+"\n"+dim("Hello, [2JAliya")+"\n> ")
	require.Equal(t, 2, strings.Count(out, "half\n"+term.InColour().Red("! The model did not answer.")+"\n> "))
}

func TestAMessageContinuesAfterABackslash(t *testing.T) {
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat}, &event.Assistant{Content: "You said: " + r.Message},
			&event.RunFinished{Outcome: event.Completed})
	})
	out, err := run(t, s, "one \\\n  two\\\n\nthree\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, "You said: one \n  two\n> You said: three\n")
	out, err = run(t, s, "list C:\\temp\\\nnext\n", nil)
	require.NoError(t, err)
	require.Equal(t, "You said: list C:\\temp\\\nYou said: next\n", out)
}

func TestMessagesGoToANamedAgent(t *testing.T) {
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message})
		r.EmitFrom(r.Agent, "c1",
			&event.Delegation{Task: r.Message, Calls: event.Serial},
			&event.ToolProgress{Tool: "answer", Status: "running", Detail: "gpt (A)"},
			&event.ToolProgress{Tool: "answer", Status: "done", Detail: "gpt (A): tea"},
			&event.ToolProgress{Tool: "review", Status: "failed", Detail: "gpt (A) on B: too slow"},
			&event.Completion{Response: "Tea.", Status: event.Completed})
		r.Emit(&event.Assistant{Content: "Tea."}, &event.RunFinished{Outcome: event.Completed})
	})
	out, err := run(t, s, "tea or coffee?\n", func(o *chat.Options) { o.Agent = "discuss" })
	require.NoError(t, err)
	require.Equal(t, `→ discuss: tea or coffee?
  discuss · answer gpt (A)
  discuss · answer ✓ gpt (A): tea
  discuss · review failed: gpt (A) on B: too slow
← discuss: Tea.
Tea.
`, out)
	s.Refuse = func(*http.Request) (int, string, string) { return 400, "unknown_agent", "There is no such agent." }
	_, err = run(t, s, "tea\n", func(o *chat.Options) { o.Agent = "nosuch" })
	require.ErrorContains(t, err, "There is no such agent.")
}

// waits returns a run that waits for a person and then finishes with the answers.
func waits(t *testing.T, list ...event.Wait) func(*webtest.Run) {
	return func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat, Message: r.Message}, &event.RunWaiting{Pending: list})
		var answers []event.WaitAnswer
		select {
		case answers = <-r.Answers:
		case <-t.Context().Done():
			return
		}
		text, _ := json.Marshal(answers)
		r.Emit(&event.RunResumed{Answers: answers}, &event.Assistant{Content: string(text)},
			&event.RunFinished{Outcome: event.Completed})
	}
}

var refund = event.Wait{ID: "w1", Kind: event.Approval, Subagent: "billing", Tool: "refund",
	Arguments: json.RawMessage(`{"amount":5}`), Reason: "approve: always"}

func interactive(o *chat.Options) { o.Interactive = true }

func TestATerminalAsksForApprovals(t *testing.T) {
	second := event.Wait{ID: "w2", Kind: event.Approval, Tool: "mail", Arguments: json.RawMessage(`{}`)}
	for input, want := range map[string]string{
		"y\nYES\n": `[{"id":"w1","decision":"approve"},{"id":"w2","decision":"approve"}]`,
		"no\n\n":   `[{"id":"w1","decision":"deny"},{"id":"w2","decision":"deny"}]`,
	} {
		out, err := run(t, webtest.New(t, waits(t, refund, second)), "hi\n"+input, interactive)
		require.NoError(t, err)
		require.Contains(t, out, "billing wants to call refund {\"amount\":5} (approve: always)\nAllow this call? [y/N] ")
		require.Contains(t, out, want)
	}
}

// A run without an answer stays pending. The next chat asks again.
func TestAPendingRunIsAskedAboutAgain(t *testing.T) {
	s := webtest.New(t, waits(t, refund))
	_, err := run(t, s, "hi\n", interactive)
	require.NoError(t, err)
	_, err = run(t, s, "hi\n", nil)
	require.ErrorContains(t, err, "the run is pending: answer it on the page or with POST /v1/chats/12345/runs/")
	out, err := run(t, s, "y\ny\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, `"decision":"approve"`)

	question := webtest.New(t, waits(t, event.Wait{ID: "w1", Kind: event.Question, Tool: "book"}))
	out, err = run(t, question, "hi\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, "answer it on the page")
}

func TestSlashCommandsOfEarlierVersionsAreRefused(t *testing.T) {
	s := webtest.New(t, remember)
	out, err := run(t, s, "/forget\n/discuss tea or coffee?\n/solo hi\n", interactive)
	require.NoError(t, err)
	require.Contains(t, out, "! /forget was removed: use mneme memory rm\n")
	require.Contains(t, out, "! /discuss was removed: use mneme chat --agent discuss\n")
	require.Equal(t, 1, s.Posts(), "/solo is a message")
}

// A connection that ends too early is an error, not the end of the input.
func TestALostServiceIsAnError(t *testing.T) {
	closing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = c.Close()
		}
	}))
	defer closing.Close()
	client, err := webapi.New(closing.URL)
	require.NoError(t, err)
	defer client.Close()
	client.Pause = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var out bytes.Buffer
	err = chat.Run(ctx, client, chat.Options{Chat: memory.MustChat("1"), In: strings.NewReader("hi\n"), Out: &out})
	require.Error(t, err)
}

func TestAnErrorEndsAPipedChat(t *testing.T) {
	s := webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat}, &event.RunFinished{Outcome: event.Failed})
	})
	_, err := run(t, s, "one\ntwo\n", nil)
	require.EqualError(t, err, "the run failed")
	require.Equal(t, 1, s.Posts())
}

func TestTheAnswerIsWholeWhateverWasStreamed(t *testing.T) {
	for name, test := range map[string]struct {
		deltas []string
		want   string
	}{
		"nothing":        {nil, "The answer.\n"},
		"all of it":      {[]string{"The ", "answer."}, "The answer.\n"},
		"more before":    {[]string{"Wait. ", "The answer."}, "Wait. The answer.\n"},
		"something else": {[]string{"Draft"}, "Draft\nThe answer.\n"},
		"hostile":        {[]string{"\x1b]0;own", "ed\x07"}, "]0;owned\nThe answer.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := webtest.New(t, func(r *webtest.Run) {
				r.Emit(&event.RunStarted{ChatID: r.Chat})
				for _, d := range test.deltas {
					r.Emit(&event.AssistantDelta{Text: d})
				}
				r.Emit(&event.Assistant{Content: "The answer."}, &event.RunFinished{Outcome: event.Completed})
			})
			out, err := run(t, s, "hi\n", nil)
			require.NoError(t, err)
			require.Equal(t, test.want, out)
		})
	}
}

// person is a user at a terminal: types lines, reads what is shown, and presses Ctrl-C.
type person struct {
	t          *testing.T
	keys       *io.PipeWriter
	screen     *bufio.Reader
	interrupts chan os.Signal
	end        chan error
}

func sit(t *testing.T, s *webtest.Server) *person {
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	p := &person{t, keys, bufio.NewReader(screen), make(chan os.Signal), make(chan error, 1)}
	client := dial(t, s)
	go func() {
		p.end <- chat.Run(context.Background(), client, chat.Options{
			Chat: memory.MustChat("12345"), In: in, Out: out, Interactive: true, Interrupts: p.interrupts,
		})
		out.Close()
		in.Close()
	}()
	return p
}

// sees reads on until the text has been shown.
func (p *person) sees(text string) {
	p.t.Helper()
	var shown strings.Builder
	for !strings.HasSuffix(shown.String(), text) {
		b, err := p.screen.ReadByte()
		require.NoError(p.t, err, "waiting for %q, saw %q", text, shown.String())
		shown.WriteByte(b)
	}
}

func (p *person) types(line string) {
	_, err := io.WriteString(p.keys, line+"\n")
	require.NoError(p.t, err)
}

func (p *person) leaves() {
	p.t.Helper()
	_, _ = io.Copy(io.Discard, p.screen)
	require.NoError(p.t, <-p.end)
	p.keys.Close()
}

// endless runs until it is stopped.
func endless(r *webtest.Run) {
	r.Emit(&event.RunStarted{ChatID: r.Chat}, &event.AssistantDelta{Text: "and on"})
	<-r.Stopped
	r.Emit(&event.Assistant{Content: "and on", Partial: true}, &event.RunFinished{Outcome: event.Stopped})
}

func TestCtrlCStopsTheRunAndKeepsTheChat(t *testing.T) {
	p := sit(t, webtest.New(t, endless))
	p.sees("> ")
	for range 2 {
		p.types("go")
		p.sees("and on")
		p.interrupts <- os.Interrupt
		p.sees("(stopping; Ctrl-C again leaves)\n")
		p.sees("(stopped)\n> ")
	}
	p.interrupts <- os.Interrupt
	p.leaves()
}

func TestASecondCtrlCLeavesARunThatDoesNotStop(t *testing.T) {
	deaf := make(chan struct{})
	defer close(deaf)
	p := sit(t, webtest.New(t, func(r *webtest.Run) {
		r.Emit(&event.RunStarted{ChatID: r.Chat}, &event.AssistantDelta{Text: "never"})
		<-deaf
	}))
	p.sees("> ")
	p.types("go")
	p.sees("never")
	p.interrupts <- os.Interrupt
	p.sees("leaves)\n")
	p.interrupts <- os.Interrupt
	p.leaves()
}

func TestARunUnderWayIsShownAtTheStart(t *testing.T) {
	s := webtest.New(t, endless)
	s.Start(memory.MustChat("12345"), "r1", "earlier")
	p := sit(t, s)
	p.sees("and on")
	p.interrupts <- os.Interrupt
	p.sees("(stopped)\n> ")
	p.keys.Close()
	p.leaves()
}

func TestALineMayBeLongButNotEndless(t *testing.T) {
	s := webtest.New(t, remember)
	_, err := run(t, s, strings.Repeat("ж", 100_000)+"\n", func(o *chat.Options) { o.Quiet = true })
	require.NoError(t, err)
	_, err = run(t, s, strings.Repeat("x", 2<<20), nil)
	require.EqualError(t, err, "a line exceeds the maximum size of a message (1048576 bytes)")
}
