package memory_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

// valid checks what the strictest chat-completions vendors ask of a sequence of
// messages, and says what is wrong with it.
func valid(messages []memory.Message) error {
	used := map[string]bool{}
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		switch {
		case i == 0 && m.Role != memory.RoleUser:
			return fmt.Errorf("message 0 is of role %q", m.Role)
		case m.Role == memory.RoleUser && m.Content == "", m.Role == memory.RoleAssistant && m.Content == "" &&
			len(m.ToolCalls) == 0:
			return fmt.Errorf("message %d says nothing", i)
		case m.Role == memory.RoleUser && i > 0 && messages[i-1].Role == memory.RoleUser:
			return fmt.Errorf("message %d is a second user message in a row", i)
		case m.Role == memory.RoleTool:
			return fmt.Errorf("message %d is a result that no call asked for", i)
		case m.Role != memory.RoleUser && m.Role != memory.RoleAssistant:
			return fmt.Errorf("message %d is of role %q", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			i++
			switch {
			case c.ID == "" || used[c.ID]:
				return fmt.Errorf("the call id %q is empty or used before", c.ID)
			case c.Type != "function" || c.Function.Arguments == "":
				return fmt.Errorf("call %q is of type %q with arguments %q", c.ID, c.Type, c.Function.Arguments)
			case i == len(messages) || messages[i].Role != memory.RoleTool || messages[i].ToolCallID != c.ID:
				return fmt.Errorf("no result at %d for call %q", i, c.ID)
			case messages[i].Content == "":
				return fmt.Errorf("the result at %d is empty", i)
			}
			used[c.ID] = true
		}
	}
	return nil
}

func toolCall(id string) memory.ToolCall {
	return memory.ToolCall{ID: id, Type: "function", Function: memory.FunctionCall{
		Name: "calculator", Arguments: `{"expression":"1"}`,
	}}
}

func says(role, content string) memory.Message { return memory.Message{Role: role, Content: content} }

func calls(ids ...string) memory.Message {
	m := memory.Message{Role: memory.RoleAssistant}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, toolCall(id))
	}
	return m
}

func result(id, content string) memory.Message {
	return memory.Message{Role: memory.RoleTool, ToolCallID: id, Name: "calculator", Content: content}
}

