// Package mcp reaches servers of the Model Context Protocol, by the official SDK: over streamable HTTP, or as a
// process of their own on standard input and output, in the era of sessions (up to 2025-11-25) and in the one after
// it (2026-07-28). Of what a server may ask of its client only a form that a person fills in is taken, and only as
// the result of a call (input_required): the run waits for it.
//
// It owns the connections and processes of the servers, with a goroutine for each, and what they offer, pinned in the
// store by its Pins. A server that is away, slow or hostile never harms a run: its calls end with a sentence.
// Sampling, roots and questions in the midst of a call are never offered, and what is not as it was pinned is never
// used.
package mcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/subagent/external"
)

// ServerConfig says where a server is: URL or Command.
type ServerConfig struct {
	URL     string
	Headers map[string]string // sent with each request to URL
	Command []string          // a program and its arguments
	Env     []string          // NAME=value, beside PATH and HOME
	Path    string            // PATH of the program; empty for that of a bare system
	Dir     string            // where the program works, and its HOME; made if it is not there
	Timeout time.Duration     // of a call; 0 for external.DefaultTimeout
	Pin     bool              // its tools are pinned
}

// Pins keep what the tools of a server were when they were accepted, for all processes.
type Pins interface {
	// Pinned gives the definitions of a server's tools, by name; none if it was never reached.
	Pinned(ctx context.Context, server string) (map[string]external.Definition, error)
	// Pin keeps definitions of a server of which none are kept, and gives all that are kept then.
	Pin(ctx context.Context, server string, tools ...external.Definition) (map[string]external.Definition, error)
	// Accept keeps definitions in the place of all that are kept.
	Accept(ctx context.Context, server string, tools ...external.Definition) error
}

// Client reaches the servers of a configuration. Close it.
type Client struct {
	servers map[string]*server
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Open begins to reach servers; it waits for none. Without pins those of this process are kept
// until it ends.
func Open(servers map[string]ServerConfig, pins Pins, log zerolog.Logger) *Client {
	if pins == nil {
		pins = &localPins{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{servers: make(map[string]*server, len(servers)), cancel: cancel}
	for name, config := range servers {
		config.Timeout = cmp.Or(config.Timeout, external.DefaultTimeout)
		s := newServer(name, config, pins, log.With().Str("mcp_server", name).Logger())
		c.servers[name] = s
		c.running.Go(func() { s.run(ctx) })
	}
	return c
}

// pinsWait bounds how long Tools waits for the store of the pins, at the first time.
var pinsWait = 2 * time.Second

// Tools are those that a server has now, as they are pinned: also of one that is away. They are
// in the order of their names; and the caller does not change them.
func (c *Client) Tools(server string) []external.Definition {
	s := c.servers[server]
	if s == nil {
		return nil
	}
	select {
	case <-s.pinsRead:
	default:
		select {
		case <-s.pinsRead:
		case <-time.After(pinsWait):
			s.setPinsRead()
		}
	}
	return s.tools()
}

// Ready waits until the first attempt to reach each of these servers has ended, well or not, and
// no longer than ctx. Before that a server that was never reached has no tools. No names mean all
// servers.
func (c *Client) Ready(ctx context.Context, servers ...string) {
	if len(servers) == 0 {
		servers = slices.Collect(maps.Keys(c.servers))
	}
	for _, name := range servers {
		s := c.servers[name]
		if s == nil {
			continue
		}
		select {
		case <-s.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Caller reaches a tool of a server. An end of a call is told in sentences that name the server,
// and nothing of where it is.
func (c *Client) Caller(server, tool string) external.Caller {
	return &caller{c.servers[server], server, tool}
}

// Status is how a server is.
type Status struct {
	Server  string   `json:"server"`
	State   string   `json:"state"`             // one of the states below
	Reason  string   `json:"reason,omitempty"`  // why it is not ready
	Tools   int      `json:"tools"`             // that may be used
	Changed []string `json:"changed,omitempty"` // names of tools that are not what was pinned, and not used
	Refused []string `json:"refused,omitempty"` // names of tools that cannot be used, as a server gave them
}

// States of a server.
const (
	StateReady    = "ready"
	StateStarting = "starting" // an attempt to reach it is under way, the first one or after a session broke
	StateAway     = "away"     // it is tried again
)

// Status is that of each server, by name.
func (c *Client) Status() []Status {
	statuses := make([]Status, 0, len(c.servers))
	for _, name := range slices.Sorted(maps.Keys(c.servers)) {
		statuses = append(statuses, c.servers[name].status())
	}
	return statuses
}

// Accept pins what a server offers now. The error is a sentence.
func (c *Client) Accept(ctx context.Context, server string) error {
	s := c.servers[server]
	if s == nil {
		return fmt.Errorf("no server of tools is called %q", server)
	}
	return s.accept(ctx)
}

// Close ends all sessions and processes.
func (c *Client) Close() error {
	c.cancel()
	c.running.Wait()
	return nil
}
