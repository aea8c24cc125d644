package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"mneme/proxy/copilot"
	"mneme/proxy/wire"
)

// RoundTrip implements [http.RoundTripper] for POST …/chat/completions, with JSON or
// a stream as the body asks. What is wrong with a request, a failure of the CLI's
// own model call and a CLI that does not answer are answers of the dialect with a
// status. The error says that there is no connection to the CLI, or that the
// context ended. The context says which conversation it is, see In.
func (m *Model) RoundTrip(hr *http.Request) (*http.Response, error) {
	ctx := hr.Context()
	if hr.Method != http.MethodPost || !strings.HasSuffix(hr.URL.Path, "/chat/completions") {
		return failed(hr, wire.Failure{Status: 404, Message: "a copilot backend serves POST /chat/completions only"}), nil
	}
	var b []byte
	var err error
	if hr.Body != nil {
		b, err = io.ReadAll(hr.Body)
		_ = hr.Body.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	r, err := read(b)
	var refused wire.Failure
	switch {
	case errors.As(err, &refused):
		return failed(hr, refused), nil
	case err != nil:
		return failed(hr, wire.Failure{Status: 400, Code: "bad_json", Message: err.Error()}), nil
	}
	o, ok := ctx.Value(originKey{}).(origin)
	if !ok {
		o = origin{Scope: Scope{Conversation: rand.Text()}, minted: true}
	}
	t, err := m.take(o, r)
	if err != nil {
		return nil, err
	}
	m.claimFor(ctx, t, r)
	a := newAnswer(hr, r)
	go func() { // ends with the turn; Close waits for it
		defer m.tasks.Done()
		m.serve(ctx, t, r, a)
	}()
	return a.wait(ctx)
}

// claimFor makes this process the owner of what it serves now. A request without a
// conversation that was parked elsewhere is told there by its first call's id.
func (m *Model) claimFor(ctx context.Context, t *talk, r *request) {
	if !t.minted {
		m.claim(ctx, t.scope)
		return
	}
	if n := r.answered(); len(t.sums) == 0 && n > 0 {
		if calls := r.messages[n-1].ToolCalls; len(calls) > 0 {
			m.claim(ctx, Scope{t.scope.Tenant, t.scope.Route, calls[0].ID})
		}
	}
}

// serve has a talk answer a request.
func (m *Model) serve(ctx context.Context, t *talk, r *request, a *response) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	err := m.begin(ctx, t, r)
	var out copilot.Outcome
	if err == nil {
		out, err = t.session.Stream(ctx, a.text)
	}
	if err != nil {
		id, refusal := t.id, m.fail(t)
		m.config.Log.Warn().Err(err).Str("session", id).Str("conversation", t.scope.Conversation).Msg(
			"a turn of the Copilot CLI failed",
		)
		a.fail(explain(err, refusal))
		return
	}
	calls := t.hear(r, out)
	next := idle
	if len(calls) > 0 {
		next = parked
		if t.minted {
			m.claim(ctx, t.place())
		}
	}
	m.settle(t, next) // before the client can see the end: its next request may come at once
	a.end(calls, out.Usage)
}

// begin brings a request to the talk's session, or to a fresh one where that is not
// there any more. What follows is Stream.
func (m *Model) begin(ctx context.Context, t *talk, r *request) error {
	if len(t.sums) > 0 {
		err := m.goOn(ctx, t, r)
		if err == nil || ctx.Err() != nil || errors.Is(err, copilot.ErrUnavailable) || t.session != nil &&
			!sessionLost(t.session, err) {
			return err
		}
		m.config.Log.Info().Err(err).Str("session", t.id).Msg("a session of the Copilot CLI is gone")
		m.mu.Lock()
		m.discard(t)
		m.mu.Unlock()
	}
	t.sums, t.calls, t.replayCount = nil, nil, r.answered()
	if t.replayCount > 0 {
		m.replayed.Add(1)
		m.config.Log.Info().Str("conversation", t.scope.Conversation).Int("messages", len(r.messages)).
			Msg("[copilot_replayed] a fresh session of the Copilot CLI is told what was said")
	}
	if err := m.open(ctx, t, r, m.cli.Create); err != nil {
		return err
	}
	return t.session.Send(ctx, r.prompt())
}

// open makes or resumes the talk's session.
func (m *Model) open(ctx context.Context, t *talk, r *request,
	how func(context.Context, copilot.SessionConfig) (*copilot.Session, error)) error {
	ctx, cancel := context.WithTimeout(ctx, m.config.Limits.Connect)
	defer cancel()
	config := copilot.SessionConfig{
		Model: r.model, System: r.systemPrompt(t.replayCount), Tools: r.tools, IDHeader: conversationHeader,
		Provider: &copilot.Provider{Type: "openai", WireAPI: "completions", BaseURL: m.config.BaseURL,
			APIKey: m.config.APIKey},
	}
	s, err := how(ctx, config)
	for try := 1; try < tries && errors.Is(err, copilot.ErrTransportClosed) && ctx.Err() == nil; try++ {
		s, err = how(ctx, config) // this one waits for another connection
	}
	if err != nil {
		return err
	}
	t.session, t.id = s, s.ID()
	m.mu.Lock()
	m.refusals[t.id] = nil
	m.mu.Unlock()
	return nil
}

// tries are how often a session is asked for over connections that end meanwhile.
const tries = 3

