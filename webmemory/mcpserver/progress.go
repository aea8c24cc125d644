package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/memory/event"
)

// heartbeat is how long a client hears nothing of a call that goes on, so that neither it nor a
// proxy in between takes the connection for dead.
const heartbeat = 15 * time.Second

// progress tells a client of a run while it goes on, if the client asked for that with a
// progress token.
type progress struct {
	ctx   context.Context // of the call: by it the SDK finds the stream
	req   *mcp.CallToolRequest
	token any

	mu    sync.Mutex // of who sends
	count float64
	quiet *time.Timer // guarded by mu; nil without a token and after end
}

func newProgress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	p := &progress{ctx: ctx, req: req, token: req.Params.GetProgressToken()}
	if p.token != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.quiet = time.AfterFunc(heartbeat, func() { p.send("The answer is not there yet.", nil) })
	}
	return p
}

// end says that the call is over.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil {
		p.quiet.Stop()
		p.quiet = nil
	}
}

// tell tells of an event that a user would like to see while it waits.
func (p *progress) tell(e event.Event) {
	if text := textOf(e); text != "" {
		p.send(text, mcp.Meta{MetaEvent: e.Role()})
	}
}

func (p *progress) send(text string, meta mcp.Meta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet == nil {
		return
	}
	p.count++
	// A client that cannot be told has left, which ends ctx.
	_ = p.req.Session.NotifyProgress(p.ctx, &mcp.ProgressNotificationParams{
		Meta: meta, ProgressToken: p.token, Progress: p.count, Message: text,
	})
	p.quiet.Reset(heartbeat)
}

// textOf says in a line what an event shows of a run's progress; pieces of text are as they are.
func textOf(e event.Event) string {
	switch p := e.Payload.(type) {
	case *event.Delegation:
		return fmt.Sprintf("%s is asked: %s", e.Subagent, p.Task)
	case *event.ToolProgress:
		return toolText(string(e.Subagent), *p)
	case *event.MasterTool:
		return toolText("master", event.ToolProgress(*p))
	case *event.AssistantDelta:
		return p.Text
	case *event.SubagentDelta:
		return p.Text
	case *event.Completion:
		return fmt.Sprintf("%s is done (%s)", e.Subagent, p.Status)
	case *event.Error:
		return p.Message
	}
	return ""
}

func toolText(who string, p event.ToolProgress) string {
	return fmt.Sprintf("%s, %s: %s", who, p.Tool, cmp.Or(p.Detail, p.Status))
}
