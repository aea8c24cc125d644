package copilottest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// Codes of the CLI's refusals.
const (
	codeAuthRequired   = -32001
	codeAuthFailed     = -32002
	codeMethodNotFound = -32601
	codeInternal       = -32603
)

// session is one that a connection has.
type session struct {
	id string

	mu      sync.Mutex
	abort   context.CancelFunc // of the turn; nil between turns
	pending map[string]chan Result
	last    int // of what was made an id
}

// Default does what the CLI does.
func (s *Server) Default(c *Conn, m Message) {
	switch m.Method {
	case "connect":
		s.connect(c, m)
	case "ping":
		c.Reply(m, s.greeting())
	case "session.create", "session.resume":
		s.open(c, m)
	case "session.send":
		s.send(c, m)
	case "session.abort":
		if live := c.session(m.Session()); live != nil {
			live.stop()
		}
		c.Reply(m, object{"success": true})
	case "session.destroy":
		s.destroy(c, m)
	case "session.delete":
		s.mu.Lock()
		delete(s.transcripts, m.Session())
		s.mu.Unlock()
		c.Reply(m, object{"success": true})
	case "session.tools.handlePendingToolCall", "session.permissions.handlePendingPermissionRequest":
		c.Reply(m, object{"success": c.resolve(m)})
	default:
		c.Refuse(m, codeMethodNotFound, "Unhandled method "+m.Method)
	}
}

func (s *Server) greeting() object {
	return object{"ok": true, "protocolVersion": cmp.Or(s.Protocol, 3), "version": "1.0.102"}
}

func (s *Server) connect(c *Conn, m Message) {
	var p struct {
		Token string `json:"token"`
	}
	_ = json.Unmarshal(m.Params, &p)
	switch {
	case s.Token == p.Token || s.Token == "":
		c.Reply(m, s.greeting())
	case p.Token == "":
		c.Refuse(m, codeAuthRequired, "AUTHENTICATION_REQUIRED")
	default:
		c.Refuse(m, codeAuthFailed, "AUTHENTICATION_FAILED")
	}
}

func (s *Server) open(c *Conn, m Message) {
	id := m.Session()
	s.mu.Lock()
	_, exists := s.transcripts[id]
	if m.Method == "session.create" && !exists {
		s.transcripts[id] = []string{}
	}
	s.mu.Unlock()
	if m.Method == "session.resume" && !exists {
		c.Refuse(m, codeInternal,
			fmt.Sprintf("Request session.resume failed with message: Failed to load session events: Session not found: %s", id))
		return
	}
	c.mu.Lock()
	if c.live[id] == nil {
		c.live[id] = &session{id: id, pending: map[string]chan Result{}}
	}
	c.mu.Unlock()
	c.Notify("session.lifecycle", object{"type": "session.created", "sessionId": id})
	c.Reply(m, object{"sessionId": id, "nativeSessionId": id})
	c.Event(id, "session.start", object{"sessionId": id})
	c.Event(id, "session.managed_settings_resolved", object{})
}

func (s *Server) destroy(c *Conn, m Message) {
	live := c.session(m.Session())
	if live == nil {
		c.Reply(m, object{"success": false})
		return
	}
	c.Forget(live.id)
	live.stop()
	c.Event(live.id, "session.shutdown", object{})
	c.Reply(m, object{"success": true})
}

// Forget makes a session unknown to the connection, as one that the CLI has closed.
func (c *Conn) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, id)
}

func (c *Conn) session(id string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[id]
}

func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abort != nil {
		s.abort()
	}
}

// Result is what the client answered to a tool call or a request for permission.
type Result struct {
	Kind     string `json:"kind"` // of permission
	Feedback string `json:"feedback"`
	Text     string `json:"textResultForLlm"`
	Type     string `json:"resultType"`
	Error    string `json:"error"` // instead of a result
}

// resolve hands an answer to the turn that waits for it, once.
func (c *Conn) resolve(m Message) bool {
	var p struct {
		RequestID string `json:"requestId"`
		Result    Result `json:"result"`
		Error     string `json:"error"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return false
	}
	live := c.session(m.Session())
	if live == nil {
		return false
	}
	live.mu.Lock()
	waiting := live.pending[p.RequestID]
	delete(live.pending, p.RequestID)
	live.mu.Unlock()
	if waiting == nil {
		return false
	}
	p.Result.Error = p.Error
	waiting <- p.Result
	return true
}

// wait makes a request id and the channel of its answer.
func (s *session) wait() (id string, answer chan Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id = fmt.Sprintf("%s-request-%d", s.id, s.last)
	answer = make(chan Result, 1)
	s.pending[id] = answer
	return id, answer
}
