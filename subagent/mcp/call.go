package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/memory"
	"mneme/memory/telemetry"
	"mneme/subagent/external"
	"mneme/subagent/loop"
)

// Keys of _meta, beside traceparent.
const (
	metaRun  = "Mneme-Run-Id"
	metaCall = "Mneme-Call-Id"
	metaChat = "Mneme-Chat-Id"
	metaUser = "Mneme-User"
)

// caller is one tool of a server.
type caller struct {
	server *server // nil for one that is not configured
	name   string
	tool   string
}

// elicitationState is the state of a call that asks: the server's own, and the keys of its questions: those that were declined
// without asking a person, and those that were asked.
type elicitationState struct {
	State     string   `json:"request_state,omitempty"`
	Declined  []string `json:"declined,omitempty"`
	Questions []string `json:"asked"`
}

// maxRounds bounds how often one call goes on by itself, with nothing but refusals.
const maxRounds = 3

// Call implements external.Caller.
func (c *caller) Call(ctx context.Context, call external.Call) (external.Returned, error) {
	if c.server == nil {
		return external.Returned{}, fmt.Errorf("No server of tools is called %s.", clip(c.name))
	}
	ctx, cancel := context.WithTimeout(ctx, c.server.config.Timeout)
	defer cancel()
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	params := mcp.CallToolParams{Name: c.tool, Arguments: arguments}
	if err := answers(&params, call); err != nil {
		return external.Returned{}, err
	}
	for round := 1; ; round++ {
		result, err := c.callOnce(ctx, params, call)
		if err != nil {
			return c.failed(ctx, err)
		}
		if !result.NeedsInput() {
			return c.returned(result), nil
		}
		a, state, err := questions(result)
		if err != nil || round > maxRounds {
			return external.Returned{}, fmt.Errorf("The tool %s of the server %s asked for something that it is not given: "+
				"only forms for a person are.", clip(c.tool), c.name)
		}
		for i, q := range a.Questions {
			a.Questions[i].Message = c.server.secrets.Text(q.Message)
		}
		if len(a.Questions) > 0 {
			return external.Returned{Elicitation: a}, nil
		}
		params.RequestState, params.InputResponses = state.State, declined(state)
	}
}

// callOnce makes one request, by a session that is whole. It is made again only where it surely
// did not reach the tool.
func (c *caller) callOnce(ctx context.Context, params mcp.CallToolParams,
	call external.Call) (*mcp.CallToolResult, error) {
	for try := 1; ; try++ {
		session, err := c.server.current(ctx)
		if err != nil {
			return nil, sentenceError{err}
		}
		if err := c.server.permits(c.tool); err != nil {
			return nil, sentenceError{err}
		}
		result, err := session.call(ctx, params, call)
		if err == nil || try > 1 || ctx.Err() != nil ||
			!errors.Is(err, errGone) && !errors.Is(err, mcp.ErrConnectionClosed) {
			return result, err
		}
		session.fail(err)
	}
}

// sentenceError is an error that is a sentence already.
type sentenceError struct{ error }

func (t sentenceError) Unwrap() error { return t.error }

// call makes one request by the session, which it ends with.
func (se *session) call(ctx context.Context, params mcp.CallToolParams, call external.Call) (*mcp.CallToolResult,
	error) {
	se.calls.Add(1)
	defer se.calls.Add(-1)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, toolCall{}, true))
	defer cancel()
	defer context.AfterFunc(se.ctx, cancel)()
	token, done := se.listen(call.Progress)
	defer done()
	params.Meta = mcp.Meta{metaRun: call.Run, metaCall: call.ID, "progressToken": token}
	for key, value := range map[string]string{metaChat: call.Chat, metaUser: call.User} {
		if value != "" {
			params.Meta[key] = value
		}
	}
	if trail := telemetry.FromContext(ctx); trail.Trace != "" {
		params.Meta["traceparent"] = trail.Parent()
	}
	result, err := se.CallTool(ctx, &params)
	if err == nil {
		se.answered.Store(true)
		return result, nil
	}
	switch cause := context.Cause(se.ctx); {
	case cause != nil:
		return nil, errors.Join(broken{cause}, err)
	case se.process != nil && errors.Is(err, io.EOF):
		return nil, broken{errEnded}
	case errors.Is(err, errCut):
		return nil, broken{errCut}
	}
	return nil, err
}

