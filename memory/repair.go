package memory

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Interrupted is the content of a tool result that was never recorded.
const Interrupted = "interrupted: this call has no recorded result"

// Repairs counts what Repair changed.
type Repairs struct {
	Synthesized int // results put in for calls that had none
	Dropped     int // messages that belong to no exchange, or say nothing
	Renamed     int // tool-call ids that an earlier call already used
	Joined      int // user messages joined to the one before
	Filled      int // fields that a model needs and the message did not have, or not so
}

// Any says whether anything was changed.
func (r Repairs) Any() bool { return r != Repairs{} }

// Repair makes any stored sequence valid for a model, deterministically and
// without touching what is stored. It goes by position: an exchange is an
// assistant message with tool calls and the tool messages directly behind it. A
// call without a result gets Interrupted, results stand in call order, every
// other tool message is dropped, an id used before gets a suffix in call and
// result alike, and user messages in a row become one. It begins with a user
// message; roles a history does not have are dropped.
func Repair(stored []Message) ([]Message, Repairs) {
	var r Repairs
	out := make([]Message, 0, len(stored))
	used := map[string]bool{}
	for i := 0; i < len(stored); i++ {
		m := stored[i]
		speaks := strings.TrimSpace(m.Content) != ""
		switch {
		case m.Role == RoleUser && speaks:
			if last := len(out) - 1; last >= 0 && out[last].Role == RoleUser {
				out[last].Content += "\n\n" + m.Content
				r.Joined++
				continue
			}
			out = append(out, Message{Role: RoleUser, Content: m.Content, Timestamp: m.Timestamp})
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

// exchange pairs the calls of one assistant message with the results behind it.
func (r *Repairs) exchange(call Message, results []Message, used map[string]bool) []Message {
	taken := make([]bool, len(results))
	out := make([]Message, 1, 1+len(call.ToolCalls))
	calls := make([]ToolCall, len(call.ToolCalls))
	for i, c := range call.ToolCalls {
		result := Message{Role: RoleTool, Content: Interrupted, Timestamp: call.Timestamp}
		found := false
		for j, m := range results {
			if !taken[j] && m.ToolCallID == c.ID {
				result.Content, result.Timestamp = m.Content, m.Timestamp
				taken[j], found = true, true
				break
			}
		}
		if !found {
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
	for _, t := range taken {
		if !t {
			r.Dropped++
		}
	}
	out[0] = Message{Role: RoleAssistant, Content: call.Content, Timestamp: call.Timestamp, ToolCalls: calls}
	return out
}

// callable gives a call a name and an object as arguments, which every vendor
// insists on.
func (r *Repairs) callable(f FunctionCall) FunctionCall {
	if f.Name == "" {
		f.Name = "unknown"
		r.Filled++
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(f.Arguments), &object) != nil || object == nil {
		raw := f.Arguments
		f.Arguments = "{}"
		if strings.TrimSpace(raw) != "" {
			wrapped, _ := json.Marshal(map[string]string{"arguments": raw}) // a string cannot fail
			f.Arguments = string(wrapped)
		}
		r.Filled++
	}
	return f
}

func (r *Repairs) unique(id string, used map[string]bool) string {
	base := id
	if base == "" {
		base = "call"
	}
	fresh := base
	for n := 2; used[fresh]; n++ {
		fresh = base + "_" + strconv.Itoa(n)
	}
	if fresh != id {
		r.Renamed++
	}
	used[fresh] = true
	return fresh
}
