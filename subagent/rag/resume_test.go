package rag_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
	"mneme/subagent/rag"
)

// person is a tool that waits for a person.
type person struct{}

func (person) Spec() loop.Spec { return loop.Spec{Name: "person"} }

func (person) Call(context.Context, memory.ToolCall) (string, error) {
	return "", &loop.Suspended{Pending: []event.Wait{{ID: "w"}}, State: json.RawMessage("1")}
}

func (person) Resume(context.Context, memory.ToolCall, json.RawMessage, loop.Answers) (string, error) {
	return "Go on.", nil
}

// What a subagent found before its run waited it can cite when the run goes on, in another
// process, under the numbers that it had; what it finds then has the next ones, and what was
// wrong with its answer is told as ever.
func TestCitationsOutliveAWait(t *testing.T) {
	t.Parallel()
	l := loaded(t, map[string]string{"ferry": "A ferry ticket costs 14 crowns.", "bridge": "The bridge opens at two."})
	uses := func(id, tool, arguments string) loop.Delta {
		c := memory.ToolCall{ID: id, Type: "function"}
		c.Function.Name, c.Function.Arguments = tool, arguments
		return loop.Delta{Calls: []memory.ToolCall{c}}
	}
	m := &script{answers: []loop.Delta{
		uses("1", "search_documents", `{"query":"ferry ticket"}`),
		uses("2", "person", `{}`),
		uses("3", "search_documents", `{"query":"bridge opens"}`),
		{Text: "A ticket costs 14 crowns [1]. The bridge opens at two [2]. A child pays 3 crowns [1]. [7]\nstatus: answered"},
	}}
	question := []memory.Message{{Role: memory.RoleUser, Content: "ferry and bridge?"}}
	process := func() (*rag.Evidence, reader, loop.Loop) {
		e := &rag.Evidence{}
		turn, err := l.NewSession(rag.SessionOptions{Collections: []string{"docs"}, Evidence: e})
		require.NoError(t, err)
		k := turn.Kit(zerolog.Nop())
		r := reader{k, k.Model(m)}
		return e, r, loop.Loop{Model: r.model, Tools: append(r.Tools, person{}), MaxSteps: 5}
	}
	e, r, before := process()
	_, err := before.Run(t.Context(), question, &told{})
	var waits *loop.Suspended
	require.ErrorAs(t, err, &waits)
	shared, err := e.Save()
	require.NoError(t, err)
	kept, err := r.Save()
	require.NoError(t, err)
	require.Less(t, len(shared)+len(kept), 8<<10)

	e, r, after := process()
	require.NoError(t, e.Restore(shared))
	require.NoError(t, r.Restore(kept))
	result, err := after.Resume(t.Context(), waits.State, nil, &told{})
	require.NoError(t, err)
	a, citations := r.Answer(result.Text)
	require.Equal(t, event.Answered, a.Status)
	require.Len(t, citations, 2)
	require.Equal(t, []string{"A ferry ticket costs 14 crowns.", "The bridge opens at two."},
		[]string{citations[0].Quote, citations[1].Quote})
	require.Contains(t, a.Flags, event.Flag{Kind: "unverified", Text: "3"})
	of, flags := e.Cite(result.Text)
	require.Equal(t, citations, of, "the master's answer has the same")
	require.Equal(t, a.Flags, flags)
	last := func(r loop.Request) string { return r.Messages[len(r.Messages)-1].Content }
	require.Equal(t, "Go on.", last(m.asked[2]))
	require.Contains(t, last(m.asked[3]), `"n":2`)

	_, r, _ = process()
	for _, damaged := range []string{`3`, strings.Replace(string(kept), `"given":[1]`, `"given":[9]`, 1)} {
		require.Error(t, r.Restore(json.RawMessage(damaged)))
	}
	require.Error(t, e.Restore(json.RawMessage(`3`)))
}