// broken is the end of a session in the midst of a call.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// Bounds of what is told of a call's progress.
const (
	maxProgress     = 100 // texts
	maxProgressText = 500 // bytes of one
)

var tokens atomic.Int64

// listen has progress told of notifications that carry the token, until done is called. One that
// comes while another one is told is dropped.
func (se *session) listen(progress func(string)) (token string, done func()) {
	token = strconv.FormatInt(tokens.Add(1), 10)
	texts, finished := make(chan string, 1), make(chan struct{})
	se.mu.Lock()
	se.progress[token] = func(text string) {
		select {
		case texts <- text:
		default:
		}
	}
	se.mu.Unlock()
	go func() { // until done
		defer close(finished)
		count := 0
		for text := range texts {
			if count++; count <= maxProgress && progress != nil {
				progress(text)
			}
		}
	}()
	return token, func() {
		se.mu.Lock()
		delete(se.progress, token)
		close(texts)
		se.mu.Unlock()
		<-finished
	}
}

// tell passes a notification of progress on to its call.
func (se *session) tell(p *mcp.ProgressNotificationParams) {
	if p == nil {
		return
	}
	token, _ := p.ProgressToken.(string)
	text := se.server.secrets.Text(visible(p.Message))
	switch {
	case text == "" && p.Total > 0:
		text = fmt.Sprintf("%g of %g", p.Progress, p.Total)
	case text == "":
		text = fmt.Sprintf("%g", p.Progress)
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxProgressText)], "")
	se.mu.Lock()
	defer se.mu.Unlock()
	if tell := se.progress[token]; tell != nil {
		tell(text)
	}
}

// failed is what the model is told of a request that brought no result.
func (c *caller) failed(ctx context.Context, err error) (external.Returned, error) {
	var (
		status   statusError
		sentence sentenceError
		rpc      *jsonrpc.Error
		cause    broken
	)
	const unknown = "Whether the tool did its work is not known."
	switch {
	case errors.As(err, &sentence):
		return external.Returned{}, sentence.error
	case errors.As(err, &status) && status.untouched():
		return external.Returned{}, fmt.Errorf("The server %s did not call the tool: %w.", c.name, status)
	case errors.As(err, &status):
		return external.Returned{}, fmt.Errorf("The server %s failed: %w. %s", c.name, status, unknown)
	case errors.Is(err, errRedirected) || errors.Is(err, errNotReached):
		return external.Returned{}, fmt.Errorf("The server %s did not call the tool: %s.", c.name, reasonOf(err))
	case errors.As(err, &cause) && reasonOf(cause) != noProtocol:
		return external.Returned{}, fmt.Errorf("The session with the server %s broke: %s. %s", c.name,
			reasonOf(cause), unknown)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return external.Returned{}, fmt.Errorf("The server %s gave no answer in time. %s (%w)", c.name, unknown, ctx.Err())
	case ctx.Err() != nil:
		return external.Returned{}, fmt.Errorf("The call of the server %s was stopped. %s (%w)", c.name, unknown, ctx.Err())
	case errors.As(err, &rpc) && !internal(rpc):
		return external.Returned{Text: c.text(fmt.Sprintf("error %d: %s", rpc.Code, rpc.Message)), Failed: true}, nil
	}
	return external.Returned{}, fmt.Errorf("The server %s gave an answer that cannot be read. %s", c.name, unknown)
}

// internal says whether an error is one of the SDK's own, and no server's.
func internal(e *jsonrpc.Error) bool { return -32005 <= e.Code && e.Code <= -32003 || e.Code == -32001 }

// text is what a tool said, to be kept.
func (c *caller) text(s string) string { return loop.Cut(c.server.secrets.Text(s), 0) }

