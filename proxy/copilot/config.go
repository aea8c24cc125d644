package copilot

import (
	"cmp"
	"time"

	"github.com/rs/zerolog"
)

// RouterConfig bounds a Router. A zero value means its default.
type RouterConfig struct {
	Token string // of the connection, COPILOT_CONNECTION_TOKEN of the CLI; empty: none

	MaxFrame     int           // bytes of a message, either way; 32 MiB
	WriteTimeout time.Duration // for one message; 10 s
	Ping         time.Duration // two intervals of silence with a ping unanswered end the connection; 10 s
	Patience     time.Duration // a call unanswered, and nothing else sent, for so long: the CLI hangs; 5 s

	// MaxEvents and MaxBytes bound the queue of one session; 1024 and 8 MiB. One
	// event finds room in an empty queue whatever its size.
	MaxEvents int
	MaxBytes  int

	// Inactivity is how long a turn may go on without any event; 5 min. It rests
	// while the turn is parked on tool calls.
	Inactivity time.Duration
	// Grace is how long an aborted or failed turn may take to become idle, and a
	// session to be destroyed; 5 s.
	Grace time.Duration

	Log zerolog.Logger

	counters *counters // nil: new ones
}

func (c RouterConfig) withDefaults() RouterConfig {
	c.MaxFrame = cmp.Or(c.MaxFrame, 32<<20)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.Ping = cmp.Or(c.Ping, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 5*time.Second)
	c.MaxEvents = cmp.Or(c.MaxEvents, 1024)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<20)
	c.Inactivity = cmp.Or(c.Inactivity, 5*time.Minute)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.counters = cmp.Or(c.counters, &counters{})
	return c
}

// SessionConfig describes a session, when it is created and again when it is
// resumed: the CLI keeps the conversation of a session, not its tools or provider.
type SessionConfig struct {
	Model    string
	Provider *Provider // nil: the CLI's own models, which need a login
	// IDHeader, if not empty, is a header of the provider's calls that holds the
	// session's id, which is unknown before Create.
	IDHeader string
	// System takes the place of the CLI's own system prompt, when it is empty, too.
	System string
	// Tools are all that the model may call. The CLI's own tools (shell, files) are
	// always off.
	Tools []Tool
}

// Provider is where the CLI sends the session's model calls.
type Provider struct {
	Type    string            `json:"type"`              // openai, azure or anthropic
	WireAPI string            `json:"wireApi,omitempty"` // of openai: completions or responses
	BaseURL string            `json:"baseUrl"`           // ends in /v1 for openai
	APIKey  string            `json:"apiKey,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // of every call of the session
}
