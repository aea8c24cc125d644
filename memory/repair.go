package memory

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// What stands for something that was never recorded.
const (
	Interrupted = "interrupted: this call has no recorded result" // a tool result
	Unanswered  = "(interrupted)"                                 // an answer after tool results
)

// Strictest limits of vendors, in characters of A-Z a-z 0-9 _ -.
const maxCallID, maxFunctionName = 40, 64

// Repairs counts what Repair changed.
type Repairs struct {
	Synthesized int // results and answers put in where there were none
	Dropped     int // messages that belong to no exchange, or say nothing
	Renamed     int // tool-call ids that an earlier call already used, or that vendors refuse
	Joined      int // user messages joined to the one before
	Filled      int // fields that a model needs and the message did not have, or not so
	Failed      int // messages of exchanges that failed
}

// Repair makes any stored sequence valid for a model, deterministically and
// without touching what is stored. It goes by position: an exchange is an
// assistant message with tool calls and the tool messages directly behind it. A
// call without a result gets Interrupted, results stand in call order, every
// other tool message is dropped, an id used before gets a suffix in call and
// result alike, user messages in a row become one, and one directly behind tool
// results gets Unanswered before it. It begins with a user message; roles a
// history does not have are dropped.
//
// A failed exchange is not sent again, because it may be what the model refuses: a failure is dropped with the messages
// that lead to it, back to the user messages directly before, unless they were answered after all. If a part of the
// answer was shown, that is the answer, unless another one follows. A stopped exchange is
// sent with its mark, so that the model does not answer its question again.
func Repair(stored []Message) ([]Message, Repairs) {
	var r Repairs
	stored = r.answered(stored)
	out := make([]Message, 0, len(stored))
	used := map[string]int{}
	for i := 0; i < len(stored); i++ {
		m := stored[i]
		speaks := strings.TrimSpace(m.Content) != ""
		switch {
		case m.Role == RoleUser && speaks:
			out = r.user(out, m)
		case m.Role == RoleAssistant && len(out) > 0 && len(m.ToolCalls) > 0:
			end := i + 1
			for end < len(stored) && stored[end].Role == RoleTool {
				end++
			}
			out = append(out, r.exchange(m, stored[i+1:end], used)...)
			i = end - 1
		case m.Role == RoleAssistant && len(out) > 0 && speaks:
			out = append(out, m)
		default:
			r.Dropped++
		}
	}
	return out, r
}

// answered leaves out failures, and exchanges that ended in nothing else. An
// exchange is one user message or several in a row, and what follows up to the
// next one. Whether it stays depends on nothing outside it, so that the front of a
// prompt is the same in every later one.
func (r *Repairs) answered(stored []Message) []Message {
	if !slices.ContainsFunc(stored, Message.failed) {
		return stored
	}
	out := make([]Message, 0, len(stored))
	for start := 0; start < len(stored); {
		questionEnd := start
		for questionEnd < len(stored) && stored[questionEnd].Role == RoleUser {
			questionEnd++
		}
		end := questionEnd
		for end < len(stored) && stored[end].Role != RoleUser {
			end++
		}
		out = append(out, withoutFailures(stored[start:end])...)
		start = end
	}
	r.Failed += len(stored) - len(out)
	return out
}

// withoutFailures returns an exchange without its failures. A failed exchange is dropped, unless a part of its answer
// was shown: the last such part stays.
func withoutFailures(exchange []Message) (out []Message) {
	answered, partial := slices.ContainsFunc(exchange, Message.answers), -1
	for i, m := range exchange {
		if m.failed() && m.Partial && !answered {
			partial = i
		}
	}
	if !answered && partial < 0 && slices.ContainsFunc(exchange, Message.failed) {
		return nil
	}
	for i, m := range exchange {
		if i == partial || !m.failed() {
			out = append(out, m)
		}
	}
	return out
}

func (m Message) failed() bool {
	return m.Role == RoleAssistant && m.Failure != "" && m.Failure != Stopped
}

func (m Message) answers() bool {
	return m.Role == RoleAssistant && m.Failure == "" && len(m.ToolCalls) == 0 && strings.TrimSpace(m.Content) != ""
}