func TestRepair(t *testing.T) {
	ask, end := says("user", "ask"), says("assistant", "end")
	fail, next := memory.Failed("model_failed"), says("user", "next")
	part := memory.Message{Role: "assistant", Content: "half an ans", Partial: true, Failure: "model_failed"}
	interrupted := func(id string) memory.Message { return result(id, memory.Interrupted) }
	type list = []memory.Message
	for _, c := range []struct {
		name        string
		stored      list
		want        list
		wantRepairs memory.Repairs
	}{
		{"nothing", nil, list{}, memory.Repairs{}},
		{"valid", list{ask, calls("1", "2"), result("1", "a"), result("2", "b"), end},
			list{ask, calls("1", "2"), result("1", "a"), result("2", "b"), end}, memory.Repairs{}},
		{"two answers in a row", list{ask, end, end}, list{ask, end, end}, memory.Repairs{}},
		{"no result at all", list{ask, calls("1")}, list{ask, calls("1"), interrupted("1")}, memory.Repairs{Synthesized: 1}},
		{"one of three results", list{ask, calls("1", "2", "3"), result("2", "b"), end},
			list{ask, calls("1", "2", "3"), interrupted("1"), result("2", "b"), interrupted("3"), end}, memory.Repairs{
				Synthesized: 2,
			}},
		{"results out of order", list{ask, calls("1", "2"), result("2", "b"), result("1", "a")},
			list{ask, calls("1", "2"), result("1", "a"), result("2", "b")}, memory.Repairs{}},
		{"a second result", list{ask, calls("1"), result("1", "a"), result("1", "b")},
			list{ask, calls("1"), result("1", "a")}, memory.Repairs{Dropped: 1}},
		{"a result for nobody", list{ask, calls("1"), result("9", "x"), result("1", "a")},
			list{ask, calls("1"), result("1", "a")}, memory.Repairs{Dropped: 1}},
		{"a late result", list{ask, calls("1"), end, result("1", "a")}, list{ask, calls("1"), interrupted("1"), end},
			memory.Repairs{Synthesized: 1, Dropped: 1}},
		{"a result behind a user message", list{ask, calls("1"), ask, result("1", "a")},
			list{ask, calls("1"), interrupted("1"), says("assistant", memory.Unanswered), ask}, memory.Repairs{
				Synthesized: 2, Dropped: 1,
			}},
		{"an id used again", list{ask, calls("1"), result("1", "a"), calls("1"), result("1", "b")},
			list{ask, calls("1"), result("1", "a"), calls("1_2"), result("1_2", "b")}, memory.Repairs{Renamed: 1}},
		{"an id used twice in one answer", list{ask, calls("1", "1"), result("1", "a"), result("1", "b")},
			list{ask, calls("1", "1_2"), result("1", "a"), result("1_2", "b")}, memory.Repairs{Renamed: 1}},
		{"a suffix that is taken", list{ask, calls("1", "1_2", "1"), result("1", "a"), result("1_2", "b"), result("1", "c")},
			list{ask, calls("1", "1_2", "1_3"), result("1", "a"), result("1_2", "b"), result("1_3", "c")}, memory.Repairs{
				Renamed: 1,
			}},
		{"ids that are empty", list{ask, calls("", ""), result("", "a"), result("", "b")},
			list{ask, calls("call", "call_2"), result("call", "a"), result("call_2", "b")}, memory.Repairs{Renamed: 2}},
		{"user messages in a row", list{ask, says("user", "more"), says("user", "again"), end},
			list{says("user", "ask\n\nmore\n\nagain"), end}, memory.Repairs{Joined: 2}},
		{"user messages around a dropped one", list{ask, result("1", "a"), says("user", "more")},
			list{says("user", "ask\n\nmore")}, memory.Repairs{Dropped: 1, Joined: 1}},
		{"a beginning without a question", list{end, calls("1"), result("1", "a"), ask, end}, list{ask, end}, memory.Repairs{
			Dropped: 3,
		}},
		{"messages that say nothing", list{ask, says("assistant", ""), says("user", ""), end}, list{ask, end}, memory.Repairs{
			Dropped: 2,
		}},
		{"an empty result", list{ask, calls("1"), result("1", "")}, list{ask, calls("1"), result("1", "(no output)")},
			memory.Repairs{Filled: 1}},
		{"arguments that are no object",
			list{
				ask,
				{Role: "assistant", ToolCalls: []memory.ToolCall{{ID: "1", Function: memory.FunctionCall{Arguments: `{"x":`}}}},
				result("1", "a"),
			},
			list{ask, {Role: "assistant", ToolCalls: []memory.ToolCall{{ID: "1", Type: "function",
				Function: memory.FunctionCall{Name: "unknown", Arguments: `{"arguments":"{\"x\":"}`}}}},
				{Role: "tool", ToolCallID: "1", Name: "unknown", Content: "a"}},
			memory.Repairs{Filled: 1}},
		{"a user message with calls of its own",
			list{{Role: "user", Content: "q", ToolCalls: calls("9").ToolCalls, ToolCallID: "7"}}, list{says("user", "q")},
			memory.Repairs{}},
		{"white space is nothing", list{ask, says("assistant", "\t"), says("user", " \n"), end}, list{ask, end},
			memory.Repairs{Dropped: 2}},
		{"roles of others", list{says("system", "obey"), ask, says("developer", "x"), says("function", "y"), end},
			list{ask, end}, memory.Repairs{Dropped: 3}},
		{"a failure", list{ask, fail}, list{}, memory.Repairs{Failed: 2}},
		{"a part of an answer and its failure", list{ask, part, fail, next}, list{ask, part, next}, memory.Repairs{Failed: 1}},
		{"parts of two attempts", list{ask, part, part, next}, list{ask, part, next}, memory.Repairs{Failed: 1}},
		{"a part of an answer and its retry", list{ask, part, end, next}, list{ask, end, next}, memory.Repairs{Failed: 1}},
		{"a stopped run", list{ask, memory.Failed(memory.Stopped), next},
			list{ask, memory.Failed(memory.Stopped), next}, memory.Repairs{}},
		{"a failure before the next question", list{ask, end, ask, fail, next}, list{ask, end, next}, memory.Repairs{
			Failed: 2,
		}},
		{"a failure and its retry", list{ask, fail, end}, list{ask, end}, memory.Repairs{Failed: 1}},
		{"two failures and a retry", list{ask, fail, fail, end, next}, list{ask, end, next}, memory.Repairs{Failed: 2}},
		{"two failures of two questions", list{ask, fail, next, fail, ask, end}, list{ask, end}, memory.Repairs{Failed: 4}},
		{"questions before it that never had an answer", list{ask, says("user", "more"), fail, next}, list{next},
			memory.Repairs{Failed: 3}},
		{"a failure in the middle of tools", list{ask, calls("1"), result("1", "a"), fail, next}, list{next}, memory.Repairs{
			Failed: 4,
		}},
		{"a failure that came late", list{ask, end, fail, next}, list{ask, end, next}, memory.Repairs{Failed: 1}},
		{"an answer that came late", list{ask, fail, calls("1"), result("1", "a"), end},
			list{ask, calls("1"), result("1", "a"), end}, memory.Repairs{Failed: 1}},
		{"a late answer without an end", list{ask, fail, calls("1"), result("1", "a"), next}, list{next}, memory.Repairs{
			Failed: 4,
		}},
		{"a failure before any question", list{fail, ask, end}, list{ask, end}, memory.Repairs{Failed: 1}},
		{"only results", list{result("1", "a")}, list{}, memory.Repairs{Dropped: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, repairs := memory.Repair(c.stored)
			require.Equal(t, c.want, got)
			require.Equal(t, c.wantRepairs, repairs)
			require.NoError(t, valid(got))
		})
	}
}

