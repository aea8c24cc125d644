package loop_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// limited is a model with a real limit, which it may or may not tell.
type limited struct {
	limit   int     // in tokens as it counts them; 0 for none
	scale   float64 // its count divided by the estimate
	silent  bool    // its errors hold no numbers
	minute  bool    // the limit is an allowance
	window  int     // what ContextTokens says
	refused int
	asked   []loop.Request
}

func (m *limited) ContextTokens(context.Context) int { return m.window }

type tooLong struct {
	limit, sent int
	window      bool
}

func (tooLong) Error() string { return "too long" }

func (e tooLong) TooLong() (limit, sent int, window, ok bool) { return e.limit, e.sent, e.window, true }

func (m *limited) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		n := memory.Tokens(r.System)
		for _, msg := range r.Messages {
			n += msg.Tokens()
		}
		counted := int(float64(n) * max(m.scale, 1))
		if m.limit > 0 && counted > m.limit {
			m.refused++
			e := tooLong{m.limit, counted, !m.minute}
			if m.silent {
				e = tooLong{window: !m.minute}
			}
			yield(loop.Delta{}, fmt.Errorf("%w: %w", loop.ErrModel, e))
			return
		}
		m.asked = append(m.asked, r)
		yield(loop.Delta{Text: "ok"}, nil)
	}
}

func (m *limited) last() []memory.Message { return m.asked[len(m.asked)-1].Messages }

// ask says what a model answers through a window.
func ask(t *testing.T, w *loop.Window, messages ...memory.Message) error {
	t.Helper()
	for _, err := range w.Generate(t.Context(), loop.Request{System: "Be brief.", Messages: messages}) {
		if err != nil {
			return err
		}
	}
	return nil
}

func user(text string) memory.Message {
	return memory.Message{Role: memory.RoleUser, Content: text}
}

func said(text string) memory.Message {
	return memory.Message{Role: memory.RoleAssistant, Content: text}
}

const paragraph = "The quick brown fox jumps over the lazy dog and runs into the wood. "

func TestWhatFitsPassesUntouched(t *testing.T) {
	m := &limited{}
	w := &loop.Window{Model: m, Tokens: 2000}
	messages := []memory.Message{user("Hello"), said("Hi"), user("How are you?")}
	require.NoError(t, ask(t, w, messages...))
	require.Equal(t, messages, m.last())
}

// One message that does not fit alone is cut in its middle, and the next ones of
// the chat are answered too.
func TestALongPasteIsCutAndTheChatGoesOn(t *testing.T) {
	m := &limited{}
	w := &loop.Window{Model: m, Tokens: 8000}
	paste := "BEGIN " + strings.Repeat(paragraph, 8000) + " END: what does it say?"
	messages := []memory.Message{user("My name is Ann."), said("Hello Ann."), user(paste)}
	require.NoError(t, ask(t, w, messages...))
	shown := m.last()
	require.Len(t, shown, 3)
	cut := shown[2]
	require.True(t, strings.HasPrefix(cut.Content, "BEGIN "))
	require.True(t, strings.HasSuffix(cut.Content, "END: what does it say?"))
	require.Regexp(t, `\n… \(cut: \d{6} characters\) …\n`, cut.Content)
	require.LessOrEqual(t, cut.Tokens(), 6000*6/10)
	require.True(t, paste == messages[2].Content, "what is stored stays")

	for i := range 10 {
		messages = append(messages, said("It is about a fox."), user(fmt.Sprintf("And question %d?", i)))
		require.NoError(t, ask(t, w, messages...))
		require.Equal(t, shown, m.last()[:3], "the front of the prompt stays")
		require.Equal(t, messages[len(messages)-1], m.last()[len(m.last())-1])
	}
}

// The front of the prompt moves rarely: when the window is full, and then far.
func TestTheFrontMovesRarely(t *testing.T) {
	m := &limited{}
	w := &loop.Window{Model: m, Tokens: 4000}
	var messages []memory.Message
	moves, front := 0, ""
	for i := range 200 {
		messages = append(messages, user(fmt.Sprintf("Question %d. %s", i, paragraph)))
		require.NoError(t, ask(t, w, messages...))
		if got := m.last()[0].Content; got != front {
			front = got
			moves++
		}
		messages = append(messages, said(fmt.Sprintf("Answer %d. %s", i, paragraph)))
	}
	require.LessOrEqual(t, moves, 12)
	require.GreaterOrEqual(t, moves, 3)
}

