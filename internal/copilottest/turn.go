package copilottest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Turn is what happens between a prompt and the session's idle. Its methods are
// called by the script, in one goroutine.
type Turn struct {
	Conn    *Conn
	Session string
	Prompt  string
	// Quiet leaves out what follows the script: the turn never becomes idle.
	Quiet bool

	ctx     context.Context
	session *session
	id      string // of the prompt
	answer  strings.Builder
	count   int // messages and calls
}

// Echo says the prompt back, word by word.
func Echo(t *Turn) {
	t.Say(strings.SplitAfter("echo: "+t.Prompt, " ")...)
}

func (s *Server) send(c *Conn, m Message) {
	var p struct {
		Prompt string `json:"prompt"`
	}
	_ = json.Unmarshal(m.Params, &p)
	live := c.session(m.Session())
	if live == nil {
		c.Refuse(m, codeInternal, "Request session.send failed with message: Session not found for sessionId: "+m.Session())
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	live.mu.Lock()
	live.last++
	t := &Turn{Conn: c, Session: live.id, Prompt: p.Prompt, ctx: ctx, session: live,
		id: fmt.Sprintf("%s-prompt-%d", live.id, live.last)}
	live.abort = cancel
	live.mu.Unlock()
	s.say(live.id, p.Prompt)
	s.mu.Lock()
	script := s.script
	s.mu.Unlock()
	c.Event(live.id, "pending_messages.modified", struct{}{})
	c.Reply(m, object{"messageId": t.id})
	c.Go(func() {
		defer cancel()
		t.begin()
		script(t)
		t.end()
	})
}

func (t *Turn) begin() {
	t.Event("user.message", object{"content": t.Prompt, "messageId": t.id})
	t.Event("assistant.turn_start", object{"turnId": "0"})
	t.Event("model.messages_snapshot", object{"messages": t.Conn.server.Transcript(t.Session)})
}

func (t *Turn) end() {
	t.session.mu.Lock()
	t.session.abort = nil
	clear(t.session.pending)
	t.session.mu.Unlock()
	// A session that was destroyed in the middle of a turn does not become idle.
	if t.Quiet || t.Conn.ctx.Err() != nil || t.Conn.session(t.Session) == nil {
		return
	}
	stopped := t.ctx.Err() != nil
	if stopped {
		t.Event("abort", object{"reason": "user_initiated"})
	} else {
		t.Conn.server.say(t.Session, t.answer.String())
	}
	t.Event("assistant.turn_end", object{"turnId": "0"})
	t.Event("assistant.idle", object{"aborted": stopped})
	t.Event("session.idle", object{"aborted": stopped, "mode": "interactive"})
}

// Event sends an event of the session.
func (t *Turn) Event(what string, data any) { t.Conn.Event(t.Session, what, data) }

// Context ends when the turn is aborted or the connection ends.
func (t *Turn) Context() context.Context { return t.ctx }

// NewID makes an id of this session.
func (t *Turn) NewID(kind string) string {
	t.count++
	return fmt.Sprintf("%s-%s-%d", t.id, kind, t.count)
}

// Delta sends a piece of a message, unless the turn was aborted.
func (t *Turn) Delta(message, text string) {
	if t.ctx.Err() != nil {
		return
	}
	t.Event("assistant.streaming_delta", object{"totalResponseSizeBytes": len(text)})
	t.Event("assistant.message_delta", object{"messageId": message, "deltaContent": text})
}

// Call is a call of a tool that a message asks for.
type Call struct {
	ID        string          `json:"toolCallId"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Type      string          `json:"type"`
}

// Message completes a message.
func (t *Turn) Message(id, content string, calls ...Call) {
	if t.ctx.Err() != nil {
		return
	}
	if calls == nil {
		calls = []Call{}
	}
	t.answer.WriteString(content)
	t.Event("assistant.usage", object{"inputTokens": 10, "outputTokens": 5})
	t.Event("assistant.message", object{"messageId": id, "originatingMessageId": t.id, "content": content,
		"toolRequests": calls})
}

// Say sends a message in pieces and completes it.
func (t *Turn) Say(pieces ...string) {
	id := t.NewID("message")
	t.Event("assistant.message_start", object{"messageId": id})
	for _, p := range pieces {
		t.Delta(id, p)
	}
	t.Message(id, strings.Join(pieces, ""))
}

// Use makes a call with a new id.
func (t *Turn) Use(name, arguments string) Call {
	return Call{ID: t.NewID("call"), Name: name, Arguments: json.RawMessage(arguments), Type: "function"}
}

// Permit asks whether a tool may be used. False also means that the turn ended.
func (t *Turn) Permit(kind string, c Call) (Result, bool) {
	id, answer := t.session.wait()
	t.Event("permission.requested", object{"requestId": id,
		"permissionRequest": object{"kind": kind, "toolCallId": c.ID, "toolName": c.Name}})
	return t.await(answer)
}

// Run has the client run calls, all at once, with permission before each, and
// returns the results. False means that the turn ended.
func (t *Turn) Run(calls ...Call) ([]Result, bool) {
	answers := make([]chan Result, len(calls))
	for i, c := range calls {
		t.Event("tool.execution_start", object{"toolCallId": c.ID})
		if allowed, ok := t.Permit("custom-tool", c); !ok || allowed.Kind != "approve-once" {
			t.Done(c, false)
			continue
		}
		var id string
		id, answers[i] = t.session.wait()
		t.Event("external_tool.requested", object{"requestId": id, "sessionId": t.Session,
			"toolCallId": c.ID, "toolName": c.Name, "arguments": c.Arguments})
	}
	results := make([]Result, len(calls))
	for i, answer := range answers {
		if answer == nil {
			continue
		}
		var ok bool
		if results[i], ok = t.await(answer); !ok {
			return nil, false
		}
		t.Done(calls[i], results[i].Type == "success")
	}
	return results, true
}

// Done ends a call on the CLI's side.
func (t *Turn) Done(c Call, success bool) {
	t.Event("tool.execution_complete", object{"toolCallId": c.ID, "success": success})
}

func (t *Turn) await(answer chan Result) (Result, bool) {
	select {
	case r := <-answer:
		return r, true
	case <-t.ctx.Done():
		return Result{}, false
	}
}

// Fail reports that the turn failed.
func (t *Turn) Fail(kind, text string, status int) {
	e := object{"errorType": kind, "message": text}
	if status != 0 {
		e["statusCode"] = status
	}
	t.Event("session.error", e)
}
