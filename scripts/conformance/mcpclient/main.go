// Command mcpclient is a client for the conformance suite of the Model Context Protocol: it
// reaches the server at the URL in its last argument as agents do, and calls each of its
// tools once. It prints what the tools returned.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"mneme/subagent/external"
	"mneme/subagent/mcp"
)

// limit bounds the whole.
const limit = 30 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: mcpclient <url>")
		os.Exit(2)
	}
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	c := mcp.Open(map[string]mcp.ServerConfig{"suite": {URL: url, Pin: true}}, nil, log)
	defer func() { _ = c.Close() }()
	c.Ready(ctx)
	if s := c.Status()[0]; s.State != mcp.StateReady {
		return fmt.Errorf("%s: %s", s.State, s.Reason)
	}
	for _, call := range calls(c.Tools("suite")) {
		req := external.Call{ID: "call-1", Run: "run-1", Arguments: call.Arguments, Progress: func(string) {}}
		r, err := c.Caller("suite", call.Name).Call(ctx, req)
		for rounds := 0; err == nil && r.Elicitation != nil && rounds < 5; rounds++ {
			req.State, req.Answers = r.Elicitation.State, answers(r.Elicitation.Questions)
			r, err = c.Caller("suite", call.Name).Call(ctx, req)
		}
		fmt.Printf("%s: %+v %v\n", call.Name, r, err)
	}
	return nil
}

// toolCall is one that the suite wants.
type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// calls are those that the suite names in the variable MCP_CONFORMANCE_CONTEXT, else one of each
// tool. The tool json_schema_echo gets the schema of the one before, as it came.
func calls(tools []external.Definition) []toolCall {
	var scenario struct {
		ToolCalls []toolCall `json:"toolCalls"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &scenario) // it need not be there
	if len(scenario.ToolCalls) > 0 {
		return scenario.ToolCalls
	}
	var toolCalls []toolCall
	for i, t := range tools {
		call := toolCall{t.Name, arguments(t.Parameters)}
		if t.Name == "json_schema_echo" && i > 0 {
			call.Arguments, _ = json.Marshal(map[string]json.RawMessage{"schema": tools[i-1].Parameters})
		}
		toolCalls = append(toolCalls, call)
	}
	return toolCalls
}

// answers fills in forms.
func answers(questions []external.Question) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	for _, q := range questions {
		values[q.Key] = arguments(q.Schema)
	}
	return values
}

// arguments are some that a schema takes.
func arguments(schema json.RawMessage) json.RawMessage {
	var s struct {
		Properties map[string]struct {
			Type string            `json:"type"`
			Enum []json.RawMessage `json:"enum"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // of a schema that is none, {} is as good as anything
	values := map[string]any{}
	for name, p := range s.Properties {
		switch {
		case len(p.Enum) > 0:
			values[name] = p.Enum[0]
		case p.Type == "number" || p.Type == "integer":
			values[name] = 5
		case p.Type == "boolean":
			values[name] = true
		case p.Type == "string":
			values[name] = "text"
		case p.Type == "object":
			values[name] = map[string]any{}
		case p.Type == "array":
			values[name] = []any{}
		}
	}
	raw, _ := json.Marshal(values)
	return raw
}
