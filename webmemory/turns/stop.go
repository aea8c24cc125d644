package turns

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// This file is about stopping a run: one that goes on is stopped where it is, one that waits is ended as if its waits
// were denied.

// StopRun is POST …/runs/{run}/stop.
func (s *Resumer) StopRun(c *gin.Context) error {
	chat, r, err := s.Registry.Find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	status, err := s.stop(c.Request.Context(), chat, id, r)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if status == webapi.Stopping {
		code = http.StatusAccepted
	}
	return api.Answer(c.Writer, code, webapi.StopStatus{RunID: id, Status: status}, nil)
}

// stop stops a chat's run, which is r if this process has it.
func (s *Resumer) stop(ctx context.Context, chat memory.Chat, id string, r *runs.Run) (status string, err error) {
	if r != nil && r.Expired(0) && !r.Log.Waiting() {
		return webapi.Finished, nil
	}
	open, err := s.Store.Turns.OpenRun(ctx, chat)
	switch {
	case r != nil && !r.Expired(0):
		err = s.stopHere(ctx, r)
	case err == nil && open != nil && open.Run == id:
		err = s.Leaser.stopOpen(ctx, open)
	case err == nil && s.waitsFor(ctx, chat, id):
		return webapi.Finished, s.denyNow(ctx, chat, id, runs.StoppedRun)
	case err == nil:
		record, err := s.Store.Runs.Record(ctx, chat, id)
		if err == nil && record == nil {
			err = problem.ErrUnknownRun
		}
		return webapi.Finished, err
	}
	if errors.Is(err, api.ErrWaits) { // it is about to be suspended
		return webapi.Finished, s.denyNow(ctx, chat, id, runs.StoppedRun)
	}
	if err != nil {
		return "", node.Unreachable(err)
	}
	return webapi.Stopping, nil
}

// stopHere asks the apiserver to end a run; its last events come as ever.
func (s *Resumer) stopHere(ctx context.Context, r *runs.Run) error {
	r.Mu.Lock()
	client := r.Client
	r.Mu.Unlock()
	if client == nil {
		return nil // still waiting for its turn: it is withdrawn when its client leaves
	}
	return client.Stop(ctx, r.ID)
}

// denyNow ends a run that waits, or is about to, and waits until that is done. What does not wait any more is fine.
func (s *Resumer) denyNow(ctx context.Context, chat memory.Chat, id string, why *runs.Denial) error {
	waiting, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for retry := true; retry; retry = s.waitsFor(ctx, chat, id) {
		w, err := s.Leaser.takeTurn(ctx, waiting, chat, "", runs.PlaceLast)
		if err != nil {
			return err
		}
		var prev *runs.Run
		switch {
		case w.Open != nil:
			prev = s.Runner.Resume(w)
		case w.Waiting != nil && w.Waiting.Run == id:
			prev = s.Runner.Deny(w, why)
		default:
			return w.Release(w.End, &s.Log)
		}
		select {
		case <-prev.Done:
		case <-waiting.Done():
			return runs.WaitError(waiting)
		}
	}
	return nil
}

// waitsFor says whether a chat's run waits, as far as can be seen.
func (s *Resumer) waitsFor(ctx context.Context, chat memory.Chat, id string) bool {
	rest, err := s.Store.Suspensions.Rest(ctx, chat)
	return err == nil && rest != nil && rest.Run == id
}
