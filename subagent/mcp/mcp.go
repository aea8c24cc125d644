// Package mcp reaches servers of the Model Context Protocol, by the official SDK: over
// streamable HTTP, or as a process of their own on standard input and output. What a server
// offers is pinned by its hash in the store; a server that is away, slow or hostile harms no
// run.
package mcp

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"mneme/subagent/external"

	_ "github.com/google/jsonschema-go/jsonschema"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServerConfig says where a server is: URL or Command.
type ServerConfig struct {
	URL     string
	Headers map[string]string // sent with each request to URL
	Command []string          // a program and its arguments
	Env     []string          // NAME=value, beside PATH and HOME
	Dir     string            // where the program works, and its HOME
	Timeout time.Duration     // of a call
	Pin     bool              // its tools are pinned
}

// Pins keep what the tools of a server were when they were accepted, for all processes.
type Pins interface {
	// Pinned gives the definitions of a server's tools, by name; none if it was never reached.
	Pinned(ctx context.Context, server string) (map[string]external.Definition, error)
	// Pin keeps definitions that nobody has kept before, and gives all that are kept then.
	Pin(ctx context.Context, server string, tools ...external.Definition) (map[string]external.Definition, error)
	// Accept keeps definitions in the place of all that are kept.
	Accept(ctx context.Context, server string, tools ...external.Definition) error
}

// Client reaches the servers of a configuration. Close it.
type Client struct{}

// Open begins to reach servers; it waits for none.
func Open(servers map[string]ServerConfig, pins Pins, log zerolog.Logger) *Client { return &Client{} }

// Tools are those that a server has now, as they are pinned: also of one that is away.
func (c *Client) Tools(server string) []external.Definition { return nil }

// Caller reaches a tool of a server.
func (c *Client) Caller(server, tool string) external.Caller { return nil }

// Status is how a server is.
type Status struct {
	Server  string   `json:"server"`
	State   string   `json:"state"`             // ready, starting or away
	Reason  string   `json:"reason,omitempty"`  // why it is not ready
	Tools   int      `json:"tools"`             // that may be used
	Changed []string `json:"changed,omitempty"` // names of tools that are not what was pinned, and not used
}

// Status is that of each server, by name.
func (c *Client) Status() []Status { return nil }

// Accept pins what a server offers now.
func (c *Client) Accept(ctx context.Context, server string) error { return nil }

// Close ends all sessions and processes.
func (c *Client) Close() error { return nil }
