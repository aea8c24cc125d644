package copilot

import (
	"slices"
	"strings"
)

// step is the state of a turn after an event.
type step int

const (
	running       step = iota // more events will come
	parked                    // it waits for results of tool calls
	idle                      // the turn has ended
	sessionClosed             // the turn and its session have ended
)

// promptState is the state machine of one prompt, until its session is idle again. It is the only
// place that knows what ends a turn: session.idle, which also ends failed and aborted turns, and
// session.shutdown, after which no idle comes.
//
//	going ──tool calls──▶ parked ──results──▶ going ──▶ … ──▶ idle | gone
type promptState struct {
	// texts is the text so far of each incomplete message, by the message's id; nil for complete
	// ones.
	texts map[string]*strings.Builder
	// open are the calls that the model made and that the CLI has neither asked for nor ended by
	// itself, as it does with calls of tools that do not exist.
	open  []string
	order []string   // ids of all calls since the turn was last parked, as the model ordered them
	calls []ToolCall // the calls that the CLI has asked for, which it does in any order
	part  strings.Builder
	usage Usage

	failed  *SessionError // the error that the next idle event stands for
	aborted bool
}

func newPromptState() *promptState { return &promptState{texts: map[string]*strings.Builder{}} }

// take applies an event and returns the text that it adds to the answer.
func (t *promptState) take(e event) (text string, now step) {
	switch e.kind {
	case eventDelta:
		text = t.delta(e.data.MessageID, string(e.text))
	case eventMessage:
		text = t.message(e.data)
	case eventUsage:
		t.usage.add(e.data.Usage)
	case eventToolCall:
		t.removeCall(e.data.ToolCallID)
		t.calls = append(t.calls, ToolCall{
			ID: e.data.ToolCallID, Name: e.data.ToolName, Arguments: e.data.Arguments, requestID: e.data.RequestID, rpc: e.rpc,
		})
	case eventToolDone:
		t.removeCall(e.data.ToolCallID)
		t.calls = slices.DeleteFunc(t.calls, func(c ToolCall) bool { return c.ID == e.data.ToolCallID })
	case eventError:
		f := e.data.Failure
		t.failed = &SessionError{Type: f.ErrorType, Message: f.Message, Status: int(f.StatusCode)}
	case eventIdle:
		t.aborted = e.data.Aborted
		return "", idle
	case eventShutdown:
		return "", sessionClosed
	}
	t.part.WriteString(text)
	if len(t.calls) > 0 && len(t.open) == 0 {
		slices.SortStableFunc(t.calls, func(a, b ToolCall) int {
			return slices.Index(t.order, a.ID) - slices.Index(t.order, b.ID)
		})
		return text, parked
	}
	return text, running
}

// delta takes a piece of a message's text.
func (t *promptState) delta(id, text string) string {
	b, exists := t.texts[id]
	switch {
	case !exists:
		b = &strings.Builder{}
		t.texts[id] = b
	case b == nil: // the message is complete
		return ""
	}
	b.WriteString(text)
	return text
}

// message completes a message. Its content is the whole text, of which deltas may have brought some
// or none.
func (t *promptState) message(d eventData) string {
	for _, r := range d.ToolRequests {
		t.open = append(t.open, r.ToolCallID)
		t.order = append(t.order, r.ToolCallID)
	}
	b, exists := t.texts[d.MessageID]
	t.texts[d.MessageID] = nil
	switch {
	case !exists:
		return d.Content
	case b == nil:
		return ""
	}
	// Text that was passed on cannot be taken back, so content that begins differently adds
	// nothing.
	rest, ok := strings.CutPrefix(d.Content, b.String())
	if !ok {
		return ""
	}
	return rest
}

// removeCall removes a call from those that the CLI still has to ask for.
func (t *promptState) removeCall(call string) {
	if i := slices.Index(t.open, call); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
}

// resume continues after all calls were answered.
func (t *promptState) resume() { t.calls, t.order = nil, nil }

// outcome is what came since the last outcome.
func (t *promptState) outcome() Outcome {
	o := Outcome{Text: t.part.String(), Usage: t.usage, Calls: slices.Clone(t.calls)}
	t.part.Reset()
	t.usage = Usage{}
	return o
}

// end is the error with which an idle turn ended.
func (t *promptState) end() error {
	switch {
	case t.failed != nil && !t.aborted:
		return t.failed
	case t.aborted:
		return ErrAborted
	}
	return nil
}

func (u *Usage) add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
}
