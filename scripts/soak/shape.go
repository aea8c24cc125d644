package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/event"
)

// block is a stretch of a history that is one run's, by the ids of its messages.
type block struct {
	run     *run // one of which nobody was shown anything has a name only
	indices []int
}

// blocks cuts a history into runs.
func (c *checker) blocks(h *stored) []block {
	var out []block
	runs := map[string]*run{}
	for i, m := range h.messages {
		name, _, ok := memory.SplitID(m.ID)
		if !ok {
			c.report(h, violation{kind: invalid, at: h.time(i), what: fmt.Sprintf("message %d has no id of a run: %.300s", i,
				h.raw[i])})
			continue
		}
		name = strings.TrimSuffix(name, memory.ClosingSuffix)
		r := cmp.Or(c.ledger.runs[name], runs[name])
		if r == nil {
			r = &run{id: name}
			runs[name] = r
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
	whole := map[*run][]int{}
	newest := 0.0 // begin of the runs so far
	for i, b := range list {
		begun := h.messages[b.indices[0]].Timestamp
		if whole[b.run] != nil || begun < newest {
			late += len(b.indices)
		}
		if whole[b.run] == nil {
			order = append(order, b.run)
			newest = max(newest, begun)
		}
		if whole[b.run] != nil && i+1 < len(list) && list[i-1].run == list[i+1].run {
			c.report(h, violation{kind: disorder, run: b.run.id, post: b.run.post, at: h.time(b.indices[0]),
				what: fmt.Sprintf("messages %d to %d of a run stand inside another run", b.indices[0],
					b.indices[len(b.indices)-1])})
		}
		whole[b.run] = append(whole[b.run], b.indices...)
	}
	for _, r := range order {
		last := map[string]int64{} // by whether the run or its closer wrote
		for _, i := range whole[r] {
			name, seq, _ := memory.SplitID(h.messages[i].ID)
			if seq <= last[name] {
				c.report(h, violation{kind: disorder, run: r.id, seq: seq, post: r.post, at: h.time(i),
					what: fmt.Sprintf("message %d stands behind event %d of its run: %.300s", i, last[name], h.raw[i])})
			}
			last[name] = max(last[name], seq)
		}
		c.grammar(h, r, whole[r])
	}
	c.found.late += late
	return late
}

// grammar checks the messages of one run in one history.
func (c *checker) grammar(h *stored, r *run, indices []int) {
	bad := func(i int, what string) {
		c.report(h, violation{kind: invalid, run: r.id, post: r.post, at: h.time(i),
			what: fmt.Sprintf("message %d %s: %.300s", i, what, h.raw[i])})
	}
	open := -1 // the user message that has no answer yet
	// A run that its closer had to give up may have been further: what a dead process
	// acknowledged into its spool stands behind the closing answer, in a late block.
	closed := false
	var calls []string
	if before := indices[0] - 1; h.key.Agent() == "" && (r.retryOf() != "" || r.events == nil && before >= 0 &&
		h.messages[before].Failure != "") {
		open = indices[0] // the chat's request stands before, with the failure of another run
	}
	for _, i := range indices {
		m := h.messages[i]
		if m.Failure == event.RunLost && r.completed() {
			c.report(h, violation{kind: declared, run: r.id, post: r.post, at: h.time(i),
				what: fmt.Sprintf("message %d: %.200s", i, h.raw[i])})
		}
		switch {
		case closed && m.Role != memory.RoleUser:
			closed = len(m.ToolCalls) > 0 || m.Role == memory.RoleTool
			continue
		case m.Role == memory.RoleUser:
			if open >= 0 && h.key.Agent() != "" {
				bad(open, "is a delegation without a completion")
			}
			open, closed, calls = i, false, nil
		case open < 0:
			bad(i, "follows no request, or a second answer to one")
		case m.Role == memory.RoleTool:
			at := slices.Index(calls, m.ToolCallID)
			if at < 0 {
				bad(i, "is the result of no call, or a second one")
			} else {
				calls = slices.Delete(calls, at, at+1)
			}
		case len(m.ToolCalls) > 0:
			for _, call := range m.ToolCalls {
				calls = append(calls, call.ID)
			}
		default:
			closed = m.Failure == event.RunLost || m.Partial
			if h.key.Agent() != "" || m.Failure == "" {
				open = -1 // a chat's request may be answered after all
			}
		}
		if h.key.Agent() == "" {
			c.chatMessage(h, r, i, bad)
		}
	}
	if open >= 0 && h.key.Agent() != "" {
		bad(open, "is a delegation without a completion")
	}
}

// chatMessage notes what the chat's history says to whom.
func (c *checker) chatMessage(h *stored, r *run, i int, bad func(int, string)) {
	ch, m := h.chat, h.messages[i]
	if ch.said == nil {
		ch.said, ch.replies = map[string][]int{}, map[string]string{}
	}
	switch {
	case m.Role == memory.RoleUser:
		ch.said[m.Content] = append(ch.said[m.Content], i)
	case m.Role == memory.RoleAssistant && m.Failure != "":
	case m.Role == memory.RoleAssistant && len(m.ToolCalls) == 0:
		ch.replies[r.id] = m.Content
	default:
		bad(i, "does not belong into a chat's history")
	}
}

// sendable checks what a model would be sent of a history, at several lengths. Only
// messages that came late may have to be left out.
func (c *checker) sendable(h *stored, late int) {
	for _, n := range []int{10, 50, max(len(h.raw), 1)} {
		window, err := memory.Decode(h.history.Window(n))
		if err != nil {
			c.report(h, violation{kind: invalid, what: fmt.Sprintf("the window of %d: %v", n, err)})
			continue
		}
		sent, repairs := memory.Repair(window)
		if repairs.Dropped > late {
			c.report(h, violation{kind: invalid, what: fmt.Sprintf("the window of %d needs %+v", n, repairs)})
		}
		if err := strict(sent); err != nil {
			c.report(h, violation{kind: invalid, what: fmt.Sprintf("the repaired window of %d: %v", n, err)})
		}
	}
}

// strict is what vendors insist on.
func strict(messages []memory.Message) error {
	var waiting []string
	used := map[string]bool{}
	for i, m := range messages {
		switch {
		case i == 0 && m.Role != memory.RoleUser:
			return fmt.Errorf("it begins with %s", m.Role)
		case m.Role == memory.RoleTool:
			if len(waiting) == 0 || waiting[0] != m.ToolCallID {
				return fmt.Errorf("message %d is a result out of place", i)
			}
			waiting = waiting[1:]
			continue
		case len(waiting) > 0:
			return fmt.Errorf("message %d comes before the results of %v", i, waiting)
		case m.Role == memory.RoleUser && i > 0 && messages[i-1].Role == memory.RoleUser:
			return fmt.Errorf("messages %d and %d are both the user's", i-1, i)
		}
		for _, call := range m.ToolCalls {
			if used[call.ID] {
				return fmt.Errorf("message %d uses the id %s again", i, call.ID)
			}
			used[call.ID] = true
			waiting = append(waiting, call.ID)
		}
	}
	if len(waiting) > 0 {
		return fmt.Errorf("the calls %v have no results", waiting)
	}
	return nil
}