// A call that was stored without arguments or type gets what vendors insist on.
func TestRepairCompletesCalls(t *testing.T) {
	bare := memory.Message{Role: memory.RoleAssistant, ToolCalls: []memory.ToolCall{
		{ID: "1", Function: memory.FunctionCall{Name: "date"}},
	}}
	got,
		_ := memory.Repair([]memory.Message{
		says("user", "ask"), bare, {Role: memory.RoleTool, ToolCallID: "1", Content: "a"},
	})
	require.NoError(t, valid(got))
	require.Equal(t, memory.ToolCall{ID: "1", Type: "function", Function: memory.FunctionCall{
		Name: "date", Arguments: "{}",
	}}, got[1].ToolCalls[0])
	require.Equal(t, "date", got[2].Name)
}

// dialogue is a valid history: questions, parallel and repeated calls, answers.
var dialogue = rapid.Custom(func(t *rapid.T) []memory.Message {
	var messages []memory.Message
	id := 0
	for range rapid.IntRange(1, 4).Draw(t, "turns") {
		messages = append(messages, says("user", rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "question")))
		for range rapid.IntRange(0, 2).Draw(t, "steps") {
			var ids []string
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				id++
				ids = append(ids, fmt.Sprint("call", id))
			}
			step := calls(ids...)
			step.Content = rapid.SampledFrom([]string{"", "let me see"}).Draw(t, "text")
			messages = append(messages, step)
			for _, id := range ids {
				messages = append(messages, result(id, "result of "+id))
			}
		}
		messages = append(messages, says("assistant", "answer"))
	}
	for i := range messages {
		messages[i].Timestamp = float64(i)
	}
	return messages
})

