package runs

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
)

// TraceRoutes returns traces of runs.
type TraceRoutes struct {
	*node.Core
	Registry  *Registry
	Histories *past.HistoryRoutes
}

// GetTrace is GET …/runs/{run}/trace: the steps of a run, whichever process has it, as far as it is.
func (s *TraceRoutes) GetTrace(c *gin.Context) error {
	chat, r, err := s.Registry.Find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	if r != nil && !r.accepted() {
		r = nil
	}
	if r != nil && r.Log.Last() == 0 { // it waits for its turn
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

// logOf is the log of another process's run, or of one that ended a while ago; nil where it is not whole.
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
