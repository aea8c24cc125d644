package webmemory

import (
	"context"
	"errors"
	"strings"

	"mneme/memory"
	"mneme/memory/event"
)

// This file is about runs that Redis lost while they waited for an answer: what one goes on from is beside its events
// on the disk of the process that suspended it, see ends.

// waitBack has a run again that Redis lost while it waited or after it went on, if this process or another one knows it.
// True: it is to be looked at once more.
func waitBack(ctx context.Context, s *Server, chat memory.Chat, run string) (bool, error) {
	head, events, err := longestKnown(ctx, s, chat, run)
	if err != nil || len(events) == 0 {
		return false, err
	}
	over := events[len(events)-1].Terminal()
	if !over && head.Waiting == nil {
		return true, nil // it goes on where it is known, and is about to be put back from there
	}
	w, err := s.takeTurn(ctx, ctx, chat, "", now)
	if err != nil {
		return errors.Is(err, errQueueSlow), nil
	}
	if w.Open != nil {
		s.resume(w)
		return true, nil
	}
	back := false
	if over {
		err = s.putBack(ctx, w, head, events)
		back = w.over != nil
	} else {
		back, err = restoreWait(ctx, s, w, head, events)
	}
	return back || w.Waits != nil, errors.Join(err, w.release(w.end, &s.log))
}

// longestKnown is the most that this process or another one knows of a run; no events if none does.
func longestKnown(ctx context.Context, s *Server, chat memory.Chat, run string) (endHead, []event.Event, error) {
	head, lines := s.knownEvents(chat, run)
	others, more, err := s.askForRun(ctx, chat, run)
	if len(more) > len(lines) {
		head, lines = others, more
	}
	return head, head.events(lines), err
}

// restoreWait suspends a run again that Redis lost while it waited, under its chat's lease, which is given back with
// that. Not one that was answered or closed since, as far as the chat's histories and other processes tell: it would be
// answered twice, and a call made twice. Where neither the process nor the messages are left that knew of the answer,
// nothing tells.
func restoreWait(ctx context.Context, s *Server, w *writer, head endHead, events []event.Event) (bool, error) {
	if w.Waits != nil || w.Open != nil || len(events) == 0 {
		return false, nil
	}
	if wentOn(w, head) {
		return false, s.ends.removeRun(w.chat, head.Run)
	}
	_, others, err := s.askForRun(ctx, w.chat, head.Run)
	if err != nil || len(others) > len(events) {
		return false, err
	}
	d, err := tellAgain(ctx, s, w, head, events)
	if d == nil || err != nil {
		return false, err
	}
	d.run.identify(head.Waiting.Open)
	d.waiting = head.Waiting
	if err := s.store.Waits.SaveState(ctx, w.chat, w.token, head.Waiting); err != nil {
		return false, err
	}
	if err := d.rest(); err != nil {
		return false, err
	}
	d.log.Warn().Msg("Redis has lost a run that waits; it waits again")
	return true, nil
}

// wentOn says whether a chat's histories tell that a run did not stay where it waits: it has said more, or its message is
// not the user's newest.
func wentOn(w *writer, head endHead) bool {
	newest := ""
	for key, h := range w.histories {
		for i, id := range h.IDs() {
			run, seq, _ := memory.SplitID(id)
			if strings.TrimSuffix(run, memory.ClosingSuffix) == head.Run && (seq > head.Waiting.Seq || run != head.Run) {
				return true
			}
			if of, _ := headOf(h.Raw(i)[0]); of.Role == memory.RoleUser && key.Agent() == "" {
				newest = run
			}
		}
	}
	return newest != "" && newest != head.Run
}

// closeLost ends what a run left in the histories of a chat of which Redis lost something, before another run begins under
// the chat's lease: where nothing else is left of it, neither in a process nor on a disk. A question or a task that stays
// open would be read as one that is still to be answered.
func closeLost(ctx context.Context, s *Server, w *writer) error {
	for _, h := range w.histories {
		if h.Len() == 0 {
			continue
		}
		last, err := memory.Decode(h.Raw(h.Len() - 1))
		if err != nil || last[0].Role == memory.RoleAssistant && len(last[0].ToolCalls) == 0 {
			continue
		}
		run, seq, ok := memory.SplitID(last[0].ID)
		if !ok {
			continue // another program wrote it
		}
		if _, lines := s.knownEvents(w.chat, run); len(lines) > 0 {
			continue // it is about to be written back
		}
		if s.lostLately(ctx) {
			if _, lines, err := s.askForRun(ctx, w.chat, run); err != nil || len(lines) > 0 {
				continue
			}
		}
		if err := w.closeWith(ctx, h, last[0], run, seq); err != nil {
			return err
		}
		s.metrics.faults.WithLabelValues(lostRun).Inc()
		s.log.Error().Str("history", h.Key().String()).Str("run", run).
			Msg("Redis has lost a run, and no process knows it any more; it is closed as run_lost")
	}
	return nil
}
