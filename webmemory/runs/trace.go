package runs

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/tracing"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
)

// TraceRoutes serves traces of runs.
type TraceRoutes struct {
	*node.Core
	Registry  *Registry
	Histories *past.HistoryRoutes
}

// GetTrace handles GET …/runs/{run}/trace. It returns the steps of a run so far, whichever process has the run.
func (s *TraceRoutes) GetTrace(c *gin.Context) error {
	chat, r, err := s.Registry.Find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	if r != nil && !r.accepted() {
		r = nil
	}
	if r != nil && r.Log.Last() == 0 { // it waits for the chat's lease
		return api.Answer(c.Writer, http.StatusOK,
			webapi.Trace{RunID: id, Started: event.Seconds(r.Began), Steps: []webapi.TraceStep{}}, nil)
	}
	var events []event.Event
	if r != nil {
		events = past.WholeLog(r.Logged())
	}
	if len(events) == 0 {
		if events, err = s.logOf(c.Request.Context(), chat, id); err != nil {
			return err
		}
	}
	if len(events) == 0 && node.IsRunID(id) {
		runs := past.RunMessages{id: nil}
		if err := s.Histories.Recollect(c.Request.Context(), chat, runs); err != nil {
			return err
		}
		events = webapi.Retell(id, runs[id])
	}
	trace := webapi.TraceRun(events)
	if trace == nil {
		return problem.ErrUnknownRun
	}
	return api.Answer(c.Writer, http.StatusOK, trace, nil)
}

// logOf returns the log of another process's run, or of a run that ended a while ago. If the log is incomplete, it
// returns nil.
func (s *TraceRoutes) logOf(ctx context.Context, chat memory.Chat, run string) ([]event.Event, error) {
	record, err := s.Store.Runs.Record(ctx, chat, run)
	if err != nil || record == nil || record.Rewound {
		return nil, err
	}
	logs, err := s.Store.Runs.Logs(ctx, chat, run)
	if err != nil {
		return nil, err
	}
	return past.WholeLog(logs[0]), nil
}

// BeginSpan begins a run's span and returns the context for the run's requests. The apiserver and the gateway add spans
// of agents and models below it. previous is the traceparent of the run before it waited; "" for a new run.
func BeginSpan(ctx context.Context, t *tracing.Tracer, r *Run, question, user, previous string) context.Context {
	if t == nil {
		return ctx
	}
	r.span, r.Trail = t.Start(r.Trail, tracing.Begin{Operation: tracing.Workflow, Subject: tracing.Mneme, User: user,
		Link: previous})
	r.span.SetInput(question)
	return r.Trail.In(ctx)
}

// endSpan ends a run's span. If another process has the post's run, the span is not sent.
func endSpan(r *Run) {
	if r.span == nil || r.Log.Last() == 0 && r.Refused == nil {
		return
	}
	outcome, failed := cmp.Or(r.Log.Outcome(), "left"), ""
	switch {
	case r.Refused != nil:
		outcome, failed = event.Failed, problem.FromError(r.Refused).Code
	case r.Log.Waiting():
		outcome = webapi.OutcomeWaiting
	case outcome == event.Failed:
		failed = "run_failed"
	}
	r.span.Set(tracing.Outcome.String(outcome))
	r.span.End(failed)
}

// tracedSink is a run's writer with a span for each appended message.
type tracedSink struct {
	*Writer
	tracer *tracing.Tracer
	run    *Run
}

// Append implements event.Sink.
func (s tracedSink) Append(key memory.Key, seq int64, m memory.Message) error {
	if s.placed { // the message is already stored
		return nil
	}
	span, _ := s.tracer.Start(s.run.Trail, tracing.Begin{Operation: tracing.CreateMemory, Subject: tracing.History})
	if key.Agent() == "" && m.Role == memory.RoleAssistant {
		s.run.span.SetOutput(m.Content)
	}
	err := s.Writer.Append(key, seq, m)
	node.EndMemory(span, 1, err)
	return err
}
