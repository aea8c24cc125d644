package apiserver

import (
	"context"
	"errors"

	"mneme/apiserver/api"
	"mneme/memory"
)

// remember has the webmemory that holds the run keep a note.
func remember(at api.MemoryAccess) func(context.Context, memory.RememberRequest) (memory.Note, error) {
	return func(ctx context.Context, q memory.RememberRequest) (memory.Note, error) {
		n, err := at.Remember(ctx, q)
		if _, ok := errors.AsType[*api.Problem](err); err != nil && !ok && ctx.Err() == nil {
			err = errNotKept
		}
		return n, err
	}
}

var errNotKept = errors.New("the chat's memory cannot be reached right now: it was not noted")
