package apiserver

import (
	"context"
	"errors"

	"mneme/apiserver/api"
	"mneme/memory"
)

// Remember has the webmemory that holds the run keep a note.
func (m chatMemory) Remember(ctx context.Context, q memory.RememberRequest) (memory.Note, error) {
	n, err := m.at.Remember(ctx, m.http, q)
	if _, ok := errors.AsType[*api.Problem](err); err != nil && !ok && ctx.Err() == nil {
		err = errNotKept
	}
	return n, err
}

var errNotKept = errors.New("the chat's memory cannot be reached right now: it was not noted")
