package apiserver

import (
	"context"
	"errors"

	"mneme/apiserver/api"
	"mneme/memory"
)

// Remember has who holds the run keep a note.
func (m chatMemory) Remember(ctx context.Context, agent memory.Agent, quote, replaces string) (memory.Note, error) {
	n, err := m.at.Remember(ctx, m.http, api.RememberRequest{Subagent: agent, Quote: quote, Replaces: replaces})
	var refused *api.Problem
	if err != nil && !errors.As(err, &refused) && ctx.Err() == nil {
		err = errNotKept
	}
	return n, err
}

var errNotKept = errors.New("the chat's memory cannot be reached right now: it was not noted")
