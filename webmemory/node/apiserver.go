package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"mneme/apiserver/api"
	webapi "mneme/webmemory/api"
)

// HasRun says whether the apiserver refused a run since it has one with this id: the
// post is a repetition of one with a record that Redis has lost.
func HasRun(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.RunConflict
}

// Unreachable is a failure to reach the apiserver in a client's words.
func Unreachable(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Status == http.StatusServiceUnavailable ||
		p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge || HasRun(err)) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents cannot be reached right now; please send the message again.",
	}, err)
}
