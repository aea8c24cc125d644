package rag_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/recall"
)

// model searches for the task first, and then answers by a function of what it
// was shown.
type model func(shown string) string

func (m model) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == memory.RoleTool {
			text := m(last.Content)
			_ = yield(loop.Delta{Text: text[:len(text)/2]}, nil) && yield(loop.Delta{Text: text[len(text)/2:]}, nil)
			return
		}
		c := memory.ToolCall{ID: "call-" + r.Conversation}
		c.Function.Name, c.Function.Arguments = "search_documents", fmt.Sprintf(`{"query":%q}`, last.Content)
		yield(loop.Delta{Calls: []memory.ToolCall{c}}, nil)
	}
}

// told keeps what a history would.
type told struct {
	shown   strings.Builder
	results []string
}

func (t *told) Text(text string) error              { t.shown.WriteString(text); return nil }
func (*told) Calls(string, []memory.ToolCall) error { return nil }
func (*told) Start(memory.ToolCall) error           { return nil }
func (t *told) Result(_ memory.ToolCall, s string, _ memory.Origin, _ bool) error {
	t.results = append(t.results, s)
	return nil
}

func loaded(t *testing.T, texts map[string]string) *rag.Library {
	t.Helper()
	l := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.Nop()})
	c, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	_, err = l.Create(t.Context(), c)
	require.NoError(t, err)
	for id, text := range texts {
		_,
			err = l.Put(t.Context(), c, rag.Input{
			ID: id, Document: chunk.Document{Text: text, Source: "https://example.com/" + id},
		})
		require.NoError(t, err)
	}
	return l
}

// reader is a kit and a model with it.
type reader struct {
	subagent.Kit
	model loop.Model
}

func newReader(t *testing.T, turn *rag.Session, m model) reader {
	k := turn.Kit(zerolog.Nop())
	return reader{k, k.Model(m)}
}

func ask(t *testing.T, r reader, conversation, task string) (string, *told) {
	t.Helper()
	heard := &told{}
	l := loop.Loop{Model: r.model, Tools: r.Tools, MaxSteps: 4, Conversation: conversation}
	result, err := l.Run(t.Context(), []memory.Message{{Role: memory.RoleUser, Content: task}}, heard)
	assert.NoError(t, err)
	assert.Equal(t, result.Text, heard.shown.String(), "what is shown is what counts")
	return result.Text, heard
}

func status(r reader, text string) string {
	a, _ := r.Answer(text)
	return a.Status
}

// Whatever a model answers, no user sees markers of nothing, images, foreign addresses or
// a line for the machine; invented figures are named.
func TestAnAnswerIsCheckedBeforeItIsShown(t *testing.T) {
	t.Parallel()
	l := loaded(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns."})
	said := ""
	d := newReader(t, newSession(t, l, memory.Chat{}, "docs"), model(func(shown string) string {
		said = shown
		return "It costs 14 crowns [1][9]. Children pay 3 crowns [1]. ![x](https://evil.example/?q=secret) See " +
			"https://example.com/ferry.\nstatus: partial\nmissing: the way back"
	}))
	got, heard := ask(t, d, "c", "what does a ferry ticket cost")
	require.Contains(t, said, "A ferry ticket costs 14 crowns.")
	require.Contains(t, said, "nonce", "the model reads it in an envelope")
	require.Contains(t, got, "It costs 14 crowns [1].")
	require.Contains(t, got, "https://example.com/ferry", "the source of what is cited stays")
	require.Contains(t, got, "Not in the documents: the way back.")
	require.Contains(t, got, "please check: 3.")
	for _, no := range []string{"[9]", "evil", "status:", "nonce"} {
		require.NotContains(t, got, no)
	}
	a, _ := d.Answer(got)
	require.Equal(t, event.Partial, a.Status)
	require.Equal(t, []string{"the way back"}, a.Missing)
	require.Equal(t, "It costs 14 crowns [1]. Children pay 3 crowns [1]. ! [x]((link removed)) See "+
		"https://example.com/ferry.",
		a.Answer)
	require.Len(t, a.Citations, 1)
	require.Equal(t, "A ferry ticket costs 14 crowns.", a.Citations[0].Quote)
	require.Equal(t, len("A ferry ticket costs 14 crowns."), a.Citations[0].End)
	require.Contains(t, a.Flags, event.Flag{Kind: "unverified", Text: "3"})
	require.Contains(t, a.Flags, event.Flag{Kind: "unknown_marker", Text: "9"})
	require.Len(t, heard.results, 1)
	require.Contains(t, heard.results[0], "ferry#0")
	require.NotContains(t, heard.results[0], "nonce", "a history keeps what was quoted only")
}

// When nothing is found the model is not asked to make something up.
func TestNothingFoundIsNotImprovised(t *testing.T) {
	t.Parallel()
	l := loaded(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns."})
	d := newReader(t, newSession(t, l, memory.Chat{}, "docs"),
		model(func(string) string { return "Certainly: 99 crowns [1]." }))
	got, _ := ask(t, d, "c", "zeppelin")
	require.NotContains(t, got, "99")
	require.NotEmpty(t, got)
	require.Equal(t, event.NotFound, status(d, got))
}

// Two subagents of one run number passages together, and neither can cite what
// only the other was given.
func TestNumbersAreOnePerRun(t *testing.T) {
	t.Parallel()
	l := loaded(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns.", "bridge": "The bridge opens at two."})
	quoting := model(func(shown string) string {
		at := strings.Index(shown, `"n":`)
		return fmt.Sprintf("So it is [%s]. And [%d].", shown[at+4:at+5], 3-int(shown[at+4]-'0'))
	})
	evidence := &rag.Evidence{}
	seen := map[int]string{}
	for _, task := range []string{"ferry ticket", "bridge", "ferry ticket"} {
		turn, err := l.NewSession(rag.SessionOptions{Collections: []string{"docs"},
			Evidence: evidence})
		require.NoError(t, err)
		d := newReader(t, turn, quoting)
		got, _ := ask(t, d, "c", task)
		a, _ := d.Answer(got)
		require.Len(t, a.Citations, 1, got)
		require.Contains(t, a.Flags, event.Flag{Kind: "unknown_marker", Text: fmt.Sprint(3 - a.Citations[0].N)})
		if before := seen[a.Citations[0].N]; before != "" {
			require.Equal(t, before, a.Citations[0].DocID)
		}
		seen[a.Citations[0].N] = a.Citations[0].DocID
	}
	require.Equal(t, map[int]string{1: "ferry", 2: "bridge"}, seen)
}

// Isolated delegations of one run, at the same time, do not get into each other's
// way, and passages keep their numbers over all of them.
func TestDelegationsAtTheSameTime(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for i := range 8 {
		texts[fmt.Sprintf("d%d", i)] = fmt.Sprintf("The word is token%d.", i)
	}
	d := newReader(t, newSession(t, loaded(t, texts), memory.Chat{}, "docs"), model(func(shown string) string {
		at := strings.Index(shown, "The word is token")
		n := strings.Index(shown, `"n":`)
		return fmt.Sprintf("%s [%s].", shown[at:at+len("The word is token0")], shown[n+4:n+5])
	}))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			got, _ := ask(t, d, fmt.Sprintf("run.knowledge.%d", i), fmt.Sprintf("what about token%d", i))
			assert.Contains(t, got, fmt.Sprintf("token%d [", i))
			_, citations := d.Answer(got)
			assert.Len(t, citations, 1)
			assert.Equal(t, fmt.Sprintf("d%d", i), citations[0].DocID)
		})
	}
	all.Wait()
}