// returned is a result as the model is told it.
func (c *caller) returned(r *mcp.CallToolResult) external.Returned {
	var parts []string
	texts := false
	for _, content := range r.Content {
		switch p := content.(type) {
		case *mcp.TextContent:
			parts, texts = append(parts, p.Text), true
		case *mcp.EmbeddedResource:
			if p.Resource != nil && p.Resource.Text != "" {
				parts, texts = append(parts, p.Resource.Text), true
			} else if p.Resource != nil {
				parts = append(parts, notShown("resource "+p.Resource.MIMEType, len(p.Resource.Blob)))
			}
		case *mcp.ImageContent:
			parts = append(parts, notShown(p.MIMEType, len(p.Data)))
		case *mcp.AudioContent:
			parts = append(parts, notShown(p.MIMEType, len(p.Data)))
		case *mcp.ResourceLink:
			parts = append(parts, fmt.Sprintf("[link %s %s, not shown]", clip(p.Name), clip(p.URI)))
		default:
			parts = append(parts, "[a part of an unknown kind, not shown]")
		}
	}
	if !texts && r.StructuredContent != nil {
		if raw, err := memory.EncodeJSON(r.StructuredContent); err == nil {
			parts = append([]string{string(raw)}, parts...)
		}
	}
	return external.Returned{Text: c.text(strings.Join(parts, "\n")), Failed: r.IsError}
}

// notShown describes a part that is no text.
func notShown(kind string, size int) string {
	if size >= 1000 {
		return fmt.Sprintf("[%s, %d kB, not shown]", strings.TrimSpace(clip(kind)), size/1000)
	}
	return fmt.Sprintf("[%s, %d bytes, not shown]", strings.TrimSpace(clip(kind)), size)
}

// questions are what a result asks a person. What no person can be asked here is an error,
// unless it can be declined.
func questions(r *mcp.CallToolResult) (*external.Elicitation, elicitationState, error) {
	a, state := &external.Elicitation{}, elicitationState{State: r.RequestState, Questions: []string{}}
	if len(r.InputRequests) == 0 {
		return nil, state, errors.New("nothing is asked")
	}
	for _, key := range slices.Sorted(maps.Keys(r.InputRequests)) {
		p, ok := r.InputRequests[key].(*mcp.ElicitParams)
		if !ok {
			return nil, state, errors.New("it asks for more than a form")
		}
		schema, err := json.Marshal(p.RequestedSchema)
		if p.URL != "" || p.Mode != "" && p.Mode != "form" || err != nil || !utf8.ValidString(p.Message) {
			state.Declined = append(state.Declined, key)
			continue
		}
		if p.RequestedSchema == nil {
			schema = nil
		}
		state.Questions = append(state.Questions, key)
		a.Questions = append(a.Questions, external.Question{Key: key, Message: visible(p.Message), Schema: schema})
	}
	var err error
	a.State, err = json.Marshal(state)
	return a, state, err
}

// answers puts what a person answered into a call that goes on.
func answers(params *mcp.CallToolParams, call external.Call) error {
	if len(call.State) == 0 && len(call.Answers) == 0 {
		return nil
	}
	var state elicitationState
	if len(call.State) > 0 {
		if err := json.Unmarshal(call.State, &state); err != nil {
			return errors.New("What the tool asked before cannot be read. It was not called again.")
		}
	}
	params.RequestState, params.InputResponses = state.State, declined(state)
	for _, key := range state.Questions {
		var content map[string]any
		if err := json.Unmarshal(call.Answers[key], &content); err != nil || content == nil {
			continue // declined
		}
		params.InputResponses[key] = &mcp.ElicitResult{Action: "accept", Content: content}
	}
	return nil
}

// declined is no to all that was asked.
func declined(state elicitationState) mcp.InputResponseMap {
	responses := mcp.InputResponseMap{}
	for _, key := range slices.Concat(state.Declined, state.Questions) {
		responses[key] = &mcp.ElicitResult{Action: "decline"}
	}
	return responses
}
