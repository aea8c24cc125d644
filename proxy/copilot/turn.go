package copilot

import (
	"slices"
	"strings"
)

// step is where a turn stands after an event.
type step int

const (
	going  step = iota // more events will come
	parked             // it waits for results of tool calls
	idle               // it is over
	gone               // so is its session
)

// promptState is the state of one prompt until its session is idle again. It is the only
// place that knows what ends a turn: session.idle, which also ends failed and
// aborted ones, and session.shutdown, behind which no idle comes.
//
//	going ──tool calls──▶ parked ──results──▶ going ──▶ … ──▶ idle | gone
type promptState struct {
	// said is what came of each message that is not complete; nil for those that
	// are.
	said map[string]*strings.Builder
	// open are calls that the model made and the CLI has neither asked us for nor
	// ended on its own, as it ends calls of tools that do not exist.
	open  []string
	order []string   // of all calls since the turn was last parked, as the model made them
	calls []ToolCall // that we were asked for; the CLI asks in any order
	part  strings.Builder
	usage Usage

	failed  *SessionError // what the coming idle will mean
	aborted bool
}

func newPromptState() *promptState { return &promptState{said: map[string]*strings.Builder{}} }

// take applies an event. The text is what it adds to the answer.
func (t *promptState) take(e event) (text string, now step) {
	switch e.kind {
	case eventDelta:
		text = t.delta(e.data.MessageID, string(e.text))
	case eventMessage:
		text = t.message(e.data)
	case eventUsage:
		t.usage.add(e.data.Tokens)
	case eventToolCall:
		t.ended(e.data.ToolCallID)
		t.calls = append(t.calls, ToolCall{
			ID: e.data.ToolCallID, Name: e.data.ToolName, Arguments: e.data.Arguments, requestID: e.data.RequestID, rpc: e.rpc,
		})
	case eventToolDone:
		t.ended(e.data.ToolCallID)
		t.calls = slices.DeleteFunc(t.calls, func(c ToolCall) bool { return c.ID == e.data.ToolCallID })
	case eventError:
		f := e.data.Failure
		t.failed = &SessionError{Type: f.ErrorType, Message: f.Message, Status: int(f.StatusCode)}
	case eventIdle:
		t.aborted = e.data.Aborted
		return "", idle
	case eventShutdown:
		return "", gone
	}
	t.part.WriteString(text)
	if len(t.calls) > 0 && len(t.open) == 0 {
		slices.SortStableFunc(t.calls, func(a, b ToolCall) int {
			return slices.Index(t.order, a.ID) - slices.Index(t.order, b.ID)
		})
		return text, parked
	}
	return text, going
}

func (t *promptState) delta(id, text string) string {
	said, known := t.said[id]
	switch {
	case !known:
		said = &strings.Builder{}
		t.said[id] = said
	case said == nil: // the message is complete
		return ""
	}
	said.WriteString(text)
	return text
}

// message completes a message. Its content is all of its text, of which deltas
// have told some part or nothing.
func (t *promptState) message(d eventData) string {
	for _, r := range d.ToolRequests {
		t.open = append(t.open, r.ToolCallID)
		t.order = append(t.order, r.ToolCallID)
	}
	said, known := t.said[d.MessageID]
	t.said[d.MessageID] = nil
	switch {
	case !known:
		return d.Content
	case said == nil:
		return ""
	}
	// What was told cannot be taken back: content that begins otherwise adds nothing.
	rest, ok := strings.CutPrefix(d.Content, said.String())
	if !ok {
		return ""
	}
	return rest
}

// ended takes a call off those that the CLI still has to ask for.
func (t *promptState) ended(call string) {
	if i := slices.Index(t.open, call); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
}

// resume goes on after all calls were answered.
func (t *promptState) resume() { t.calls, t.order = nil, nil }

// outcome is what came since the last one.
func (t *promptState) outcome() Outcome {
	o := Outcome{Text: t.part.String(), Usage: t.usage, Calls: slices.Clone(t.calls)}
	t.part.Reset()
	t.usage = Usage{}
	return o
}

// end is the error that an idle turn ended with.
func (t *promptState) end() error {
	switch {
	case t.failed != nil && !t.aborted:
		return t.failed
	case t.aborted:
		return ErrAborted
	}
	return nil
}

func (u *Usage) add(t tokens) {
	u.Input += int(t.Input)
	u.Output += int(t.Output)
	u.CacheRead += int(t.CacheRead)
	u.CacheWrite += int(t.CacheWrite)
}