// Pending is a history up to the question that its end still owes an answer to: the
// failures at its end are left off, for a run that tries once more.
func Pending(stored []Message) []Message {
	end := len(stored)
	for end > 0 && stored[end-1].failed() {
		end--
	}
	return stored[:end:end]
}

// user adds a user message behind what there is.
func (r *Repairs) user(out []Message, m Message) []Message {
	if last := len(out) - 1; last >= 0 {
		switch out[last].Role {
		case RoleUser:
			out[last].Content += "\n\n" + m.Content
			r.Joined++
			return out
		case RoleTool:
			out = append(out, Message{Role: RoleAssistant, Content: Unanswered, Timestamp: m.Timestamp})
			r.Synthesized++
		}
	}
	return append(out, Message{Role: RoleUser, Content: m.Content, Timestamp: m.Timestamp})
}

// exchange pairs the calls of one assistant message with the results behind it.
func (r *Repairs) exchange(call Message, results []Message, used map[string]int) []Message {
	matched := make([]bool, len(results))
	out := make([]Message, 1, 1+len(call.ToolCalls))
	calls := make([]ToolCall, len(call.ToolCalls))
	for i, c := range call.ToolCalls {
		result := Message{Role: RoleTool, Content: Interrupted, Timestamp: call.Timestamp}
		ok := false
		for j, m := range results {
			if !matched[j] && m.ToolCallID == c.ID {
				result.Content, result.Timestamp = m.Content, m.Timestamp
				matched[j], ok = true, true
				break
			}
		}
		if !ok {
			r.Synthesized++
		}
		c.Type, c.ID = "function", r.unique(c.ID, used)
		c.Function = r.callable(c.Function)
		calls[i] = c
		result.ToolCallID, result.Name = c.ID, c.Function.Name
		if strings.TrimSpace(result.Content) == "" {
			result.Content = "(no output)"
			r.Filled++
		}
		out = append(out, result)
	}
	for _, t := range matched {
		if !t {
			r.Dropped++
		}
	}
	if strings.TrimSpace(call.Content) == "" {
		call.Content = ""
	}
	out[0] = Message{Role: RoleAssistant, Content: call.Content, Timestamp: call.Timestamp, ToolCalls: calls}
	return out
}

// callable gives a call a legal name and an object as arguments, which every
// vendor insists on.
func (r *Repairs) callable(f FunctionCall) FunctionCall {
	name := legal(f.Name, maxFunctionName)
	if name == "" {
		name = "unknown"
	}
	arguments := object(f.Arguments)
	if name != f.Name || arguments != f.Arguments {
		r.Filled++
	}
	return FunctionCall{Name: name, Arguments: arguments}
}

// object gives the text of a JSON object: the one that s is, or one that holds s.
func object(s string) string {
	var fields map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	switch err := d.Decode(&fields); {
	case strings.TrimSpace(s) == "":
		return "{}"
	case err != nil || fields == nil || d.More():
		return encoded(map[string]any{"arguments": s})
	case strings.Contains(s, `\ud`) || strings.Contains(s, `\uD`):
		// It may hold half of a surrogate pair, which strict parsers refuse.
		return encoded(fields)
	}
	return s
}

// encoded is for what was decoded or is text: it cannot fail.
func encoded(v map[string]any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// legal replaces the characters that some vendor refuses in ids and names, and
// cuts at n.
func legal(s string, n int) string {
	s = strings.Map(func(c rune) rune {
		if c < 0x80 && (agentByte(byte(c)) || c >= 'A' && c <= 'Z') {
			return c
		}
		return '_'
	}, s)
	return s[:min(n, len(s))]
}

// unique returns a legal id that is not in used, and adds it. The value of used is the first suffix to try for an id.
func (r *Repairs) unique(id string, used map[string]int) string {
	base := legal(id, maxCallID)
	if base == "" {
		base = "call"
	}
	fresh, n := base, max(used[base], 2)
	for ; used[fresh] > 0; n++ {
		suffix := "_" + strconv.Itoa(n)
		fresh = base[:min(len(base), maxCallID-len(suffix))] + suffix
	}
	if fresh != id {
		r.Renamed++
	}
	used[base], used[fresh] = n, max(used[fresh], 1)
	return fresh
}
