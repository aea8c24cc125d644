package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// clientServer is the Server of tools that the client of a run has.
const clientServer = "client"

// ClientTools are tools that the client of the run has: a call of one waits for what it returned
// there. They are the holder's agent's beside its Tools.
func (h Holder) ClientTools(definitions []Definition) []loop.Tool {
	h.Definitions = cmp.Or(h.Definitions, &Definitions{})
	tools := make([]loop.Tool, len(definitions))
	for i, d := range definitions {
		d.Server = clientServer
		tools[i] = &clientTool{tool{Tool: Tool{Definition: d, As: d.Name}, holder: &h,
			prepared: h.Definitions.prepare(d, h.Log)}}
	}
	return tools
}

// clientTool is one of them.
type clientTool struct{ tool }

// Call waits for the client's result.
func (t *clientTool) Call(_ context.Context, call memory.ToolCall) (string, error) {
	arguments, err := t.arguments(call.Function.Arguments)
	if err != nil {
		return "", err
	}
	wait := t.wait(event.ClientResult)
	wait.Arguments, wait.ToolCallID = arguments, call.ID
	wait.Reason = fmt.Sprintf("The client is to run its tool %s.", t.Name)
	return t.suspended(waiting{Hash: t.hash, Arguments: arguments, Wait: wait.ID}, wait)
}

// Resume gives the client's result as text from outside: a string as it is, anything else as
// JSON.
func (t *clientTool) Resume(
	_ context.Context, _ memory.ToolCall, state json.RawMessage, answers loop.Answers,
) (string, error) {
	var w waiting
	if err := json.Unmarshal(state, &w); err != nil {
		return "", errors.New("what this call waited for cannot be read")
	}
	answer := answers[w.Wait]
	if answer.Decision != event.Approve {
		return denied(answer), nil
	}
	var text string
	if json.Unmarshal(answer.Result, &text) != nil {
		text = string(answer.Result)
	}
	return t.enveloped(text, false)
}