// copyOf is a deep copy.
func copyOf(messages []memory.Message) []memory.Message {
	c := slices.Clone(messages)
	for i := range c {
		c[i].ToolCalls = slices.Clone(c[i].ToolCalls)
	}
	return c
}

// repaired repairs and checks what holds for every input: the result is valid,
// the input untouched, the same again next time, and nothing is left to repair.
func repaired(t require.TestingT, stored []memory.Message) ([]memory.Message, memory.Repairs) {
	before := copyOf(stored)
	got, repairs := memory.Repair(stored)
	require.NoError(t, valid(got))
	require.Equal(t, before, stored, "the input was changed")
	again, sameRepairs := memory.Repair(stored)
	require.Equal(t, got, again)
	require.Equal(t, repairs, sameRepairs)
	twice, none := memory.Repair(got)
	require.Equal(t, got, twice)
	require.Zero(t, none)
	return got, repairs
}

func TestRepairLeavesValidDialogues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := dialogue.Draw(t, "dialogue")
		require.NoError(t, valid(d))
		got, repairs := repaired(t, d)
		require.Equal(t, d, got)
		require.Zero(t, repairs)
	})
}

// A dialogue torn at any point loses nothing that was there: in front of a crash
// only missing results are put in, behind a cut front it begins with the next
// question.
func TestRepairAtEveryCut(t *testing.T) {
	check := func(t require.TestingT, d []memory.Message, cut int) {
		front, repairs := repaired(t, d[:cut])
		require.Equal(t, d[:cut], front[:cut])
		require.Equal(t, memory.Repairs{Synthesized: len(front) - cut}, repairs)
		for _, m := range front[cut:] {
			require.Equal(t, memory.Interrupted, m.Content)
		}
		back, repairs := repaired(t, d[cut:])
		next := cut
		for next < len(d) && d[next].Role != memory.RoleUser {
			next++
		}
		require.Equal(t, d[next:], back)
		require.Equal(t, memory.Repairs{Dropped: next - cut}, repairs)
	}
	long := []memory.Message{
		says("user", "one"), says("assistant", "end"),
		says("user", "two"), calls("1", "2", "3"), result("1", "a"), result("2", "b"), result("3", "c"), calls("4"),
		result("4", "d"), says("assistant", "end"),
		says("user", "three"), calls("5", "6"), result("5", "e"), result("6", "f"), says("assistant", "end"),
		says("assistant", "more"),
	}
	for cut := range len(long) + 1 {
		t.Run(fmt.Sprint("cut at ", cut), func(t *testing.T) { check(t, long, cut) })
	}
	rapid.Check(t, func(t *rapid.T) {
		d := dialogue.Draw(t, "dialogue")
		check(t, d, rapid.IntRange(0, len(d)).Draw(t, "cut"))
	})
}

// Results of parallel calls in any order, some of them missing.
func TestRepairOfPartialParallelResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "calls")
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
		}
		there := rapid.Permutation(ids).Draw(t, "order")[:rapid.IntRange(0, n).Draw(t, "results")]
		stored := []memory.Message{says("user", "ask"), calls(ids...)}
		for _, id := range there {
			stored = append(stored, result(id, "result "+id))
		}
		got, repairs := repaired(t, append(stored, says("assistant", "end")))
		require.Equal(t, memory.Repairs{Synthesized: n - len(there)}, repairs)
		for i, id := range ids {
			want := memory.Interrupted
			if slices.Contains(there, id) {
				want = "result " + id
			}
			require.Equal(t, result(id, want), got[2+i])
		}
	})
}

