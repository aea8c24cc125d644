package event

import (
	"cmp"
	"encoding/json"
	"fmt"

	"mneme/memory"
)

// Sink takes the messages that events add to histories.
type Sink interface {
	// Append adds the message that event seq of the run carries to a history; its
	// id names the run. It must take the same (key, seq) twice without adding twice
	// if the run can be folded again.
	Append(key memory.Key, seq int64, m memory.Message) error
}

// Histories folds one run's events into the histories of its chat. Apply is the
// only place that knows which event changes which history; both ends of a run
// use it, each over its own Sink. Not safe for concurrent use: a run's events
// have one order.
type Histories struct {
	chat     memory.Chat
	sink     Sink
	isolated map[call]bool // leave no trace
	answered bool          // the chat's history has this run's answer, or its failure
}

// call is one delegation.
type call struct {
	agent memory.Agent
	id    string
}

// NewHistories starts a fold at a run's first event.
func NewHistories(chat memory.Chat, sink Sink) *Histories {
	return &Histories{chat: chat, sink: sink, isolated: map[call]bool{}}
}

// Apply hands the message that e carries, if any, to the sink.
func (h *Histories) Apply(e Event) error {
	key, m, ok := h.change(e)
	if !ok {
		return nil
	}
	m.Timestamp, m.ID = e.TS, e.messageID()
	if err := h.sink.Append(key, e.Seq, m); err != nil {
		return fmt.Errorf("%s (event %d) into %s: %w", e.Role(), e.Seq, key, err)
	}
	return nil
}

// RunLost is the code of the error with which a lost run is closed.
const RunLost = "run_lost"

// Closing is the run under which what closes a run is remembered. It is numbered
// apart from the run's own events: those may still lie in the spool of a process
// that died, and must not pass for what closed the run.
func Closing(run string) string { return run + memory.ClosingSuffix }

// messageID is the id of the message that the event carries.
func (e Event) messageID() string {
	run := e.RunID
	if e.closes() {
		run = Closing(run)
	}
	return memory.MessageID(run, e.Seq)
}

// closes says whether the event was written by the process that closed a lost run.
func (e Event) closes() bool {
	switch p := e.Payload.(type) {
	case *Completion:
		return p.Failure == RunLost
	case *Assistant:
		return p.Failure == RunLost
	case *Error:
		return p.Code == RunLost
	}
	return false
}

func (h *Histories) change(e Event) (memory.Key, memory.Message, bool) {
	chat := memory.ChatKey(h.chat)
	own := memory.SubagentKey(e.Subagent, h.chat)
	if d, ok := e.Payload.(*Delegation); ok && d.Calls == Isolated {
		h.isolated[call{e.Subagent, e.CallID}] = true
	}
	visible := e.Subagent != "" && !h.isolated[call{e.Subagent, e.CallID}]
	switch p := e.Payload.(type) {
	case *RunStarted:
		// A run that tries once more finds its question there, and a failure behind it:
		// however often it is tried, one of each is enough.
		h.answered = p.RetryOf != ""
		return chat, memory.Message{Role: memory.RoleUser, Content: p.Message,
			Origin: memory.Origin{Authority: memory.FromUser},
			Pasted: p.Pasted, Metadata: p.Metadata, Images: p.Images}, !h.answered
	case *Error:
		// A run that failed before any answer: an appended message says so, nothing
		// that is stored changes.
		if e.Subagent == "" && !h.answered {
			h.answered = true
			failed := memory.Failed(cmp.Or(p.Code, "run_failed"))
			failed.Origin, failed.Run = memory.Origin{Authority: memory.FromAgent}, recorded(p.Run)
			return chat, failed, true
		}
	case *RunFinished:
		if p.Outcome == Stopped && !h.answered {
			h.answered = true
			stopped := memory.Failed(memory.Stopped)
			stopped.Origin = memory.Origin{Authority: memory.FromAgent}
			return chat, stopped, true
		}
	case *Assistant:
		h.answered = true
		return chat, memory.Message{Role: memory.RoleAssistant, Content: p.Content,
			Origin: originOr(p.Origin, memory.FromAgent), Partial: p.Partial, Failure: p.Failure, FinishReason: p.FinishReason,
			Citations: cited(p.Citations), Run: recorded(p.Run)}, true
	case *Delegation:
		return own, memory.Message{Role: memory.RoleUser, Content: p.Task, Origin: originOr(p.Origin, memory.FromAgent),
			Pasted: p.Pasted}, visible
	case *AssistantWithTools:
		return own, memory.Message{Role: memory.RoleAssistant, Content: p.Content, ToolCalls: p.ToolCalls,
			Origin: originOr(p.Origin, memory.FromAgent)}, visible
	case *ToolResult:
		return own, memory.Message{Role: memory.RoleTool, Content: p.Content, ToolCallID: p.ToolCallID, Name: p.Name,
			Origin: originOr(p.Origin, memory.FromOutside)}, visible
	case *Completion:
		return own, memory.Message{Role: memory.RoleAssistant, Content: p.Response, Failure: p.Failure,
			FinishReason: p.FinishReason, Origin: originOr(p.Origin, memory.FromAgent)}, visible
	}
	return memory.Key{}, memory.Message{}, false
}

// originOr is an event's origin, which one of an older version does not have.
func originOr(o memory.Origin, fallback memory.Authority) memory.Origin {
	return memory.Origin{Authority: cmp.Or(o.Authority, fallback), Source: o.Source}
}

// cited is how a message has its citations; nil for none.
func cited(citations []Citation) json.RawMessage {
	if len(citations) == 0 {
		return nil
	}
	raw, _ := json.Marshal(citations) // plain structs of text and numbers
	return raw
}

// Copies is the Sink inside a run: the histories of one chat in memory.
type Copies map[memory.Key][]memory.Message

// Append adds to the copy; it never fails.
func (c Copies) Append(key memory.Key, _ int64, m memory.Message) error {
	c[key] = append(c[key], m)
	return nil
}
