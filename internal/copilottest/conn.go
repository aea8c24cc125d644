package copilottest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// Conn is a client's connection.
type Conn struct {
	Net net.Conn // for faults below the messages

	server *Server
	stream jsonrpc2.ObjectStream
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	mu      sync.Mutex
	calls   int                  // ids of calls by the server
	pending map[int]chan Message // that wait for the client's answer
	live    map[string]*session
	closed  bool
	tasks   sync.WaitGroup
}

// Go runs f beside the connection; its end waits for it.
func (c *Conn) Go(f func()) { c.tasks.Go(f) }

// Close ends the connection.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	_ = c.Net.Close()
}

// Reset ends the connection as a process does that is killed with unread bytes.
func (c *Conn) Reset() {
	if tcp, ok := c.Net.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (c *Conn) serve() {
	defer c.tasks.Wait()
	defer c.Close()
	for {
		var m Message
		if err := c.stream.ReadObject(&m); err != nil {
			return
		}
		handler := c.server.note(m)
		if m.Method == "" {
			c.answered(m)
			continue
		}
		handler(c, m)
	}
}

// Write sends any value as a message. A connection that has ended takes it
// silently, as a socket may.
func (c *Conn) Write(v any) {
	_ = c.stream.WriteObject(v)
}

// Raw writes bytes as they are.
func (c *Conn) Raw(b []byte) { _, _ = c.Net.Write(b) }

// Frame is a frame around a body.
func Frame(body string) []byte {
	return fmt.Appendf(nil, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

// object is a message as JSON, or a part of it.
type object = map[string]any

// Reply answers a call.
func (c *Conn) Reply(m Message, result any) {
	c.Write(object{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

// Refuse answers a call with an error.
func (c *Conn) Refuse(m Message, code int, text string) {
	c.Write(object{"jsonrpc": "2.0", "id": m.ID, "error": object{"code": code, "message": text}})
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params any) {
	c.Write(object{"jsonrpc": "2.0", "method": method, "params": params})
}

// Event sends an event of a session.
func (c *Conn) Event(session, what string, data any) { c.AgentEvent(session, "", what, data) }

// AgentEvent sends an event of an agent under the session's own.
func (c *Conn) AgentEvent(session, agent, what string, data any) {
	e := object{"type": what, "data": data, "id": "event", "timestamp": time.Now().UTC().Format(time.RFC3339Nano)}
	if agent != "" {
		e["agentId"] = agent
	}
	c.Notify("session.event", object{"sessionId": session, "event": e})
}

// Ask calls a method of the client and waits for the answer; false means that the
// connection ended first. It must not be called by a Handler, but by what Go runs.
func (c *Conn) Ask(method string, params any) (Message, bool) {
	got := make(chan Message, 1)
	c.mu.Lock()
	c.calls++
	id := c.calls
	c.pending[id] = got
	c.mu.Unlock()
	c.Write(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	select {
	case m := <-got:
		return m, true
	case <-c.ctx.Done():
		return Message{}, false
	}
}

func (c *Conn) answered(m Message) {
	var id int
	if m.ID == nil || json.Unmarshal(*m.ID, &id) != nil {
		return
	}
	c.mu.Lock()
	got := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if got != nil {
		got <- m
	}
}