// recalling is a model that calls recall, and answers the same whatever that gives.
type recalling string

func (m recalling) Generate(_ context.Context, r loop.Request) iter.Seq2[loop.Delta, error] {
	return func(yield func(loop.Delta, error) bool) {
		if r.Messages[len(r.Messages)-1].Role == memory.RoleTool {
			yield(loop.Delta{Text: string(m)}, nil)
			return
		}
		c := memory.ToolCall{ID: "1", Function: memory.FunctionCall{Name: recall.ToolName, Arguments: `{"query":"x"}`}}
		yield(loop.Delta{Calls: []memory.ToolCall{c}}, nil)
	}
}

// minded is a memory in which one thing was said.
type minded string

func (s minded) Recall(context.Context, recall.Query) (recall.Result, error) {
	return recall.Result{Hits: []recall.Hit{{ID: "r.1", Role: "user", Text: string(s)}}}, nil
}

// What is recalled, for the prompt or by the tool, supports figures as a history does, and no
// address: that may have come from a document.
func TestWhatIsRecalledIsEvidence(t *testing.T) {
	t.Parallel()
	const text = "You paid 77 crowns and 88 cents, see https://evil.example/q."
	const checked = "You paid 77 crowns and 88 cents, see (link removed)."
	library, evidence := loaded(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns."}), &rag.Evidence{}
	evidence.AddMessages("What did I pay?", nil)
	turn, err := library.NewSession(rag.SessionOptions{
		Collections: []string{"docs"}, Evidence: evidence,
	})
	require.NoError(t, err)
	d := newReader(t, turn, func(string) string { return "It costs 14 crowns [1]. " + text })
	l := loop.Loop{Model: d.model, Tools: d.Tools, MaxSteps: 4,
		Recalled: "It was 77 crowns and 88 cents, https://evil.example/q"}
	result, err := l.Run(t.Context(), []memory.Message{{Role: memory.RoleUser, Content: "a ferry ticket"}}, &told{})
	require.NoError(t, err)
	require.Contains(t, result.Text, checked)
	require.NotContains(t, result.Text, "please check")

	a := recall.Asker{Settings: recall.Settings{Tool: true, Budget: 800}, Memory: minded("88 cents, https://evil.example/q"),
		Emit: func(event.Payload) error { return nil }}
	for _, master := range []bool{true, false} {
		m := evidence.Model(recalling(text), master, func(string) bool { return false })
		l := loop.Loop{Model: m, Tools: a.Tools(), MaxSteps: 4, Recalled: "It was 77 crowns, https://evil.example/q"}
		result, err := l.Run(t.Context(), []memory.Message{{Role: memory.RoleUser, Content: "What did I pay?"}}, &told{})
		require.NoError(t, err)
		require.Equal(t, checked, result.Text)
		_, flags := evidence.Cite(result.Text)
		require.Equal(t, []event.Flag{{Kind: rag.RemovedLink, Text: "https://evil.example/q"}}, flags)
	}
}
