package main

import (
	"fmt"
	"slices"

	"mneme/memory"
)

// block is a stretch of a history that is one run's.
type block struct {
	run   *run // nil if nobody was shown any of it
	first int  // index of its first message
	n     int
	late  bool // nobody was shown it, and it is older than what it stands behind
}

// blocks cuts a history into runs. A message that nobody was shown belongs to the
// block that it stands in; a user message of a chat always begins one.
func blocks(h *stored, owner []*run) []block {
	var out []block
	chatOwn := h.key.Agent() == ""
	for i := range h.raw {
		user := h.messages[i].Role == memory.RoleUser
		last := len(out) - 1
		// An answer that its writer stored in time, and told nobody of, came out of a
		// spool: it is no part of the run that it stands behind.
		late := i > 0 && !user && owner[i] == nil && h.messages[i].Timestamp < h.messages[i-1].Timestamp
		// Nor is the late answer of a run that began before part of one that nobody was shown.
		known := owner[i] != nil && slices.Contains(owner[:i], owner[i])
		switch {
		case late || last >= 0 && out[last].late && owner[i] == nil && !user:
			out = append(out, block{first: i, n: 1, late: true})
		case last < 0, chatOwn && user, owner[i] != nil && out[last].run != nil && owner[i] != out[last].run,
			owner[i] != nil && out[last].run == nil && (user || known), owner[i] == nil && user:
			out = append(out, block{run: owner[i], first: i, n: 1})
		default:
			if out[last].run == nil {
				out[last].run = owner[i]
			}
			out[last].n++
		}
	}
	return joined(out)
}

// joined puts neighbours of one run together: its delegations.
func joined(in []block) []block {
	var out []block
	for _, b := range in {
		if last := len(out) - 1; last >= 0 && b.run != nil && out[last].run == b.run {
			out[last].n += b.n
			continue
		}
		out = append(out, b)
	}
	return out
}

// structure checks that runs are not interleaved and that each is whole: in the
// chat a user message and at most one answer, in a subagent's history delegations
// that have one completion each. What came out of a spool after its turn may stand
// behind, between two runs; it is counted and read as a part of its run.
func (c *checker) structure(h *stored, owner []*run) (late int) {
	if len(h.messages) != len(h.raw) {
		return 0
	}
	var order []*run
	whole := map[*run][]int{}
	for _, b := range blocks(h, owner) {
		indices := make([]int, b.n)
		for i := range indices {
			indices[i] = b.first + i
		}
		if b.late {
			late += b.n
			continue
		}
		if b.run == nil {
			c.grammar(h, nil, indices)
			continue
		}
		if _, earlier := whole[b.run]; earlier {
			late += b.n
			if !startsRunAt(h, owner, b.first+b.n) {
				c.report(h, violation{kind: disorder, run: b.run.id, post: b.run.post, at: b.run.events[1].at,
					what: fmt.Sprintf("messages %d to %d of a run stand inside another run", b.first, b.first+b.n-1)})
			}
		} else {
			order = append(order, b.run)
		}
		whole[b.run] = append(whole[b.run], indices...)
	}
	for _, r := range order {
		c.grammar(h, r, whole[r])
	}
	c.found.late += late
	return late
}

// startsRunAt says whether a run begins, or the history ends, at an index.
func startsRunAt(h *stored, owner []*run, i int) bool {
	return i >= len(h.raw) || h.messages[i].Role == memory.RoleUser || owner[i] == nil || !slices.Contains(owner[:i], owner[i])
}

// grammar checks the messages of one run in one history.
func (c *checker) grammar(h *stored, r *run, indices []int) {
	bad := func(i int, what string) {
		v := violation{kind: invalid, at: h.time(i), what: fmt.Sprintf("message %d %s: %.300s", i, what, h.raw[i])}
		if r != nil {
			v.run, v.post = r.id, r.post
		}
		c.report(h, v)
	}
	open := -1 // the user message that has no answer yet
	// A run that its closer had to give up may have been further: what a dead process
	// acknowledged into its spool stands behind the closing answer, in a late block.
	closed := false
	var calls []string
	if r != nil && r.retryOf() != "" && h.key.Agent() == "" {
		open = indices[0] // the chat's request stands before, with the failure of another run
	}
	for _, i := range indices {
		m := h.messages[i]
		if m.Failure == "run_lost" && r != nil && r.completed() {
			c.report(h, violation{kind: declared, run: r.id, post: r.post, at: h.time(i), what: fmt.Sprintf("message %d: %.200s", i, h.raw[i])})
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
			closed = m.Failure == "run_lost" || m.Partial
			if h.key.Agent() != "" || m.Failure == "" {
				open = -1 // a chat's request may be answered after all
			}
		}
		if h.key.Agent() == "" {
			c.chatMessage(h, r, indices, i, bad)
		}
	}
	if open >= 0 && h.key.Agent() != "" {
		bad(open, "is a delegation without a completion")
	}
}

// chatMessage notes what the chat's history says to whom.
func (c *checker) chatMessage(h *stored, r *run, indices []int, i int, bad func(int, string)) {
	ch, m := h.chat, h.messages[i]
	if ch.said == nil {
		ch.said, ch.replies = map[string][]int{}, map[string]string{}
	}
	switch {
	case m.Role == memory.RoleUser:
		ch.said[m.Content] = append(ch.said[m.Content], i)
	case m.Role == memory.RoleAssistant && m.Failure != "":
	case m.Role == memory.RoleAssistant && len(m.ToolCalls) == 0:
		if r != nil && r.post != nil {
			ch.replies[r.post.text] = m.Content
		} else if first := indices[0]; first != i {
			ch.replies[h.messages[first].Content] = m.Content
		}
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