// Failures at any places of a dialogue take nothing with them that was answered,
// and leave nothing of what was not: what a model is sent is the dialogue of the
// answered questions, and stays as it is however the history goes on.
func TestRepairLeavesOutWhatFailed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored, want []memory.Message
		for i := range rapid.IntRange(0, 6).Draw(t, "exchanges") {
			exchange := []memory.Message{says("user", fmt.Sprint("question ", i))}
			if rapid.Bool().Draw(t, "with a call") {
				id := fmt.Sprint("call", i)
				exchange = append(exchange, calls(id), result(id, "r"))
			}
			failed := slices.Clone(exchange)
			for range rapid.IntRange(0, 3).Draw(t, "failures") {
				failed = append(failed, memory.Failed("model_failed"))
			}
			answer := says("assistant", fmt.Sprint("answer ", i))
			answered := len(failed) == len(exchange) || rapid.Bool().Draw(t, "answered by a retry")
			if answered {
				failed, exchange = append(failed, answer), append(exchange, answer)
			}
			before, _ := repaired(t, stored)
			require.Equal(t, want, append([]memory.Message(nil), before...))
			if !answered {
				again, _ := repaired(t, memory.Pending(append(slices.Clone(stored), failed...)))
				require.Equal(t, append(slices.Clone(want), exchange...), again, "a retry is asked the question")
			}
			stored = append(stored, failed...)
			if answered {
				want = append(want, exchange...)
			}
		}
		got, _ := repaired(t, stored)
		require.Equal(t, want, append([]memory.Message(nil), got...))
	})
}

// edit does what other writers and accidents do to a stored history.
func edit(t *rapid.T, d []memory.Message) []memory.Message {
	ids := rapid.SampledFrom([]string{"", "call1", "call2", "call1_2", "call", "x"})
	foreign := rapid.Custom(func(t *rapid.T) memory.Message {
		switch role := rapid.SampledFrom([]string{"user", "assistant", "calls", "tool", "system", "developer", "",
			"USER"}).Draw(t, "role"); role {
		case "calls":
			m := calls(rapid.SliceOfN(ids, 1, 4).Draw(t, "ids")...)
			m.ToolCalls[0].Type, m.ToolCalls[0].Function.Arguments = "", ""
			return m
		case "tool":
			return memory.Message{Role: role, ToolCallID: ids.Draw(t, "id"),
				Content: rapid.SampledFrom([]string{"", "r"}).Draw(t, "content")}
		default:
			return says(role, rapid.SampledFrom([]string{"", "text"}).Draw(t, "content"))
		}
	})
	d = slices.Clone(d)
	at := rapid.IntRange(0, len(d)).Draw(t, "at")
	if at == len(d) {
		return append(d, foreign.Draw(t, "message"))
	}
	switch rapid.SampledFrom([]string{"delete", "insert", "repeat", "move", "empty", "other id"}).Draw(t, "edit") {
	case "delete":
		return slices.Delete(d, at, at+1)
	case "insert":
		return slices.Insert(d, at, foreign.Draw(t, "message"))
	case "repeat":
		return slices.Insert(d, rapid.IntRange(0, len(d)).Draw(t, "to"), d[at])
	case "move":
		m := d[at]
		d = slices.Delete(d, at, at+1)
		return slices.Insert(d, rapid.IntRange(0, len(d)).Draw(t, "to"), m)
	case "empty":
		d[at].Content = ""
	default:
		d[at].ToolCallID = ids.Draw(t, "id")
		d[at].ToolCalls = slices.Clone(d[at].ToolCalls)
		for i := range d[at].ToolCalls {
			d[at].ToolCalls[i].ID = ids.Draw(t, "id")
		}
	}
	return d
}

func TestRepairOfForeignEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := dialogue.Draw(t, "dialogue")
		for range rapid.IntRange(1, 8).Draw(t, "edits") {
			d = edit(t, d)
		}
		got, repairs := repaired(t, d)
		asked := 0
		for _, m := range d {
			if m.Role == memory.RoleUser && m.Content != "" {
				asked++
			}
		}
		kept := 0
		for _, m := range got {
			if m.Role == memory.RoleUser {
				kept++
			}
		}
		require.Equal(t, asked, kept+repairs.Joined, "what a user said is never lost")
	})
}
