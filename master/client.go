package master

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/envelope"
	"mneme/subagent/external"
	"mneme/subagent/loop"
)

// ClientTool is a tool that whoever posted the message has: the run waits for what it returns.
type ClientTool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of an object
}

// clientTool is one as the master's model is given it.
type clientTool struct {
	ClientTool
	run external.Run
}

func (t clientTool) Spec() loop.Spec {
	return loop.Spec{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Parallel: true}
}

// Call waits for the client's result of a call that fits the tool's schema.
func (t clientTool) Call(_ context.Context, call memory.ToolCall) (string, error) {
	if err := t.check(call.Function.Arguments); err != nil {
		return "", err
	}
	id := rand.Text()
	state, err := loop.Encode(id)
	if err != nil {
		return "", err
	}
	return "", &loop.Suspended{Waits: []event.Wait{{
		ID: id, Kind: event.ClientResult, Reason: fmt.Sprintf("The client is to run its tool %s.", t.Name),
		ExpiresAt: event.Seconds(t.run.Now().Add(t.run.Expiry)),
	}}, State: state}
}

// check says what is wrong with arguments, for the model.
func (t clientTool) check(arguments string) error {
	var given map[string]any
	if err := json.Unmarshal([]byte(arguments), &given); err != nil || given == nil {
		return errors.New("the arguments are not a JSON object")
	}
	var schema jsonschema.Schema
	if json.Unmarshal(t.Parameters, &schema) != nil {
		return nil
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil //nolint:nilerr // it was checked when it came; a model's words are no reason to fail
	}
	if err := resolved.Validate(given); err != nil {
		return fmt.Errorf("the arguments do not fit the tool's schema: %w", err)
	}
	return nil
}

// Resume gives the client's result, as text from outside: a string as it is, anything else as
// JSON.
func (t clientTool) Resume(
	_ context.Context, _ memory.ToolCall, state json.RawMessage, answers loop.Answers,
) (string, error) {
	var id, text string
	if err := json.Unmarshal(state, &id); err != nil {
		return "", fmt.Errorf("the state of a call of a client's tool cannot be read: %w", err)
	}
	answer := answers[id]
	if answer.Decision != event.Approve {
		return "", fmt.Errorf("the tool was not run: %s", cmp.Or(answer.Reason, "its client declined"))
	}
	if json.Unmarshal(answer.Result, &text) != nil {
		text = string(answer.Result)
	}
	return envelope.Result(t.Name, text), nil
}