// sessionLost reports whether an error means that the session is gone, which it may not
// know yet.
func sessionLost(s *copilot.Session, err error) bool {
	return s.Err() != nil || errors.Is(err, copilot.ErrTransportClosed)
}

// goOn brings new input to the session that has seen all else. A session that the
// CLI has on disk only is resumed; of one with a parked turn that turn is lost.
func (m *Model) goOn(ctx context.Context, t *talk, r *request) error {
	if len(t.calls) > 0 {
		return t.respond(ctx, r)
	}
	if t.session != nil && t.session.Err() == nil {
		// A prompt that may have been taken is not given again, but a session that the
		// CLI has put away in the meantime has taken none.
		if err := t.session.Send(ctx, r.prompt()); !errors.Is(err, copilot.ErrSessionUnknown) {
			return err
		}
	}
	if t.session != nil {
		_ = t.session.Close()
		t.session = nil
	}
	if t.resting != nil { // to close it must not end what is resumed
		<-t.resting
	}
	err := m.open(ctx, t, r, func(ctx context.Context, c copilot.SessionConfig) (*copilot.Session, error) {
		return m.cli.Resume(ctx, t.id, c)
	})
	if err != nil {
		return err
	}
	return t.session.Send(ctx, r.prompt())
}

// respond gives the turn what it waits for.
func (t *talk) respond(ctx context.Context, r *request) error {
	results := r.results()
	for _, c := range t.calls {
		result := copilot.ToolResult{Text: noResult, Failed: true}
		if text, ok := results[c.ours]; ok {
			result = copilot.ToolResult{Text: text}
		}
		// One that the CLI does not wait for any more, such as for a tool that it has
		// ended, keeps no request waiting.
		if err := t.session.RespondTool(ctx, c.its, result); err != nil && !errors.Is(err, copilot.ErrNotPending) {
			return err
		}
	}
	return nil
}

// hear notes what the talk has seen now, and gives the calls as the client gets
// them.
func (t *talk) hear(r *request, out copilot.Outcome) []wire.ChatCall {
	message := wire.ChatMessage{Role: wire.RoleAssistant, Content: wire.ChatText(out.Text)}
	t.calls = nil
	for _, c := range out.Calls {
		id := "call_" + rand.Text()[:24]
		t.calls = append(t.calls, parkedCall{ours: id, its: c.ID})
		message.ToolCalls = append(message.ToolCalls, wire.ChatCall{ID: id, Type: "function", Function: wire.ChatCalled{
			Name: c.Name, Arguments: arguments(c),
		}})
	}
	t.sums = append(r.sums, sumOfMessage(message))
	return message.ToolCalls
}

// arguments of a call are a JSON object as a rule, or a string that holds one.
func arguments(c copilot.ToolCall) string {
	var text string
	switch {
	case c.Arguments.Kind() == '"' && wire.Unmarshal(c.Arguments, &text) == nil:
		return text
	case len(c.Arguments) == 0 || c.Arguments.Kind() == 'n':
		return "{}"
	}
	return string(c.Arguments)
}

// explain turns a failure into what a vendor would have answered, where that says
// more than that there is no connection. A turn that failed since its model call was
// refused is answered by that refusal.
func explain(err error, refusal *Refusal) error {
	var session *copilot.SessionError
	var rpc *copilot.RPCError
	var version *copilot.VersionError
	switch {
	case errors.As(err, &session) && refusal != nil:
		return refusal
	case errors.As(err, &session):
		status := session.Status
		if status < 400 {
			status = http.StatusBadGateway
		}
		return wire.Failure{Status: status, Message: inOurWords(session.Message, status)}
	case errors.Is(err, copilot.ErrHangs):
		return &Refusal{
			Failure:    wire.Failure{Status: http.StatusServiceUnavailable, Message: "the Copilot CLI does not answer"},
			RetryAfter: "10",
		}
	case errors.Is(err, copilot.ErrInactive):
		return wire.Failure{
			Status: http.StatusGatewayTimeout, Message: "the Copilot CLI fell silent in the middle of its answer",
		}
	case errors.Is(err, copilot.ErrUnauthorized):
		return wire.Failure{
			Status:  http.StatusBadGateway,
			Message: "the Copilot CLI refused the connection token: check the backend's api_key_env",
		}
	case errors.As(err, &version):
		return wire.Failure{Status: http.StatusBadGateway, Message: version.Error()}
	case errors.Is(err, copilot.ErrStart):
		return wire.Failure{
			Status: http.StatusBadGateway, Message: "the Copilot CLI does not start; the gateway's log has the cause",
		}
	case errors.As(err, &rpc):
		return wire.Failure{Status: http.StatusBadGateway, Message: "the Copilot CLI refused: " + rpc.Message}
	}
	return err
}

// inOurWords is what the CLI says of a failed turn, without its advice about variables
// of the CLI, which the gateway sets and its users do not have.
func inOurWords(text string, status int) string {
	lines := slices.DeleteFunc(sentence.Split(text, -1), func(s string) bool { return strings.Contains(s, "COPILOT_") })
	if text = strings.TrimSpace(strings.Join(lines, ". ")); text != "" {
		return text
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the backend behind the Copilot CLI (provider_backend) refused its key"
	case http.StatusTooManyRequests:
		return "the backend behind the Copilot CLI (provider_backend) is limiting its callers' rate"
	}
	return "the model call of the Copilot CLI failed"
}

// sentence matches what stands between two sentences.
var sentence = regexp.MustCompile(`\.\s+|\n+`)
