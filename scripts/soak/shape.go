package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
)

// block is a stretch of a history that is one run's, by the ids of its messages.
type block struct {
	run     *run // one of which no client was shown anything has a name only
	indices []int
}

// blocks cuts a history into runs.
func (c *checker) blocks(h *stored) (out []block) {
	unseen := map[string]*run{}
	for i, m := range h.messages {
		name := memory.RunOf(m.ID)
		if name == "" {
			c.report(h, i, violation{kind: invalid, what: "has no id of a run"})
			continue
		}
		r := cmp.Or(c.runs[name], unseen[name])
		if r == nil {
			r = &run{id: name}
			unseen[name] = r
		}
		if last := len(out) - 1; last >= 0 && out[last].run == r {
			out[last].indices = append(out[last].indices, i)
			continue
		}
		out = append(out, block{r, []int{i}})
	}
	return out
}

// structure checks that runs stand one behind another in the order in which they
// began, and that each is whole and in its order: in the chat a user message and at
// most one answer, in a subagent's history delegations that have one completion each.
// What came out of a spool after its turn may stand behind, between two runs; it is
// counted and read as a part of its run.
func (c *checker) structure(h *stored) (late int) {
	if len(h.messages) != len(h.raw) {
		return 0
	}
	list := c.blocks(h)
	var order []*run
	indicesByRun := map[*run][]int{}
	newest := 0.0 // begin of the runs so far
	for i, b := range list {
		start, resumed := h.messages[b.indices[0]].Timestamp, indicesByRun[b.run] != nil
		if resumed || start < newest {
			late += len(b.indices)
		}
		if !resumed {
			order = append(order, b.run)
			newest = max(newest, start)
		} else if i+1 < len(list) && list[i-1].run == list[i+1].run {
			c.report(h, b.indices[0], violation{kind: disorder, run: b.run.id, post: b.run.post,
				what: "stands with its neighbours inside another run"})
		}
		indicesByRun[b.run] = append(indicesByRun[b.run], b.indices...)
	}
	for _, r := range order {
		last := map[string]int64{} // by whether the run or its closer wrote
		for _, i := range indicesByRun[r] {
			name, seq, _ := memory.SplitID(h.messages[i].ID)
			if seq <= last[name] {
				c.report(h, i, violation{kind: disorder, run: r.id, seq: seq, post: r.post,
					what: fmt.Sprintf("stands behind event %d of its run", last[name])})
			}
			last[name] = max(last[name], seq)
		}
		c.grammar(h, r, indicesByRun[r])
	}
	c.late += late
	return late
}

// grammar checks the messages of one run in one history, and notes the user's messages
// and the runs' replies if it is the chat's own.
func (c *checker) grammar(h *stored, r *run, indices []int) {
	bad := func(i int, k kind, what string) {
		c.report(h, i, violation{kind: k, run: r.id, post: r.post, what: what})
	}
	delegated := h.key.Agent() != ""
	open := -1 // the user message that has no answer yet
	// A run that its closer had to give up may have been further: what a dead process
	// acknowledged into its spool stands behind the closing answer, in a late block.
	closed := false
	var calls []string
	if prev := indices[0] - 1; !delegated &&
		(r.retries() || r.events == nil && prev >= 0 && h.messages[prev].Failure != "") {
		open = indices[0] // the chat's request stands before, with the failure of another run
	}
	for _, i := range indices {
		m := h.messages[i]
		if m.Failure == event.RunLost && r.hasOutcome(func(outcome string) bool { return outcome == event.Completed }) {
			bad(i, declared, "says so")
		}
		switch plain := m.Role == memory.RoleAssistant && len(m.ToolCalls) == 0; {
		case delegated:
		case m.Role == memory.RoleUser:
			h.chat.positions[m.Content] = append(h.chat.positions[m.Content], i)
		case !plain:
			bad(i, invalid, "does not belong into a chat's history")
		case m.Failure == "":
			h.chat.replies[r.id] = m.Content
		}
		switch {
		case closed && m.Role != memory.RoleUser:
			closed = len(m.ToolCalls) > 0 || m.Role == memory.RoleTool
		case m.Role == memory.RoleUser:
			if open >= 0 && delegated {
				bad(open, invalid, "is a delegation without a completion")
			}
			open, closed, calls = i, false, nil
		case open < 0:
			bad(i, invalid, "follows no request, or a second answer to one")
		case m.Role == memory.RoleTool:
			pos := slices.Index(calls, m.ToolCallID)
			if pos < 0 {
				bad(i, invalid, "is the result of no call, or a second one")
				break
			}
			calls = slices.Delete(calls, pos, pos+1)
		case len(m.ToolCalls) > 0:
			for _, call := range m.ToolCalls {
				calls = append(calls, call.ID)
			}
		default:
			closed = m.Failure == event.RunLost || m.Partial
			if delegated || m.Failure == "" {
				open = -1 // a chat's request may be answered after all
			}
		}
	}
	if open >= 0 && delegated {
		bad(open, invalid, "is a delegation without a completion")
	}
}

// sendable checks what a model would be sent of a history, at several lengths, by the
// rules of the vendors. Only messages that came late may have to be left out.
func (c *checker) sendable(h *stored, late int) {
	for _, n := range []int{10, 50, max(len(h.raw), 1)} {
		window, err := memory.Decode(h.history.Window(n))
		messages, repairs := memory.Repair(window)
		if err == nil && repairs.Dropped > late {
			err = fmt.Errorf("it needs %+v", repairs)
		}
		if err == nil && len(messages) > 0 {
			if messages[len(messages)-1].Role == memory.RoleAssistant {
				messages = append(messages, memory.Message{Role: memory.RoleUser, Content: "And now?"})
			}
			body, _ := json.Marshal(map[string]any{"model": "any", "messages": messages})
			err = upstreamtest.ValidateChat(body)
		}
		if err != nil {
			c.report(h, -1, violation{kind: invalid, what: fmt.Sprintf("the repaired window of %d: %v", n, err)})
		}
	}
}