// What a window shows is valid whatever comes in, and does not hang on what was
// asked before.
func TestAWindowTearsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var messages []memory.Message
		for i := range rapid.IntRange(1, 12).Draw(t, "exchanges") {
			text := func(label string) string {
				return strings.Repeat(paragraph, rapid.IntRange(0, 60).Draw(t, label)) + fmt.Sprint("x", i)
			}
			messages = append(messages, user(text("user")))
			for j := range rapid.IntRange(0, 3).Draw(t, "rounds") {
				id := fmt.Sprintf("call_%d_%d", i, j)
				messages = append(messages,
					memory.Message{Role: memory.RoleAssistant, ToolCalls: []memory.ToolCall{
						call(id, "look", `{"at":"`+fmt.Sprint(j)+`"}`),
					}},
					memory.Message{Role: memory.RoleTool, ToolCallID: id, Name: "look", Content: text("result")})
			}
			if rapid.Bool().Draw(t, "answered") {
				messages = append(messages, said(text("answer")))
			}
		}
		messages, _ = memory.Repair(messages)
		m := &limited{}
		w := &loop.Window{Model: m, Tokens: rapid.IntRange(1500, 6000).Draw(t, "tokens")}
		generate := func(w *loop.Window) []memory.Message {
			for _, err := range w.Generate(context.Background(), loop.Request{Messages: messages}) {
				require.NoError(t, err)
			}
			return m.last()
		}
		shown := generate(w)
		require.Equal(t, shown, generate(&loop.Window{Model: m, Tokens: w.Tokens}))
		repaired, repairs := memory.Repair(shown)
		require.Zero(t, repairs)
		require.Equal(t, repaired, shown)
		require.Equal(t, memory.RoleUser, shown[0].Role)
		last := messages[len(messages)-1]
		require.Equal(t, last.Role, shown[len(shown)-1].Role)
		total, fixed := 0, 0
		for _, msg := range shown {
			total += msg.Tokens()
			fixed += 6 + 64 + 2*len(msg.ToolCalls)*40
		}
		require.LessOrEqual(t, total, max(w.Tokens-w.Tokens/4, fixed)) // a quarter is for the answer
	})
}

// A model that refuses the length is asked again with less, and its real limit is
// remembered.
func TestARefusedLengthIsLearned(t *testing.T) {
	long := []memory.Message{user(strings.Repeat(paragraph, 3000))}
	for name, m := range map[string]*limited{
		"with numbers":                       {limit: 8000},
		"without numbers":                    {limit: 8000, silent: true},
		"that counts more than the estimate": {limit: 8000, scale: 2},
		"that counts more, without numbers":  {limit: 20_000, scale: 1.7, silent: true},
		"below what was told of it":          {limit: 8000, window: 128_000},
	} {
		t.Run(name, func(t *testing.T) {
			w := &loop.Window{Model: m}
			require.NoError(t, ask(t, w, long...))
			require.LessOrEqual(t, m.refused, 3)
			require.Contains(t, m.last()[0].Content, "… (cut: ")
			before := m.refused
			for range 3 {
				require.NoError(t, ask(t, w, append(long, said("ok"), user(strings.Repeat(paragraph, 3000)))...))
			}
			require.Equal(t, before, m.refused, "it is not asked in vain again")
		})
	}
}

// What an account may send per minute is no window: another request is not cut for it.
func TestAnAllowanceIsNotRemembered(t *testing.T) {
	m := &limited{limit: 3000, minute: true, window: 128_000}
	w := &loop.Window{Model: m}
	long := user(strings.Repeat(paragraph, 1000))
	require.NoError(t, ask(t, w, long))
	require.Equal(t, 1, m.refused)
	require.Contains(t, m.last()[0].Content, "… (cut: ")
	m.limit = 0
	require.NoError(t, ask(t, w, long))
	require.Equal(t, long, m.last()[0])
}

// A model that takes nothing is not asked for ever, and other failures pass at once.
func TestShrinkingEnds(t *testing.T) {
	m := &limited{limit: 1, silent: true}
	err := ask(t, &loop.Window{Model: m}, user(strings.Repeat(paragraph, 3000)))
	require.ErrorAs(t, err, new(loop.TooLong))
	require.LessOrEqual(t, m.refused, 5)

	broken := &scripted{answers: []answer{{err: errors.New("no")}}}
	require.ErrorContains(t, ask(t, &loop.Window{Model: broken}, user("Hi")), "no")
	require.Len(t, broken.asked, 1)
}

// Another model behind the same name has another limit.
func TestALimitIsForgottenWithItsModel(t *testing.T) {
	m := &limited{limit: 5000, window: 16_000}
	w := &loop.Window{Model: m}
	long := user(strings.Repeat(paragraph, 1000))
	require.NoError(t, ask(t, w, long))
	require.Equal(t, 1, m.refused)
	m.limit, m.window = 0, 200_000
	require.NoError(t, ask(t, w, long))
	require.Equal(t, long, m.last()[0])
}

