package runs

import (
	"context"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/telling"
)

// proposeNotes stores the standing rules and lasting facts of a message as proposed notes of its chat. An agent's note
// replaces a proposal with the same text.
func (d *Driver) proposeNotes(started *event.RunStarted) {
	sentences := telling.Standing(memory.Own(started.Message, started.Pasted).Own)
	if len(sentences) == 0 || d.writer.detached.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(d.writer.Ctx, node.StoreTimeout)
	defer cancel()
	key, propose := memory.ChatKey(d.Run.Chat), func(notes []memory.Note) (_ []memory.Note, err error) {
		proposed := 0
		for _, n := range notes {
			if n.State == memory.NoteProposed {
				proposed++
			}
		}
		// A further proposal would remove the oldest one, which may be a note that the user asked to forget.
		for i := 0; i < len(sentences) && err == nil && proposed+i < past.MaxProposed; i++ {
			n := past.NewNote(sentences[i], memory.NoteProposed, memory.ByUser)
			n.Message = memory.MessageID(d.Run.ID, 1)
			notes, err = past.AddNote(notes, &n)
		}
		return notes, err
	}
	if err := d.runner.Store.Notes.Change(ctx, d.writer.Number, key, propose); err != nil {
		d.Log.Warn().Err(err).Msg("proposing notes failed")
	}
}

// StartEvent returns the run's start event with the user's message, as this process sent it to the apiserver. In a
// process that took the run over, it returns nil.
func (r *Run) StartEvent() *event.RunStarted {
	for _, p := range r.StartPayloads {
		if started, ok := p.(*event.RunStarted); ok {
			return started
		}
	}
	return nil
}
