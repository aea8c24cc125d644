package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/note"
	"mneme/subagent/recall"
)

// posted gives the body of a request as it is kept while its run waits: without what is of the
// process that posted it, and without images. It holds on to nothing that the run does not have anyway.
func posted(body api.RunRequest, req master.Request) func() (json.RawMessage, error) {
	body.Memory, body.Resume, body.Context, body.SubagentContexts = nil, nil, nil, nil
	body.Images, body.ImagesBefore = nil, nil // what of them goes on is in the state of the agent that answers
	context, subagents := req.Context, req.Subagents
	return func() (json.RawMessage, error) {
		body.Context = encoded(context)
		body.SubagentContexts = map[memory.Agent][]json.RawMessage{}
		for name, history := range subagents {
			body.SubagentContexts[name] = encoded(history)
		}
		return body.MarshalJSON()
	}
}

func encoded(messages []memory.Message) []json.RawMessage {
	raw := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		raw[i] = m.Encode()
	}
	return raw
}

// resumed makes the request of a run that goes on: as it was posted first, with the memory of
// the webmemory that holds it at this time. The log has its events until then.
func (s *Server) resumed(ctx context.Context, body api.RunRequest) (master.Request, *api.Log, error) {
	resume := master.Resume{State: body.Resume.State, Answers: body.Resume.Answers, Turn: body.Resume.Turn}
	events, err := api.GoOn(body.RunID, s.cfg.Log, body.Resume.Events)
	if err != nil {
		return master.Request{}, nil, api.BadRequest(fmt.Errorf("the events in resume are not the run's: %w", err))
	}
	for _, line := range body.Resume.Events {
		e, err := event.Decode(line)
		if err != nil { // it was decoded before
			return master.Request{}, nil, err
		}
		resume.Events = append(resume.Events, e)
	}
	if n := len(resume.Events); n == 0 || !resume.Events[n-1].Blocking() {
		return master.Request{}, nil, api.BadRequest(errors.New("the events in resume must end with the run's run_waiting"))
	}
	raw, err := resume.Posted()
	if failure, ok := errors.AsType[subagent.Failure](err); ok {
		err = &api.Problem{Status: http.StatusUnprocessableEntity, Code: failure.Code, Message: failure.Message}
	}
	if err != nil {
		return master.Request{}, nil, err
	}
	var first api.RunRequest
	if err := json.Unmarshal(raw, &first); err != nil || first.RunID != body.RunID ||
		first.ChatID.ID() != body.ChatID.ID() {
		return master.Request{}, nil, api.BadRequest(errors.New("the state in resume is not that of this run"))
	}
	first.ChatID, first.Memory, first.ConversationID = body.ChatID, body.Memory, body.ConversationID
	if body.Approved != nil { // in the meantime, too
		first.Approved = body.Approved
	}
	req, err := s.request(first)
	req.Resume = &resume
	if current, err := s.find(body.RunID); err == nil && current.log.Waiting() {
		// run_waiting can be read a moment before the agent returns.
		if err := s.await(ctx, current); err != nil {
			return req, nil, err
		}
	}
	return req, events, err
}

// checkTools says what is wrong with the client's tools beside what Validate does.
func (s *Server) checkTools(body api.RunRequest) error {
	if len(body.Tools) > 0 && body.AgentVersion != master.Version {
		return api.BadRequest(fmt.Errorf("tools are for the agent %q, which %.80q is not", master.Version, body.AgentVersion))
	}
	for _, t := range body.Tools {
		reserved := t.Name == note.ToolName || t.Name == recall.ToolName ||
			slices.ContainsFunc(s.subagents(), func(info api.SubagentInfo) bool { return string(info.Name) == t.Name })
		if reserved {
			return api.BadRequest(fmt.Errorf("the name %q of a tool is taken by a tool or a subagent of the master's: "+
				"give it another one", t.Name))
		}
	}
	return nil
}

// keepTimeout bounds how long a run that is to wait is held up by the gateway.
const keepTimeout = 10 * time.Second

// keepConversation has the gateway keep a conversation until what goes on with its run is over.
// Without it the run goes on all the same, if need be without the model's thinking.
func (s *Server) keepConversation(ctx context.Context, id string, pending []event.Wait) {
	if s.cfg.KeepConversation == nil || id == "" {
		return
	}
	last := 0.0
	for _, w := range pending {
		last = max(last, w.ExpiresAt)
	}
	until := time.UnixMilli(int64(math.Round(last * 1000))).Add(s.cfg.RunTimeout)
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := s.cfg.KeepConversation(ctx, id, until); err != nil {
		s.metrics.unkept.Inc()
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the gateway may forget the conversation of a run that waits")
	}
}