// A loop with tools that return more than the window holds goes on with what fits.
func TestResultsOfTheRunningLoopAreCutToo(t *testing.T) {
	m := &scripted{answers: []answer{
		{calls: []memory.ToolCall{call("a", "read", `{}`), call("b", "read", `{}`)}},
		{calls: []memory.ToolCall{call("c", "look", `{}`)}},
		{text: "done"},
	}}
	book := echo("read")
	book.run = func(context.Context, string) (string, error) { return strings.Repeat(paragraph, 2000), nil }
	l := loop.Loop{Model: &loop.Window{Model: m, Tokens: 8000}, Tools: []loop.Tool{book, echo("look")}, MaxSteps: 5}
	r, err := l.Run(t.Context(), []memory.Message{user("Read it all.")}, &heard{})
	require.NoError(t, err)
	require.Equal(t, "done", r.Text)
	shown := m.asked[2].Messages
	require.Len(t, shown, 6)
	total := 0
	for _, msg := range shown {
		total += msg.Tokens()
	}
	require.LessOrEqual(t, total, 6000)
	require.True(t, m.asked[1].Messages[2].Content == shown[2].Content, "what was cut stays cut as it is")
}

// refusing is a model without state that takes no more than limit tokens.
type refusing int

func (limit refusing) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		n := 0
		for _, m := range r.Messages {
			n += m.Tokens()
		}
		if n > int(limit) {
			yield(loop.Delta{}, tooLong{int(limit), n, true})
			return
		}
		yield(loop.Delta{Text: fmt.Sprint(n)}, nil)
	}
}

// Many runs of one agent learn from each other's refusals at the same time.
func TestOneWindowForManyRuns(t *testing.T) {
	w := &loop.Window{Model: refusing(5000)}
	long := strings.Repeat(paragraph, 3000)
	var runs sync.WaitGroup
	for i := range 8 {
		runs.Go(func() {
			for range 5 {
				for _, err := range w.Generate(t.Context(), loop.Request{Messages: []memory.Message{user(fmt.Sprint(i, long))}}) {
					if err != nil {
						t.Errorf("run %d: %v", i, err)
					}
				}
			}
		})
	}
	runs.Wait()
}

// breaks is a model with an answer that breaks off.
type breaks []loop.Delta

func (b breaks) Generate(context.Context, loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		for _, d := range b {
			if !yield(d, nil) {
				return
			}
		}
		yield(loop.Delta{}, errors.New("stopped"))
	}
}

// A call that was stopped or broke off has used tokens too: what it does not say is
// estimated, and called so.
func TestACallThatBreaksOffHasUsedTokens(t *testing.T) {
	told := event.Usage{InputTokens: 11, OutputTokens: 5}
	messages := []memory.Message{user(paragraph)}
	estimated := event.Usage{
		InputTokens:  int64(memory.Tokens("Be brief.") + messages[0].Tokens()),
		OutputTokens: int64(memory.Tokens("Half an answer")), Estimated: true,
	}
	for name, test := range map[string]struct {
		said breaks
		want event.Usage
	}{
		"before its answer":  {nil, event.Usage{}},
		"inside its answer":  {breaks{{Text: "Half an "}, {Text: "answer"}}, estimated},
		"and says its usage": {breaks{{Text: "Half an answer"}, {Usage: told}}, told},
	} {
		t.Run(name, func(t *testing.T) {
			var got event.Usage
			for d := range (&loop.Window{Model: test.said}).Generate(t.Context(), loop.Request{
				System: "Be brief.", Messages: messages,
			}) {
				got = got.Add(d.Usage)
			}
			require.Equal(t, test.want, got)
		})
	}
}

// What is recalled counts when a prompt is made to fit, and is left out of one in which it
// would crowd out the conversation.
func TestWhatIsRecalledTakesItsRoom(t *testing.T) {
	m := &limited{}
	ask := func(tokens, recalled int) loop.Request {
		w := &loop.Window{Model: m, Tokens: tokens}
		r := loop.Request{Messages: []memory.Message{user(strings.Repeat(paragraph, 2000))},
			Recalled: strings.Repeat("x", 4*recalled)}
		for _, err := range w.Generate(t.Context(), r) {
			require.NoError(t, err)
		}
		return m.asked[len(m.asked)-1]
	}
	without, with := ask(8000, 0), ask(8000, 800)
	require.NotEmpty(t, with.Recalled)
	require.Less(t, with.Messages[0].Tokens(), without.Messages[0].Tokens()-300)
	require.Empty(t, ask(1024, 800).Recalled)
}
