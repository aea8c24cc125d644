package apiserver

import (
	"context"
	"errors"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/note"
)

// Remember has the webmemory that holds the run keep a note.
func (m chatMemory) Remember(ctx context.Context, q note.Quote) (memory.Note, error) {
	n, err := m.at.Remember(ctx, m.http,
		api.RememberRequest{Subagent: q.Agent, OfUser: q.OfUser, Quote: q.Text, Replaces: q.Replaces})
	if _, ok := errors.AsType[*api.Problem](err); err != nil && !ok && ctx.Err() == nil {
		err = errNotKept
	}
	return n, err
}

var errNotKept = errors.New("the chat's memory cannot be reached right now: it was not noted")
