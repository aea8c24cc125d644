package copilot

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
	"github.com/tidwall/gjson"
)

// inbox is the Router's side of the connection's reader. Nothing here may block, since one reader
// serves all sessions.
type inbox Router

// Sentences that the model or the CLI is told.
const (
	noSession    = "this session is not served here any more"
	notOurTool   = "this tool is not served here"
	notPermitted = "only the tools that were given with the session may be used"
)

// notify passes an event to its session.
func (b *inbox) notify(method string, params jsontext.Value) {
	if method != methodEvent {
		b.counters.filtered.Add(1)
		return
	}
	// The two members that decide come first in what the CLI sends, so that most of a long event is
	// not parsed.
	head := gjson.GetManyBytes(params, "sessionId", "event.type")
	id, what := head[0].String(), kind(head[1].String())
	r := b.heard(id)
	if !what.relevant() || r == nil && !what.asks() {
		b.counters.filtered.Add(1)
		return
	}
	var p eventParams
	if err := decode(params, &p); err != nil {
		b.counters.malformed.Add(1)
		b.config.Log.Warn().Err(err).Str("session", id).Str("event",
			string(what)).Msg("an event of the CLI could not be read")
		return
	}
	if p.Event.AgentID != "" && !what.asks() {
		b.counters.filtered.Add(1)
		return
	}
	e := event{kind: what, data: p.Event.Data}
	switch what {
	case eventPermission:
		b.decide(id, r, e.data)
	case eventToolCall:
		if !b.ask(r, e) {
			b.conn.post(methodToolResult, toolResultParams{SessionID: id, RequestID: e.data.RequestID, Error: refusal(r, e)})
		}
	case eventDelta:
		e.text = []byte(e.data.DeltaContent)
		e.data.DeltaContent = ""
		b.push(r, e)
	default:
		b.push(r, e)
	}
}

// heard returns the route of the session in an event of the CLI, or nil.
func (b *inbox) heard(id string) *route {
	r, closed := (*Router)(b).route(id)
	switch {
	case r != nil:
		r.touch()
	case !closed:
		b.counters.orphans.Add(1)
	}
	return r
}

// decide answers a request for permission: only the session's own tools are allowed. It is answered
// here and not by the session's reader, which may be behind or gone while the CLI waits.
func (b *inbox) decide(id string, r *route, d eventData) {
	decision := permissionDecision{Kind: "approve-once"}
	if r == nil || d.Permission.Kind != "custom-tool" || !r.tools[d.Permission.ToolName] {
		b.counters.denied.Add(1)
		b.config.Log.Info().Str("session", id).Str("kind", d.Permission.Kind).Str("tool", d.Permission.ToolName).Msg(
			"refused the use of a tool",
		)
		decision = permissionDecision{Kind: "reject", Feedback: notPermitted}
	}
	b.conn.post(methodPermission, permissionParams{SessionID: id, RequestID: d.RequestID, Result: decision})
}

// ask passes a tool call to its session, if the session has that tool.
func (b *inbox) ask(r *route, e event) bool {
	return r != nil && r.tools[e.data.ToolName] && b.push(r, e)
}

// refusal says why a call was not passed on.
func refusal(r *route, e event) string {
	if r != nil && !r.tools[e.data.ToolName] {
		return notOurTool
	}
	return noSession
}

// push queues an event; false means that the session takes no more. A session with an overflowing
// queue (backpressure) is ended in the CLI too.
func (b *inbox) push(r *route, e event) bool {
	what, depth := r.push(e)
	switch what {
	case joined:
		b.counters.coalesced.Add(1)
	case overflow:
		b.counters.slow.Add(1)
		b.config.Log.Warn().Str("session", r.id).Msg("gave up a session whose events nobody reads")
		(*Router)(b).deregister(r)
		b.conn.post(methodAbort, sessionParams{SessionID: r.id})
		b.conn.post(methodDestroy, sessionParams{SessionID: r.id})
	}
	b.counters.deep(depth)
	return what == queued || what == joined
}

// callTool handles tool.call, by which protocol 2 asks for a tool.
func (b *inbox) callTool(id jsonrpc2.ID, params jsontext.Value) {
	var p toolCallParams
	if err := decode(params, &p); err != nil {
		b.counters.malformed.Add(1)
		b.conn.refuse(id, jsonrpc2.CodeInvalidParams, err.Error())
		return
	}
	r := b.heard(p.SessionID)
	e := event{kind: eventToolCall, rpc: &id, data: eventData{ToolCallID: p.ToolCallID, ToolName: p.ToolName,
		Arguments: p.Arguments}}
	if !b.ask(r, e) {
		b.conn.refuse(id, jsonrpc2.CodeInternalError, refusal(r, e))
	}
}

// late handles an answer whose caller has stopped waiting. It closes a session that was created for the
// caller.
func (b *inbox) late(method string, result jsontext.Value, err error) {
	if b.conn.Err() != nil {
		return
	}
	b.counters.late.Add(1)
	if err != nil || method != methodCreate && method != methodResume {
		return
	}
	id := gjson.GetBytes(result, "sessionId").String()
	if r, _ := (*Router)(b).route(id); r == nil && id != "" {
		b.conn.post(methodDestroy, sessionParams{SessionID: id})
	}
}
